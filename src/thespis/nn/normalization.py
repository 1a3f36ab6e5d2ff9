"""Running mean and variance, exact for batches and steady after any number of rows."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

MOST = 2**30  # rows that are counted: then older ones fade


class Running(eqx.Module):
    """Statistics of vectors or arrays; they start as if one row of mean 0, variance 1 was seen.

    That row counts `prior` times: without it small numbers have their own scale at once.
    """

    mean: Float[Array, "..."]
    var: Float[Array, "..."]
    count: Int[Array, ""]
    prior: int = eqx.field(static=True, default=1)

    @classmethod
    def of(cls, shape: tuple[int, ...], prior: int = 1) -> Running:
        return cls(jnp.zeros(shape), jnp.ones(shape), jnp.zeros((), jnp.int32), prior)

    def update(
        self, rows: Float[Array, "..."], valid: Float[Array, "..."] | None = None
    ) -> Running:
        """Leading axes are merged; rows that are not valid (0, else 1) count as if not there."""
        rows = rows.reshape(-1, *self.mean.shape)
        here = jnp.ones(len(rows), bool) if valid is None else valid.reshape(-1) > 0
        n, at_least_one = here.sum(dtype=jnp.float32), partial(jnp.maximum, 1)
        count = jnp.minimum(self.count + n.astype(jnp.int32), MOST)
        share = n / at_least_one(count).astype(jnp.float32)
        here = here.reshape(-1, *(1,) * self.mean.ndim)
        # Chosen, not multiplied by 0: what is left out may be anything.
        total = lambda x: jnp.where(here, x, 0.0).sum(0)
        centre = total(rows) / at_least_one(n)  # deviations from it are small even of large values
        off = jnp.where(n > 0, centre - self.mean, 0.0)
        squares = total((rows - centre[None]) ** 2) + off**2 * n * (1 - share)
        # var = (prior + all squares) / (count + prior), as an increment so that it never drifts.
        whole = at_least_one(count + self.prior).astype(jnp.float32)
        var = self.var + (squares - n * self.var) / whole
        var = jnp.where(whole == n, squares / whole, var)  # nothing was before: exact if small
        return Running(self.mean + off * share, var, count, self.prior)

    def __call__(
        self, x: Float[Array, "..."], clip: float | None = 5.0, floor: float = 1e-6
    ) -> Float[Array, "..."]:
        """(x - mean) / std; clipped, the variance is kept within [floor, 1e6]."""
        lead = (1,) * (x.ndim - self.mean.ndim)
        mean, var = (m.reshape(lead + m.shape) for m in (self.mean, self.var))
        if clip is None:
            return (x - mean) / jnp.sqrt(var)
        return jnp.clip((x - mean) / jnp.sqrt(jnp.clip(var, floor, 1e6)), -clip, clip)


class ReturnScale(eqx.Module):
    """Statistics of discounted returns, by which rewards are scaled."""

    returns: Running
    largest: Float[Array, ""]  # that a return was away from 0

    @classmethod
    def of(cls) -> ReturnScale:
        return cls(Running.of(()), jnp.zeros(()))

    def update(self, returns: Float[Array, "n"], valid: Float[Array, "n"]) -> ReturnScale:
        """Counts the returns of new rows, those that are valid (1, else 0)."""
        sizes = jnp.where(valid > 0, jnp.abs(returns), 0.0)
        return ReturnScale(
            self.returns.update(returns, valid), jnp.maximum(self.largest, sizes.max())
        )

    def factor(self, bound: float | None = None) -> Float[Array, ""]:
        """Returns 1 / std, or less where scaled returns would lie beyond a bound."""
        std = jnp.sqrt(self.returns.var + 1e-8)
        return 1.0 / (std if bound is None else jnp.maximum(std, self.largest / bound))


def statistics(spec: PyTree[jax.ShapeDtypeStruct]) -> PyTree:
    """A `Running` for every floating leaf of an observation; bytes (images) stay as they are."""
    of = lambda s: Running.of(s.shape) if jnp.issubdtype(s.dtype, jnp.floating) else None
    return jax.tree.map(of, spec)


def update(stats: PyTree, obs: PyTree, kept: Bool[Array, "..."] | None = None) -> PyTree:
    valid = None if kept is None else kept.astype(jnp.float32)
    return _map(lambda s, x: s.update(x, valid), lambda x: None, stats, obs)


def normalise(stats: PyTree, obs: PyTree) -> PyTree:
    return _map(lambda s, x: s(x), lambda x: x, stats, obs)


def _map(known, unknown, stats, obs):
    leaf = lambda x: x is None or isinstance(x, Running)
    return jax.tree.map(
        lambda s, x: unknown(x) if s is None else known(s, x), stats, obs, is_leaf=leaf
    )
