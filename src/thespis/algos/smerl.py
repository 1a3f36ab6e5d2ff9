"""SMERL: several ways to solve a task. Kumar et al. 2020, https://arxiv.org/abs/2010.14484.

Skills get the environment's reward, and the intrinsic one only if their return is near the best.
Returns are those of the last episodes.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import nn
from jaxtyping import Array, Bool, Float, Int

EPISODES = 200  # number of episodes that are remembered
WIDTH = 0.2  # bandwidth, in the space of skills, of the kernel that averages returns
FAR = 1e30


class Returns(eqx.Module):
    """The skills and returns of the last episodes."""

    skill: Float[Array, "episodes size"]
    total: Float[Array, "episodes"]
    count: Int[Array, ""]  # episodes so far

    @classmethod
    def none(cls, size: int) -> Returns:
        """Returns an empty memory for skills of this size."""
        return cls(jnp.zeros((EPISODES, size)), jnp.zeros(EPISODES), jnp.zeros((), jnp.int32))

    def add(
        self, skill: Float[Array, "n size"], total: Float[Array, "n"], ended: Bool[Array, "n"]
    ) -> Returns:
        """Adds those of n episodes that ended, in place of the oldest."""
        number = jnp.cumsum(ended.astype(jnp.int32))  # 1, 2, ... of those that ended
        fits = ended & (number > number[-1] - EPISODES)
        slot = jnp.where(fits, (self.count + number - 1) % EPISODES, EPISODES)
        put = lambda ring, x: ring.at[slot].set(x, mode="drop")
        return Returns(put(self.skill, skill), put(self.total, total), self.count + number[-1])

    def expected(self, skill: Float[Array, "n size"]) -> Float[Array, "n"]:
        """Returns the expected returns of skills: means over episodes, weighed by similarity."""
        squared_distance = ((skill[:, None] - self.skill[None]) ** 2).sum(-1)
        known = jnp.arange(EPISODES) < self.count
        return (
            nn.softmax(jnp.where(known[None], -squared_distance / (2 * WIDTH**2), -FAR))
            @ self.total
        )

    def near_best(
        self, skill: Float[Array, "n size"], margin, best: float | None = None
    ) -> Float[Array, "n"]:
        """Returns 1 where R(z) >= R* - margin |R*|; R* is the best return of all skills by default.

        All are 0 before the first episode has ended.
        """
        known = jnp.arange(EPISODES) < self.count
        top = jnp.where(known, self.expected(self.skill), -FAR).max() if best is None else best
        near = self.expected(skill) >= top - margin * jnp.abs(top)
        return jnp.where(self.count > 0, near.astype(jnp.float32), 0.0)
