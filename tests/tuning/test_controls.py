"""The controls: a random search, and no tuning at all."""

import jax
import numpy as np

from tests.tuning.rounds import Hyper, begin, exchange
from thespis.tuning import (
    PBT,
    NoTuning,
    RandomSearch,
    hyper,
)


def test_the_random_search_begins_like_pbt_and_no_tuning_with_the_defaults():
    jax.tree.map(np.testing.assert_array_equal, begin(PBT())[0], begin(RandomSearch())[0])
    hps, _ = begin(NoTuning(), given={"rate": 1e-3})
    jax.tree.map(np.testing.assert_array_equal, hps, hyper.fill(Hyper, {"rate": 1e-3}, 8))


def test_the_random_search_keeps_what_it_drew():
    parents, before, after = exchange(RandomSearch(), np.arange(8.0))
    np.testing.assert_array_equal(parents, range(8))
    np.testing.assert_array_equal(before, after)


def test_what_broke_in_a_random_search_is_drawn_again():
    scores = np.arange(8.0)
    scores[3] = np.nan
    parents, before, after = exchange(RandomSearch(), scores, given={"gamma": 0.9})
    assert parents[3] != 3
    assert (after[3, [0, 2, 3]] != before[3, [0, 2, 3]]).all()
    assert not np.isin(after[3, [0, 2, 3]], before).any()
    others = [i for i in range(8) if i != 3]
    np.testing.assert_array_equal(before[others], after[others])
    np.testing.assert_array_equal(after[:, 1], np.float32([0.9] * 8))
