"""METRA: skills that lead far apart. Park et al. 2024, https://arxiv.org/abs/2310.08887.

It learns a representation phi of states in which a step is at most 1 long, so that distances
count steps. A skill z is a direction there, and its reward is how far a step went along it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.algos.temperature import init_temperature
from thespis.core import Metrics, ThespisError, Transition, mean
from thespis.nn.networks import MLP
from thespis.nn.train_state import TrainState
from thespis.xla import fast_random


@dataclass(frozen=True)
class METRA:
    """The objective of DADS, with a representation instead of skill dynamics."""

    algo: Any  # DADS

    def __post_init__(self):
        if not self.algo.views.size("dynamics_sees"):
            raise ThespisError("dynamics_sees = none: name what metra's representation should see")

    @property
    def sizes(self) -> tuple[int, int]:
        """Returns the numbers of inputs and outputs of the network, phi."""
        return self.algo.views.size("dynamics_sees"), self.algo.skills

    @property
    def normalizes_target(self) -> bool:
        """Returns False: METRA predicts nothing."""
        return False

    def multiplier(self, hp) -> TrainState | None:
        """Returns the train state of log lambda, the weight of the constraint."""
        return init_temperature("log", hp.multiplier)

    def draw(self, key, shape: tuple[int, int]) -> Float[Array, "n size"]:
        """Draws skills: unit vectors."""
        return self.nearest(fast_random.normal(key, shape))

    def nearest(self, skill: Float[Array, "... size"]) -> Float[Array, "... size"]:
        """Returns the unit vectors of these directions."""
        length = jnp.linalg.norm(skill, axis=-1, keepdims=True)
        return skill / jnp.maximum(length, 1e-6)

    def learn(self, state: Any, hp, batch: Transition, skill, weight, valid) -> tuple[Any, Metrics]:
        """Takes one step of the representation and of the constraint's weight."""
        steps = self.steps(state, batch.obs, batch.next_obs, skill)
        trained = state.dynamics, state.multiplier
        phi, multiplier, metrics = learn(*trained, hp, steps, weight, valid)
        return dataclasses.replace(state, dynamics=phi, multiplier=multiplier), metrics

    def reward(self, state: Any, net: MLP, hp, obs, next_obs, skill, key) -> tuple[Array, None]:
        """Returns (phi(s') - phi(s)) . z, and no target."""
        return gain(net, *self.steps(state, obs, next_obs, skill))[0], None

    def steps(self, state: Any, obs, next_obs, skill) -> tuple[Array, Array, Array]:
        """Returns the inputs of phi before and after steps, and the direction they should go."""
        see = lambda obs: self.algo.scaled(state, self.algo.views.look("dynamics_sees", obs))
        towards = centred(skill) if self.algo.skill_kind == "one-hot" else skill
        return see(obs), see(next_obs), towards

    def target_metrics(self, target: None, valid: Array) -> Metrics:
        """Returns no metrics, since there is no target."""
        return {}

    def dependence_terms(self, state: Any, hp, obs, next_obs, skill) -> Float[Array, "n terms"]:
        """Returns how far steps went along the skill, their squared lengths, and ones."""
        steps = self.steps(state, obs, next_obs, skill)
        return jnp.stack([*gain(state.dynamics.params, *steps), jnp.ones(skill.shape[0])], -1)

    def dependence(self, terms: Float[Array, "n terms"]) -> Float[Array, "n"]:
        """Returns the distance along the skill, in root mean square lengths of a step.

        So the constraint, that a step is 1 long, holds exactly whatever phi has learned.
        """
        along, squares, steps = terms.T
        unit = jnp.sqrt(squares.sum() / jnp.maximum(steps.sum(), 1.0))
        return along / jnp.maximum(unit, 1e-6)


def gain(
    phi: MLP, before: Float[Array, "n seen"], after: Array, towards: Float[Array, "n size"]
) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """Returns (phi(s') - phi(s)) . z, the reward, and |phi(s') - phi(s)|^2."""
    change = phi(after) - phi(before)
    return (change * towards).sum(-1), (change**2).sum(-1)


def learn(
    phi: TrainState, multiplier: TrainState, hp: Any, steps: tuple, weight: Array, valid: Array
) -> tuple[TrainState, TrainState, Metrics]:
    """Takes one ascent step of phi and one descent step of log lambda; `steps` are as in `gain`."""
    strength = jnp.exp(multiplier.params)

    # max E[(phi(s') - phi(s)) . z + lambda min(slack, 1 - |phi(s') - phi(s)|^2)].
    def representation_loss(net):
        along, length = gain(net, *steps)
        room = jnp.minimum(1.0 - length, hp.slack)
        means = mean(room, valid), mean(jnp.sqrt(length), valid)
        return -mean(weight * (along + strength * room), valid), means

    phi, (loss, (room, length)) = phi.apply_gradient(representation_loss, hp.dynamics_lr)

    # Dual descent: min E[lambda min(slack, 1 - |phi(s') - phi(s)|^2)], of log lambda.
    multiplier, _ = multiplier.apply_gradient(lambda log: (log * room, None), hp.dynamics_lr)
    metrics = {"representation_loss": loss, "step_length": length, "multiplier": strength}
    return phi, multiplier, metrics


def centred(skill: Float[Array, "... size"]) -> Float[Array, "... size"]:
    """Returns one-hot skills as directions that sum to 0, with 1 in the skill's coordinate."""
    size = skill.shape[-1]
    return (skill - 1 / size) * (size / max(size - 1, 1))
