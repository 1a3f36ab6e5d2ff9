"""Normalisation inside networks: over a layer (layer, RMS) or over the batch (batch norm).

A norm is a function `norm(x, valid=None)` that returns its output and the updated norm. `valid`
tells which rows of a batch count: with it, a batch norm uses the statistics of that batch and
returns itself with new running ones; without it, as in acting, it uses the running ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

Norm = Literal["none", "layer", "rms", "batch"]


def make(kind: Norm, size: int, batch: dict[str, Any]) -> LayerNorm | BatchNorm | None:
    """Returns a new norm of vectors of this size; `batch` are options of batch norm."""
    if kind == "none":
        return None
    return BatchNorm.create(size, **batch) if kind == "batch" else LayerNorm(size, kind == "layer")


class LayerNorm(eqx.Module):
    """Ba et al. 2016, https://arxiv.org/abs/1607.06450: (x - mean) / std over the last axis.

    Without the mean, and without a shift, it is RMSNorm: Zhang & Sennrich 2019,
    https://arxiv.org/abs/1910.07467.
    """

    scale: Float[Array, "n"]
    shift: Float[Array, "n"] | None

    def __init__(self, size: int, centred: bool = True):
        self.scale, self.shift = jnp.ones(size), jnp.zeros(size) if centred else None

    def __call__(self, x: Float[Array, "... n"], valid=None) -> tuple[Array, LayerNorm]:
        return layer_norm(x, self.scale, self.shift), self


@jax.custom_vjp
def layer_norm(x: Float[Array, "... n"], scale: Float[Array, "n"], shift: Array | None) -> Array:
    """Returns x, normalised over its last axis; without a shift its mean stays, as in RMSNorm."""
    return layer_norm_forward(x, scale, shift)[0]


def layer_norm_forward(x, scale, shift):
    epsilon = 1e-6 if shift is None else 1e-5
    if shift is not None:
        x = x - x.mean(-1, keepdims=True)
    # Products, as in `core.mean`, here and below.
    factor = jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + epsilon)
    normal = x * factor
    out = normal * along(scale, x)
    return out if shift is None else out + along(shift, x), (normal, factor, scale, shift)


def layer_norm_backward(saved, gradient):
    """Returns the gradients by x, scale and shift; all sums are products, which CPUs are fast at.

    With y = (x - mean) / std and d = scale * gradient, that by x is
    (d - mean(d) - y mean(d y)) / std.
    """
    normal, factor, scale, shift = saved
    weights, ones = scale * (1.0 / scale.size), jnp.ones(normal.shape[:-1])
    over_rows = lambda x: jnp.tensordot(ones, x, ones.ndim)
    along_normal = gradient * normal
    change = along(scale, normal) * gradient - normal * (along_normal @ weights)[..., None]
    if shift is None:
        return factor * change, over_rows(along_normal), None
    change = change - (gradient @ weights)[..., None]
    return factor * change, over_rows(along_normal), over_rows(gradient)


layer_norm.defvjp(layer_norm_forward, layer_norm_backward)


class BatchNorm(eqx.Module):
    """Ioffe & Szegedy 2015, https://arxiv.org/abs/1502.03167: by the mean and std of the batch.

    After `renorm` updates it is batch renormalisation, Ioffe 2017,
    https://arxiv.org/abs/1702.03275, whose output follows the running statistics.
    """

    scale: Float[Array, "n"]
    shift: Float[Array, "n"]
    mean: Float[Array, "n"]
    var: Float[Array, "n"]
    updates: Float[Array, ""]  # of the running statistics
    momentum: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    renorm: int | None = eqx.field(static=True)

    @classmethod
    def create(cls, size: int, momentum=0.99, epsilon=1e-3, renorm: int | None = None) -> BatchNorm:
        """Returns a new norm of vectors of this size."""
        ones, zeros = jnp.ones(size), jnp.zeros(size)
        return cls(ones, zeros, zeros, ones, jnp.zeros(()), momentum, epsilon, renorm)

    def __call__(self, x: Float[Array, "... n"], valid=None) -> tuple[Array, BatchNorm]:
        if valid is None:
            factor, shift = self.affine
            return x * along(factor, x) + along(shift, x), self
        x, (factor, shift), new = self.parts(x, valid)
        return x * along(factor, x) + along(shift, x), new

    def parts(
        self, x: Float[Array, "... n"], valid: Float[Array, "..."]
    ) -> tuple[Array, tuple[Array, Array], BatchNorm]:
        """Returns x', (factor, shift) and the updated norm; the output is factor x' + shift."""
        rows, weight = x.reshape(-1, x.shape[-1]), valid.reshape(-1)
        weight = weight * (1.0 / jnp.maximum(weight.sum(), 1.0))
        # Selected, not only multiplied by 0: rows that are not valid may hold anything.
        rows = jnp.where(weight[:, None] > 0, rows, 0.0)
        mean = weight @ rows
        # The gradient of the mean goes through the shift, where it needs no pass over the rows.
        # The variance needs no such term: at the mean its derivative by the centre is 0.
        centre = stop_gradient(mean)
        centred = rows - centre[None]
        var = weight @ centred**2
        factor, shift = self.scale * jax.lax.rsqrt(var + self.epsilon), self.shift
        if self.renorm is not None:
            r, d = self.correction(mean, var)
            factor, shift = factor * r, shift + self.scale * d
        shift = shift - (mean - centre) * factor
        some = valid.sum() > 0  # an empty batch changes no statistics
        batch = jnp.where(some, mean, self.mean), jnp.where(some, var, self.var)
        return centred.reshape(x.shape), (factor, shift), self.follow(*stop_gradient(batch))

    @property
    def affine(self) -> tuple[Array, Array]:
        """Returns factor and shift of the norm outside of training."""
        factor = self.scale * jax.lax.rsqrt(self.var + self.epsilon)
        return factor, self.shift - self.mean * factor

    def correction(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Returns factor and shift towards the running statistics, from update `renorm` on."""
        std, running = jnp.sqrt(var + self.epsilon), jnp.sqrt(self.var + self.epsilon)
        r = jnp.clip(std / running, 1 / 3, 3.0)
        d = jnp.clip((mean - self.mean) / running, -5.0, 5.0)
        late = self.updates >= (self.renorm or 0)
        return stop_gradient((jnp.where(late, r, 1.0), jnp.where(late, d, 0.0)))

    def follow(self, mean: Array, var: Array) -> BatchNorm:
        """Returns the norm with running statistics moved towards those of a batch."""
        mix = lambda old, new: self.momentum * old + (1 - self.momentum) * new
        return replace(
            self, mean=mix(self.mean, mean), var=mix(self.var, var), updates=self.updates + 1
        )


def along(x: Float[Array, "n"], like: Float[Array, "... n"]) -> Array:
    """Returns a vector with as many axes as another array, to broadcast."""
    return x.reshape((1,) * (like.ndim - 1) + x.shape)


# --- running statistics of whole networks ---------------------------------------------------


def is_norm(x: Any) -> bool:
    return isinstance(x, BatchNorm)


def batch_norms(network: Any) -> list[BatchNorm]:
    """Returns every batch norm in a tree of networks."""
    return [x for x in jax.tree.leaves(network, is_leaf=is_norm) if is_norm(x)]


def with_statistics(network: Any, norms: list[BatchNorm]) -> Any:
    """Returns networks with the running statistics of `norms`, in the order of `batch_norms`.

    No parameter changes, so `norms` may come from before a gradient step.
    """
    remaining = iter(norms)

    def copy(norm: BatchNorm) -> BatchNorm:
        new = next(remaining)
        return replace(norm, mean=new.mean, var=new.var, updates=new.updates)

    return jax.tree.map(lambda x: copy(x) if is_norm(x) else x, network, is_leaf=is_norm)
