"""CrossQ: batch norm, no target networks. Bhatt et al. 2024, https://arxiv.org/abs/1902.05605.

Critics see (s, a) and (s', a') in one batch, whose statistics normalise both. The actor is SAC's.

    thespis train crossq:CrossQ --env jax:pendulum --steps 10000 --hidden 64 64
"""

from __future__ import annotations

from dataclasses import dataclass, field

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array

from thespis import SAC
from thespis.nn.networks import ACTIVATIONS, MLP, Network

MOMENTUM, EPSILON = 0.99, 1e-3


class BatchNormMLP(MLP):
    """A perceptron with normalised input and hidden layers: by running statistics, if called."""

    running: list[tuple[Array, Array]]  # mean and variance of what each layer reads

    def __init__(self, key, sizes, init, activation):
        super().__init__(key, sizes, init, activation)
        self.running = [(jnp.zeros(n), jnp.ones(n)) for n in sizes[:-1]]

    def __call__(self, x, key=None):
        return self.forward(x, lambda i, x: stop_gradient(self.running[i]))[0]

    def forward(self, x, statistics):
        """Returns the output, and the statistics that normalised each layer."""
        used = []
        for i in range(len(self.weights)):
            mean, var = statistics(i, x)
            used.append((mean, var))
            x = self.linear(i, (x - mean[None]) / jnp.sqrt(var[None] + EPSILON), None)
            x = x if i == len(self.weights) - 1 else ACTIVATIONS[self.activation](x)
        return x, used

    def train(self, x, valid):
        """Returns the output by the statistics of valid rows, and the new running ones."""
        share = (valid / jnp.maximum(valid.sum(), 1.0))[:, None]
        average = lambda x: (share * x).sum(0)
        of_batch = lambda i, x: (average(x), average((x - average(x)[None]) ** 2))
        out, used = self.forward(x, of_batch)
        mix = lambda old, new: MOMENTUM * old + (1 - MOMENTUM) * new
        pairs = zip(self.running, used, strict=True)
        return out, stop_gradient([(mix(m, a), mix(v, b)) for (m, v), (a, b) in pairs])


class BatchNormNetwork(Network):
    def build(self, key, inputs, outputs):
        sizes = (inputs, *(self.hidden or ()), outputs)
        return BatchNormMLP(key, sizes, self.init or "torch", self.activation)


@dataclass(frozen=True)
class CrossQ(SAC):
    """SAC whose critics have batch norm and no targets."""

    critic_network: Network = field(default=BatchNormNetwork(), metadata={"group": "critic"})

    def critic_passes(self, critic, target_critic, now, then, b, key):
        x = critic.join(*(jnp.concatenate(pair) for pair in zip(now, then, strict=True)))
        valid = jnp.concatenate([b.valid, b.valid])
        outs, running = zip(*(network.train(x, valid) for network in critic.networks), strict=True)
        out, next_out = jnp.split(jnp.stack(outs), 2, 1)
        return out, stop_gradient(next_out), running

    def after_critic_step(self, critic, new):
        places = lambda c: [network.running for network in c.params.networks]
        return eqx.tree_at(places, critic, list(new))

    def update_target(self, hp, target_critic, critic):
        return critic
