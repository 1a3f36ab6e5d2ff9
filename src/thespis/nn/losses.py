"""Losses of errors, and the explained variance."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def huber(error: Array, delta) -> Array:
    """Returns the Huber loss: e^2 / 2 up to delta, and linear beyond."""
    size = jnp.abs(error)
    return jnp.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))


@jax.custom_jvp
def quantile_huber(
    out: Float[Array, "critics batch n"], target: Float[Array, "batch m"]
) -> Float[Array, "critics batch"]:
    """Returns E |tau - 1[u < 0]| huber(u) over all pairs of a quantile and an atom of the target.

    Targets get no gradient. That of the quantiles is computed in the forward pass, since there
    are too many pairs to store for a backward one.
    """
    return quantile_parts(out, target)[0]


def quantile_parts(out: Array, target: Array) -> tuple[Array, Array]:
    """Returns the loss, and its derivative with respect to every quantile."""
    n = out.shape[-1]
    tau = (jnp.arange(n, dtype=jnp.float32) + 0.5) / n
    u = target[None, :, None, :] - out[..., None]
    weight = jnp.abs(tau[None, None, :, None] - (u < 0).astype(jnp.float32))
    loss = (weight * huber(u, 1.0)).mean((-2, -1))
    return loss, -(weight * jnp.clip(u, -1.0, 1.0)).mean(-1) / n


@quantile_huber.defjvp
def _(inputs, tangents):
    loss, slope = quantile_parts(*inputs)
    return loss, (slope * tangents[0]).sum(-1)


def explained_variance(
    target: Float[Array, "a b d"], prediction: Float[Array, "a b d"], valid: Float[Array, "a b"]
) -> Float[Array, "d"]:
    """Returns the explained fraction of the targets' variance, over valid entries."""
    weight = (valid * (1.0 / jnp.maximum(valid.sum(), 1.0)))[..., None]
    variance = lambda x: (weight * (x - (weight * x).sum((0, 1))[None, None]) ** 2).sum((0, 1))
    return 1.0 - variance(target - prediction) / jnp.maximum(variance(target), 1e-8)
