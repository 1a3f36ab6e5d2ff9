"""What all tuners share: beginnings, what is given, priors of one's own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.tuning.rounds import Hyper, begin, exchange, fails
from thespis import tuning
from thespis.tuning import (
    PBT,
    TUNERS,
    NoTuning,
    RandomSearch,
    tuner,
)
from thespis.tuning.hyper import Uniform


def test_members_begin_with_draws_from_the_priors_but_what_is_given_stays():
    hps, _ = begin(PBT(), given={"gamma": 0.9, "entropy": tuple(range(-8, 0))})
    assert len(np.unique(hps.rate)) == len(np.unique(hps.start)) == 8
    assert hps.rate.min() >= 1e-5
    assert hps.rate.max() <= 1e-2
    np.testing.assert_array_equal(hps.gamma, np.float32([0.9] * 8))
    np.testing.assert_array_equal(hps.entropy, range(-8, 0))


def test_what_is_not_tuned_has_its_default():
    hps, _ = begin(PBT(tuned=("rate",)))
    assert len(np.unique(hps.rate)) == 8
    np.testing.assert_array_equal(hps.gamma, np.float32([0.99] * 8))


def test_every_beginning_gives_hypers_of_one_type():
    """Else another tuner would compile another program."""
    for kind in TUNERS.values():
        for leaf in jax.tree.leaves(begin(kind(), given={"gamma": 1})[0]):
            assert (leaf.shape, leaf.dtype, leaf.weak_type) == ((8,), jnp.float32, False)


def test_a_tuner_says_what_it_may_change():
    assert PBT().tunes(Hyper, {"gamma": 0.9}) == ["rate", "entropy"]
    assert PBT(tuned=("start", "gamma")).tunes(Hyper, {}) == ["start", "gamma"]
    assert RandomSearch().tunes(Hyper, {"gamma": 0.9}) == ["rate", "entropy", "start"]
    assert NoTuning().tunes(Hyper, {}) == []


@pytest.mark.parametrize("name", TUNERS)
def test_what_is_given_stays_with_the_members_number(name):
    """Also where everybody else is replaced; who broke takes over what its parent was given."""
    t, each = tuner(name), tuple(np.linspace(-2, 0, 8).tolist())
    chosen = {"gamma": 0.9, "entropy": each}
    hps, memory = begin(t, given=chosen)
    scores, age = np.float32([[np.nan], *([i] for i in range(7))]), np.full(8, 10**6, np.int32)
    play = jax.jit(lambda *x: tuning.decide(t, chosen, *x))
    for key in random.split(random.key(1), 2):
        known = memory, key, hps, scores, age
        before = np.asarray(hps.entropy)
        memory, parents, hps = play(*known)
        assert parents[0] != 0
        np.testing.assert_array_equal(hps.gamma, np.float32([0.9] * 8))
        np.testing.assert_array_equal(hps.entropy[1:], np.float32(each[1:]))
        takes_over = name not in ("random", "none")  # whose members keep all that they have
        assert hps.entropy[0] == before[parents[0] if takes_over else 0]
    assert tuning.varying(t, Hyper, chosen) == [*t.tunes(Hyper, chosen), "entropy"]


def test_a_prior_of_ones_own():
    for tuned in (("gamma=uniform:0.5:0.6",), {"gamma": Uniform(0.5, 0.6)}):
        t = PBT(tuned=tuned, best=1, replaced=7, explore="resample")
        _, before, after = exchange(t, [1, 0, 0, 0, 0, 0, 0, 0])
        for hps in (before, after):
            assert hps[:, 1].min() >= np.float32(0.5)
            assert hps[:, 1].max() <= np.float32(0.6)
        assert (after[1:, 1] != before[0, 1]).all()
        assert (after[:, 0] == before[0, 0]).all()


def test_an_unknown_name_suggests_its_neighbour():
    for t in (PBT(tuned=("gama",)), RandomSearch(tuned=("gama",))):
        with fails("gama", "did you mean gamma?"):
            t.check(Hyper, 8, 10)


@pytest.mark.parametrize(
    "text", ["uniform:0.9", "uniform:1:0.9", "normal:0:1", "log:0:1", "uniform:a:b", "log:1:inf"]
)
def test_a_prior_that_is_none_is_refused(text):
    with fails("gamma", "KIND:LOW:HIGH"):
        PBT(tuned=(f"gamma={text}",)).check(Hyper, 8, 10)


def test_a_prior_beyond_what_is_legal_is_refused():
    with fails("gamma = 1.5", "out of range"):
        PBT(tuned=("gamma=uniform:0.5:1.5",)).check(Hyper, 8, 10)


@pytest.mark.parametrize("kind", TUNERS.values())
def test_a_round_returns_what_it_says_in_one_program(kind):
    """Memory as it was given in shape and type, parents [members], hypers: and compiles once."""
    t, traces = kind(), []

    @jax.jit
    def round_(memory, key, hps, scores, age):
        traces.append(1)
        return t.exchange(memory, key, hps, scores, age)

    hps, memory = begin(t)
    shape = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
    for i in range(3):
        scores = np.random.default_rng(i).normal(size=(8, 4)).astype(np.float32)
        age = np.full(8, i, np.int32)
        new, parents, after = round_(memory, random.key(i), hps, scores, age)
        assert shape(new) == shape(memory)
        assert (parents.shape, parents.dtype) == ((8,), jnp.int32)
        assert shape(after) == shape(hps)
        memory, hps = new, after
    assert len(traces) == 1


def test_a_tuner_can_be_written_down_and_read_again():
    """In config.json: all fields are numbers, text or lists of them."""
    t = PBT(tuned={"gamma": Uniform(0.9, 1), "rate": None}, min_age=7, replay="parent")
    assert PBT(**dataclasses.asdict(t)) == t
    assert t.tuned == ("gamma=uniform:0.9:1", "rate")
