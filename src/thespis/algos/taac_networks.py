"""The networks of TAAC: an actor of the last trajectory, and critics with an encoder."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import nn
from jaxtyping import Array, Float

from thespis.core import Key
from thespis.nn.encoders import Encoder
from thespis.nn.networks import MLP, Critics


class Actor(eqx.Module):
    """pi(. | s, tau-), whose embeddings, if any, are linear layers for each part of tau-."""

    embeddings: tuple[MLP, ...]
    body: Any

    def __call__(self, obs: Float[Array, "... _"], last: Float[Array, "... _"]) -> Array:
        parts = [last]
        if self.embeddings:
            pieces = jnp.split(last, len(self.embeddings), -1)
            parts = [net(piece) for net, piece in zip(self.embeddings, pieces, strict=True)]
        return self.body(jnp.concatenate([obs, *parts], -1))


class EncodedCritics(eqx.Module):
    """Critics of an encoded observation and a trajectory; only their loss trains the encoder."""

    encoder: MLP | None
    critics: Critics
    eyes: Encoder | None = None  # convolutions, where there are images

    def encode(self, obs: Float[Array, "... _"]) -> Float[Array, "... _"]:
        """Returns the encoded observation, which actor and critics read."""
        obs = obs if self.eyes is None else self.eyes(obs)
        return obs if self.encoder is None else nn.relu(self.encoder(obs))

    def __call__(
        self, obs: Array, trajectory: Array, key: Key | None = None
    ) -> Float[Array, "critics ... d"]:
        return self.critics(self.encode(obs), trajectory, key=key)
