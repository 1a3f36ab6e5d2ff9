"""The tasks of several agents that are built in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.envs.toys import Running
from thespis import envs
from thespis.envs.autoreset import Autoreset
from thespis.envs.teams import Meeting
from thespis.report import draw


def reward(task, *actions):
    """Of a whole episode in which the team acts so."""
    state, total = task.start(random.key(0)), 0.0
    for action in actions:
        state, gain, over = task.step(state, jnp.asarray(action))
        total += float(gain)
    return total, bool(over), state


def test_home_is_safe_and_ends_the_episode_whatever_the_others_wish():
    for first in (0, 1):
        for second in range(4):
            assert reward(Meeting(), [first, second])[:2] == (5.0, True)


def test_in_town_only_the_same_place_is_worth_it():
    for a in range(4):
        for b in range(4):
            total, over, _ = reward(Meeting(), [2, 0], [a, b])
            apart = min((a - b) % 4, (b - a) % 4)
            assert over
            np.testing.assert_allclose(total, 11 - 30.5 * apart, atol=1e-4)


def test_angles_are_as_good_as_they_are_near():
    task = Meeting(continuous=True)
    assert reward(task, [[-0.1], [0.5]])[0] == 5.0
    for a, b in ((0.3, 0.3), (0.9, -0.9), (0.0, 0.5), (-0.5, 0.5)):
        wanted = 11 - 61 * (1 - np.cos(np.pi * (a - b))) / 2
        np.testing.assert_allclose(reward(task, [[0.1], [0.0]], [[a], [b]])[0], wanted, atol=1e-4)


def test_random_company_makes_the_town_worse_than_home_and_the_best_answer_makes_it_better():
    """Which is why whoever judges it by what others happened to do stays at home."""
    found = [[reward(Meeting(), [2, 0], [a, b])[0] for b in range(4)] for a in range(4)]
    assert (np.mean(found, 1) < 5).all()
    assert (np.max(found, 1) > 5).all()


def test_larger_teams_meet_as_well():
    assert reward(Meeting(size=3), [3, 0, 0], [1, 1, 1])[0] == pytest.approx(11, abs=1e-4)
    assert reward(Meeting(size=3), [3, 0, 0], [1, 1, 2])[0] < 5


@pytest.mark.parametrize("name", ["jax:meeting", "jax:meeting-continuous"])
def test_it_keeps_the_contract(name):
    env = envs.make(name)
    assert isinstance(env, Autoreset)
    assert envs.label(env) == name.replace(":", "-")
    running, rng = Running(env, n=3), np.random.default_rng(0)
    step, over = running.reset(), np.zeros(3, bool)
    for _ in range(12):
        if env.task.continuous:
            action = rng.uniform(-1, 1, (3, 2, 1)).astype(np.float32)
        else:
            action = rng.integers(0, 4, (3, 2)).astype(np.int32)
        step = running.step(action)
        expected = jax.tree.map(lambda s: ((3, *s.shape), s.dtype), env.spec.obs)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), step.obs) == expected
        assert not step.truncated.any()
        assert not (over & step.terminated).any()
        over = step.terminated


def test_pictures_show_where_everybody_is():
    frames = []
    for actions in ([], [[2, 0]], [[2, 0], [1, 1]], [[2, 0], [1, 3]], [[0, 0]]):
        state = Meeting().start(random.key(0))
        for action in actions:
            state, _, _ = Meeting().step(state, jnp.asarray(action))
        frames.append(draw.frame("jax:meeting", np.asarray(Meeting().observe(state)["agents"])))
    assert all(f.shape == (360, 480, 3) for f in frames)
    for i, one in enumerate(frames):
        assert all((one != other).any() for other in frames[i + 1 :])
