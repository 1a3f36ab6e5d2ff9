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
    """The last episodes: their skills and returns."""

    skill: Float[Array, "episodes size"]
    total: Float[Array, "episodes"]
    count: Int[Array, ""]  # episodes so far

    @classmethod
    def none(cls, size: int) -> Returns:
        return cls(jnp.zeros((EPISODES, size)), jnp.zeros(EPISODES), jnp.zeros((), jnp.int32))

    def add(
        self, skill: Float[Array, "n size"], total: Float[Array, "n"], ended: Bool[Array, "n"]
    ) -> Returns:
        """Those of n environments whose episodes ended, over the oldest."""
        number = jnp.cumsum(ended.astype(jnp.int32))  # 1, 2, ... of those that ended
        kept = ended & (number > number[-1] - EPISODES)
        slot = jnp.where(kept, (self.count + number - 1) % EPISODES, EPISODES)
        put = lambda ring, x: ring.at[slot].set(x, mode="drop")
        return Returns(put(self.skill, skill), put(self.total, total), self.count + number[-1])

    def of(self, skill: Float[Array, "n size"]) -> Float[Array, "n"]:
        """The return of skills: the mean over episodes, those of skills alike counting most."""
        apart = ((skill[:, None] - self.skill[None]) ** 2).sum(-1)
        known = jnp.arange(EPISODES) < self.count
        return nn.softmax(jnp.where(known[None], -apart / (2 * WIDTH**2), -FAR)) @ self.total

    def near_best(
        self, skill: Float[Array, "n size"], margin, best: float | None = None
    ) -> Float[Array, "n"]:
        """1 where R(z) >= R* - margin |R*|, with R* the best of any skill if it is not given.

        0 for all before the first episode has ended.
        """
        known = jnp.arange(EPISODES) < self.count
        top = jnp.where(known, self.of(self.skill), -FAR).max() if best is None else best
        near = self.of(skill) >= top - margin * jnp.abs(top)
        return jnp.where(self.count > 0, near.astype(jnp.float32), 0.0)
