"""SAC for discrete actions. Christodoulou 2019, https://arxiv.org/abs/1910.07207 (equations below).

Expectations over actions are exact. A dict observation may say which are legal (`core.MASK`).
Options `reduce` mean and `clip_q`: Zhou et al. 2022, https://arxiv.org/abs/2209.10081.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from thespis.algos import epsilon
from thespis.algos.critic_learning import numbered
from thespis.algos.held_noise import Held
from thespis.algos.hyper_parameters import Discounting, SoftLearningRates
from thespis.algos.presets.discrete_sac import PRESETS
from thespis.algos.soft_actor_critic import SoftActorCritic, State
from thespis.core import MASK, Metrics, Mode, ThespisError, Transition, has_mask, mean, where
from thespis.nn.distributions import Categorical
from thespis.nn.heads import smallest
from thespis.nn.networks import Critics
from thespis.tuning.hyper import LogUniform, Uniform, prior
from thespis.xla import fast_random


class Memory(eqx.Module):
    """The memory of n environments, if noise is held."""

    held: Held
    luck: Float[Array, "n"]  # actions are random while this number of the episode is below epsilon


@dataclass(frozen=True)
class DiscreteSAC(SoftActorCritic):
    """Maximum-entropy actor-critic for discrete actions, some of which may be illegal."""

    entropy_unit: Literal["log-actions", "actions"] = "log-actions"
    """Unit of target_entropy: the log of the number of legal actions, or the number."""
    reduce: Literal["min", "mean"] = "min"
    """Value of several critics in targets and for the actor: their minimum or mean."""
    critic_entropy: bool = True
    """Include the entropy of the next state in the critics' targets."""
    clip_q: bool = False
    """Clip the critics' values to within q_clip of the target critics in their loss."""
    epsilon_schedule: epsilon.Schedule = "linear"
    """Schedule of epsilon from epsilon_start to epsilon_end."""
    store_logits: bool = False
    """Store the actor's logits with every transition."""
    noise_repeat: int = 16
    """Maximum number of steps k that reuse the same exploration noise, where k has a probability
    proportional to 1 / k^2. Above 1, epsilon is the probability that a whole episode is random, not
    a step."""

    class Hyper(Discounting, SoftLearningRates):
        tau: float = prior(
            0.02, LogUniform(1e-3, 1e-1), "Polyak rate of the target networks", low=0, high=1
        )
        alpha: float = prior(
            0.05, LogUniform(1e-2, 1), "initial (or fixed) temperature", low=0, initial=True
        )
        target_entropy: float = prior(
            0.5, Uniform(0.1, 0.9), "target entropy in units of entropy_unit"
        )
        q_clip: float = prior(
            0.5, LogUniform(0.1, 10), "distance from the target critics for clip_q", low=0
        )
        epsilon_start: float = epsilon.start_prior(1.0)
        epsilon_end: float = epsilon.end_prior(0.0)
        epsilon_decay: float = epsilon.decay_prior(2e4)

    presets: ClassVar[dict[str, dict]] = PRESETS
    unsupported: ClassVar[tuple[str, ...]] = ("subset", "target_reduce", "actor_reduce")

    def __post_init__(self):
        super().__post_init__()
        if self.head not in ("mse", "huber"):
            raise ThespisError(f"head = {self.head} is for continuous actions: take mse or huber")
        if self.clip_q and (self.head != "mse" or self.target_update == "none"):
            raise ThespisError("clip_q needs head = mse and target critics: leave one of them out")
        self.check_mask(self.spec.obs, self.actions)

    # --- life cycle -------------------------------------------------------------------------

    def make_actor(self, key) -> Any:
        return self.make_network(key, self.actions)

    def make_critics(self, key) -> Critics:
        return self.make_critic(key, 0, self.actions)

    def memory(self, key, n: int) -> Memory | None:
        if self.noise_repeat == 1:
            return None
        return Memory(Held.none(n, self.actions), fast_random.uniform(key, (n,)))

    def act(self, state: State, hp, memory, obs, key, step, mode: Mode):
        policy = self.policy(state, self.acting(state), obs)
        extra = {"logits": policy.logits} if self.store_logits else None
        if mode == "greedy":
            return policy.mode(), memory, extra
        k_random, k_action = random.split(key)
        chance = 1.0 if mode == "random" else epsilon.epsilon_of(self.epsilon_schedule, hp, step)
        if self.noise_repeat == 1:
            policy = epsilon.with_random_actions(policy, chance, k_random)
            return policy.sample(k_action), memory, extra
        held = memory.held.next(k_action, self.noise_repeat, random.gumbel)
        logits = where(memory.luck < chance, jnp.zeros_like(policy.logits), policy.logits)
        action = Categorical(logits + held.draw, policy.legal).mode()
        return action, Memory(held, memory.luck), extra

    # --- learning ---------------------------------------------------------------------------

    def update(self, state: State, hp, b: Transition, key, step) -> tuple[State, Metrics, Array]:
        hp, b = self.scheduled(hp, step), self.scale_rewards(state, b)
        obs, next_obs = self.see(state, b.obs), self.see(state, b.next_obs)
        alpha = self.alpha(state, hp)

        # Critics: regress every Q_i on the soft Bellman target (eq. 4, with V of eq. 10).
        next_policy = self.policy(state, self.acting(state), b.next_obs)
        bonus = alpha * next_policy.entropy() if self.critic_entropy else None
        arguments = hp, b, (obs, b.action), (next_obs, next_policy), bonus, key
        critic, result = self.learn_critics(state, state.target, *arguments)

        # Actor: maximise the soft value under the new critics (eq. 12).
        q_now = self.reduced(critic.params(obs, key=random.fold_in(key, 3)))

        def actor_loss(actor):
            logits, new = self.with_encoder(actor, critic.params).train(obs, b.valid)
            policy = self.distribution(logits, b.obs)
            entropy = policy.entropy()
            return -mean(policy.expect(q_now) + alpha * entropy, b.valid), (new, (policy, entropy))

        trained = self.apply_gradient(state.actor, actor_loss, hp, hp.actor_lr)
        actor, (pi_loss, (policy, entropies)) = trained

        # Temperature: hold the entropy at its target (eq. 11).
        targets = self.target_entropies(hp, policy)
        entropy, target_entropy = mean(entropies, b.valid), mean(targets, b.valid)
        surplus = entropy - target_entropy
        temperature, alpha_loss = self.learn_temperature(state, hp, surplus)

        uniform = Categorical(jnp.zeros_like(next_policy.logits), next_policy.legal)
        metrics = result.metrics | {
            "actor_loss": pi_loss,
            "ent_coef": alpha,
            "ent_coef_loss": alpha_loss,
            "total_loss": pi_loss + result.loss + alpha_loss,
            "entropy": entropy,
            "target_entropy": target_entropy,
            **numbered("q_value", (mean(uniform.expect(q), result.valid) for q in result.next_out)),
        }
        if self.store_logits and b.extra is not None:
            behaviour = Categorical(b.extra["logits"], policy.legal)
            metrics["behaviour_entropy"] = mean(behaviour.entropy(), b.valid)
        target = self.update_target(hp, state.target, critic.params, step)
        parts = {"actor": actor, "critic": critic, "target": target, "temperature": temperature}
        return replace(state, **parts), metrics, result.td_error

    # --- what variants override -------------------------------------------------------------

    def policy(self, state: State, actor, obs) -> Categorical:
        """Returns the policy at observations as the environment gives them."""
        return self.distribution(actor(self.see(state, obs)), obs)

    def distribution(self, logits: Array, obs) -> Categorical:
        """Returns the policy that the actor's logits stand for."""
        legal = obs[MASK].astype(bool) if has_mask(self.spec.obs) else None
        return Categorical.from_logits(logits, legal)

    def network_inputs(self, obs, action) -> tuple[Array, ...]:
        return (obs,)

    def taken(self, out: Float[Array, "critics batch n"], action) -> Array:
        """Returns the values of the actions that were taken: [critics, batch, 1]."""
        return jnp.take_along_axis(out, action[None, :, None], -1)

    def reduce_target(self, out, then: tuple, key) -> Array:
        """Returns the expected value under the policy: [batch, 1]."""
        _, policy = then
        return policy.expect(self.reduced(out))[..., None]

    def critic_losses(self, hp, out, target, now: tuple, b: Transition, target_critic) -> tuple:
        losses, error = super().critic_losses(hp, out, target, now, b, target_critic)
        if self.clip_q:
            anchor, q = self.q(target_critic, *now), self.value_head.value(out)
            clipped = anchor + jnp.clip(q - anchor, -hp.q_clip, hp.q_clip)
            losses = jnp.maximum(losses, (clipped - target[None]) ** 2)
        return losses, error

    def reduced(self, q: Array) -> Array:
        """Reduces all critics to one value per action: [critics, batch, n] -> [batch, n]."""
        return smallest(q) if self.reduce == "min" else q.mean(0)

    def target_entropies(self, hp, policy: Categorical) -> Array:
        """Returns the target entropy of every state, by its legal actions: [batch]."""
        n = policy.legal.sum(-1).astype(jnp.float32)
        unit = jnp.log(jnp.maximum(n, 1.0)) if self.entropy_unit == "log-actions" else n
        return hp.target_entropy * unit
