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
    are too many pairs to store.
    """
    return quantile_parts(out, target)[0]


def quantile_parts(out: Array, target: Array) -> tuple[Array, Array]:
    """Returns the loss, and its derivative with respect to every quantile."""
    n, m = out.shape[-1], target.shape[-1]
    tau = ((jnp.arange(n, dtype=jnp.float32) + 0.5) * (1 / n))[None, :, None]
    quantiles = jnp.moveaxis(out, -1, -2)  # [critics, n, batch]: sums of whole batches

    def add(sums, atom: Float[Array, "batch"]):
        u = atom[None, None] - quantiles
        clipped = jnp.clip(u, -1.0, 1.0)  # the derivative of huber(u), clipped (u - clipped / 2)
        slope = jnp.where(u < 0, 1.0 - tau, tau) * clipped
        return (sums[0] + slope * (u - 0.5 * clipped), sums[1] + slope), None

    zero = jnp.zeros_like(quantiles)
    (loss, slope), _ = jax.lax.scan(add, (zero, zero), target.T)
    return loss.sum(-2) * (1 / (n * m)), jnp.moveaxis(slope, -1, -2) * (-1 / (n * m))


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
