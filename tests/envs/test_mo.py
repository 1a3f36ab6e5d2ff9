"""Vector rewards: environments of mo-gymnasium, and tasks and environments of one's own."""

import importlib.util
from dataclasses import dataclass
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests.small import arguments
from thespis import envs
from thespis.core import Box, ThespisError
from thespis.envs.autoreset import Autoreset

pytestmark = pytest.mark.usefixtures("kept", "undrawn")
needs_mo = pytest.mark.skipif(
    importlib.util.find_spec("mo_gymnasium") is None, reason="needs mo-gymnasium"
)
CAR = "mo:mo-mountaincarcontinuous-v0"


class Pair(gymnasium.Env):
    """Five steps; the reward is (1, action) or what `reward` says."""

    reward_space = gymnasium.spaces.Box(-1, 1, (2,))
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    reward = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        reward = np.array([1.0, action[0]]) if self.reward is None else self.reward
        return np.zeros(1, np.float32), reward, False, self.time == 5, {}


@dataclass(frozen=True)
class Task:
    """The same, as a JAX task."""

    limit: int = 5
    reward_dim: int = 2
    name: ClassVar[str] = "pair"
    obs: ClassVar = jax.ShapeDtypeStruct((1,), jnp.float32)
    action: ClassVar = Box((-1.0,), (1.0,), (1,))

    def start(self, key):
        return jnp.zeros(())

    def observe(self, state):
        return state[None]

    def step(self, state, action):
        return state, jnp.stack([jnp.ones(()), action[0]]), jnp.array(False)


@needs_mo
def test_rewards_of_mo_gymnasium_are_vectors():
    env = envs.make(CAR)
    assert env.spec.reward_dim == 2
    running = env.open(3, 0)
    assert running.reset().reward.shape == (3, 2)
    reward = running.step(np.full((3, 1), 0.5)).reward
    running.close()
    assert reward.dtype == np.float32
    np.testing.assert_allclose(reward[:, 0], -1)  # a step's time; the other is its fuel
    assert (reward[:, 1] < 0).all()


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[mo\]'"):
        envs.make(CAR)


def test_tasks_and_environments_of_ones_own_may_have_vector_rewards():
    task, env = Autoreset(Task()), envs.make(Pair)
    assert task.spec.reward_dim == env.spec.reward_dim == 2
    running = env.open(2, 0)
    reset, step = jax.jit(task.reset, static_argnums=1), jax.jit(task.step)
    state, arrived = reset(random.key(0), 2)
    np.testing.assert_array_equal(arrived.reward, running.reset().reward)
    for t in range(7):  # over the end of an episode
        action = np.full((2, 1), 0.25 * t - 0.5, np.float32)
        state, arrived = step(state, action, random.key(t))
        there = running.step(action)
        np.testing.assert_allclose(arrived.reward, there.reward)
        np.testing.assert_array_equal(arrived.final, there.final)
    running.close()


def test_faulty_vectors_are_named():
    for reward, message in (([1.0, np.nan], "the reward is"), ([1.0], "1 numbers, not 2")):
        running = envs.make(type("Faulty", (Pair,), {"reward": reward})).open(1, 0)
        running.reset()
        with pytest.raises(ThespisError, match=message):
            running.step(np.zeros((1, 1)))
        running.close()


def test_weights_must_fit_the_reward():
    with pytest.raises(ThespisError, match="reward is one number"):
        thespis.train("sac", env="jax:pendulum", reward_weights=(1.0, 2.0), progress=False)


JAX = pytest.param(Task(), 1, id="jax", marks=pytest.mark.slow)


@pytest.mark.thorough
@pytest.mark.parametrize(("env", "updates"), [JAX, pytest.param(Pair, 0, id="host")])
def test_runs_tell_the_weighted_return_and_that_of_every_dimension(tmp_path, env, updates):
    """The first number is 1 in each of five steps, the second the action."""
    given = arguments(env=env, reward_weights=(2.0, -1.0), n_step=2, updates_per_step=updates)
    run = thespis.train("sac", out=tmp_path, **given)
    for row in ("rollout/ep_rew_mean", "eval/mean_reward"):
        whole, one, other = (run.metrics[row + name] for name in ("", "/0", "/1"))
        known = np.isfinite(whole)
        assert known.any()
        np.testing.assert_allclose(one[known], 5, rtol=1e-6)
        np.testing.assert_allclose(whole[known], 10 - other[known], rtol=1e-4)
    found = thespis.load(run.path, env=env).evaluate(episodes=3)
    assert found["mean_rewards"]["0"] == 5
    np.testing.assert_allclose(found["mean_reward"], 10 - found["mean_rewards"]["1"], rtol=1e-4)
    longer = thespis.resume(run.path, steps=2 * run.config.steps, env=env, progress=False)
    assert longer.status["step"] == 2 * run.config.steps
