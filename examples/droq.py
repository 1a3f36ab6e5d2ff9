"""DroQ: networks of one's own, which draw at random. Hiraoka et al. 2022, arxiv.org/abs/2110.02034.

Dropout and layer norm make two critics do what REDQ needs ten for. The library has it too
(`thespis train sac --preset droq`). In this folder:

    thespis train droq:DroQ --env jax:pendulum --steps 4000 --updates-per-step 20 --hidden 64 64
"""

from __future__ import annotations

from dataclasses import dataclass, field

import equinox as eqx
import jax.numpy as jnp
from jax import random

from thespis import SAC
from thespis.nn.networks import MLP, Network
from thespis.nn.norms import Norm


class DropoutMLP(MLP):
    """A perceptron that leaves out some of every hidden layer, if it is given a key."""

    rate: float = eqx.field(static=True)

    def __init__(self, key, sizes, network, rate: float):
        super().__init__(key, sizes, network.init, network)
        self.rate = rate

    @property
    def stochastic(self):  # so it is given keys
        return True

    def linear(self, i, x, key):
        x = super().linear(i, x, key)
        if key is None:
            return x
        kept = random.bernoulli(random.fold_in(key, i), 1 - self.rate, x.shape)
        return jnp.where(kept, x / (1 - self.rate), 0.0)


@dataclass(frozen=True)
class DropoutNetwork(Network):
    """How critics with dropout are built."""

    norm: Norm = "layer"
    """Normalisation of the hidden layers, before their activation."""
    rate: float = 0.01
    """Share of every hidden layer that is left out."""

    def build(self, key, inputs, outputs):
        return DropoutMLP(key, self.sizes(inputs, outputs), self, self.rate)


@dataclass(frozen=True)
class DroQ(SAC):
    """SAC whose critics have dropout and layer norm."""

    critic_network: DropoutNetwork = field(default=DropoutNetwork(), metadata={"group": "critic"})
    actor_every: int = 20
    """Updates of the critics per update of the actor and the temperature."""

    def reduce_actor(self, out, key):
        return out.mean(0)
