"""Sums of metrics on the device, and the first value that was not finite."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from thespis.core import Histogram, Mean, Row


class MetricSums(eqx.Module):
    """Sums of every metric since the last log, in few large leaves, which are passed faster."""

    names: tuple[str, ...] = eqx.field(static=True)
    total: Float[Array, "metrics members"]
    count: Float[Array, "metrics members"]
    fault: Int[Array, "3 members"]  # iteration (-1: none), position in `watched`, environment
    edges: tuple[tuple[str, tuple[float, ...]], ...] = eqx.field(static=True, default=())
    counts: Int[Array, "bins members"] | None = None  # of all histograms, one after another

    @classmethod
    def empty(cls, metrics: dict[str, Any], members: int) -> MetricSums:
        """Returns empty sums of these metrics."""
        edges = {name: x.edges for name, x in metrics.items() if isinstance(x, Histogram)}
        names = tuple(name for name in metrics if name not in edges)
        zeros = jnp.zeros((len(names), members))
        bins = sum(len(x) - 1 for x in edges.values())
        counts = jnp.zeros((bins, members), jnp.int32) if edges else None
        fault = jnp.full((3, members), -1, jnp.int32)
        return cls(names, zeros, zeros, fault, tuple(edges.items()), counts)

    def add(self, metrics: dict[str, Any], row: Row, iteration: Int[Array, ""]) -> MetricSums:
        """Adds metrics of [members], each a `Mean` or a `Histogram`, and notes the first fault.

        Metrics that are missing stay as they are.
        """
        zero = Mean(jnp.zeros_like(self.total[0]), jnp.zeros_like(self.total[0]))
        means = [metrics.get(name, zero) for name in self.names]
        total = self.total + jnp.stack([m.total for m in means])
        count = self.count + jnp.stack([m.count for m in means])

        obs, reward = not_finite(row.obs), not_finite(row.reward)  # each [members, envs]
        flags = jnp.concatenate([jnp.stack([obs.any(1), reward.any(1)]), ~jnp.isfinite(total)])
        what, env = jnp.argmax(flags, 0), jnp.argmax(obs | reward, 1)
        time = jnp.broadcast_to(iteration, what.shape)
        new = flags.any(0) & (self.fault[0] < 0)
        first = jnp.stack([time, what, env]).astype(jnp.int32)
        fault, counts = jnp.where(new[None], first, self.fault), self.counts
        if counts is not None:
            members = counts.shape[1]
            empty = lambda edges: jnp.zeros((members, len(edges) - 1), jnp.int32)
            bins = [metrics[n].count if n in metrics else empty(edges) for n, edges in self.edges]
            counts = counts + jnp.concatenate(bins, 1).T
        return dataclasses.replace(self, total=total, count=count, fault=fault, counts=counts)

    def clear(self) -> MetricSums:
        """Returns the sums set to 0, with the fault as it is."""
        # Each in a buffer of its own, since all are donated later.
        zeros = jax.tree.map(jnp.zeros_like, (self.total, self.count, self.counts))
        return dataclasses.replace(self, **dict(zip(("total", "count", "counts"), zeros)))

    def means(self, member: int) -> dict[str, Any]:
        """Returns the means of metrics that have any value."""
        total, count = self.total[:, member], self.count[:, member]
        return {n: t / c for n, t, c in zip(self.names, total, count, strict=True) if c > 0}

    def histograms(self, member: int) -> dict[str, Int[np.ndarray, "bins"]]:
        """Returns the counts between the edges of each histogram."""
        if self.counts is None:
            return {}
        ends = np.cumsum([len(edges) - 1 for _, edges in self.edges])
        parts = np.split(np.asarray(self.counts)[:, member], ends[:-1])
        return {name: part for (name, _), part in zip(self.edges, parts, strict=True)}

    @property
    def watched(self) -> list[str]:
        """Returns the names of what may have a fault."""
        return ["observation", "reward", *self.names]


def not_finite(tree) -> Bool[Array, "members envs"]:
    """Tells which environments have a floating-point number that is not finite."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    bad = [(~jnp.isfinite(x)).reshape(*x.shape[:2], -1).any(-1) for x in floats]
    return jnp.stack(bad).any(0) if bad else jnp.zeros(jax.tree.leaves(tree)[0].shape[:2], bool)
