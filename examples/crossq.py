"""CrossQ: batch norm, no target networks. Bhatt et al. 2024, https://arxiv.org/abs/1902.05605.

Critics see (s, a) and (s', a') in one batch, whose statistics normalise both. Their network is one
of one's own here; the library has it too (`thespis train sac --preset crossq`). In this folder:

    thespis train crossq:CrossQ --env jax:pendulum --steps 10000 --hidden 64 64
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import equinox as eqx

from thespis import SAC
from thespis.nn.networks import ACTIVATIONS, MLP, Network
from thespis.nn.norms import BatchNorm


class BatchNormMLP(MLP):
    """A perceptron each of whose layers reads what a batch norm makes of its input."""

    def __init__(self, key, sizes, network):
        super().__init__(key, sizes, network.init, network)
        self.norms = [BatchNorm.create(size) for size in sizes[:-1]]

    def train(self, x, valid, key=None):
        """Returns the output, and the network with new running statistics."""
        norms = []
        for i, norm in enumerate(self.norms):
            x, new = norm(x, valid)  # without `valid` by running statistics
            norms.append(new)
            x = self.linear(i, x, key)
            if i + 1 < len(self.norms):
                x = ACTIVATIONS[self.network.activation](x)
        return x, eqx.tree_at(lambda n: n.norms, self, norms)


@dataclass(frozen=True)
class BatchNormNetwork(Network):
    """How critics with batch norm are built."""

    @property
    def batched(self):
        return True

    def build(self, key, inputs, outputs):
        return BatchNormMLP(key, self.sizes(inputs, outputs), self)


@dataclass(frozen=True)
class CrossQ(SAC):
    """SAC whose critics have batch norm and no targets."""

    critic_network: Network = field(default=BatchNormNetwork(), metadata={"group": "critic"})
    target_update: Literal["polyak", "copy", "none"] = "none"
    """CrossQ has no target critics."""
    actor_every: int = 3
    """Updates of the critics per update of the actor and the temperature."""
    adam_b1: float = 0.5
    """Adam's momentum, less than usual; with 0.9 it does not solve the pendulum."""
