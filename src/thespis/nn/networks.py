"""Networks. Every leaf is an array, so `jit`, `vmap`, `tree.map` and checkpoints just work.

A network is a function `network(x, key=None)` of vectors [..., n]. Training calls
`network.train(x, valid, key)`, which also returns the network with new running statistics.
Networks with dropout have `stochastic` set and get a key; those with batch norm have `batched`
set, since their training pass depends on the whole batch. Others pay for neither.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import nn, random
from jaxtyping import Array, Float

from thespis.core import Key
from thespis.errors import ThespisError
from thespis.nn import norms
from thespis.nn.encoders import Encoder
from thespis.nn.hypersphere import Hypersphere, unit_columns
from thespis.nn.layers import Dtype, Init, affine, orthogonal
from thespis.nn.norms import BatchNorm, LayerNorm, Norm, batch_norms
from thespis.xla import fast_random

Activation = Literal["relu", "elu", "silu", "tanh"]
Body = Literal["mlp", "simba", "simbav2", "flash"]
Unit = Literal["none", "hidden", "weights", "all"]
ACTIVATIONS = {"relu": nn.relu, "elu": nn.elu, "silu": nn.silu, "tanh": jnp.tanh}


@dataclass(frozen=True)
class Network:
    """The choices of a network. For a network of your own, subclass it and override `build`."""

    hidden: tuple[int, ...] | None = None
    """Widths of the hidden layers; by default hidden, or critic_hidden for critics."""
    body: Body = "mlp"
    """Architecture: an MLP, or residual blocks as wide as the last of hidden, those of SimBa, x + W
    relu(W norm(x)), of SimbaV2, on the unit sphere, or of FlashSAC, x + relu(norm(W relu(norm(W
    x))))."""
    blocks: int = 2
    """Number of residual blocks."""
    expansion: int = 4
    """Factor by which the hidden layer of a residual block is wider."""
    activation: Activation = "relu"
    """Activation function of the hidden layers."""
    norm: Norm = "none"
    """Normalisation of the hidden layers: layer norm, RMS norm or batch norm."""
    norm_place: Literal["before", "after"] = "before"
    """Normalise layers before or after their activation."""
    input_norm: Literal["none", "batch"] = "none"
    """Normalisation of the input: none, or batch norm."""
    final_norm: Literal["none", "layer", "rms"] = "none"
    """Normalisation of the last layer's input."""
    unit: Unit = "none"
    """Parameters to scale to unit length after every update: the weights of each hidden neuron,
    of each output too, or also the scales of norms. Hidden layers then have no biases."""
    dropout: float = 0.0
    """Dropout probability of hidden units in training, of critics only."""
    momentum: float = 0.99
    """Decay of the running statistics of batch norm per update."""
    epsilon: float = 1e-3
    """Constant that batch norm adds to variances."""
    renorm: int | None = None
    """Number of updates after which batch norm becomes batch renormalisation; by default never."""
    init: Init | None = None
    """Initial weights: uniform within 1/sqrt(n) (torch) or sqrt(3/n) (lecun), or orthogonal; by
    default weight_init."""
    dtype: Dtype = "float32"
    """Type in which hidden layers compute; parameters, norms, the last layer and losses stay in
    float32."""

    def __post_init__(self):
        if self.dropout and "batch" in (self.norm, self.input_norm):
            raise ThespisError("dropout disturbs batch norm: take norm layer with it, or neither")
        if not 0 <= self.dropout < 1:
            raise ThespisError(f"dropout = {self.dropout}: give a share from 0 up to but not 1")
        if self.body != "mlp" and self.hidden == ():
            raise ThespisError(f"body = {self.body} needs a width: give one hidden layer")
        normed = self.batched or self.norm != "none" or self.final_norm != "none" or self.dropout
        if self.body == "simbav2" and (normed or self.unit != "none"):
            raise ThespisError("body = simbav2 normalises by itself: leave norms and dropout out")
        if self.body == "simbav2" and self.dtype != "float32":
            raise ThespisError(f"body = simbav2 computes in float32 alone: leave {self.dtype} out")

    @property
    def batched(self) -> bool:
        """Tells whether training passes depend on the whole batch."""
        return "batch" in (self.norm, self.input_norm)

    @property
    def unused(self) -> tuple[str, ...]:
        """Returns the choices that its body does not have."""
        if self.body == "simbav2":
            return "activation", "init", "norm_place"
        return () if self.body == "mlp" else ("norm_place",)

    def build(self, key: Key, inputs: int, outputs: int) -> Any:
        """Returns a new network from `inputs` to `outputs` numbers."""
        if self.body == "simbav2":
            (*_, width) = self.hidden or (256,)
            return Hypersphere.create(key, inputs, width, outputs, self.blocks, self.expansion)
        return MLP(key, self.sizes(inputs, outputs), self.init or "torch", network=self)

    def sizes(self, inputs: int, outputs: int) -> tuple[int, ...]:
        """Returns the widths of the input, of all layers between, and of the output."""
        hidden = self.hidden or ()
        if self.body == "mlp":
            return (inputs, *hidden, outputs)
        width = max(hidden[-1:], default=0)
        return (inputs, width, *(self.expansion * width, width) * self.blocks, outputs)


class MLP(eqx.Module):
    """Multi-layer perceptron over any leading axes, plain or with residual blocks."""

    weights: list[Array]
    biases: list[Array | None]
    norms: list[LayerNorm | BatchNorm] | None = None  # of hidden layers, or inside blocks
    input_norm: BatchNorm | None = None
    final_norm: LayerNorm | None = None
    network: Network = eqx.field(static=True, default=Network())

    def __init__(
        self,
        key: Key,
        sizes: tuple[int, ...],
        init: Init = "torch",
        network: Network = Network(),
    ):
        self.network = network
        layers = list(itertools.pairwise(sizes))
        self.weights, self.biases = draw_layers(key, layers, init)
        batch = {name: getattr(network, name) for name in ("momentum", "epsilon", "renorm")}
        if network.norm != "none":
            widths = sizes[1:-1]
            if network.body == "simba":
                widths = sizes[1:-2:2]
            if network.body == "flash":
                widths = sizes[2:-1]
            layer_norms: Any = [norms.make(network.norm, n, batch) for n in widths]
            self.norms = layer_norms
        if network.input_norm == "batch":
            self.input_norm = BatchNorm.create(sizes[0], **batch)
        if network.final_norm != "none":
            self.final_norm = LayerNorm(sizes[-2], network.final_norm == "layer")
        if network.unit != "none":
            self.biases = [None] * (len(layers) - 1) + [jnp.zeros(sizes[-1])]
            self.weights = self.unit_weights()

    @property
    def stochastic(self) -> bool:
        return self.network.dropout > 0

    @property
    def batched(self) -> bool:
        return self.network.batched

    def __call__(self, x: Float[Array, "... n"], key: Key | None = None) -> Float[Array, "... m"]:
        return self.train(x, None, key)[0]

    def train(
        self, x: Float[Array, "... n"], valid: Float[Array, "..."] | None, key: Key | None = None
    ) -> tuple[Float[Array, "... m"], MLP]:
        """Returns the output, and the network with new running statistics.

        With `valid`, which rows of the batch count, batch norms use the statistics of the batch.
        """
        used: list[Any] = []  # norms with new running statistics
        last = len(self.weights) - 1

        def normed(norm: LayerNorm | BatchNorm, x: Array) -> Array:
            x, new = norm(x, valid)
            used.append(new)
            return x

        def layer(i: int, x: Array) -> Array:
            """Returns the output of the i-th linear layer, with the norms around it."""
            before, after = self.norms_around(i)
            final = self.final_norm if i == last else None
            network = self
            if isinstance(before, BatchNorm) and valid is not None and final is None:
                # Its factor goes into the weights, which spares passes over the batch.
                x, affine_parts, new = before.parts(x, valid)
                used.append(new)
                network = self.with_layer(i, fold_input, *affine_parts)
            elif before is not None:
                x = normed(before, x)
            if i < last:
                x = network.linear(i, x, key)
                return x if after is None else normed(after, x)
            x = x if final is None else final(x)[0]
            return affine(x, network.weights[i], network.biases[i])

        activate = ACTIVATIONS[self.network.activation]
        if self.network.body == "mlp":
            for i in range(last):
                x = activate(layer(i, x))
        else:
            x = layer(0, x)
            for i in range(1, last, 2):
                change = layer(i + 1, activate(layer(i, x)))
                x = x + (change if self.network.body == "simba" else activate(change))
        x = layer(last, x)
        if not self.batched:
            return x, self
        n = int(self.input_norm is not None)  # the first used, and the last in `batch_norms`
        return x, norms.with_statistics(self, batch_norms((used[n:], used[:n])))

    def linear(self, i: int, x: Float[Array, "... n"], key: Key | None) -> Float[Array, "... m"]:
        """Returns the output of the i-th linear layer, after dropout."""
        x = affine(x, self.weights[i], self.biases[i], self.network.dtype)
        if key is None or not self.stochastic:
            return x
        keep = 1 - self.network.dropout
        mask = fast_random.bernoulli(random.fold_in(key, i), keep, x.shape)
        return jnp.where(mask, x / keep, 0.0)

    def norms_around(self, i: int) -> tuple[Any, Any]:
        """Returns the norms of input and output of the i-th linear layer, or None."""
        body, norms, last = self.network.body, self.norms, len(self.weights) - 1
        before = self.input_norm if i == 0 else None
        if norms is None:
            return before, None
        if body == "simba":  # one before each block
            return norms[i // 2] if i % 2 and i < last else before, None
        if body == "flash":  # two inside each block
            return before, norms[i - 1] if 0 < i < last else None
        if self.network.norm_place == "after":  # the activation, so before the next layer
            return norms[i - 1] if i > 0 else before, None
        return before, norms[i] if i < last else None

    def unit_weights(self) -> list[Array]:
        """Returns the weights, with columns of unit length where they are chosen to have them."""
        *hidden, output = self.weights
        if self.network.unit != "hidden":
            output = unit_columns(output)
        return [*(unit_columns(weight) for weight in hidden), output]

    def projected(self) -> MLP:
        """Returns the network after a step of its optimiser, with parameters of unit length."""
        if self.network.unit == "none":
            return self
        new = eqx.tree_at(lambda n: n.weights, self, self.unit_weights())
        if self.network.unit != "all":
            return new
        all_norms = lambda n: [*(n.norms or ()), *(x for x in (n.input_norm, n.final_norm) if x)]
        return eqx.tree_at(all_norms, new, [unit_scales(norm) for norm in all_norms(new)])

    def folded(self) -> MLP:
        """Returns the network for use outside of training: batch norms are folded into weights.

        It computes in float32, whatever training did.
        """
        exact = replace(self.network, dtype="float32")
        between_norms = self.network.norm_place == "after" and self.final_norm is not None
        if not self.batched or between_norms:
            return self.with_parts(network=exact)
        network = self
        for i in range(len(self.weights)):
            before, after = self.norms_around(i)
            if isinstance(before, BatchNorm):
                network = network.with_layer(i, fold_input, *before.affine)
            if isinstance(after, BatchNorm):
                network = network.with_layer(i, fold_output, *after.affine)
        layer_norms = None if self.network.norm == "batch" else self.norms
        return network.with_parts(norms=layer_norms, input_norm=None, network=exact)

    def with_layer(self, i: int, change: Callable, *args: Array) -> MLP:
        """Returns the network with the i-th layer's weight and bias as `change` makes them."""
        weights, biases = list(self.weights), list(self.biases)
        weights[i], biases[i] = change(weights[i], biases[i], *args)
        return self.with_parts(weights=weights, biases=biases)

    def with_parts(self, **parts: Any) -> MLP:
        """Returns the network with some parts replaced."""
        new = object.__new__(type(self))  # `__init__` would draw weights
        for name, value in (vars(self) | parts).items():
            object.__setattr__(new, name, value)
        return new

    def with_last(self, key: Key, bound: float) -> MLP:
        """Returns the network with a new last layer, uniform within +-bound."""
        leaves = lambda m: (m.weights[-1], m.biases[-1])
        k_weight, k_bias = random.split(key)
        draw = lambda k, x: fast_random.uniform(k, x.shape, -bound, bound)
        new = (draw(k_weight, self.weights[-1]), draw(k_bias, self.biases[-1]))
        return eqx.tree_at(leaves, self, new)


def draw_layers(key: Key, layers: list[tuple[int, int]], init: Init) -> tuple[list, list]:
    """Returns initial weights and biases."""
    if init == "orthogonal":
        keys = random.split(key, len(layers))
        weights = [math.sqrt(2) * orthogonal(k, *n) for k, n in zip(keys, layers, strict=True)]
        return weights, [jnp.zeros(n) for _, n in layers]
    counts = [n * n_out for n_in, n_out in layers for n in (n_in, 1)]
    # One draw for all layers, since every random kernel takes time to compile.
    numbers = fast_random.uniform(key, (sum(counts),), -1, 1)
    draws = iter(jnp.split(numbers, np.cumsum(counts)[:-1]))
    weights, biases = [], []
    for n_in, n_out in layers:
        bound = 1 / math.sqrt(n_in) if init == "torch" else math.sqrt(3 / n_in)
        weight, bias = bound * next(draws).reshape(n_in, n_out), bound * next(draws)
        weights.append(weight)
        biases.append(bias if init == "torch" else jnp.zeros_like(bias))
    return weights, biases


def fold_input(
    weight: Float[Array, "n m"], bias: Array | None, factor: Float[Array, "n"], shift: Array
) -> tuple[Array, Array]:
    """Returns weight and bias of a linear layer of x that does what it did of factor x + shift."""
    moved = shift @ weight
    return weight * factor[:, None], moved if bias is None else bias + moved


def fold_output(
    weight: Float[Array, "n m"], bias: Array | None, factor: Float[Array, "m"], shift: Array
) -> tuple[Array, Array]:
    """Returns weight and bias of a linear layer whose output y becomes factor y + shift."""
    return weight * factor[None], shift if bias is None else bias * factor + shift


def unit_scales(norm: LayerNorm | BatchNorm) -> LayerNorm | BatchNorm:
    """Returns a norm with n scales and shifts that together have length sqrt(n)."""
    parts = lambda n: [n.scale] if n.shift is None else [n.scale, n.shift]
    square = sum((x**2).sum() for x in parts(norm))
    factor = jnp.sqrt(norm.scale.size / jnp.maximum(square, 1e-8))
    return eqx.tree_at(parts, norm, [factor * x for x in parts(norm)])


def project(params: Any) -> Any:
    """Returns parameters after a step of their optimiser, scaled to unit length where chosen."""
    is_network = lambda x: isinstance(x, MLP | Hypersphere)
    projected = lambda x: x.projected() if is_network(x) else x
    return jax.tree.map(projected, params, is_leaf=is_network)


def fold(tree: Any) -> Any:
    """Returns networks for use outside of training: without batch norms, and in float32."""
    return jax.tree.map(lambda x: x.folded() if is_mlp(x) else x, tree, is_leaf=is_mlp)


def dtypes(tree: Any) -> set[Dtype]:
    """Returns the types in which the hidden layers of networks compute."""
    return {x.network.dtype for x in jax.tree.leaves(tree, is_leaf=is_mlp) if is_mlp(x)}


def is_mlp(x: Any) -> bool:
    return isinstance(x, MLP)


class EncodedNetwork(eqx.Module):
    """A network of an encoded observation, some leaves of which are skipped."""

    encoder: Encoder
    body: Any
    skip: tuple[int, ...] = eqx.field(static=True, default=())

    def __call__(self, x: Float[Array, "... n"], key: Key | None = None) -> Float[Array, "... m"]:
        return self.body(self.encoder(x, self.skip), key)

    def train(self, x: Float[Array, "... n"], valid, key: Key | None = None) -> tuple[Array, Any]:
        out, body = self.body.train(self.encoder(x, self.skip), valid, key)
        return out, EncodedNetwork(self.encoder, body, self.skip)

    def with_last(self, key: Key, bound: float) -> EncodedNetwork:
        return EncodedNetwork(self.encoder, self.body.with_last(key, bound), self.skip)


class Critics(eqx.Module):
    """Independent Q networks of the same input; a tuple, since stacked ones are slower on CPUs.

    They share the encoder, if there is one, of the observation, which is the first input.
    """

    networks: tuple[Any, ...]
    encoder: Encoder | None

    def __init__(
        self,
        key: Key,
        n: int,
        sizes: tuple[int, ...],
        init: Init = "torch",
        encoder: Encoder | None = None,
        build: Callable[[Key, int, int], Any] | None = None,
    ):
        """Makes n networks by `build(key, inputs, outputs)`, by default MLPs of these sizes."""
        make = lambda k: build(k, sizes[0], sizes[-1]) if build else MLP(k, sizes, init)
        self.networks = tuple(make(k) for k in random.split(key, n))
        self.encoder = encoder

    def join(self, obs: Float[Array, "... _"], *inputs: Float[Array, "... _"]) -> Array:
        """Returns the input of every network."""
        encoded = obs if self.encoder is None else self.encoder(obs)
        return jnp.concatenate([encoded, *inputs], -1)

    def __call__(
        self, *inputs: Float[Array, "... _"], key: Key | None = None
    ) -> Float[Array, "critics ... m"]:
        return self.train(*inputs, valid=None, key=key)[0]

    def train(
        self, *inputs: Float[Array, "... _"], valid, key: Key | None = None
    ) -> tuple[Float[Array, "critics ... m"], Critics]:
        """Returns the outputs of every network, and the critics with new running statistics.

        `valid` tells which rows of the batch count; with None they act as outside of training.
        """
        x = self.join(*inputs)
        draws = [key is not None and network.stochastic for network in self.networks]
        keys: Any = [random.fold_in(key, i) if d else None for i, d in enumerate(draws)]  # pyright: ignore
        pairs = zip(self.networks, keys, strict=True)
        if not self.batched or valid is None:
            return jnp.stack([network(x, k) for network, k in pairs]), self
        outs, networks = zip(*(network.train(x, valid, k) for network, k in pairs), strict=True)
        return jnp.stack(outs), eqx.tree_at(lambda c: c.networks, self, networks)

    @property
    def batched(self) -> bool:
        return any(network.batched for network in self.networks)

    @property
    def first(self) -> Critics:
        """Returns the first critic only."""
        return eqx.tree_at(lambda c: c.networks, self, self.networks[:1])

    def draw(self, key: Key, n: int) -> Critics:
        """Returns n critics, drawn at random; the others are not computed."""
        chosen = random.permutation(key, len(self.networks))[:n]
        branches = [lambda network=network: network for network in self.networks]
        networks = tuple(jax.lax.switch(i, branches) for i in chosen)
        return eqx.tree_at(lambda c: c.networks, self, networks)
