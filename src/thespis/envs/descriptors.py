"""Adds a descriptor, the numbers that tell where a state is, to the observations of environments.

A JAX task offers `descriptors`, functions of its state by name. A Gymnasium environment offers the
numbers in its `info` by their names.
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
from thespis.selection import DESCRIPTOR

POSITION = ("x_position", "y_position")  # what MuJoCo's tasks say in `info`


def described(env: Any, wanted: str | None) -> Any:
    """Returns the environment with the descriptor of this name, or its default one, if it has any.

    A choice that is part of the observation, or a function of it, needs nothing here.
    """
    if isinstance(env.spec.obs, dict) and DESCRIPTOR in env.spec.obs:
        return env
    if isinstance(env, Autoreset):
        offered = env.descriptors
        if wanted is None and env.spec.descriptor is None:
            wanted = next(iter(offered), None)
        return Autoreset(Described(env.task, str(wanted))) if wanted in offered else env
    if not isinstance(env, Gymnasium):
        return env
    offered = numbers_in_info(env)
    names = [n for n in POSITION if n in offered]
    if wanted is not None:
        names = wanted.replace(",", " ").split()
    if not names or not set(names) <= offered:
        return env
    return Gymnasium(lambda **options: DescribedEnv(env.instance(**options), names))


def numbers_in_info(env: Gymnasium) -> set[str]:
    """Returns the names of the numbers in `info`."""
    instance = env.instance()
    try:
        _, info = instance.reset(seed=0)
    finally:
        instance.close()
    return {name for name, x in info.items() if np.ndim(x) == 0 and np.isrealobj(x)}


def beside(obs: Any, descriptor: Any) -> dict[str, Any]:
    """Returns the observation and the descriptor as one dict."""
    return {**(obs if isinstance(obs, dict) else {"observation": obs}), DESCRIPTOR: descriptor}


@dataclass(frozen=True)
class Described(TaskWrapper):
    """A task that also observes one of its descriptors."""

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
    """A Gymnasium environment that also observes numbers of its `info`."""

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
