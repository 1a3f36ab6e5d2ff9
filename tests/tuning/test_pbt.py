"""Tuners: who is replaced, by whom, and with which hyper-parameters."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

from tests.tuning.rounds import NAMES, Hyper, exchange, fails
from thespis.algos import SAC, TD3
from thespis.tuning import (
    PBT,
    NoTuning,
    RandomSearch,
    better,
    hyper,
    preset_hp,
    priors,
    tuner,
)
from thespis.tuning.hyper import Uniform, prior

# --- truncation -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "best", "replaced", "expected"),
    [
        (8, 0.25, 0.25, (2, 2)),
        (10, 0.2, 0.4, (2, 4)),
        (100, 0.29, 0.57, (29, 57)),  # which in binary are a little less
        (3, 0.25, 0.25, (1, 1)),  # at least one
        (2, 0.5, 0.5, (1, 1)),
        (8, 3, 5, (3, 5)),
        (8, 1, 0, (1, 0)),
        (8, 0, 0, (0, 0)),
    ],
)
def test_counts_and_fractions(members, best, replaced, expected):
    assert PBT(best=best, replaced=replaced).counts(members) == expected


@pytest.mark.parametrize(
    ("members", "best", "replaced"), [(4, 3, 2), (10, 0.6, 0.5), (1, 0.25, 0.25), (4, 5, 0)]
)
def test_more_best_and_replaced_than_members_are_refused(members, best, replaced):
    """All counts are of the whole population, wherever its members are."""
    with fails("best", "replaced", f"{members} members"):
        PBT(best=best, replaced=replaced).check(Hyper, members, 10)


def test_nobody_to_copy_is_refused():
    with fails("best = 0", "nobody to copy"):
        PBT(best=0, replaced=1).check(Hyper, 4, 10)


@pytest.mark.parametrize(
    "given",
    [
        {"best": -1},
        {"replaced": 1.5},
        {"resample": 2},
        {"min_age": -1},
        {"factors": (0, 1)},
        {"factors": ()},
    ],
)
def test_impossible_choices_are_refused(given):
    (name,) = given
    with fails(name):
        PBT(**given)


def test_nobody_is_replaced_if_zero_are():
    parents, before, after = exchange(PBT(best=0, replaced=0), np.arange(8.0))
    np.testing.assert_array_equal(parents, range(8))
    np.testing.assert_array_equal(before, after)


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.one_of(st.integers(-5, 5), st.just(math.nan)), min_size=8, max_size=8),
    st.integers(0, 99),
)
def test_the_worst_become_copies_of_the_best(scores, seed):
    best, replaced = 2, 3
    t, scores = PBT(best=best, replaced=replaced), np.array(scores, float)
    parents, before, after = exchange(t, scores, seed=seed)
    finite = np.isfinite(scores)
    order = np.argsort(-np.where(finite, scores, -np.inf), kind="stable")
    pool = {i for i in order[:best] if finite[i]}
    out = (set(order[-replaced:]) | set(np.flatnonzero(~finite))) if pool else set()
    assert {i for i in range(8) if parents[i] != i} == out
    assert {parents[i] for i in out} <= pool
    stayed = sorted(set(range(8)) - out)
    np.testing.assert_array_equal(before[stayed], after[stayed])


def test_only_copies_change_their_hypers_and_only_what_is_tuned():
    parents, before, after = exchange(PBT(), np.arange(8.0), given={"gamma": 0.9})
    changed = parents != np.arange(8)
    assert changed.tolist() == [True] * 2 + [False] * 6
    np.testing.assert_array_equal(before[2:], after[2:])
    assert (after[:2, [0, 2]] != before[parents[:2]][:, [0, 2]]).all()
    np.testing.assert_array_equal(after[:, 1], before[:, 1])


def test_what_has_its_effect_at_the_start_is_inherited_and_not_explored():
    parents, before, after = exchange(PBT(), np.arange(8.0))
    np.testing.assert_array_equal(after[:, 3], before[parents, 3])
    parents, before, after = exchange(PBT(tuned=("start",)), np.arange(8.0))
    assert (after[:2, 3] != before[parents[:2], 3]).all()  # unless it is asked for


def test_the_pool_of_parents_grows_with_the_population():
    scores = np.arange(8.0)
    for best in (1, 2, 4):
        t = PBT(best=best / 8, replaced=0.5)
        found = {p for seed in range(6) for p in exchange(t, scores, seed=seed)[0][:4]}
        assert found == set(range(8 - best, 8))


def test_another_round_draws_other_parents():
    t, scores = PBT(best=4, replaced=4), np.arange(8.0)
    one, same, other = (exchange(t, scores, seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_the_mean_of_many_scores_decides():
    scores = np.repeat(np.arange(1.0, 9)[:, None], 2, 1)
    scores[4] = 100, -100
    parents, *_ = exchange(PBT(best=1, replaced=1), scores)
    np.testing.assert_array_equal(parents, [0, 1, 2, 3, 7, 5, 6, 7])


def test_the_young_are_not_replaced():
    t = PBT(best=2, replaced=2, min_age=100)
    parents, *_ = exchange(t, np.arange(8.0), age=[99, 100, 0, 0, 0, 0, 0, 0])
    assert parents[0] == 0
    assert parents[1] in (6, 7)


def test_all_that_are_broken_are_replaced_however_many_and_young():
    scores = np.array([1.0, np.nan, np.inf, 4, -np.inf, np.nan, 2, 3])
    for t in (
        PBT(best=1, replaced=1, min_age=100),
        PBT(best=0, replaced=0),
        RandomSearch(),
        NoTuning(),
    ):
        parents, *_ = exchange(t, scores, age=0)
        assert parents[[0, 3, 6, 7]].tolist() == [0, 3, 6, 7]
        assert set(parents[[1, 2, 4, 5]]) <= {0, 3, 6, 7}


def test_where_all_are_broken_nobody_is_a_parent():
    for t in (PBT(), PBT(exploit="t-test"), RandomSearch(), NoTuning()):
        parents, before, after = exchange(t, np.full((8, 2), np.nan))
        np.testing.assert_array_equal(parents, range(8))
        np.testing.assert_array_equal(before, after)


def test_one_bad_score_of_many_is_enough():
    scores = np.arange(16.0).reshape(8, 2)
    scores[7, 0] = np.inf
    assert exchange(PBT(best=1, replaced=1), scores)[0][7] == 6


# --- the t-test -----------------------------------------------------------------------------


def test_significance_is_welchs():
    rng = np.random.default_rng(0)
    a = rng.normal(rng.normal(1, 1, (200, 1)), 1, (200, 6)).astype(np.float32)
    b = rng.normal(0, rng.uniform(0.1, 3, (200, 1)), (200, 6)).astype(np.float32)
    wanted = scipy.stats.ttest_ind(a, b, axis=1, equal_var=False)
    expected = (wanted.statistic > 0) & (wanted.pvalue < 0.05)
    assert 20 < expected.sum() < 180
    np.testing.assert_array_equal(jax.jit(better)(a, b, 0.05), expected)


def test_scores_without_a_spread_are_compared_as_they_are():
    x, y = np.float32([[1] * 3] * 2), np.float32([[1] * 3, [2] * 3])
    np.testing.assert_array_equal(jax.jit(better)(y, x, 0.05), [False, True])


def test_a_difference_by_chance_is_no_reason_to_copy():
    rng = np.random.default_rng(0)
    copied = lambda scores, seed: exchange(PBT(exploit="t-test"), scores, seed=seed)[0] != range(8)
    alike = [copied(rng.normal(size=(8, 10)), seed).mean() for seed in range(10)]
    assert np.mean(alike) < 0.08
    apart = [copied(rng.normal(size=(8, 10)) + 9 * np.arange(8)[:, None], s) for s in range(10)]
    assert not np.any(apart, 0)[7]  # the best stays
    assert np.mean(apart, 0)[0] == 1  # the worst always finds a better one


def test_the_t_test_replaces_the_broken_and_spares_the_young():
    scores = np.random.default_rng(0).normal(size=(8, 10)) + 9 * np.arange(8)[:, None]
    scores[5] = np.nan
    parents, *_ = exchange(PBT(exploit="t-test", min_age=10), scores, age=[0] * 4 + [10] * 4)
    np.testing.assert_array_equal(parents[:4], range(4))
    assert parents[5] != 5
    assert 5 not in parents


def test_the_t_test_needs_several_scores():
    with fails("t-test", "2 or more", "eval_episodes"):
        PBT(exploit="t-test").check(Hyper, 8, 1)
    with fails("t-test", "2 or more"):
        exchange(PBT(exploit="t-test"), np.arange(8.0))


# --- exploration ----------------------------------------------------------------------------


def clones(members=1001, explore="perturb", **given):
    """Hypers of copies and of their parents, by name."""
    t = PBT(best=1, replaced=members - 1, explore=explore, **given)
    scores = np.zeros(members)
    scores[0] = 1
    parents, before, after = exchange(t, scores)
    assert (parents == 0).all()
    return dict(zip(NAMES, zip(before[0], after[1:].T, strict=True), strict=True))


def test_copies_of_one_parent_differ_from_it_and_from_each_other_at_once():
    for explore in ("perturb", "resample", "both"):
        for name in ("rate", "gamma", "entropy"):
            old, new = clones(8, explore)[name]
            assert len({old, *new}) == 8, (explore, name)


def test_exploration_acts_in_the_coordinates_of_the_prior():
    """A discount of 0.99 becomes 0.992 or 0.9875, not 1.2375; a line moves by part of its range."""
    hps = hyper.fill(Hyper, {}, 1000)
    new = jax.jit(PBT(explore="perturb").vary)(random.key(0), hps)
    same = lambda x: x
    for name, log in (("rate", np.log), ("gamma", lambda x: np.log1p(-x)), ("entropy", same)):
        before, after = (log(np.asarray(getattr(x, name), np.float64)) for x in (hps, new))
        moved = np.abs(after - before)  # the range of the entropy has a width of 2
        assert 0.49 * np.log(1.25) < moved.min() < 0.52 * np.log(1.25)
        assert 1.48 * np.log(1.25) < moved.max() < 1.51 * np.log(1.25)
        assert 0.4 < (after > before).mean() < 0.6


def test_a_perturbed_value_stays_inside_its_prior_and_does_not_stick_to_its_end():
    hps = hyper.fill(Hyper, {"rate": 1e-2, "gamma": 0.999, "entropy": 0.0}, 2000)
    new = jax.jit(PBT(explore="perturb", factors=(0.5, 2)).vary)(random.key(0), hps)
    for name, (low, high) in {
        "rate": (1e-5, 1e-2),
        "gamma": (0.9, 0.999),
        "entropy": (-2, 0),
    }.items():
        x = np.asarray(getattr(new, name))
        assert x.min() >= np.float32(low)
        assert x.max() <= np.float32(high)
        assert len(np.unique(x)) > 1500


def test_resampling_draws_from_the_prior():
    for name, log in (("rate", np.log10), ("gamma", lambda x: np.log10(1 - x))):
        _, new = clones(explore="resample")[name]
        at = log(np.float64(new))
        low, high = {"rate": (-5, -2), "gamma": (-3, -1)}[name]
        counts, _ = np.histogram(at, 5, (low - 1e-3, high + 1e-3))
        np.testing.assert_allclose(counts, 200, rtol=0.25)


def test_both_ways_of_exploring_are_mixed_by_their_probability():
    old, new = clones(explore="both", resample=0.3)["rate"]
    near = np.abs(np.log(new / old)) < 1.51 * np.log(1.25)
    by_chance = 2 * 1.51 * np.log(1.25) / np.log(1e3)
    assert abs(near.mean() - (0.7 + 0.3 * by_chance)) < 0.05


# --- the originals --------------------------------------------------------------------------

RATE = Uniform(3e-5, 3e-3)
ORIGINAL = {
    SAC: {
        "actor_lr": RATE,
        "critic_lr": RATE,
        "alpha_lr": RATE,
        "gamma": Uniform(0.9, 1),
        "reward_scale": Uniform(0.1, 10),
    },
    TD3: {
        "actor_lr": RATE,
        "critic_lr": RATE,
        "gamma": Uniform(0.9, 1),
        "noise_clip": Uniform(0, 1),
        "target_noise": Uniform(0, 1),
        "noise": Uniform(0, 0.2),
    },
}


@pytest.mark.parametrize(("algorithm", "expected"), ORIGINAL.items())
def test_the_preset_tunes_what_the_originals_tune(algorithm, expected):
    preset = algorithm.presets["qdax"]
    t = tuner("pbt", **preset["pbt"])
    assert priors(algorithm.Hyper, t.tuned) == expected
    assert (t.explore, t.replay, t.optimizer) == ("resample", "parent", "parent")
    assert not set(preset_hp(preset)) & set(expected)


def test_every_rate_and_scale_is_tuned_by_default():
    for algorithm in (SAC, TD3):
        names = PBT().tunes(algorithm.Hyper, {})
        assert {"reward_scale", "tau", "gamma", "actor_lr", "critic_lr"} <= set(names)
    assert "alpha" not in PBT().tunes(SAC.Hyper, {})  # the temperature is learned


# --- the paper's toy ------------------------------------------------------------------------


class Weights(eqx.Module):
    first: float = prior(1.0, Uniform(0, 1), "weight of the first parameter")
    second: float = prior(1.0, Uniform(0, 1), "weight of the second")


def toy(tuner, rounds=20, explore_all=False):
    """Two members climb 1.2 - w0 x0² - w1 x1², but are judged by 1.2 - x0² - x1².

    -> the best of them, for each of five seeds.
    """
    score = lambda x: 1.2 - (x**2).sum(1)

    def one(i, carry):
        x, memory, hps, k_rounds = carry
        key = random.fold_in(k_rounds, i)
        for _ in range(4):
            x = x - 0.04 * jnp.stack([hps.first, hps.second], 1) * x
        if explore_all:
            return x, memory, PBT(explore="perturb").vary(key, hps), k_rounds
        age = jnp.zeros(2, jnp.int32)
        memory, parents, hps = tuner.exchange(memory, key, hps, score(x)[:, None], age)
        return x[parents], memory, hps, k_rounds

    def run(key):
        k_begin, k_rounds = random.split(key)
        _, memory = tuner.begin(k_begin, Weights, {}, 2)
        hps = Weights(jnp.array([1.0, 0]), jnp.array([0.0, 1]))  # each sees one parameter only
        start = jnp.full((2, 2), 0.9), memory, hps, k_rounds
        return score(jax.lax.fori_loop(0, rounds, one, start)[0]).max()

    return jax.jit(jax.vmap(run))(random.split(random.key(0), 5))


def test_the_toy_of_the_paper_behaves_as_published():
    """Jaderberg et al. 2017, figure 2: it takes exploit and explore to come near 1.2."""
    pair = {"best": 1, "replaced": 1, "explore": "perturb"}
    both, explore = toy(PBT(**pair)), toy(NoTuning(), explore_all=True)
    exploit, neither = toy(PBT(**pair, factors=(1.0,))), toy(NoTuning())
    assert both.min() > 1.1
    assert explore.mean() < both.mean() - 0.05
    np.testing.assert_allclose([exploit, neither], 1.2 - 0.81, atol=0.01)
