"""Multi-frequency PBT: sub-populations, migration, and that the greedy do not take over."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.core import ThespisError
from thespis.tuning import PBT, MultiFrequencyPBT, RandomSearch
from thespis.tuning.hyper import LogUniform, prior


class Hyper(eqx.Module):
    rate: float = prior(0.5, LogUniform(1e-3, 1), "a rate", low=0)


def one_round(t, scores, number):
    """-> parents, rates before and after, of the round with this number."""
    scores = np.asarray(scores, np.float32)[:, None]
    hps, after, parents, new = round_of(t)(scores, np.int32(number - 1))
    assert after.round == number
    return np.asarray(parents), np.asarray(hps.rate), np.asarray(new.rate)


@cache
def round_of(t):
    """A beginning and an exchange, as one program."""

    @jax.jit
    def play(scores, before):
        hps, memory = t.begin(random.key(0), Hyper, {}, len(scores))
        memory = eqx.tree_at(lambda m: m.round, memory, before)
        young = jnp.zeros(len(scores), jnp.int32)
        return hps, *t.exchange(memory, random.key(1), hps, scores, young)

    return play


HASTY, STEADY = range(4), range(4, 8)
T = MultiFrequencyPBT(frequencies=(1, 5))


def test_each_sub_population_exchanges_at_its_own_interval():
    scores = [8, 7, 6, 5, 4, 3, 2, 1]
    parents, *_ = one_round(T, scores, 1)
    np.testing.assert_array_equal(parents, [0, 1, 2, 0, 4, 5, 6, 7])
    parents, *_ = one_round(T, scores, 5)
    np.testing.assert_array_equal(parents, [0, 1, 2, 0, 4, 5, 0, 4])


def test_the_worst_copy_the_best_of_their_own_and_explore():
    parents, before, after = one_round(T, [8, 7, 6, 5, 14, 13, 12, 11], 5)
    assert (parents[3], parents[7]) == (0, 4)
    for copy, parent in ((3, 0), (7, 4)):
        assert after[copy] not in before
        assert after[parent] == before[parent]


def test_migrants_bring_their_hypers_only_if_these_were_tried_for_longer():
    # From the steady to the hasty: networks and hypers.
    parents, before, after = one_round(T, [8, 7, 6, 5, 14, 13, 12, 11], 1)
    assert parents[2] == 4
    assert after[2] == before[4]
    # From the hasty to the steady: networks, with the hypers of the best of one's own.
    parents, before, after = one_round(T, [14, 13, 12, 11, 8, 7, 6, 5], 5)
    assert parents[6] == 0
    assert after[6] == before[4]


def test_nobody_gives_way_to_what_is_worse():
    parents, *_ = one_round(T, [14, 13, 12, 11, 8, 7, 6, 5], 1)
    assert parents[2] == 2


def test_several_give_way_to_several():
    scores = [*range(8, 0, -1), *range(18, 10, -1)]
    parents, *_ = one_round(T, scores, 1)
    np.testing.assert_array_equal(parents[:6], [0, 1, 2, 3, 8, 9])
    assert set(parents[6:8]) <= {0, 1}


def test_the_broken_are_replaced_at_any_time_and_copy_anybody():
    scores = [8, 7, np.nan, 5, 4, np.nan, 2, 1]
    parents, *_ = one_round(T, scores, 1)
    finite = {0, 1, 3, 4, 6, 7}
    assert {parents[2], parents[5]} <= finite
    assert set(parents[[0, 1, 3, 4, 6, 7]]) <= finite
    parents, *_ = one_round(MultiFrequencyPBT(best=8, replaced=0), scores, 5)  # healed
    np.testing.assert_array_equal(parents[[0, 1, 3, 4, 6, 7]], [0, 1, 3, 4, 6, 7])
    assert {parents[2], parents[5]} <= finite


@pytest.mark.parametrize(
    ("given", "members", "words"),
    [
        ({}, 7, "7 members can be divided"),
        ({"frequencies": (1, 2, 4)}, 8, "can be divided"),
        ({"frequencies": (0, 2)}, 8, "numbers from 1 on"),
        ({"frequencies": (1, 2, 4, 8)}, 8, "too few"),
        ({"exploit": "t-test"}, 8, "choose truncation"),
    ],
)
def test_impossible_choices_are_refused(given, members, words):
    with pytest.raises(ThespisError, match=words):
        MultiFrequencyPBT(**given).check(Hyper, members, 10)


def climb(tuner, members=8, rounds=800):
    """Noisy descent into a long valley -> the best score of each of 16 seeds.

    A small rate calms the noise of the steep direction at once; it takes a large one, for long,
    to come anywhere along the flat direction.
    """
    curvature = jnp.array([[1.0, 0.01]])
    score = lambda x: -(curvature * x**2).sum(1)

    def run(key):
        k_begin, k_rounds, k_noise = random.split(key, 3)
        hps, memory = tuner.begin(k_begin, Hyper, {}, members)

        def one(i, carry):
            hps, memory, x, k_rounds, k_noise = carry
            noise = random.normal(random.fold_in(k_noise, i), (2, members))
            for step in noise:
                push = x + jnp.stack([step, jnp.zeros(members)], 1)
                x = x - hps.rate[:, None] * curvature * push
            young, key = jnp.zeros(members, jnp.int32), random.fold_in(k_rounds, i)
            memory, parents, hps = tuner.exchange(memory, key, hps, score(x)[:, None], young)
            return hps, memory, x[parents], k_rounds, k_noise

        start = hps, memory, jnp.full((members, 2), 10.0), k_rounds, k_noise
        return score(jax.lax.fori_loop(0, rounds, one, start)[2]).max()

    return np.asarray(jax.jit(jax.vmap(run))(random.split(random.key(0), 16)))


def test_greed_falls_behind_random_search_in_the_long_run_and_two_frequencies_do_not():
    multi = climb(MultiFrequencyPBT(frequencies=(1, 20), explore="perturb"))
    greedy, search = climb(PBT(explore="perturb")), climb(RandomSearch())
    assert np.median(multi) > np.median(search) > np.median(greedy)
