"""Policies stepped in environments, from start to end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.engine.clerks import Lives
from tests.engine.elders import Elder, Timed
from thespis.engine.rollout import FrozenPolicy, unroll
from thespis.envs.autoreset import Autoreset


@pytest.fixture(scope="module")
def rows():
    """30 rows of 6 environments."""
    env = Autoreset(Lives())
    policy = FrozenPolicy({"scale": 0.1}, None, jnp.int32(0))
    play = lambda key: unroll(Elder(env.spec), env, policy, key, 6, 30, "greedy")
    return jax.tree.map(np.asarray, jax.jit(play)(random.key(0)))


def test_an_unroll_is_time_major_and_of_fixed_length(rows):
    assert rows.obs.shape == (30, 6, 4)
    assert rows.action.shape == (30, 6, 2)
    assert rows.reward.shape == rows.terminated.shape == rows.truncated.shape == (30, 6)


def test_an_unroll_goes_on_after_an_end_with_a_new_memory(rows):
    final = rows.terminated | rows.truncated
    assert (final.sum(0) >= 3).all()
    np.testing.assert_array_equal(rows.obs[1:, :, 0][final[:-1]], 0)
    np.testing.assert_array_equal(rows.extra["age"], rows.obs[..., 0])


def test_an_unroll_holds_what_the_environment_did(rows):
    own = -2 + 8 * (rows.action[..., 0] + 1) / 2
    same = ~(rows.terminated | rows.truncated)[:-1]
    np.testing.assert_allclose(rows.obs[1:, :, 3][same], own[:-1][same], rtol=1e-5)
    np.testing.assert_allclose(
        rows.reward[1:][same], (rows.obs[1:, :, 1] + 0.1 * rows.action[:-1, :, 1])[same], rtol=1e-5
    )


def test_an_unroll_is_at_the_clock_of_its_policy():
    env = Autoreset(Lives())
    policy = FrozenPolicy(None, None, jnp.int32(300))
    play = lambda key: unroll(Timed(env.spec), env, policy, key, 3, 12, "explore")
    np.testing.assert_allclose(jax.jit(play)(random.key(0)).action, 0.3)
