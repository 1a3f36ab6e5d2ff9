"""Environments tell where they are, beside what they observe."""

from dataclasses import dataclass

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis import envs
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import Pendulum, PointMass
from thespis.errors import ThespisError


@dataclass(frozen=True)
class Angled(Pendulum):
    """A pendulum that tells its angle, and its speed."""

    @property
    def descriptors(self):
        return {"angle": lambda state: state[:1], "speed": lambda state: state[1:]}


class Telling(gymnasium.Env):
    """Tells in `info` where it is: one further with every step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        return np.zeros(3, np.float32), self.info()

    def step(self, action):
        self.x += 1.0
        return np.zeros(3, np.float32), 0.0, False, self.x >= 5, self.info()

    def info(self):
        return {"x_position": self.x, "y_position": -self.x, "height": 3.0, "name": "it"}


@pytest.mark.parametrize(("wanted", "at"), [(None, 0), ("angle", 0), ("speed", 1)])
def test_a_task_observes_the_descriptor_that_is_chosen_or_its_first(wanted, at):
    env = envs.described(Autoreset(Angled()), wanted)
    state, step = env.reset(random.key(0), 4)
    assert env.spec.obs["descriptor"].shape == (1,)
    np.testing.assert_array_equal(step.obs["descriptor"][:, 0], state.task[:, at])
    assert step.obs["observation"].shape == (4, 3)
    state, step = env.step(state, jnp.zeros((4, 1)), random.key(1))
    np.testing.assert_array_equal(step.obs["descriptor"][:, 0], state.task[:, at])
    assert env.limit == 200
    assert envs.label(env) == "jax-pendulum"


def test_what_is_part_of_the_observation_stays_as_it_is():
    for env, wanted in [(PointMass(), None), (Pendulum(), "0,1"), (Angled(), "my_module:f")]:
        env = Autoreset(env)
        assert envs.described(env, wanted) is env


@pytest.mark.parametrize(
    ("wanted", "told"), [(None, [1, -1]), ("height", [3]), ("height, x_position", [3, 1])]
)
def test_numbers_in_info_are_descriptors_of_gymnasium_environments(wanted, told):
    env = envs.described(envs.make(Telling), wanted)
    running = env.open(2, 0)
    first = running.reset()
    step = running.step(np.zeros((2, 1)))
    running.close()
    assert first.obs["descriptor"].shape == (2, len(told))
    np.testing.assert_array_equal(step.obs["descriptor"], [told, told])
    assert step.obs["observation"].shape == (2, 3)
    assert env.name == "Telling"


class Raising(Telling):
    def reset(self, *, seed=None, options=None):
        raise KeyError("no scene")


class Old(Telling):
    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32)


class Ragged(Telling):
    def info(self):
        return {"x_position": [[1.0], [1.0, 2.0]]}


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Raising, "KeyError: 'no scene'"),
        (Old, "reset returned ndarray; return obs, info"),
        (Ragged, "ValueError: "),
    ],
)
def test_an_environment_that_cannot_be_reset_is_one_line(kind, what):
    with pytest.raises(ThespisError) as caught:
        envs.described(envs.make(kind), None)
    assert f"{kind.__name__}" in str(caught.value)
    assert what in str(caught.value)


def test_an_info_that_is_no_dict_has_no_descriptor():
    class Silent(Telling):
        def info(self):
            return None

    env = envs.make(Silent)
    assert envs.described(env, None) is env


def test_other_names_leave_a_gymnasium_environment_as_it_is():
    env = envs.make(Telling)
    assert envs.described(env, "0,1") is env
    assert envs.described(env, "name") is not None


@pytest.mark.parametrize(("name", "size", "limbs"), [("ant", 2, 4), ("halfcheetah", 1, 2)])
def test_brax_tells_positions_and_contacts(name, size, limbs):
    pytest.importorskip("brax")
    env = envs.make(f"brax:{name}")
    place, touch = (envs.described(env, which) for which in (None, "contact"))
    assert place.spec.obs["descriptor"].shape == (size,)
    assert touch.spec.obs["descriptor"].shape == (limbs,)
