"""Networks. Every leaf is an array, so `jit`, `vmap`, `tree.map` and checkpoints just work."""

from __future__ import annotations

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import nn, random
from jaxtyping import Array, Float, PyTree

from thespis.core import Key

Init = Literal["torch", "lecun"]  # weights and biases +-1/sqrt(n), or weights +-sqrt(3/n)


class MLP(eqx.Module):
    """ReLU perceptron over any leading axes."""

    weights: list[Array]
    biases: list[Array]

    def __init__(self, key: Key, sizes: tuple[int, ...], init: Init = "torch"):
        def layer(k, n_in, n_out):
            k_weight, k_bias = random.split(k)
            reach = 1 / math.sqrt(n_in) if init == "torch" else math.sqrt(3 / n_in)
            weight = random.uniform(k_weight, (n_in, n_out), minval=-reach, maxval=reach)
            bias = random.uniform(k_bias, (n_out,), minval=-reach, maxval=reach)
            return weight, bias if init == "torch" else jnp.zeros_like(bias)

        keys = random.split(key, len(sizes) - 1)
        layers = [layer(*k) for k in zip(keys, sizes[:-1], sizes[1:], strict=True)]
        self.weights, self.biases = (list(x) for x in zip(*layers, strict=True))

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... m"]:
        *hidden, (last, shift) = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = nn.relu(_affine(x, weight, bias))
        return _affine(x, last, shift)

    def with_last(self, key: Key, reach: float) -> MLP:
        """The last layer redrawn, weights and biases uniform in +-reach."""
        leaves = lambda m: (m.weights[-1], m.biases[-1])
        k_weight, k_bias = random.split(key)
        draw = lambda k, x: random.uniform(k, x.shape, minval=-reach, maxval=reach)
        new = (draw(k_weight, self.weights[-1]), draw(k_bias, self.biases[-1]))
        return eqx.tree_at(leaves, self, new)


class Critics(eqx.Module):
    """Independent Q networks of one input; a tuple, since CPUs multiply a stack more slowly."""

    networks: tuple[MLP, ...]

    def __init__(self, key: Key, n: int, sizes: tuple[int, ...], init: Init = "torch"):
        self.networks = tuple(MLP(k, sizes, init) for k in random.split(key, n))

    def __call__(self, *inputs: Float[Array, "... _"]) -> Float[Array, "critics ... m"]:
        x = jnp.concatenate(inputs, -1)
        return jnp.stack([network(x) for network in self.networks])


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


def _affine(x, weight, bias):
    y = x @ weight
    return y + bias.reshape((1,) * (y.ndim - 1) + bias.shape)
