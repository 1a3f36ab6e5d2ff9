"""What is counted on the way: sums of metrics, and the first number that was not finite."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.core import Mean, Row


class Tally(eqx.Module):
    """Sums of every metric since the last log. Few and large leaves: they cross calls faster."""

    names: tuple[str, ...] = eqx.field(static=True)
    total: Float[Array, "metrics members"]
    count: Float[Array, "metrics members"]
    fault: Int[Array, "3 members"]  # iteration (-1: none), position in `watched`, environment

    @classmethod
    def of(cls, names: list[str], members: int) -> Tally:
        zeros = jnp.zeros((len(names), members))
        return cls(tuple(names), zeros, zeros, jnp.full((3, members), -1, jnp.int32))

    def add(self, seen: dict[str, Mean], row: Row, iteration: Int[Array, ""]) -> Tally:
        """Add metrics of [members], leaves of those not seen stay; remember the first fault."""
        none = Mean(jnp.zeros_like(self.total[0]), jnp.zeros_like(self.total[0]))
        means = [seen.get(name, none) for name in self.names]
        total = self.total + jnp.stack([m.total for m in means])
        count = self.count + jnp.stack([m.count for m in means])

        obs, reward = not_finite(row.obs), not_finite(row.reward)  # each [members, envs]
        flags = jnp.concatenate([jnp.stack([obs.any(1), reward.any(1)]), ~jnp.isfinite(total)])
        what, env = jnp.argmax(flags, 0), jnp.argmax(obs | reward, 1)
        time = jnp.broadcast_to(iteration, what.shape)
        new = flags.any(0) & (self.fault[0] < 0)
        first = jnp.stack([time, what, env]).astype(jnp.int32)
        return Tally(self.names, total, count, jnp.where(new[None], first, self.fault))

    def clear(self) -> Tally:
        zeros = lambda: jnp.zeros_like(self.total)  # of their own: both are given away later
        return Tally(self.names, zeros(), zeros(), self.fault)

    def means(self, member: int) -> dict[str, Any]:
        """The metrics that were seen."""
        total, count = self.total[:, member], self.count[:, member]
        return {n: t / c for n, t, c in zip(self.names, total, count, strict=True) if c > 0}

    @property
    def watched(self) -> list[str]:
        """What a fault may be in."""
        return ["observation", "reward", *self.names]


def not_finite(tree) -> Bool[Array, "members envs"]:
    """Which environments have a floating number that is not finite."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    bad = [(~jnp.isfinite(x)).reshape(*x.shape[:2], -1).any(-1) for x in floats]
    return jnp.stack(bad).any(0) if bad else jnp.zeros(jax.tree.leaves(tree)[0].shape[:2], bool)
