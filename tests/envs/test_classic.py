"""The classic tasks are Gymnasium's, step by step."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.envs.classic import TASKS, CartPole, MountainCar, Pendulum, PointMass

TWINS = [
    (Pendulum(), "Pendulum-v1"),
    (MountainCar(), "MountainCarContinuous-v0"),
    (CartPole(), "CartPole-v1"),
]


@pytest.mark.parametrize(("task", "name"), TWINS)
def test_equals_gymnasium_step_by_step(task, name):
    env = gymnasium.make(name).unwrapped
    env.action_space.seed(0)
    step, observe = jax.jit(task.step), jax.jit(task.observe)
    ends = 0
    for episode in range(10):
        state = task.start(random.key(episode))
        env.reset(seed=episode)
        for _ in range(150):
            env.state = np.array(state, np.float64)  # rounding grows near an unstable balance
            action = env.action_space.sample()
            if name.startswith("Mountain"):  # push with the motion, to reach the flag
                action = np.copysign(abs(action) ** 0.1, env.state[1:])
            obs, reward, terminated, _, _ = env.step(action)
            state, ours, done = step(state, jnp.asarray(action))
            np.testing.assert_allclose(observe(state), obs, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(ours, reward, rtol=1e-5, atol=1e-5)
            assert bool(done) == terminated
            if terminated:
                ends += 1
                break
    assert ends == 0 if name == "Pendulum-v1" else ends > 0


@pytest.mark.parametrize(("task", "name"), TWINS)
def test_has_the_spaces_and_limit_of_gymnasium(task, name):
    env = gymnasium.make(name)
    assert task.limit == env.spec.max_episode_steps
    assert task.obs.shape == env.observation_space.shape
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        assert task.action.n == env.action_space.n
    else:
        assert task.action.low == tuple(env.action_space.low)
        assert task.action.high == tuple(env.action_space.high)


@pytest.mark.parametrize(("task", "name"), TWINS)
def test_starts_where_gymnasium_starts(task, name):
    env = gymnasium.make(name).unwrapped
    theirs = []
    for seed in range(300):
        env.reset(seed=seed)
        theirs.append(env.state)
    ours = jax.vmap(task.start)(random.split(random.key(0), 300))
    np.testing.assert_allclose(ours.min(0), np.min(theirs, 0), atol=0.05)
    np.testing.assert_allclose(ours.max(0), np.max(theirs, 0), atol=0.05)
    np.testing.assert_allclose(ours.std(0), np.std(theirs, 0), rtol=0.1, atol=1e-6)


def test_point_mass_moves_two_units_in_an_episode_and_the_reward_is_the_distance_left():
    task = PointMass(goal=(0.0, 3.0))
    step, state, north = jax.jit(task.step), jnp.zeros(2), jnp.array([0.0, 1.0])
    for _ in range(task.limit):
        state, reward, terminated = step(state, north)
        assert not terminated
    np.testing.assert_allclose(state, [0.0, 2.0], atol=1e-5)
    np.testing.assert_allclose(reward, -1.0, atol=1e-5)


def test_point_mass_is_no_faster_along_the_diagonal():
    state, _, _ = PointMass().step(jnp.zeros(2), jnp.array([1.0, 1.0]))
    np.testing.assert_allclose(jnp.linalg.norm(state), 0.02, rtol=1e-6)
    state, _, _ = PointMass().step(jnp.zeros(2), jnp.array([0.3, 0.0]))
    np.testing.assert_allclose(state, [0.006, 0.0], rtol=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_everything_is_float32(name):
    task = TASKS[name]()
    state = task.start(random.key(0))
    action = jnp.int32(1) if name == "jax:cartpole" else jnp.zeros(task.action.shape)
    state, reward, terminated = task.step(state, action)
    assert (state.dtype, reward.dtype, terminated.dtype) == (jnp.float32, jnp.float32, bool)
    obs = task.observe(state)
    assert (obs.shape, obs.dtype) == (task.obs.shape, task.obs.dtype)
