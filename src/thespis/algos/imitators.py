"""SAC that learns from the batches of SQIL, by one of its objectives (see sqil.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from thespis.algos.discrete_sac import DiscreteSAC
from thespis.algos.sac import SAC
from thespis.algos.soft_actor_critic import SoftActorCritic
from thespis.core import Metrics, Transition, mean

Objective = Literal["sqil", "iq", "ls-iq"]


@dataclass(frozen=True)
class Imitator(SoftActorCritic):
    """SAC whose critics learn by one of the objectives, for either kind of actions."""

    objective: Objective = "sqil"

    def bellman_target(self, hp, b: Transition, after, bonus) -> tuple[Any, Array]:
        return super().bellman_target(hp, b, *bounded_value(self.objective, hp, after, bonus))

    def extra_critic_loss(self, state, hp, critic, b: Transition, valid, key) -> Array | float:
        if self.objective != "iq":
            return 0.0
        obs, k_taken = self.see(state, b.obs), random.fold_in(key, 1)
        value = self.policy_values(state, critic, b, obs, key)
        q = self.value_head.value(self.outputs(critic, obs, b.action, k_taken))
        return contrastive_loss(hp, value, q, valid)

    def policy_values(self, state, critic, b: Transition, obs, key) -> Array:
        """Returns Q_i(s, pi): [critics, batch]; `obs` is the critics' input of s."""
        raise NotImplementedError


@dataclass(frozen=True)
class ContinuousImitator(Imitator, SAC):
    """Learns continuous actions."""

    def policy_values(self, state, critic, b: Transition, obs, key) -> Array:
        action, _ = self.policy(self.acting(state), obs).sample(key)
        return self.value_head.value(self.outputs(critic, obs, action, random.fold_in(key, 0)))

    def actor_values(self, state, actor, critic, alpha, obs, key) -> Float[Array, "batch"]:
        """Returns what the actor maximises, at observations as the environment gives them."""
        inputs = self.see(state, obs)
        policy = self.policy(self.with_encoder(actor, critic), inputs)
        return self.soft_value(policy, critic, alpha, inputs, key)[0]

    def log_prob(self, state, actor, obs, action) -> Float[Array, "batch"]:
        """Returns log pi(a|s) of given actions."""
        actor = self.with_encoder(actor, state.critic.params)
        return self.policy(actor, self.see(state, obs)).log_prob(action)

    def policy_metrics(self, state, obs, valid, metrics: Metrics) -> Metrics:
        """Returns the policy's mean and standard deviation, and the entropy after tanh."""
        policy = self.policy(self.acting(state), obs)
        mu = mean(policy.mean.mean(-1), valid)
        sigma = mean(jnp.exp(policy.log_std).mean(-1), valid)
        return {"mu": mu, "sigma": sigma, "entropy": -metrics["log_prob"]}


@dataclass(frozen=True)
class DiscreteImitator(Imitator, DiscreteSAC):
    """Learns discrete actions. All expectations are exact."""

    def policy_values(self, state, critic, b: Transition, obs, key) -> Array:
        policy = self.policy(state, self.acting(state), b.obs)
        return jnp.stack([policy.expect(q) for q in critic(obs, key=random.fold_in(key, 0))])

    def actor_values(self, state, actor, critic, alpha, obs, key) -> Float[Array, "batch"]:
        policy = self.policy(state, self.with_encoder(actor, critic), obs)
        q = self.reduced(critic(self.see(state, obs), key=random.fold_in(key, 3)))
        return policy.expect(q) + alpha * policy.entropy()

    def log_prob(self, state, actor, obs, action) -> Float[Array, "batch"]:
        policy = self.policy(state, self.with_encoder(actor, state.critic.params), obs)
        return jnp.take_along_axis(policy.log_p, action[:, None], -1)[:, 0]

    def policy_metrics(self, state, obs, valid, metrics: Metrics) -> Metrics:
        return {}  # the update returns the entropy already


def contrastive_loss(hp, value: Array, q: Array, valid: Array) -> Array:
    """Returns IQ-Learn's loss without its squares, of Q_i(s, pi) and Q_i(s, a) [critics, batch].

    With implied rewards r = Q - gamma V(s') and c = 1 / reward_scale, it maximises
    E_demo[r] - E[V(s) - gamma V(s')] - c E[r^2] (chi-square). This is the first two divided
    by -c, without targets and entropies, which have no gradient here.
    """
    demo = valid * (jnp.arange(len(valid)) >= len(valid) // 2).astype(jnp.float32)
    return hp.reward_scale * (mean(value, valid[None]) - mean(q, demo[None])).sum()


def bounded_value(objective: Objective, hp, after: Array, bonus) -> tuple[Array, Any]:
    """Clips the value of s' for LS-IQ, to those of rewards -1 and 1 in every step."""
    if objective != "ls-iq":
        return after, bonus
    bound = hp.reward_scale * largest_return(hp)
    value = after if bonus is None else after + bonus[:, None]
    return jnp.clip(value, -bound, bound), None


def largest_return(hp) -> Array:
    """Returns 1 / (1 - gamma), the return of reward 1 in every step."""
    return 1.0 / jnp.maximum(1.0 - hp.gamma, 1e-6)
