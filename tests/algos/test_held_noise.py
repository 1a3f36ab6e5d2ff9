"""Exploration noise that lasts, for SAC, TD3 and Discrete SAC."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.algos import SAC, TD3, DiscreteSAC
from thespis.algos.held_noise import Held, lengths

both = pytest.mark.parametrize("Algorithm", [SAC, TD3])


def test_lengths_follow_the_zeta_distribution():
    uniform = jnp.asarray((np.arange(10_000) + 0.5) / 10_000, jnp.float32)
    got = np.bincount(lengths(uniform, 16), minlength=17)[1:] / 10_000
    chance = 1 / np.arange(1, 17) ** 2
    np.testing.assert_allclose(got, chance / chance.sum(), atol=2e-4)
    assert lengths(uniform, 16).max() == 16
    assert (lengths(uniform, 1) == 1).all()


def test_noise_is_held_for_its_length_and_is_normal():
    held, draws, left = Held.none(500, 2), [], []
    advance = jax.jit(lambda held, key: held.next(key, 4))
    for i in range(40):
        held = advance(held, random.key(i))
        draws.append(np.asarray(held.draw))
        left.append(np.asarray(held.left))
    draws, left = np.stack(draws), np.stack(left)
    same = (draws[1:] == draws[:-1]).all(-1)
    np.testing.assert_array_equal(same, left[:-1] > 0)
    assert left.max() == 3
    fresh = draws[1:][~same]
    np.testing.assert_allclose(fresh.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(fresh.std(0), 1, atol=0.05)
    lasting = 1 / (1 - same.mean())
    chance = 1 / np.arange(1, 5) ** 2
    np.testing.assert_allclose(lasting, (chance @ np.arange(1, 5)) / chance.sum(), atol=0.05)


@both
def test_exploring_actions_share_their_noise(Algorithm):
    algo, hp = Algorithm(reference.spec(), hidden=(4,), noise_repeat=16), Algorithm.Hyper()
    state, obs = algo.init(random.key(0), hp), jnp.ones((300, 2))
    act = lambda memory, key, mode="explore": algo.act(
        state, hp, memory, obs, random.key(key), jnp.int32(0), mode
    )
    one, after, _ = act(algo.memory(random.key(0), 300), 1)
    two, _, _ = act(after, 2)
    again = np.asarray(one == two).all(-1)
    np.testing.assert_array_equal(again, after.left > 0)
    assert 0.2 < again.mean() < 0.6
    for mode in ("greedy", "random"):  # neither has noise that could be held
        assert reference.difference(act(after, 3, mode)[1], after) == 0
    usual = dataclasses.replace(algo, noise_repeat=1)
    assert usual.memory(random.key(0), 3) is None


@pytest.mark.parametrize("mode", ["explore", "random"])
def test_choices_share_their_draw_and_are_samples_all_the_same(mode):
    algo = DiscreteSAC(reference.discrete_spec(3), hidden=(), noise_repeat=16)
    hp = DiscreteSAC.Hyper(epsilon_start=0.0, epsilon_end=0.0)
    state, obs = reference.drawn(algo, hp), jnp.full((20_000, 2), 2.0)
    act = lambda memory, key: algo.act(state, hp, memory, obs, random.key(key), jnp.int32(0), mode)
    one, after, _ = act(algo.memory(random.key(0), 20_000), 1)
    two, _, _ = act(after, 2)
    held = np.asarray(after.held.left > 0)
    assert 0.2 < held.mean() < 0.6
    np.testing.assert_array_equal(one[held], two[held])
    assert (one[~held] != two[~held]).mean() > 0.1
    p = algo.policy(state, algo.acting(state), obs[:1]).p[0] if mode == "explore" else 1 / 3
    for action in (one, two):
        np.testing.assert_allclose(np.bincount(action, minlength=3) / 20_000, p, atol=0.02)


def test_a_share_epsilon_of_episodes_is_random_from_their_first_step_to_their_last():
    """The others follow a policy that is sure of itself."""
    algo = DiscreteSAC(reference.discrete_spec(3), hidden=(), noise_repeat=2)
    hp = DiscreteSAC.Hyper(epsilon_start=0.3, epsilon_end=0.3)
    state, obs = reference.drawn(algo, hp), jnp.full((2000, 2), 900.0)
    memory, strange = algo.memory(random.key(0), 2000), []
    best = algo.act(state, hp, memory, obs, random.key(0), jnp.int32(0), "greedy")[0]
    for key in range(30):
        action, memory, _ = algo.act(
            state, hp, memory, obs, random.key(key), jnp.int32(0), "explore"
        )
        strange.append(np.asarray(action != best))
    share = np.mean(strange, 0)
    assert (share > 0).mean() == pytest.approx(0.3, abs=0.03)
    assert share[share > 0].mean() == pytest.approx(2 / 3, abs=0.03)
