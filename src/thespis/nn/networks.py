"""Networks. Every leaf is an array, so `jit`, `vmap`, `tree.map` and checkpoints just work."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn, random
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, PyTree

from thespis.core import Key
from thespis.xla import fast_random
from thespis.xla.ordering import no_inline

Init = Literal["torch", "lecun"]  # weights and biases +-1/sqrt(n), or weights +-sqrt(3/n)


class MLP(eqx.Module):
    """ReLU perceptron over any leading axes."""

    weights: list[Array]
    biases: list[Array]

    def __init__(self, key: Key, sizes: tuple[int, ...], init: Init = "torch"):
        layers = list(itertools.pairwise(sizes))
        counts = [n * n_out for n_in, n_out in layers for n in (n_in, 1)]
        # One draw for all: every random kernel takes its time to compile.
        draws = iter(
            jnp.split(fast_random.uniform(key, (sum(counts),), -1, 1), np.cumsum(counts)[:-1])
        )
        self.weights, self.biases = [], []
        for n_in, n_out in layers:
            reach = 1 / math.sqrt(n_in) if init == "torch" else math.sqrt(3 / n_in)
            weight, bias = reach * next(draws).reshape(n_in, n_out), reach * next(draws)
            self.weights.append(weight)
            self.biases.append(bias if init == "torch" else jnp.zeros_like(bias))

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... m"]:
        *hidden, (last, shift) = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = nn.relu(_affine(x, weight, bias))
        return _affine(x, last, shift)

    def with_last(self, key: Key, reach: float) -> MLP:
        """The last layer redrawn, weights and biases uniform in +-reach."""
        leaves = lambda m: (m.weights[-1], m.biases[-1])
        k_weight, k_bias = random.split(key)
        draw = lambda k, x: fast_random.uniform(k, x.shape, -reach, reach)
        new = (draw(k_weight, self.weights[-1]), draw(k_bias, self.biases[-1]))
        return eqx.tree_at(leaves, self, new)


class Critics(eqx.Module):
    """Independent Q networks of one input; a tuple, since CPUs multiply a stack more slowly.

    They share the encoder of the observation, which is the first input, if there is one.
    """

    networks: tuple[MLP, ...]
    encoder: Encoder | None = None

    def __init__(
        self,
        key: Key,
        n: int,
        sizes: tuple[int, ...],
        init: Init = "torch",
        encoder: Encoder | None = None,
    ):
        self.networks = tuple(MLP(k, sizes, init) for k in random.split(key, n))
        self.encoder = encoder

    def join(self, obs: Float[Array, "... _"], *inputs: Float[Array, "... _"]) -> Array:
        """What every network reads."""
        seen = obs if self.encoder is None else self.encoder(obs)
        return jnp.concatenate([seen, *inputs], -1)

    def __call__(self, *inputs: Float[Array, "... _"]) -> Float[Array, "critics ... m"]:
        x = self.join(*inputs)
        return jnp.stack([network(x) for network in self.networks])


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
            x = nn.relu(_affine(seen, weight.reshape(-1, weight.shape[-1]), bias))
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


class EncodedNetwork(eqx.Module):
    """A network of what an encoder makes of its input, apart from some leaves."""

    encoder: Encoder
    body: MLP
    skip: tuple[int, ...] = eqx.field(static=True, default=())

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... m"]:
        return self.body(self.encoder(x, self.skip))

    def with_last(self, key: Key, reach: float) -> EncodedNetwork:
        return EncodedNetwork(self.encoder, self.body.with_last(key, reach), self.skip)


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


def _affine(x, weight, bias):
    y = _product(x, weight)
    return y + bias.reshape((1,) * (y.ndim - 1) + bias.shape)


@jax.custom_jvp
def _product(x, weight):
    return x @ weight


_turned = no_inline(jnp.transpose)  # the compiler would put it into the product again


def _differentials(factors, changes):
    """dx W + x dW for a weight [n, m].

    CPUs are slow at x.T @ g, the gradient of the weight, unless one of them is turned before. So
    the second term is written such that its transpose, which is that gradient, is turned.
    """
    (x, weight), (dx, dw) = factors, changes
    parts = []
    if not isinstance(dx, SymbolicZero):
        parts.append(dx @ weight)
    if not isinstance(dw, SymbolicZero):
        n, m = weight.shape
        rows, along = x.reshape(-1, n), lambda i, j: (((i,), (j,)), ((), ()))
        if n > m:  # its transpose is turned(turned(g) @ x)
            part = _turned(lax.dot_general(_turned(dw), rows, along(1, 1)))
        else:  # turned(x) @ g
            turn = _turned if n == m else jnp.transpose
            part = lax.dot_general(turn(rows), dw, along(0, 0))
        parts.append(part.reshape(*x.shape[:-1], m))
    return x @ weight, sum(parts[1:], parts[0])


_product.defjvp(_differentials, symbolic_zeros=True)
