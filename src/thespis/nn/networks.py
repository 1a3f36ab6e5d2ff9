"""Networks. Every leaf is an array, so `jit`, `vmap`, `tree.map` and checkpoints just work.

A network is a function `network(x, key=None)` of numbers [..., n]. One that draws at random, as
dropout does, says so (`stochastic`) and gets a key; others pay nothing for that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import nn, random
from jaxtyping import Array, Float

from thespis.core import Key
from thespis.nn.encoders import Encoder
from thespis.nn.layers import Init, affine
from thespis.xla import fast_random

Activation = Literal["relu", "elu", "silu", "tanh"]
Norm = Literal["none", "layer"]
ACTIVATIONS = {"relu": nn.relu, "elu": nn.elu, "silu": nn.silu, "tanh": jnp.tanh}


@dataclass(frozen=True)
class Network:
    """How a network is built. For one of your own, subclass it and override `build`."""

    hidden: tuple[int, ...] | None = None
    """Hidden layers; by default hidden, or critic_hidden of the critics."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    norm: Norm = "none"
    """Normalisation of the hidden layers, before their activation."""
    init: Init | None = None
    """Initial weights: +-1/sqrt(n) with biases, or +-sqrt(3/n) without; by default weight_init."""

    def build(self, key: Key, inputs: int, outputs: int) -> Any:
        """Returns a new network from `inputs` to `outputs` numbers."""
        sizes = (inputs, *(self.hidden or ()), outputs)
        return MLP(key, sizes, self.init or "torch", self.activation, self.norm)


class MLP(eqx.Module):
    """Multi-layer perceptron over any leading axes."""

    weights: list[Array]
    biases: list[Array]
    scales: list[Array] | None = None  # of the norms of hidden layers
    shifts: list[Array] | None = None
    activation: Activation = eqx.field(static=True, default="relu")
    stochastic: ClassVar[bool] = False

    def __init__(
        self,
        key: Key,
        sizes: tuple[int, ...],
        init: Init = "torch",
        activation: Activation = "relu",
        norm: Norm = "none",
    ):
        layers = list(itertools.pairwise(sizes))
        counts = [n * n_out for n_in, n_out in layers for n in (n_in, 1)]
        # One draw for all: every random kernel takes its time to compile.
        every = fast_random.uniform(key, (sum(counts),), -1, 1)
        draws = iter(jnp.split(every, np.cumsum(counts)[:-1]))
        self.weights, self.biases, self.activation = [], [], activation
        for n_in, n_out in layers:
            reach = 1 / math.sqrt(n_in) if init == "torch" else math.sqrt(3 / n_in)
            weight, bias = reach * next(draws).reshape(n_in, n_out), reach * next(draws)
            self.weights.append(weight)
            self.biases.append(bias if init == "torch" else jnp.zeros_like(bias))
        normed = norm == "layer"
        self.scales = [jnp.ones(n) for n in sizes[1:-1]] if normed else None
        self.shifts = [jnp.zeros(n) for n in sizes[1:-1]] if normed else None

    def __call__(self, x: Float[Array, "... n"], key: Key | None = None) -> Float[Array, "... m"]:
        for i in range(len(self.weights) - 1):
            k_layer = None if key is None or not self.stochastic else random.fold_in(key, i)
            x = self.layer(i, x, k_layer)
        return affine(x, self.weights[-1], self.biases[-1])

    def layer(self, i: int, x: Float[Array, "... n"], key: Key | None) -> Float[Array, "... m"]:
        """Returns what the i-th hidden layer makes of its input."""
        x = self.linear(i, x, key)
        if self.scales is not None and self.shifts is not None:
            x = layer_norm(x, self.scales[i], self.shifts[i])
        return ACTIVATIONS[self.activation](x)

    def linear(self, i: int, x: Float[Array, "... n"], key: Key | None) -> Float[Array, "... m"]:
        """Returns the product of the i-th layer, before its norm and activation."""
        return affine(x, self.weights[i], self.biases[i])

    def with_last(self, key: Key, reach: float) -> MLP:
        """Returns the network with its last layer redrawn, uniform in +-reach."""
        leaves = lambda m: (m.weights[-1], m.biases[-1])
        k_weight, k_bias = random.split(key)
        draw = lambda k, x: fast_random.uniform(k, x.shape, -reach, reach)
        new = (draw(k_weight, self.weights[-1]), draw(k_bias, self.biases[-1]))
        return eqx.tree_at(leaves, self, new)


def layer_norm(
    x: Float[Array, "... n"], scale: Float[Array, "n"], shift: Float[Array, "n"]
) -> Float[Array, "... n"]:
    """Ba et al. 2016, https://arxiv.org/abs/1607.06450: (x - mean) / std over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    square = (centred**2).mean(-1, keepdims=True)
    lead = (1,) * (x.ndim - 1)
    return centred / jnp.sqrt(square + 1e-5) * scale.reshape(*lead, -1) + shift.reshape(*lead, -1)


class EncodedNetwork(eqx.Module):
    """A network of what an encoder makes of its input, apart from some leaves."""

    encoder: Encoder
    body: Any
    skip: tuple[int, ...] = eqx.field(static=True, default=())

    def __call__(self, x: Float[Array, "... n"], key: Key | None = None) -> Float[Array, "... m"]:
        return self.body(self.encoder(x, self.skip), key)

    def with_last(self, key: Key, reach: float) -> EncodedNetwork:
        return EncodedNetwork(self.encoder, self.body.with_last(key, reach), self.skip)


class Critics(eqx.Module):
    """Independent Q networks of one input; a tuple, since CPUs multiply a stack more slowly.

    They share the encoder of the observation, which is the first input, if there is one.
    """

    networks: tuple[Any, ...]
    encoder: Encoder | None = None

    def __init__(
        self,
        key: Key,
        n: int,
        sizes: tuple[int, ...],
        init: Init = "torch",
        encoder: Encoder | None = None,
        build: Callable[[Key, int, int], Any] | None = None,
    ):
        """`build(key, inputs, outputs)` makes the networks, by default an `MLP` of these sizes."""
        make = lambda k: build(k, sizes[0], sizes[-1]) if build else MLP(k, sizes, init)
        self.networks = tuple(make(k) for k in random.split(key, n))
        self.encoder = encoder

    def join(self, obs: Float[Array, "... _"], *inputs: Float[Array, "... _"]) -> Array:
        """Returns what every network reads."""
        seen = obs if self.encoder is None else self.encoder(obs)
        return jnp.concatenate([seen, *inputs], -1)

    def __call__(
        self, *inputs: Float[Array, "... _"], key: Key | None = None
    ) -> Float[Array, "critics ... m"]:
        x = self.join(*inputs)
        draws = [key is not None and network.stochastic for network in self.networks]
        keys: Any = [random.fold_in(key, i) if d else None for i, d in enumerate(draws)]  # pyright: ignore
        return jnp.stack([network(x, k) for network, k in zip(self.networks, keys, strict=True)])
