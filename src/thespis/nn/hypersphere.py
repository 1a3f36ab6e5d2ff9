"""Networks whose features and weights stay on the unit sphere.

SimbaV2, Lee et al. 2025, https://arxiv.org/abs/2502.15280.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import nn, random
from jaxtyping import Array, Float

from thespis.core import Key
from thespis.nn.layers import orthogonal, product

CONSTANT = 3.0  # appended to the input, so that its norm is not lost


class Scaler(eqx.Module):
    """Learned factors that start at `initial`; parameters are at a scale that suits the rate."""

    factors: Float[Array, "n"]
    ratio: float = eqx.field(static=True)

    @classmethod
    def create(cls, size: int, initial: float, scale: float) -> Scaler:
        return cls(jnp.full(size, scale, jnp.float32), initial / scale)

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... n"]:
        return x * (self.ratio * self.factors).reshape((1,) * (x.ndim - 1) + self.factors.shape)


class Block(eqx.Module):
    """x <- unit(x + alpha (unit(W2 relu(s W1 x)) - x))."""

    weights: list[Array]
    inside: Scaler
    alpha: Scaler

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... n"]:
        inner = nn.relu(self.inside(product(x, self.weights[0]))) + 1e-8
        towards = unit(product(inner, self.weights[1]))
        return unit(x + self.alpha(towards - x))


class Hypersphere(eqx.Module):
    """Residual network on the unit sphere, from `inputs` to `outputs` numbers."""

    first: Array
    embedding: Scaler
    blocks: list[Block]
    head: list[Array]  # two products with a scaler between them
    scaler: Scaler
    bias: Array
    stochastic: bool = eqx.field(static=True, default=False)
    batched: bool = eqx.field(static=True, default=False)

    @classmethod
    def create(
        cls, key: Key, inputs: int, width: int, outputs: int, blocks: int, expansion: int
    ) -> Hypersphere:
        """Returns a new network with orthogonal weights, scaled to unit length."""
        keys = iter(random.split(key, 3 + 2 * blocks))
        weight = lambda n, m: unit_columns(orthogonal(next(keys), n, m))
        scale, inner_scale = math.sqrt(2 / width), math.sqrt(2 / (width * expansion))

        def block() -> Block:
            weights = [weight(width, expansion * width), weight(expansion * width, width)]
            inside = Scaler.create(expansion * width, inner_scale, inner_scale)
            alpha = Scaler.create(width, 1 / (blocks + 1), 1 / math.sqrt(width))
            return Block(weights, inside, alpha)

        return cls(
            first=weight(inputs + 1, width),
            embedding=Scaler.create(width, scale, scale),
            blocks=[block() for _ in range(blocks)],
            head=[weight(width, width), weight(width, outputs)],
            scaler=Scaler.create(width, 1.0, 1.0),
            bias=jnp.zeros(outputs),
        )

    def __call__(self, x: Float[Array, "... n"], key: Key | None = None) -> Float[Array, "... m"]:
        x = unit(jnp.concatenate([x, jnp.full_like(x[..., :1], CONSTANT)], -1))
        x = unit(self.embedding(product(x, self.first)))
        for block in self.blocks:
            x = block(x)
        x = product(self.scaler(product(x, self.head[0])), self.head[1])
        return x + self.bias.reshape((1,) * (x.ndim - 1) + self.bias.shape)

    def train(self, x: Float[Array, "... n"], valid: Any, key: Key | None = None):
        return self(x), self

    def projected(self) -> Hypersphere:
        """Returns the network with weights of unit length, after a step of its optimiser."""
        weights = lambda n: [n.first, *n.head, *(w for block in n.blocks for w in block.weights)]
        return eqx.tree_at(weights, self, [unit_columns(w) for w in weights(self)])


def unit(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Scales vectors to length 1."""
    length = jnp.sqrt((x**2).sum(-1, keepdims=True))
    return x * (1.0 / jnp.maximum(length, 1e-8))  # a product, as in `core.mean`


def unit_columns(weight: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Scales the weights of every neuron, a column, to length 1."""
    length = jnp.sqrt((weight**2).sum(0, keepdims=True))
    return weight * (1.0 / jnp.maximum(length, 1e-8))
