"""SMERL: differ only where the task is solved. Kumar et al. 2020, https://arxiv.org/abs/2010.14484.

Skills are rewarded by the environment, and for being different only if their return is near the
best: so they become several ways to do well. Returns are remembered of the last episodes.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import nn
from jaxtyping import Array, Bool, Float, Int

EPISODES = 200  # that are remembered
WIDTH = 0.2  # how far skills may be apart to count as alike
FAR = 1e30


class Returns(eqx.Module):
    """Remembers the last episodes: their skills and returns."""

    skill: Float[Array, "episodes size"]
    total: Float[Array, "episodes"]
    count: Int[Array, ""]  # episodes so far

    @classmethod
    def none(cls, size: int) -> Returns:
        """Returns a memory of no episodes, of skills of this size."""
        return cls(jnp.zeros((EPISODES, size)), jnp.zeros(EPISODES), jnp.zeros((), jnp.int32))

    def add(
        self, skill: Float[Array, "n size"], total: Float[Array, "n"], ended: Bool[Array, "n"]
    ) -> Returns:
        """Adds those of n environments whose episodes ended, in place of the oldest."""
        number = jnp.cumsum(ended.astype(jnp.int32))  # 1, 2, ... of those that ended
        kept = ended & (number > number[-1] - EPISODES)
        slot = jnp.where(kept, (self.count + number - 1) % EPISODES, EPISODES)
        put = lambda ring, x: ring.at[slot].set(x, mode="drop")
        return Returns(put(self.skill, skill), put(self.total, total), self.count + number[-1])

    def expected(self, skill: Float[Array, "n size"]) -> Float[Array, "n"]:
        """Returns what skills earn: the mean over episodes, those of skills alike counting most."""
        squared_distance = ((skill[:, None] - self.skill[None]) ** 2).sum(-1)
        known = jnp.arange(EPISODES) < self.count
        return (
            nn.softmax(jnp.where(known[None], -squared_distance / (2 * WIDTH**2), -FAR))
            @ self.total
        )

    def near_best(
        self, skill: Float[Array, "n size"], margin, best: float | None = None
    ) -> Float[Array, "n"]:
        """Returns 1 where R(z) >= R* - margin |R*|, with R* the best of any skill if not given.

        It is 0 for all before the first episode has ended.
        """
        known = jnp.arange(EPISODES) < self.count
        top = jnp.where(known, self.expected(self.skill), -FAR).max() if best is None else best
        near = self.expected(skill) >= top - margin * jnp.abs(top)
        return jnp.where(self.count > 0, near.astype(jnp.float32), 0.0)
