"""The networks of an actor-critic: their inputs, and how they are built."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array

from thespis.core import MASK, Row, Spec, ThespisError
from thespis.nn import normalization
from thespis.nn.encoders import Conv, Encoder, Layers, features, image, layers_for, width
from thespis.nn.layers import Init
from thespis.nn.networks import Critics, EncodedNetwork, Network


@dataclass(frozen=True)
class ActorCriticNetworks:
    """Builds actors and critics, and makes their inputs from observations."""

    spec: Spec
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the actor, and of the critics unless critic_hidden is set."""
    critic_hidden: tuple[int, ...] | None = None
    """Widths of the critics' hidden layers; by default those of hidden."""
    critics: int = 2
    """Number of critics."""
    weight_init: Init = "torch"
    """Initial weights: uniform within 1/sqrt(n), also for biases (torch), uniform within sqrt(3/n)
    with zero biases (lecun), or orthogonal."""
    actor_network: Network = field(default=Network(), metadata={"group": "actor"})
    """The actor's network."""
    critic_network: Network = field(default=Network(), metadata={"group": "critic"})
    """The network of each critic."""
    normalize_observations: bool = False
    """Normalise observations by running statistics; the replay buffer keeps them raw."""
    conv_channels: tuple[int, ...] | None = None
    """Channels of the convolutional layers for images; the default depends on the image size."""
    conv_kernels: tuple[int, ...] | None = None
    """Kernel sizes of the convolutional layers, in pixels."""
    conv_strides: tuple[int, ...] | None = None
    """Strides of the convolutional layers, in pixels."""
    shared_encoder: bool = True
    """Share the critics' convolutional layers with the actor, whose loss does not train them."""
    privileged: tuple[str, ...] = ()
    """Keys of a dict observation that only the critics see, not the actor."""

    # --- inputs -----------------------------------------------------------------------------

    def see(self, state, obs) -> Array:
        """Returns the input of the networks: one normalised vector [..., n].

        Privileged keys that are missing become zeros, which only an actor can do with.
        """
        if self.privileged and not set(self.privileged) <= obs.keys():
            first = next(iter(self.spec.obs.keys() - set(self.privileged)))
            lead = obs[first].shape[: obs[first].ndim - len(self.spec.obs[first].shape)]
            zeros = lambda s: jnp.zeros((*lead, *s.shape)).astype(s.dtype)
            obs = {**obs, **{key: zeros(self.spec.obs[key]) for key in self.privileged}}
        obs = obs if state.stats is None else normalization.normalise(state.stats, obs)
        return features(self.spec.obs, obs)

    @property
    def inputs(self) -> int:
        """Returns the size of the vectors that `see` returns."""
        return width(self.spec.obs)

    @property
    def images(self) -> list[tuple[int, int, int]]:
        return [size for leaf in jax.tree.leaves(self.spec.obs) if (size := image(leaf))]

    @property
    def layers(self) -> Layers | None:
        """Returns the convolutional layers that were chosen; None for the default ones."""
        chosen = self.conv_channels, self.conv_kernels, self.conv_strides
        return None if None in chosen else Layers(*chosen)  # pyright: ignore

    @property
    def unseen(self) -> tuple[int, ...]:
        """Returns the positions of the observation's leaves that the actor does not see."""
        if not self.privileged:
            return ()
        leaves = enumerate(jax.tree_util.tree_leaves_with_path(self.spec.obs))
        return tuple(i for i, (path, _) in leaves if path[0].key in self.privileged)

    def check_encoder(self) -> None:
        """Refuses convolutions that do not fit, and privileged keys that do not exist."""
        chosen = (self.conv_channels, self.conv_kernels, self.conv_strides)
        if any(x is not None for x in chosen) and len({x and len(x) for x in chosen}) > 1:
            raise ThespisError(
                "conv_channels, conv_kernels and conv_strides go together: give all three, with "
                "one number per layer each"
            )
        for size in self.images:
            if not Conv.width(size, self.layers or layers_for(size)):
                raise ThespisError(
                    f"an image of {size[0]} x {size[1]} pixels is too small for its convolutions: "
                    "give smaller conv_kernels and conv_strides"
                )
        keys = self.spec.obs if isinstance(self.spec.obs, dict) else {}
        for key in self.privileged:
            if key not in keys or key == MASK or len(self.privileged) >= len(keys):
                kind = f"has the keys {', '.join(keys)}" if keys else "is no dict"
                raise ThespisError(
                    f"privileged = {key}: the observation {kind}; name some that actors can do "
                    "without"
                )

    def make_stats(self):
        return normalization.statistics(self.spec.obs) if self.normalize_observations else None

    def observe(self, state, rows: Row):
        if state.stats is None:
            return state
        return eqx.tree_at(lambda s: s.stats, state, normalization.update(state.stats, rows.obs))

    # --- networks ---------------------------------------------------------------------------

    def make_network(self, key, outputs: int) -> Any:
        """Returns a new actor, from what `see` returns to `outputs` numbers."""
        separate = bool(self.unseen) if not self.images else not self.shared_encoder
        encoder = self.make_encoder(key) if separate else None
        body = self.full_actor_network.build(key, self.encoded_size(self.unseen), outputs)
        return body if encoder is None else EncodedNetwork(encoder, body, self.unseen)

    def make_critic(self, key, inputs: int, outputs: int = 1) -> Critics:
        """Returns new critics of an observation and `inputs` more numbers."""
        sizes = (self.encoded_size() + inputs, outputs)
        encoder = self.make_encoder(key) if self.images else None
        build = self.full_critic_network.build
        return Critics(key, self.critics, sizes, encoder=encoder, build=build)

    def make_encoder(self, key) -> Encoder:
        return Encoder(random.fold_in(key, 0), self.spec.obs, self.layers, self.weight_init)

    def with_encoder(self, actor, critic) -> Any:
        """Returns the actor as a function of what `see` returns: with the encoder if it is shared.

        The encoder is not among the actor's parameters, so the actor's loss does not train it.
        """
        shares = self.images and self.shared_encoder
        return EncodedNetwork(critic.encoder, actor, self.unseen) if shares else actor

    def encoded_size(self, skip: tuple[int, ...] = ()) -> int:
        """Returns the size of an encoded observation, some of its leaves left out."""
        total = self.inputs
        for i, leaf in enumerate(jax.tree.leaves(self.spec.obs)):
            size, flat = image(leaf), math.prod(leaf.shape)
            encoded = Conv.width(size, self.layers or layers_for(size)) if size else flat
            total += (0 if i in skip else encoded) - flat
        return total

    @property
    def full_actor_network(self) -> Network:
        """Returns the actor's network with all choices filled in."""
        return self.complete(self.actor_network, self.hidden)

    @property
    def full_critic_network(self) -> Network:
        """Returns a critic's network with all choices filled in."""
        hidden = self.hidden if self.critic_hidden is None else self.critic_hidden
        return self.complete(self.critic_network, hidden)

    def complete(self, network: Network, hidden: tuple[int, ...]) -> Network:
        """Returns a network in which the algorithm's choices fill in what is not set."""
        hidden = hidden if network.hidden is None else network.hidden
        return replace(network, hidden=hidden, init=network.init or self.weight_init)
