"""The reward of skill dynamics has its bounds, and their network is of the size asked for."""

import dataclasses
import math
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

from tests.algos import reference
from tests.algos.test_dads import SKILLS, batch, begun, make, scalars
from thespis.algos.dads import Batch


def reward_of(algo, state, b, key=0, net=None):
    net = state.dynamics.params if net is None else net
    given = b.obs, b.next_obs, b.extra.skill, random.key(key)
    return np.asarray(reference.quick(algo.intrinsic)(state, net, scalars(), *given)[0])


@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 300))
@settings(max_examples=20, deadline=None)
def test_the_reward_is_at_most_the_log_of_the_skills_compared(seed, scale):
    """However sure the dynamics are, and whatever the change."""
    for kind, count in (("one-hot", 3), ("uniform", 6)):
        reward = sharp(kind)(seed, scale)
        assert np.isfinite(reward).all()
        assert (reward <= math.log(count) + 1e-5).all()


@cache
def sharp(kind):
    """Rewards of dynamics whose weights are larger by `scale`."""
    algo, b = of(kind)

    @reference.quick
    def rewards(seed, scale):
        k_init, k_skills = random.split(random.key(seed))
        state = algo.init(k_init, scalars())
        net = jax.tree.map(lambda x: x * scale, state.dynamics.params)
        return algo.intrinsic(state, net, scalars(), b.obs, b.next_obs, b.extra.skill, k_skills)[0]

    return lambda *given: np.asarray(rewards(*given))


@cache
def of(kind, **options):
    algo = make(skill_kind=kind, skills=SKILLS[kind], **options)
    return algo, batch(algo)


@pytest.mark.parametrize("kind", SKILLS)
def test_the_reward_is_zero_if_skills_do_not_matter(kind):
    algo, b = of(kind, dynamics_sees="descriptor")
    state = begun(algo)
    net = state.dynamics.params
    blind = np.array(net.weights[0])
    blind[-algo.skills :] = 0
    net = eqx.tree_at(lambda n: n.weights[0], net, jnp.asarray(blind))
    np.testing.assert_allclose(reward_of(algo, state, b, net=net), 0, atol=1e-5)


def test_the_reward_is_near_its_bound_if_only_this_skill_explains_the_change():
    """Dynamics whose means are far apart, each skill's own (one component, nothing seen)."""
    algo = make(skills=3, skill_kind="one-hot", components=1, hidden=(), normalize_target=False)
    b, state = batch(algo), begun(algo)
    means = np.float32([[0, 9, 0], [0, -9, 0], [0, 0, 9]])  # logit and two means
    parts, none = lambda net: (net.weights, net.biases), np.zeros(3, np.float32)
    new = [jnp.asarray(means)], [jnp.asarray(none)]
    net = eqx.tree_at(parts, state.dynamics.params, new)
    change = np.pad(np.asarray(b.extra.skill) @ means[:, 1:], ((0, 0), (0, 1)))
    b = dataclasses.replace(b, next_obs=jnp.asarray(b.obs + change))
    np.testing.assert_allclose(reward_of(algo, state, b, net=net), math.log(3), atol=1e-3)


def test_statistics_count_whole_changes_only():
    """Their mean and deviation are NumPy's over transitions that are none of an episode's end."""
    algo, hp = make(), scalars()
    b, state, learn = batch(algo), begun(algo), reference.quick(algo.learn_dynamics)
    for _ in range(2):
        state, _ = learn(state, hp, Batch(b, b))
    kept = np.asarray(algo.alive(b), bool)
    change = (np.asarray(b.next_obs) - np.asarray(b.obs))[kept][:, :2]
    np.testing.assert_allclose(state.change_stats.mean, change.mean(0), rtol=1e-4)
    np.testing.assert_allclose(state.change_stats.var, change.var(0), rtol=1e-4)


def test_the_sizes_of_the_dynamics_are_ones_own():
    algo = make(dynamics_hidden=(7, 6), components=5, dynamics_std="learned")
    net = jax.eval_shape(algo.init, random.key(0), algo.Hyper()).dynamics.params
    assert [b.shape[0] for b in net.biases] == [7, 6, 5 * (1 + 2 + 2)]
