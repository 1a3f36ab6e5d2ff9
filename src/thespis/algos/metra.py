"""METRA: skills that lead far apart. Park et al. 2024, https://arxiv.org/abs/2310.08887.

A representation phi of states is learned in which one step is at most 1 long, so that distances
are counted in steps. A skill z is a direction there, and its reward how far a step went along it.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core import Metrics, mean
from thespis.nn.networks import MLP
from thespis.nn.train_state import TrainState


def gain(
    phi: MLP, before: Float[Array, "n seen"], after: Array, towards: Float[Array, "n size"]
) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """(phi(s') - phi(s)) . z, the reward, and |phi(s') - phi(s)|^2."""
    change = phi(after) - phi(before)
    return (change * towards).sum(-1), (change**2).sum(-1)


def learn(
    phi: TrainState, multiplier: TrainState, hp: Any, steps: tuple, weight: Array, valid: Array
) -> tuple[TrainState, TrainState, Metrics]:
    """One step up of phi and one down of log lambda; `steps` are those of `gain`."""
    strength = jnp.exp(multiplier.params)

    # max E[(phi(s') - phi(s)) . z + lambda min(slack, 1 - |phi(s') - phi(s)|^2)].
    def representation_loss(net):
        far, length = gain(net, *steps)
        room = jnp.minimum(1.0 - length, hp.slack)
        found = mean(room, valid), mean(jnp.sqrt(length), valid)
        return -mean(weight * (far + strength * room), valid), found

    phi, (loss, (room, length)) = phi.apply_gradient(representation_loss, hp.dynamics_lr)

    # Dual descent: min E[lambda min(slack, 1 - |phi(s') - phi(s)|^2)], of log lambda.
    multiplier, _ = multiplier.apply_gradient(lambda log: (log * room, None), hp.dynamics_lr)
    told = {"representation_loss": loss, "step_length": length, "multiplier": strength}
    return phi, multiplier, told


def centred(skill: Float[Array, "... size"]) -> Float[Array, "... size"]:
    """One-hot skills as directions that sum to 0, their own coordinate being 1."""
    size = skill.shape[-1]
    return (skill - 1 / size) * (size / max(size - 1, 1))
