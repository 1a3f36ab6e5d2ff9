"""A module of a user: an algorithm, environments of both kinds, and things that are neither."""

OWN = '''
import pathlib
from dataclasses import dataclass
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
from jax import random

from tests.small import Toy
from thespis import SAC, Box

pathlib.Path(__file__).with_name("imported").touch()
gymnasium.registry.pop("Mine-v0", None)
gymnasium.register("Mine-v0", Toy)


@dataclass(frozen=True)
class MySAC(SAC):
    """SAC that may be told to be bold."""

    bold: int = 1
    """How bold it is."""


@dataclass(frozen=True)
class Walk:
    """Stay near zero."""

    limit: int = 20
    obs: ClassVar[jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct((1,), jnp.float32)
    action: ClassVar[Box] = Box(low=(-1.0,), high=(1.0,), shape=(1,))

    def start(self, key):
        return random.uniform(key, (), jnp.float32, -1.0, 1.0)

    def observe(self, state):
        return state[None]

    def step(self, state, action):
        state = state + 0.1 * action[0]
        return state, -jnp.abs(state), jnp.array(False)

    def picture(self, state):
        return jnp.full((16, 16, 3), 100, jnp.uint8)


class Room(Toy):
    """A class of Gymnasium that nobody has registered."""


def make_room(**options):
    return Room(**options)


class Sized(Walk):
    """A task that needs an argument."""

    def __init__(self, size):
        self.size = size


class Half:
    """What is neither an algorithm nor an environment, but has a little of both."""

    def start(self, key): ...

    def init(self, key, hp): ...


class Undecorated(SAC):
    """An algorithm whose new field is none."""

    bold: int = 1


NUMBER = 3
'''
