"""The objective of DADS: skill dynamics q(s' - s | s, z), a model of the changes of a skill.

They reward changes that a skill z makes predictable and other skills do not. Equations are those
of Sharma et al. 2020, https://arxiv.org/abs/1907.01657.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thespis.core import Metrics, Transition, mean
from thespis.nn.distributions import Mixture
from thespis.nn.networks import MLP
from thespis.xla import fast_random

SCALES = np.geomspace(1e-4, 1e4, 33)  # standard deviations at which evaluations measure information


@dataclass(frozen=True)
class SkillDynamics:
    """The objective of DADS: a network, its learning, and the reward that it gives."""

    algo: Any  # DADS

    @property
    def sizes(self) -> tuple[int, int]:
        """Returns the numbers of inputs and outputs of the network.

        The outputs are the logits, means and perhaps scales of a mixture.
        """
        algo, n = self.algo, self.algo.views.size("predicts")
        outputs = 1 + n * (2 if algo.dynamics_std == "learned" else 1)
        return algo.views.size("dynamics_sees") + algo.skills, algo.components * outputs

    @property
    def normalizes_target(self) -> bool:
        """Tells whether changes are normalised."""
        return self.algo.normalize_target

    def multiplier(self, hp) -> None:
        """Returns None: there is no constraint."""
        return

    def draw(self, key, shape: tuple[int, int]) -> Float[Array, "n size"]:
        """Draws skills: points of the cube [-1, 1]^size."""
        return fast_random.uniform(key, shape, -1, 1)

    def nearest(self, skill: Float[Array, "... size"]) -> Float[Array, "... size"]:
        """Returns the nearest point of the cube."""
        return jnp.clip(skill, -1, 1)

    def learn(self, state: Any, hp, batch: Transition, skill, weight, valid) -> tuple[Any, Metrics]:
        """Takes one maximum-likelihood step on the changes that skills make (eq. 4)."""
        seen, target = self.normalised(state, batch.obs, batch.next_obs)

        def dynamics_loss(net):
            log_q = self.predict(net, hp, seen, skill).log_prob(target)
            return -mean(weight * log_q, valid), None

        dynamics, (loss, _) = state.dynamics.apply_gradient(dynamics_loss, hp.dynamics_lr)
        return dataclasses.replace(state, dynamics=dynamics), {"dynamics_loss": loss}

    def reward(self, state: Any, net: MLP, hp, obs, next_obs, skill, key) -> tuple[Array, Array]:
        """Returns log q(s'|s, z) - log mean_i q(s'|s, z_i), with z among the z_i, and the target.

        At most the log of the number of skills compared, and 0 if skills do not matter (eq. 6).
        """
        algo = self.algo
        seen, target = self.normalised(state, obs, next_obs)
        # Without inputs, predictions are the same in every state.
        inputs = seen[:1] if seen.shape[-1] == 0 else seen
        one_hot = algo.skill_kind == "one-hot"
        others = jnp.eye(algo.skills) if one_hot else algo.draw_skills(key, algo.alternatives)
        pairs = (inputs.shape[0], others.shape[0])
        inputs = jnp.broadcast_to(inputs[:, None], (*pairs, inputs.shape[-1]))
        compared = jnp.broadcast_to(others[None], (*pairs, algo.skills))
        log_others = self.predict(net, hp, inputs, compared).log_prob(target[:, None])
        if one_hot:
            log_q = (log_others * skill).sum(-1)
        else:
            log_q = self.predict(net, hp, seen, skill).log_prob(target)
        ratios = jnp.exp(jnp.clip(log_others - log_q[:, None], -50, 50)).sum(-1)
        itself = 0 if one_hot else 1  # the skill is one of those compared
        return math.log(others.shape[0] + itself) - jnp.log(ratios + itself), target

    def predict(self, net: MLP, hp, seen: Array, skill: Array) -> Mixture:
        """Returns q(. | s, z), a distribution of normalised changes."""
        algo, outputs = self.algo, net(jnp.concatenate([seen, skill], -1))
        learned, n = algo.dynamics_std == "learned", algo.views.size("predicts")
        return Mixture.from_outputs(outputs, algo.components, n, hp.dynamics_scale, learned)

    def normalised(self, state: Any, obs, next_obs) -> tuple[Array, Array]:
        """Returns the input of the dynamics, and the change they should predict."""
        look = self.algo.views.look
        seen = self.algo.scaled(state, look("dynamics_sees", obs))
        change = look("predicts", next_obs) - look("predicts", obs)
        if state.change_stats is not None:
            change = state.change_stats(change, floor=1e-12)
        return seen, change

    def target_metrics(self, target: Array, valid: Array) -> Metrics:
        """Returns mean and standard deviation of the targets, which should be near 0 and 1."""
        centre = mean(target.T, valid[None])
        spread = jnp.sqrt(mean((target - centre[None]).T ** 2, valid[None]))
        return {"target_mean": centre.mean(), "target_std": spread.mean()}

    def dependence_terms(self, state: Any, hp, obs, next_obs, skill) -> Float[Array, "n terms"]:
        """Returns the information on the skill that steps give, at several scales.

        Any scale gives a lower bound of the information, so the greatest of them is one as well.
        """

        def at_scale(scale):
            scaled = eqx.tree_at(lambda h: h.dynamics_scale, hp, scale)
            return self.algo.diversity_between(state, scaled, obs, next_obs, skill)

        return jax.vmap(at_scale)(jnp.asarray(SCALES, jnp.float32)).T

    def dependence(self, terms: Float[Array, "n terms"]) -> Float[Array, "n"]:
        """Returns the nats that episodes reveal of their skill, at the best scale for all."""
        return terms[:, terms.mean(0).argmax()]
