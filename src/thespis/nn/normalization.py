"""Running mean and variance, exact for batches and stable after any number of rows."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

MOST = 2**30  # rows that are counted; beyond, older ones lose their weight


class Running(eqx.Module):
    """Statistics of arrays, whose variance starts as if `prior` rows of variance 1 had been seen.

    With `prior` = 0, even the first rows are normalised by their own scale.
    """

    mean: Float[Array, "..."]
    var: Float[Array, "..."]
    count: Int[Array, ""]
    prior: int = eqx.field(static=True, default=1)

    @classmethod
    def create(cls, shape: tuple[int, ...], prior: int = 1) -> Running:
        return cls(jnp.zeros(shape), jnp.ones(shape), jnp.zeros((), jnp.int32), prior)

    def update(
        self, rows: Float[Array, "..."], valid: Float[Array, "..."] | None = None
    ) -> Running:
        """Returns the statistics after new rows, whose leading axes are merged.

        Rows that are not valid (0, else 1) do not count.
        """
        rows = rows.reshape(-1, *self.mean.shape)
        counted = jnp.ones(len(rows), bool) if valid is None else valid.reshape(-1) > 0
        n, at_least_one = counted.sum(dtype=jnp.float32), partial(jnp.maximum, 1)
        count = jnp.minimum(self.count + n.astype(jnp.int32), MOST)
        share = n / at_least_one(count).astype(jnp.float32)
        counted = counted.reshape(-1, *(1,) * self.mean.ndim)
        # Selected, not multiplied by 0: rows that are not valid may hold anything.
        total = lambda x: jnp.where(counted, x, 0.0).sum(0)
        # Deviations from it are small even of large values. Products, as in `core.mean`.
        centre = total(rows) * (1.0 / at_least_one(n))
        delta = jnp.where(n > 0, centre - self.mean, 0.0)
        squares = total((rows - centre[None]) ** 2) + delta**2 * n * (1 - share)
        # var = (prior + all squares) / (count + prior), as an increment so that it never drifts.
        weight = at_least_one(count + self.prior).astype(jnp.float32)
        var = self.var + (squares - n * self.var) * (1.0 / weight)
        first = squares * (1.0 / weight)  # of the first rows: exact if small
        var = jnp.where(weight == n, first, var)
        return Running(self.mean + delta * share, var, count, self.prior)

    def __call__(
        self, x: Float[Array, "..."], clip: float | None = 5.0, floor: float = 1e-6
    ) -> Float[Array, "..."]:
        """Returns (x - mean) / std within +-clip, with the variance within [floor, 1e6].

        With `clip` = None, neither is clipped.
        """
        lead = (1,) * (x.ndim - self.mean.ndim)
        mean, var = (m.reshape(lead + m.shape) for m in (self.mean, self.var))
        if clip is None:
            return (x - mean) * jax.lax.rsqrt(var)  # a product, as in `core.mean`
        scale = jax.lax.rsqrt(jnp.clip(var, floor, 1e6))
        return jnp.clip((x - mean) * scale, -clip, clip)


class ReturnScale(eqx.Module):
    """Statistics of discounted returns, by which rewards are scaled."""

    returns: Running
    largest: Float[Array, ""]  # absolute value of a return

    @classmethod
    def create(cls) -> ReturnScale:
        return cls(Running.create(()), jnp.zeros(()))

    def update(self, returns: Float[Array, "n"], valid: Float[Array, "n"]) -> ReturnScale:
        """Returns the statistics after the returns of new rows, if these are valid (1, else 0)."""
        sizes = jnp.where(valid > 0, jnp.abs(returns), 0.0)
        return ReturnScale(
            self.returns.update(returns, valid), jnp.maximum(self.largest, sizes.max())
        )

    def factor(self, bound: float | None = None) -> Float[Array, ""]:
        """Returns 1 / std, or less if scaled returns would exceed the bound."""
        std = jnp.sqrt(self.returns.var + 1e-8)
        return 1.0 / (std if bound is None else jnp.maximum(std, self.largest / bound))


def statistics(spec: PyTree[jax.ShapeDtypeStruct]) -> PyTree:
    """Returns a `Running` for every floating leaf of an observation; None for others (images)."""
    new = lambda s: Running.create(s.shape) if jnp.issubdtype(s.dtype, jnp.floating) else None
    return jax.tree.map(new, spec)


def update(stats: PyTree, obs: PyTree, mask: Bool[Array, "..."] | None = None) -> PyTree:
    """Returns the statistics after new observations, or after those of the mask."""
    valid = None if mask is None else mask.astype(jnp.float32)
    one = lambda s, x: None if s is None else s.update(x, valid)
    return jax.tree.map(one, stats, obs, is_leaf=is_statistic)


def normalise(stats: PyTree, obs: PyTree) -> PyTree:
    """Returns observations whose floating leaves are normalised."""
    one = lambda s, x: x if s is None else s(x)
    return jax.tree.map(one, stats, obs, is_leaf=is_statistic)


def is_statistic(x) -> bool:
    return x is None or isinstance(x, Running)
