"""Several Gymnasium environments are stepped alike wherever that happens."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from thespis.envs import stepping
from thespis.envs.stepping import Failed, array
from thespis.errors import ThespisError

READ = array((2,), np.float32)


class Counter(gymnasium.Env):
    """Observes [seed of the episode, steps]; pays the action."""

    def __init__(self, ends=9):
        self.ends = ends

    def reset(self, *, seed=None, options=None):
        self.seed, self.time = -1 if seed is None else seed, 0
        return [self.seed, 0], {}

    def step(self, action):
        self.time += 1
        return [self.seed, self.time], action, self.time >= self.ends, True, {}


def advance(envs, seeds, over, actions, dim=None):
    return stepping.advance(envs, seeds, over, actions, READ, dim)


def test_a_seed_is_used_once_and_those_that_go_on_are_stepped():
    envs, seeds = [Counter(), Counter()], [7, 8]
    new = advance(envs, seeds, [True, True], [0.0, 0.0])
    assert new.obs.tolist() == [[7, 0], [8, 0]]
    assert seeds == [None, None]
    new = advance(envs, seeds, [True, False], [5.0, 5.0])
    assert new.obs.tolist() == [[-1, 0], [8, 1]]
    assert new.reward == [0.0, 5.0]


def test_a_termination_is_no_truncation_at_the_same_time():
    envs = [Counter(ends=1), Counter()]
    advance(envs, [1, 2], [True, True], [0.0, 0.0])
    new = advance(envs, [None, None], [False, False], [0.0, 0.0])
    assert (new.terminated, new.truncated) == ([True, False], [False, True])


@pytest.mark.parametrize(
    ("action", "dim", "text"),
    [
        (None, None, "the reward is None; return a number"),
        (float("nan"), None, "the reward is nan; fix the environment"),
        ([1.0, 2.0], 3, "the reward has 2 numbers, not 3"),
    ],
)
def test_a_wrong_reward_names_its_environment(action, dim, text):
    envs = [Counter(), Counter()]
    advance(envs, [1, 2], [True, True], [0.0, 0.0])
    good = 0.0 if dim is None else [0.0] * dim
    with pytest.raises(Failed) as failed:
        advance(envs, [None, None], [False, False], [good, action], dim)
    assert failed.value.environment == 1
    assert text in failed.value.what


def test_an_attribute_is_set_on_the_layer_that_has_it():
    inner = SimpleNamespace(speed=1.0)
    inner.unwrapped = inner
    outer = SimpleNamespace(env=inner, unwrapped=inner)
    stepping.set_attr([outer], "task", "speed", 2.0)
    assert (inner.speed, hasattr(outer, "speed")) == (2.0, False)


def test_an_attribute_that_cannot_be_set_is_told():
    env = gymnasium.make("Pendulum-v1", disable_env_checker=True)
    with pytest.raises(ThespisError, match="task: unwrapped cannot be set: AttributeError"):
        stepping.set_attr([env], "task", "unwrapped", 1)
    for name in ("__class__", "__dict__", "nothing"):
        with pytest.raises(ThespisError, match=f"task has no attribute '{name}'"):
            stepping.set_attr([env], "task", name, {})
