"""Networks. Every leaf is an array, so `jit`, `vmap`, `tree.map` and checkpoints just work."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import nn, random
from jaxtyping import Array, Float, PyTree

from thespis import noise
from thespis.core import Key, apart

Init = Literal["torch", "lecun"]  # weights and biases +-1/sqrt(n), or weights +-sqrt(3/n)


class MLP(eqx.Module):
    """ReLU perceptron over any leading axes."""

    weights: list[Array]
    biases: list[Array]

    def __init__(self, key: Key, sizes: tuple[int, ...], init: Init = "torch"):
        layers = list(itertools.pairwise(sizes))
        counts = [n * n_out for n_in, n_out in layers for n in (n_in, 1)]
        # One draw for all: every random kernel takes its time to compile.
        draws = iter(jnp.split(noise.uniform(key, (sum(counts),), -1, 1), np.cumsum(counts)[:-1]))
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
        draw = lambda k, x: noise.uniform(k, x.shape, -reach, reach)
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
    y = _product(x, weight)
    return y + bias.reshape((1,) * (y.ndim - 1) + bias.shape)


@jax.custom_vjp
def _product(x, weight):
    return x @ weight


def _gradients(factors, g):
    """Of x and the weight [n, m]; CPUs are slow at x.T @ g, unless one of them is turned before."""
    x, weight = factors
    n, m = weight.shape
    x, rows = x.reshape(-1, n), g.reshape(-1, m)
    turned = partial(apart, jnp.transpose)  # the compiler would put it into the product again
    if n > m:
        new = turned(turned(rows) @ x)
    else:
        new = turned(x) @ rows if n == m else x.T @ rows
    return g @ weight.T, new


_product.defvjp(lambda x, weight: (x @ weight, (x, weight)), _gradients)
