"""Small tasks of several agents as pure JAX functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from thespis.core import AGENTS, Box, Discrete, Key

HOME, DECIDING, IN_TOWN, OVER = -1, 0, 1, 2


@dataclass(frozen=True)
class Meeting:
    """Go home for a small reward, or into town for a large one if all meet at the same place.

    In the first step only the first agent's choice counts: the lower half of the actions means home
    (reward 5, and the episode ends), the upper half means town. In town all agents choose a place
    on a ring at once, by number or by angle. Meeting is worth 11, being spread over the whole ring
    -50: 11 - 61 (1 - R²), where R is the distance of the agents' mean place from the centre.

    Every agent observes [3]: the stage (0 deciding, 1 in town) and, at the end, its own place.

    It is the coordination problem of Boutilier 1999 (Sequential optimality and coordination in
    multiagent systems). A critic of what other agents *did* in town, while they explored, gives it
    a low value; a critic of what their current policies *would* do gives it a high one.
    """

    size: int = 2
    places: int = 4
    continuous: bool = False
    limit: int = 2

    home: ClassVar[float] = 5.0
    met: ClassVar[float] = 11.0
    missed: ClassVar[float] = 50.0

    @property
    def name(self) -> str:
        return "jax:meeting-continuous" if self.continuous else "jax:meeting"

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(f"agent_{i}" for i in range(self.size))

    @property
    def obs(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {AGENTS: jax.ShapeDtypeStruct((self.size, 3), jnp.float32)}

    @property
    def action(self) -> tuple[Box | Discrete, ...]:
        one = Box((-1.0,), (1.0,), (1,)) if self.continuous else Discrete(self.places)
        return (one,) * self.size

    def start(self, key: Key) -> tuple[Array, Array]:
        del key
        return jnp.zeros((), jnp.float32), jnp.zeros((self.size, 2), jnp.float32)

    def observe(self, state: tuple[Array, Array]) -> dict[str, Array]:
        stage, place = state
        return {AGENTS: jnp.concatenate([jnp.broadcast_to(stage, (self.size, 1)), place], -1)}

    def step(self, state: tuple[Array, Array], action: Array) -> tuple[tuple, Array, Array]:
        stage, place = state
        unit = action[:, 0] if self.continuous else (2 * action + 1) / self.places - 1
        angle = jnp.pi * unit.astype(jnp.float32)
        chosen = jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)
        spread = 1 - (chosen.mean(0) ** 2).sum()

        deciding, leaves = stage == DECIDING, unit[0] < 0
        in_town = self.met - (self.met + self.missed) * spread
        reward = jnp.where(deciding, jnp.where(leaves, self.home, 0.0), in_town)
        after = jnp.where(deciding, jnp.where(leaves, HOME, IN_TOWN), OVER).astype(jnp.float32)
        place = jnp.where(deciding, place, chosen)
        return (after, place), reward, after != IN_TOWN


TASKS = {"jax:meeting": Meeting, "jax:meeting-continuous": partial(Meeting, continuous=True)}
