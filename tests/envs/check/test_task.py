"""The functions of JAX tasks are checked for what they return."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.envs.check.walks import verdicts
from thespis.core import Box
from thespis.envs.check import check_env


@dataclass(frozen=True)
class Drift:
    """The same walk as pure functions, all right unless told otherwise."""

    limit: int = 30
    fault: str = ""

    obs: ClassVar = jax.ShapeDtypeStruct((2,), jnp.float32)
    action: ClassVar = Box((-1.0,), (2.0,), (1,))

    def start(self, key) -> Any:
        place = random.uniform(key, (2,), jnp.float32, -0.1, 0.1)
        if self.fault == "start":
            place = np.asarray(place)
        return place, jnp.int32(0)

    def observe(self, state):
        place, time = state
        if self.fault == "shape":
            return place[:1]
        return jnp.where(time > 20, jnp.nan, place) if self.fault == "nan" else place

    def step(self, state, action):
        place, time = state
        place, time = place + jnp.concatenate([jnp.ones(1), action]), time + 1
        over = jnp.array(False)
        if self.fault == "state":
            time = time.astype(jnp.float32)
        if self.fault == "resets":
            over = place[1] > 5
            place = jnp.where(over, place % 0.1, place)
        if self.fault == "flag":
            over = time
        if self.fault == "limit":
            place, over = state[0] + jnp.concatenate([jnp.zeros(1), action]), time == 10
        return (place, time), jnp.ones(()), over


@pytest.mark.parametrize(
    ("fault", "name", "seen"),
    [
        ("start", "start", "TracerArrayConversionError"),
        ("shape", "observations", "observe returns float32[1], but obs is float32[2]"),
        ("state", "step", "a state with [1] int32[], but step [1] float32[]"),
        ("flag", "step", "terminated is int32[]"),
        ("nan", "finite", "the obs is nan at index 0, copy 0, step 21"),
        ("resets", "final observation", "looks like the first of another"),
        ("limit", "ends", "terminate after exactly 10 steps"),
    ],
)
def test_mistakes_of_tasks(fault, name, seen):
    wrong = {
        c.name: c.message for c in check_env(Drift(fault=fault)).checks if c.verdict == "wrong"
    }
    assert seen in wrong.pop(name)
    assert not wrong


def test_a_task_without_a_limit_is_told_so():
    class Unlimited(Drift):
        limit = property(lambda self: self.nothing)

    task = object.__new__(Unlimited)
    assert verdicts(check_env(task)) == {"spaces": "wrong"}


def test_right_tasks_are_not_blamed():
    assert set(verdicts(check_env(replace(Drift(), limit=20))).values()) == {"ok"}
