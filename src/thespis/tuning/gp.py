"""Gaussian-process regression of a function that drifts, by which PB2 chooses hyper-parameters.

Rasmussen & Williams 2006, algorithm 2.1, with the kernel of Bogunovic et al. 2016.
"""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float

# (length scale for inputs in [0, 1], drift per unit of time, variance of the noise)
GRID = np.array(list(itertools.product((0.1, 0.2, 0.4, 0.8), (0.0, 0.05, 0.2), (0.01, 0.1, 0.5))))


class Data(eqx.Module):
    """Inputs in [0, 1], times, and values of mean 0 and variance 1, if they are known."""

    x: Float[Array, "n d"]
    time: Float[Array, "n"]
    y: Float[Array, "n"]
    known: Bool[Array, "n"]


def kernel(a: Data, b: Data, scale, drift) -> Float[Array, "a b"]:
    """Returns the covariance: a squared exponential of inputs times (1 - drift)^(|t - t'| / 2)."""
    squares = ((a.x[:, None] - b.x[None]) ** 2).sum(-1)
    interval = jnp.abs(a.time[:, None] - b.time[None])
    known = (a.known[:, None] & b.known[None]).astype(jnp.float32)
    return known * jnp.exp(-squares / (2 * scale**2)) * (1 - drift) ** (interval / 2)


def factor(data: Data, scale, drift, noise) -> Float[Array, "n n"]:
    """Returns the Cholesky factor of the covariance; unknown values are independent of all."""
    return jnp.linalg.cholesky(
        kernel(data, data, scale, drift) + jnp.diag(jnp.where(data.known, noise + 1e-4, 1.0))
    )


def fit(data: Data) -> Float[Array, "3"]:
    """Returns the entry of the grid under which the data are most likely."""

    def evidence(entry):
        lower = factor(data, *entry)
        weights = cho_solve((lower, True), data.y)
        return -0.5 * data.y @ weights - jnp.log(jnp.diagonal(lower)).sum()

    grid = jnp.asarray(GRID, jnp.float32)
    return grid[jnp.argmax(jax.lax.map(evidence, grid))]


def posterior(data: Data, at: Data, entry) -> tuple[Float[Array, "m"], Float[Array, "m"]]:
    """Returns mean and standard deviation of the function at other inputs and times."""
    scale, drift, _ = entry
    lower = factor(data, *entry)
    cross = kernel(data, at, scale, drift)
    mean = cross.T @ cho_solve((lower, True), data.y)
    explained = (solve_triangular(lower, cross, lower=True) ** 2).sum(0)
    return mean, jnp.sqrt(jnp.maximum(1 - explained, 1e-6))
