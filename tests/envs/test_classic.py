"""The classic tasks are Gymnasium's, step by step."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.core import Discrete
from thespis.envs.classic import (
    TASKS,
    Acrobot,
    CartPole,
    Catch,
    Grid,
    MountainCar,
    Pendulum,
    PointMass,
)

TWINS = [
    (Pendulum(), "Pendulum-v1"),
    (MountainCar(), "MountainCarContinuous-v0"),
    (CartPole(), "CartPole-v1"),
    (Acrobot(), "Acrobot-v1"),
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
            if name.startswith("Acrobot"):  # likewise, to swing up
                action = 1 - int(np.sign(env.state[2]))
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


def falling(start: int, actions) -> tuple[list, list, list]:
    """Images, rewards and ends of a ball that starts in this column."""
    task, state = Catch(), jnp.array([0, start, 5], jnp.int32)
    images, rewards, ends = [np.asarray(task.observe(state))], [], []
    step = jax.jit(task.step)
    for action in actions:
        state, reward, terminated = step(state, jnp.int32(action))
        images.append(np.asarray(task.observe(state)))
        rewards.append(float(reward))
        ends.append(bool(terminated))
    return images, rewards, ends


@pytest.mark.parametrize("start", range(10))
def test_catch_rewards_at_the_end_only_and_every_ball_can_be_caught(start):
    towards = [int(np.sign(start - 5)) + 1] * abs(start - 5)
    images, rewards, ends = falling(start, towards + [1] * (9 - len(towards)))
    assert rewards == [0] * 8 + [1]
    assert ends == [False] * 8 + [True]
    for row, image in enumerate(images):
        assert (image.shape, image.dtype) == ((10, 10, 1), np.uint8)
        assert image[row, start, 0] == 255  # the ball
        assert (image > 0).sum() == (2 if row < 9 else 1)
    away = 2 if start < 5 else 0
    assert falling(start, [away] * 9)[1] == [0] * 8 + [-1]


def test_the_paddle_moves_left_stays_or_moves_right_and_stops_at_the_walls():
    paddle = lambda actions: [np.flatnonzero(image[9]).tolist() for image in falling(0, actions)[0]]
    assert paddle([0, 1, 2, 2]) == [[5], [4], [4], [5], [6]]
    assert paddle([2] * 7)[-4:] == [[9]] * 4


def test_balls_start_in_every_column():
    starts = jax.vmap(Catch().start)(random.split(random.key(0), 300))
    assert set(np.asarray(starts[:, 1]).tolist()) == set(range(10))
    assert (starts[:, 0] == 0).all()


def test_the_grid_is_worth_what_it_says_and_only_legal_moves_move():
    """Down and right along a shortest path; never beyond the edge."""
    task = Grid()
    step, observe = jax.jit(task.step), jax.jit(task.observe)
    starts, returns = jax.vmap(task.start)(random.split(random.key(0), 300)), []
    assert {tuple(s) for s in np.asarray(starts).tolist()} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    for state in starts[:20]:
        total, done = 0.0, False
        while not done:
            mask = np.asarray(observe(state)["action_mask"])
            state, reward, done = step(state, jnp.int32(1 if mask[1] else 3))
            total += float(reward)
        assert state.tolist() == [5, 5]
        returns.append(total)
    assert np.mean(returns) == pytest.approx(0.82, abs=0.01)

    moves = {(0, 0): (1, 3), (5, 0): (0, 3), (0, 5): (1, 2), (3, 3): (0, 1, 2, 3)}
    for cell, legal in moves.items():
        state = jnp.array(cell, jnp.int32)
        assert tuple(np.flatnonzero(observe(state)["action_mask"])) == legal
        for action in range(4):
            moved = (step(state, jnp.int32(action))[0] != state).any()
            assert bool(moved) == (action in legal)


@pytest.mark.parametrize("name", TASKS)
def test_types_are_as_declared(name):
    task = TASKS[name]()
    state = task.start(random.key(0))
    choice = isinstance(task.action, Discrete)
    action = jnp.int32(1) if choice else jnp.zeros(task.action.shape)
    after, reward, terminated = task.step(state, action)
    assert (after.dtype, reward.dtype, terminated.dtype) == (state.dtype, jnp.float32, bool)
    assert state.dtype == (jnp.int32 if name in ("jax:catch", "jax:grid") else jnp.float32)
    form = lambda obs: jax.tree.map(lambda x: (x.shape, x.dtype), obs)
    assert form(task.observe(state)) == form(task.obs)
