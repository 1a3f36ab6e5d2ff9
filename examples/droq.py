"""DroQ: networks of one's own, which draw at random. Hiraoka et al. 2022, arxiv.org/abs/2110.02034.

Dropout and layer norm make two critics do what REDQ needs ten for. In this folder:

    thespis train droq:DroQ --env jax:pendulum --steps 4000 --updates-per-step 20 --hidden 64 64
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import random

from thespis import SAC
from thespis.nn.networks import MLP, Network, Norm


class DropoutMLP(MLP):
    """A perceptron that leaves out some of every hidden layer, if it is given a key."""

    rate: float = eqx.field(static=True)
    stochastic: ClassVar[bool] = True

    def __init__(self, key, sizes, init, activation, norm, rate: float):
        super().__init__(key, sizes, init, activation, norm)
        self.rate = rate

    def linear(self, i, x, key):
        x = super().linear(i, x, key)
        if key is None:
            return x
        return jnp.where(random.bernoulli(key, 1 - self.rate, x.shape), x / (1 - self.rate), 0.0)


@dataclass(frozen=True)
class DropoutNetwork(Network):
    """How critics with dropout are built."""

    norm: Norm = "layer"
    """Normalisation of the hidden layers, before their activation."""
    dropout: float = 0.01
    """Share of every hidden layer that is left out."""

    def build(self, key, inputs, outputs):
        sizes = (inputs, *(self.hidden or ()), outputs)
        choices = self.init or "torch", self.activation, self.norm, self.dropout
        return DropoutMLP(key, sizes, *choices)


@dataclass(frozen=True)
class DroQ(SAC):
    """SAC whose critics have dropout and layer norm."""

    critic_network: DropoutNetwork = field(default=DropoutNetwork(), metadata={"group": "critic"})
    actor_every: int = 20
    """Updates of the critics per update of the actor and the temperature."""

    def reduce_actor(self, out, key):
        return out.mean(0)
