"""Adds a descriptor, the numbers by which skills are told apart, to the observations.

A JAX task may have `descriptors`, a dict of functions of its state. In a Gymnasium environment, any
number in its `info` can be a descriptor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from jax import random

from thespis.envs.autoreset import Autoreset, TaskWrapper
from thespis.envs.gymnasium import Gymnasium
from thespis.envs.stepping import cause, returned
from thespis.errors import Fault
from thespis.selection import DESCRIPTOR

POSITION = ("x_position", "y_position")  # names in the `info` of MuJoCo's tasks


def described(env: Any, name: str | None) -> Any:
    """Returns the environment with the descriptor of this name, or its default one, if any.

    An environment whose descriptor is a part or a function of the observation is not changed.
    """
    if isinstance(env.spec.obs, dict) and DESCRIPTOR in env.spec.obs:
        return env
    if isinstance(env, Autoreset):
        known = env.descriptors
        if name is None and env.spec.descriptor is None:
            name = next(iter(known), None)
        return Autoreset(Described(env.task, str(name))) if name in known else env
    if not isinstance(env, Gymnasium):
        return env
    known = numbers_in_info(env)
    names = [n for n in POSITION if n in known]
    if name is not None:
        names = name.replace(",", " ").split()
    if not names or not set(names) <= known:
        return env
    return Gymnasium(lambda **options: DescribedEnv(env.instance(**options), names))


def numbers_in_info(env: Gymnasium) -> set[str]:
    """Returns the names of the numbers in `info`."""
    instance = env.instance()
    try:
        _, info = returned("reset", instance.reset(seed=0))
        known = info.items() if isinstance(info, dict) else ()
        return {name for name, x in known if np.ndim(x) == 0 and np.isrealobj(x)}
    except Exception as error:
        raise Fault(env.name, 0, 0, cause(error)) from error
    finally:
        instance.close()


def beside(obs: Any, descriptor: Any) -> dict[str, Any]:
    """Returns the observation and the descriptor as one dict."""
    return {**(obs if isinstance(obs, dict) else {"observation": obs}), DESCRIPTOR: descriptor}


@dataclass(frozen=True)
class Described(TaskWrapper):
    """A task whose observations also contain one of its descriptors."""

    which: str

    @property
    def describe(self) -> Callable[[Any], Any]:
        return Autoreset(self.task).descriptors[self.which]

    @cached_property
    def obs(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        shape = jax.eval_shape(lambda: self.describe(self.task.start(random.key(0))))
        return beside(self.task.obs, shape)

    def observe(self, state: Any) -> Any:
        return beside(self.task.observe(state), self.describe(state))


class DescribedEnv(gymnasium.Wrapper):
    """A Gymnasium environment whose observations also contain numbers of its `info`."""

    def __init__(self, env: gymnasium.Env, names: list[str]):
        super().__init__(env)
        self.names, inner = names, env.observation_space
        place = spaces.Box(-np.inf, np.inf, (len(names),), np.float32)
        parts = dict(inner) if isinstance(inner, spaces.Dict) else {"observation": inner}
        self.observation_space = spaces.Dict({**parts, DESCRIPTOR: place})

    def reset(self, **options):
        obs, info = self.env.reset(**options)
        return beside(obs, self.numbers(info)), info

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return beside(obs, self.numbers(info)), reward, terminated, truncated, info

    def numbers(self, info: dict[str, Any]) -> np.ndarray:
        return np.array([info[name] for name in self.names], np.float32)
