"""A population that tunes itself beats one that does not; see also the toy in tests/tuning."""

import numpy as np
import pytest

from tests.slow.typed import train
from thespis.tuning import PBT, RandomSearch

pytestmark = pytest.mark.slow

SEEDS = range(0, 24, 8)  # of the first of eight members


def returns(tmp_path, tuner, seed):
    """The mean return of every member at the end."""
    small = {"hidden": (64, 64), "batch_size": 64, "out": tmp_path}
    given = small | {"steps": 20_000, "members": 8, "seed": seed, "eval_freq": 1000}
    run = train("sac", env="jax:pendulum", pbt=tuner, **given)
    return np.array(run.evaluate(episodes=100)["returns"]).mean(1)


def test_pbt_solves_the_pendulum_from_wide_priors_and_beats_random_search(tmp_path):
    tuned = np.array([returns(tmp_path, PBT(), seed) for seed in SEEDS])
    searched = np.array([returns(tmp_path, RandomSearch(), seed) for seed in SEEDS])
    assert (tuned.max(1) >= -180).all(), tuned
    medians = np.median(tuned, 1), np.median(searched, 1)
    assert np.mean(medians[0]) > np.mean(medians[1]), medians
