"""Observations as inputs of networks: flat vectors, and convolutions for images."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import nn, random
from jaxtyping import Array, Float, PyTree

from thespis.core import Key
from thespis.nn.layers import Init, affine
from thespis.xla import fast_random

# --- observations ---------------------------------------------------------------------------


def features(spec: PyTree[jax.ShapeDtypeStruct], obs: PyTree) -> Float[Array, "... n"]:
    """Flattens an observation pytree into one vector; uint8 (images) is scaled to [0, 1]."""

    def flat(s, x):
        x = x.reshape(*x.shape[: x.ndim - len(s.shape)], -1)
        x = x.astype(jnp.float32)
        return x / 255 if s.dtype == jnp.uint8 else x

    return jnp.concatenate(jax.tree.leaves(jax.tree.map(flat, spec, obs)), -1)


def width(spec: PyTree[jax.ShapeDtypeStruct]) -> int:
    """Returns the size of `features`."""
    return sum(math.prod(s.shape) for s in jax.tree.leaves(spec))


# --- images ---------------------------------------------------------------------------------

SMALLEST = 6  # pixels: smaller images are read as vectors


@dataclass(frozen=True)
class Layers:
    """Channels, kernels and strides of convolutions."""

    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]


# Mnih et al. 2015, https://doi.org/10.1038/nature14236, and layers for images too small for it.
NATURE = Layers((32, 64, 64), (8, 4, 3), (4, 2, 1))
SMALL = Layers((16, 32), (3, 3), (1, 2))


def layers_for(image: tuple[int, int, int]) -> Layers:
    """Returns the default layers for images of this size."""
    return NATURE if min(image[:2]) >= 36 else SMALL


def image(spec: jax.ShapeDtypeStruct) -> tuple[int, int, int] | None:
    """Returns height, width and channels of a leaf if it is an image: uint8 with 2 to 4 axes.

    Channels may be first or last, or there may be none; frames of a stack count as channels.
    """
    if spec.dtype != jnp.uint8 or len(spec.shape) not in (2, 3, 4):
        return None
    frames, shape = (spec.shape[0], spec.shape[1:]) if len(spec.shape) == 4 else (1, spec.shape)
    shape = (*shape, 1) if len(shape) == 2 else shape
    height, wide, channels = (*shape[1:], shape[0]) if shape[0] < shape[2] else shape
    return None if min(height, wide) < SMALLEST else (height, wide, frames * channels)


def pixels(shape: tuple[int, ...], x: Float[Array, "... n"]) -> Float[Array, "... h w c"]:
    """Returns flat images of this shape with their channels last."""
    x = x.reshape(*x.shape[:-1], *shape)
    if len(shape) == 2:
        return x[..., None]
    if shape[-3] < shape[-1]:  # channels first
        x = jnp.moveaxis(x, -3, -1)
    if len(shape) == 4:  # frames first of all
        x = jnp.moveaxis(x, -4, -2)
        x = x.reshape(*x.shape[:-2], -1)
    return x


class Conv(eqx.Module):
    """ReLU convolutions over any leading axes, flattened at the end.

    Inputs are padded by zeros at the lower and right edge, so that every pixel is read.
    """

    weights: list[Array]
    biases: list[Array]
    strides: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, key: Key, image: tuple[int, int, int], layers: Layers, init: Init = "torch"):
        self.weights, self.biases, self.strides = [], [], layers.strides
        n_in = image[2]
        plan = zip(
            random.split(key, len(layers.kernels)), layers.channels, layers.kernels, strict=True
        )
        for k, n_out, size in plan:
            fan = size * size * n_in
            bound = 1 / math.sqrt(fan) if init == "torch" else math.sqrt(3 / fan)
            draws = fast_random.uniform(k, ((fan + 1) * n_out,), -bound, bound)
            self.weights.append(draws[n_out:].reshape(size, size, n_in, n_out))
            self.biases.append(draws[:n_out] if init == "torch" else jnp.zeros(n_out))
            n_in = n_out

    @staticmethod
    def width(image: tuple[int, int, int], layers: Layers) -> int:
        """Returns the number of outputs; 0 if the image is too small for these layers."""
        height, width, _ = image
        for size, stride in zip(layers.kernels, layers.strides, strict=True):
            height, width = (_positions(n, size, stride) for n in (height, width))
            if min(height, width) < 1:
                return 0
        return height * width * layers.channels[-1]

    def __call__(self, x: Float[Array, "... h w c"]) -> Float[Array, "... n"]:
        lead, x = x.shape[:-3], x.reshape(-1, *x.shape[-3:])
        for weight, bias, stride in zip(self.weights, self.biases, self.strides, strict=True):
            # As a product of patches: inside loops, convolutions are slow on CPUs.
            patches = _patches(x, weight.shape[0], stride)
            x = nn.relu(affine(patches, weight.reshape(-1, weight.shape[-1]), bias))
        return x.reshape(*lead, -1)


class Encoder(eqx.Module):
    """Replaces the images in a vector of `features` by outputs of convolutions."""

    convs: tuple[Conv | None, ...]  # for every leaf of the observation; None if it is no image
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __init__(
        self,
        key: Key,
        spec: PyTree[jax.ShapeDtypeStruct],
        layers: Layers | None = None,
        init: Init = "torch",
    ):
        leaves = jax.tree.leaves(spec)
        self.shapes = tuple(leaf.shape for leaf in leaves)
        convs = []
        for k, leaf in zip(random.split(key, len(leaves)), leaves, strict=True):
            size = image(leaf)
            convs.append(None if size is None else Conv(k, size, layers or layers_for(size), init))
        self.convs = tuple(convs)

    def __call__(
        self, x: Float[Array, "... n"], skip: tuple[int, ...] = ()
    ) -> Float[Array, "... m"]:
        """Encodes a vector, without the leaves to `skip`; what follows the leaves stays."""
        parts, start = [], 0
        for i, (conv, shape) in enumerate(zip(self.convs, self.shapes, strict=True)):
            end = start + math.prod(shape)
            if i not in skip:
                part = x[..., start:end]
                parts.append(part if conv is None else conv(pixels(shape, part)))
            start = end
        return jnp.concatenate([*parts, x[..., start:]], -1)


def _patches(x: Float[Array, "b h w c"], size: int, stride: int) -> Float[Array, "b _ _ _"]:
    """Returns the pixels under a square kernel at all its positions: row by row, then channels."""
    last = tuple(stride * (_positions(n, size, stride) - 1) for n in x.shape[1:3])
    for axis, start in zip((1, 2), last, strict=True):
        padding = start + size - x.shape[axis]
        if padding:
            zeros = jnp.zeros((*x.shape[:axis], padding, *x.shape[axis + 1 :]))
            x = jnp.concatenate([x, zeros], axis)
    down, right = last
    cut = lambda i, j: x[:, i : i + down + 1 : stride, j : j + right + 1 : stride]
    offsets = itertools.product(range(size), repeat=2)
    return jnp.concatenate([cut(i, j) for i, j in offsets], -1)


def _positions(n: int, size: int, stride: int) -> int:
    """Returns at how many positions a kernel covers n pixels; 0 if it is larger than them."""
    return 0 if n < size else -(-(n - size) // stride) + 1
