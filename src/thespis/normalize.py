"""Running mean and variance, exact for batches and steady after any number of rows."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree


class Running(eqx.Module):
    """Statistics of vectors or arrays; they start as if one row of mean 0, variance 1 was seen."""

    mean: Float[Array, "..."]
    var: Float[Array, "..."]
    count: Int[Array, ""]

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Running:
        return cls(jnp.zeros(shape), jnp.ones(shape), jnp.zeros((), jnp.int32))

    def update(self, rows: Float[Array, "..."]) -> Running:
        """Leading axes are merged."""
        rows = rows.reshape(-1, *self.mean.shape)
        n, count = rows.shape[0], self.count + rows.shape[0]
        share = n / count.astype(jnp.float32)
        centre = rows.mean(0)  # deviations from it are small even where values are large
        off = centre - self.mean
        mean = self.mean + off * share
        squares = ((rows - centre[None]) ** 2).sum(0) + off**2 * n * (1 - share)
        # var = (1 + all squares) / (count + 1), as an increment so that it never drifts.
        var = self.var + (squares - n * self.var) / (count + 1).astype(jnp.float32)
        return Running(mean, var, count)

    def __call__(self, x: Float[Array, "..."], clip: float | None = 5.0) -> Float[Array, "..."]:
        """(x - mean) / std; clipped, the variance is kept within [1e-6, 1e6]."""
        lead = (1,) * (x.ndim - self.mean.ndim)
        mean, var = (m.reshape(lead + m.shape) for m in (self.mean, self.var))
        if clip is None:
            return (x - mean) / jnp.sqrt(var)
        return jnp.clip((x - mean) / jnp.sqrt(jnp.clip(var, 1e-6, 1e6)), -clip, clip)


def statistics(spec: PyTree[jax.ShapeDtypeStruct]) -> PyTree:
    """A `Running` for every floating leaf of an observation; bytes (images) stay as they are."""
    of = lambda s: Running.of(s.shape) if jnp.issubdtype(s.dtype, jnp.floating) else None
    return jax.tree.map(of, spec)


def update(stats: PyTree, obs: PyTree) -> PyTree:
    return _map(lambda s, x: s.update(x), lambda x: None, stats, obs)


def normalise(stats: PyTree, obs: PyTree) -> PyTree:
    return _map(lambda s, x: s(x), lambda x: x, stats, obs)


def _map(known, unknown, stats, obs):
    leaf = lambda x: x is None or isinstance(x, Running)
    return jax.tree.map(
        lambda s, x: unknown(x) if s is None else known(s, x), stats, obs, is_leaf=leaf
    )
