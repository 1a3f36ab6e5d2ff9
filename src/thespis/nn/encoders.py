"""Observations as networks read them: one vector, images turned into numbers by convolutions."""

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
    """An observation pytree as one vector; bytes (images) become numbers in [0, 1]."""

    def flat(s, x):
        x = x.reshape(*x.shape[: x.ndim - len(s.shape)], -1)
        x, image = x.astype(jnp.float32), s.dtype == jnp.uint8
        return x / 255 if image else x

    return jnp.concatenate(jax.tree.leaves(jax.tree.map(flat, spec, obs)), -1)


def width(spec: PyTree[jax.ShapeDtypeStruct]) -> int:
    """Numbers in `features`."""
    return sum(math.prod(s.shape) for s in jax.tree.leaves(spec))


# --- images ---------------------------------------------------------------------------------

SMALLEST = 6  # pixels: what is smaller is read number by number


@dataclass(frozen=True)
class Layers:
    """Channels, kernels and strides of convolutions."""

    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]


# Mnih et al. 2015, https://doi.org/10.1038/nature14236; and one for images too small for it.
NATURE = Layers((32, 64, 64), (8, 4, 3), (4, 2, 1))
SMALL = Layers((16, 32), (3, 3), (1, 2))


def layers_for(image: tuple[int, int, int]) -> Layers:
    """The usual ones for images of that many pixels."""
    return NATURE if min(image[:2]) >= 36 else SMALL


def image(spec: jax.ShapeDtypeStruct) -> tuple[int, int, int] | None:
    """Height, width and channels of a leaf, if it is an image: bytes in two dimensions or more.

    Channels may be first or last, or there may be none; frames of a stack are channels too.
    """
    if spec.dtype != jnp.uint8 or len(spec.shape) not in (2, 3, 4):
        return None
    frames, shape = (spec.shape[0], spec.shape[1:]) if len(spec.shape) == 4 else (1, spec.shape)
    shape = (*shape, 1) if len(shape) == 2 else shape
    height, wide, channels = (*shape[1:], shape[0]) if shape[0] < shape[2] else shape
    return None if min(height, wide) < SMALLEST else (height, wide, frames * channels)


def pixels(shape: tuple[int, ...], x: Float[Array, "... n"]) -> Float[Array, "... h w c"]:
    """A flat image of that shape with its channels last."""
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
    """ReLU convolutions, over any leading axes, flat at the end. Each reads all that is before it:
    where its last step leads beyond the lower or right edge there are zeros."""

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
            reach = 1 / math.sqrt(fan) if init == "torch" else math.sqrt(3 / fan)
            draws = fast_random.uniform(k, ((fan + 1) * n_out,), -reach, reach)
            self.weights.append(draws[n_out:].reshape(size, size, n_in, n_out))
            self.biases.append(draws[:n_out] if init == "torch" else jnp.zeros(n_out))
            n_in = n_out

    @staticmethod
    def width(image: tuple[int, int, int], layers: Layers) -> int:
        """Numbers that come out; 0 if the image is too small for these layers."""
        height, wide, _ = image
        for size, stride in zip(layers.kernels, layers.strides, strict=True):
            height, wide = (_places(n, size, stride) for n in (height, wide))
            if min(height, wide) < 1:
                return 0
        return height * wide * layers.channels[-1]

    def __call__(self, x: Float[Array, "... h w c"]) -> Float[Array, "... n"]:
        lead, x = x.shape[:-3], x.reshape(-1, *x.shape[-3:])
        for weight, bias, stride in zip(self.weights, self.biases, self.strides, strict=True):
            # As a product of patches: inside loops CPUs are slow at convolutions, not at products.
            seen = _patches(x, weight.shape[0], stride)
            x = nn.relu(affine(seen, weight.reshape(-1, weight.shape[-1]), bias))
        return x.reshape(*lead, -1)


class Encoder(eqx.Module):
    """Turns the images in a vector of `features` into numbers that say more; all else passes."""

    convs: tuple[Conv | None, ...]  # of every leaf of the observation
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
        """What of the vector is no observation passes as well; leaves to skip do not."""
        parts, at = [], 0
        for i, (conv, shape) in enumerate(zip(self.convs, self.shapes, strict=True)):
            part, at = x[..., at : at + math.prod(shape)], at + math.prod(shape)
            if i not in skip:
                parts.append(part if conv is None else conv(pixels(shape, part)))
        return jnp.concatenate([*parts, x[..., at:]], -1)


def _patches(x: Float[Array, "b h w c"], size: int, stride: int) -> Float[Array, "b _ _ _"]:
    """What every position of a square kernel sees: row by row, then channels."""
    reach = tuple(stride * (_places(n, size, stride) - 1) for n in x.shape[1:3])
    for axis, last in zip((1, 2), reach, strict=True):
        beyond = last + size - x.shape[axis]
        if beyond:
            zeros = jnp.zeros((*x.shape[:axis], beyond, *x.shape[axis + 1 :]))
            x = jnp.concatenate([x, zeros], axis)
    down, right = reach
    cut = lambda i, j: x[:, i : i + down + 1 : stride, j : j + right + 1 : stride]
    places = itertools.product(range(size), repeat=2)
    return jnp.concatenate([cut(i, j) for i, j in places], -1)


def _places(n: int, size: int, stride: int) -> int:
    """Of a kernel along n pixels, as many as see them all; none if it is larger."""
    return 0 if n < size else -(-(n - size) // stride) + 1
