"""Losses of errors, and how well predictions fit."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def huber(error: Array, delta) -> Array:
    """Returns Huber's loss: e^2 / 2 up to delta, and straight from there on."""
    size = jnp.abs(error)
    return jnp.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))


def explained_variance(
    target: Float[Array, "a b d"], prediction: Float[Array, "a b d"], valid: Float[Array, "a b"]
) -> Float[Array, "d"]:
    """Returns the share of the targets' variance, over valid entries, that predictions explain."""
    share = (valid / jnp.maximum(valid.sum(), 1.0))[..., None]
    variance = lambda x: (share * (x - (share * x).sum((0, 1))[None, None]) ** 2).sum((0, 1))
    return 1.0 - variance(target - prediction) / jnp.maximum(variance(target), 1e-8)
