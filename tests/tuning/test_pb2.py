"""PB2: what members gained teaches which hyper-parameters to try."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.tuning import PB2, PBT, RandomSearch
from thespis.tuning.hyper import LogUniform, Uniform, prior


class Hyper(eqx.Module):
    rate: float = prior(1e-2, LogUniform(1e-4, 1), "a rate", low=0)
    weight: float = prior(0.5, Uniform(0, 1), "a weight")


def rounds(tuner, gain, members=4, count=40, given=None, seeds=1):
    """Scores grow by `gain(hps, round)` -> scores, and hypers of all rounds [seeds, ...]."""

    def run(key):
        k_begin, k_rounds = random.split(key)
        hps, memory = tuner.begin(k_begin, Hyper, given or {}, members)
        young = jnp.zeros(members, jnp.int32)

        def one(i, carry):
            hps, memory, score, told, k_rounds = carry
            told = told.at[i].set(jnp.stack([hps.rate, hps.weight], 1))
            score = score + gain(hps, i.astype(jnp.float32))
            key = random.fold_in(k_rounds, i)
            memory, parents, hps = tuner.exchange(memory, key, hps, score[:, None], young)
            return hps, memory, score[parents], told, k_rounds

        told = jnp.zeros((count, members, 2))
        start = hps, memory, jnp.zeros(members), told, k_rounds
        return jax.lax.fori_loop(0, count, one, start)[2:4]

    score, told = jax.jit(jax.vmap(run))(random.split(random.key(0), seeds))
    return np.asarray(score), np.asarray(told)


def drifting(hps, time):
    """The best rate and weight wander."""
    best = 0.5 + 0.4 * jnp.sin(time / 10)
    rate = (jnp.log10(hps.rate) + 4) / 4
    return 1 - 2 * ((rate - best) ** 2 + (hps.weight - (1 - best)) ** 2)


def test_a_drifting_optimum_is_followed_better_than_by_chance():
    pair = {"best": 1, "replaced": 1}
    bandit, pbt, search = (
        rounds(tuner, drifting, seeds=4)[0].max(1).mean()
        for tuner in (PB2(**pair), PBT(**pair), RandomSearch())
    )
    assert bandit > pbt + 0.5
    assert pbt > search + 5


@pytest.fixture(scope="module")
def told():
    """Hypers [seeds, rounds, members, 2] where a rate of 0.1 and a weight of 0.2 gain most."""
    gain = lambda hps, time: -jnp.abs(jnp.log10(hps.rate) + 1) - jnp.abs(hps.weight - 0.2)
    return rounds(PB2(best=1, replaced=2), gain, count=20, seeds=4)[1]


def test_copies_learn_where_the_gain_is(told):
    """After some rounds most of what is tried lies near the best, though priors are wide."""
    late = told[:, 12:]
    assert np.median(np.abs(np.log10(late[..., 0]) + 1)) < 0.3
    assert np.median(np.abs(late[..., 1] - 0.2)) < 0.1


def test_copies_of_one_round_are_told_different_things_inside_their_priors(told):
    for row in told.reshape(-1, 4, 2):
        assert len(np.unique(row[:, 0])) == len(np.unique(row[:, 1])) == 4
        assert row[:, 0].min() >= np.float32(1e-4)
        assert row.max() <= 1


def test_what_is_given_stays():
    _, told = rounds(PB2(best=1, replaced=2), drifting, count=4, given={"weight": 0.25})
    np.testing.assert_array_equal(told[..., 1], 0.25)
    assert len(np.unique(told[0, :, :, 0])) > 6


def test_the_gain_of_a_copy_counts_from_its_parents_score():
    t = PB2(best=1, replaced=1)
    hps, memory = t.begin(random.key(0), Hyper, {}, 3)
    learn = jax.jit(t.learn)
    memory = learn(memory, hps, np.float32([1, 5, 9]), np.int32([2, 1, 2]))
    assert not np.any(memory.known)  # nobody has a past yet
    memory = learn(memory, hps, np.float32([10, 4, np.nan]), np.int32([0, 1, 0]))
    np.testing.assert_array_equal(memory.gain[1], [1, -1, 0])
    np.testing.assert_array_equal(memory.known[1], [True, True, False])
    np.testing.assert_array_equal(memory.last, [10, 4, 10])


def test_a_member_is_healed_without_a_judgement():
    """As a run does between rounds: with nobody to replace."""
    t = PB2(best=4, replaced=0)
    hps, memory = t.begin(random.key(0), Hyper, {}, 4)
    given = np.float32([[0], [np.nan], [0], [0]]), np.zeros(4, np.int32)
    _, parents, new = jax.jit(t.exchange)(memory, random.key(1), hps, *given)
    parents, before, after = (np.asarray(x) for x in (parents, hps.rate, new.rate))
    assert parents[1] != 1
    assert after[1] != before[parents[1]]
    np.testing.assert_array_equal(parents[[0, 2, 3]], [0, 2, 3])
