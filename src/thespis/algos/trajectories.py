"""TAAC with trajectories that move: lines (TAAC-L) and parabolas (TAAC-Q).

Every part lies in [-1, 1], whatever the bounds of the environment's actions are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from thespis.algos.taac import TAAC


@dataclass(frozen=True)
class TAACL(TAAC):
    """Follows lines: tau is an action and its slope, (a, v)."""

    inverse_mode: bool = True
    """Let the actor propose the next action, from which the slope follows, instead of the slope."""
    parts: ClassVar[int] = 2

    def advance(self, trajectory):
        """Returns the trajectory one step further, tau0."""
        a, v = jnp.split(trajectory, 2, -1)
        return jnp.concatenate([bounded(a + 2 * v), v], -1)

    def new(self, proposal, last):
        """Returns the trajectory that a proposal begins, tau1."""
        a, _ = jnp.split(last, 2, -1)
        if self.inverse_mode:
            return jnp.concatenate([proposal, (proposal - a) / 2], -1)
        return self.advance(jnp.concatenate([a, proposal], -1))


@dataclass(frozen=True)
class TAACQ(TAAC):
    """Follows parabolas: tau is (a, v, u), u the change of the slope v."""

    inverse_mode: bool = True
    """Let the actor propose the next action, from which v and u follow, instead of u from rest."""
    parts: ClassVar[int] = 3

    def advance(self, trajectory):
        """Returns the trajectory one step further, tau0."""
        a, v, u = jnp.split(trajectory, 3, -1)
        v = bounded(v + 2 * u)
        return jnp.concatenate([bounded(a + 2 * v), v, u], -1)

    def new(self, proposal, last):
        """Returns the trajectory that a proposal begins, tau1."""
        a, _, _ = jnp.split(last, 3, -1)
        if self.inverse_mode:
            v = (proposal - a) / 2
            return jnp.concatenate([proposal, v, v / 2], -1)
        return self.advance(jnp.concatenate([a, jnp.zeros_like(a), proposal], -1))


@jax.custom_jvp
def bounded(x: Array) -> Array:
    """Clips to [-1, 1], with the gradient of the identity: no actor gets stuck at a bound."""
    return jnp.clip(x, -1, 1)


bounded.defjvp(lambda primals, tangents: (bounded(*primals), *tangents))
