"""State-action embeddings, as inputs of actor and critics.

SALE, Fujimoto et al. 2023, https://arxiv.org/abs/2306.02451.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from thespis.core import Key
from thespis.nn.networks import MLP, Critics, Network

FAR = 1e8  # larger than any target


def average_norm(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Divides x by the mean of its absolute values (AvgL1Norm)."""
    # A product, as in `core.mean`.
    return x * (1.0 / jnp.maximum(jnp.abs(x).mean(-1, keepdims=True), 1e-8))


class Embedding(eqx.Module):
    """An encoder of states, z(s), and one of pairs that predicts z(s') from z(s) and a."""

    states: Any
    pairs: Any
    width: int = eqx.field(static=True)

    def __init__(self, key: Key, obs: int, action: int, width: int, network: Network):
        self.width = width
        k_states, k_pairs = random.split(key)
        self.states = network.build(k_states, obs, width)
        self.pairs = network.build(k_pairs, width + action, width)

    def of_state(self, obs: Float[Array, "... _"]) -> Float[Array, "... n"]:
        return average_norm(self.states(obs))

    def of_pair(
        self, z: Float[Array, "... n"], action: Float[Array, "... _"]
    ) -> Float[Array, "... n"]:
        return self.pairs(jnp.concatenate([z, action], -1))

    def frozen(self) -> Embedding:
        """Returns the embedding without gradients, for networks that must not train it."""
        return jax.tree.map(stop_gradient, self)


class EmbeddedNetwork(eqx.Module):
    """A network of a normalised linear layer of its plain inputs, joined with embeddings."""

    first: MLP
    body: Any
    plain: int = eqx.field(static=True)  # number of inputs before the embeddings

    def __init__(self, key: Key, plain: int, inputs: int, outputs: int, network: Network):
        """Makes a network of `inputs` numbers, the first of which are `plain`."""
        k_first, k_body = random.split(key)
        width = (network.hidden or (256,))[0]
        self.first = MLP(k_first, (plain, width), network.init or "torch")
        self.body = network.build(k_body, width + inputs - plain, outputs)
        self.plain = plain

    @property
    def stochastic(self) -> bool:
        return self.body.stochastic

    @property
    def batched(self) -> bool:
        return self.body.batched

    def joined(self, x: Float[Array, "... n"]) -> Array:
        plain, embedded = x[..., : self.plain], x[..., self.plain :]
        return jnp.concatenate([average_norm(self.first(plain)), embedded], -1)

    def __call__(self, x: Float[Array, "... n"], key: Key | None = None) -> Float[Array, "... m"]:
        return self.body(self.joined(x), key)

    def train(self, x: Float[Array, "... n"], valid, key: Key | None = None) -> tuple[Array, Any]:
        out, body = self.body.train(self.joined(x), valid, key)
        return out, eqx.tree_at(lambda n: n.body, self, body)


class EmbeddedCritics(Critics):
    """Critics of (s, a) and of embeddings of both, which they do not train.

    They remember the smallest and the largest target so far, which no gradient changes.
    """

    embedding: Embedding
    low: Float[Array, ""]
    high: Float[Array, ""]

    def __init__(self, key: Key, n: int, embedding: Embedding, plain: int, outputs: int, network):
        inputs = plain + 2 * embedding.width
        build = lambda k, inputs, outputs: EmbeddedNetwork(k, plain, inputs, outputs, network)
        super().__init__(key, n, (inputs, outputs), build=build)
        self.embedding = embedding
        self.low, self.high = jnp.float32(FAR), jnp.float32(-FAR)

    def bounded(self, value: Array) -> Array:
        """Clips values to the range of targets so far; before any target they are 0."""
        known = self.low <= self.high
        return jnp.where(known, jnp.clip(value, self.low, self.high), 0.0)

    def join(self, obs: Float[Array, "... _"], *inputs: Float[Array, "... _"]) -> Array:
        embedding, action = self.embedding.frozen(), jnp.concatenate(inputs, -1)
        z = embedding.of_state(obs)
        return jnp.concatenate([obs, action, embedding.of_pair(z, action), z], -1)


class EmbeddedActor(eqx.Module):
    """An actor of an observation and of the critics' embedding of it."""

    embedding: Embedding
    body: EmbeddedNetwork

    def joined(self, x: Float[Array, "... n"]) -> Array:
        return jnp.concatenate([x, self.embedding.frozen().of_state(x)], -1)

    def __call__(self, x: Float[Array, "... n"], key: Key | None = None) -> Float[Array, "... m"]:
        return self.body(self.joined(x), key)

    def train(self, x: Float[Array, "... n"], valid, key: Key | None = None) -> tuple[Array, Any]:
        out, body = self.body.train(self.joined(x), valid, key)
        return out, EmbeddedActor(self.embedding, body)
