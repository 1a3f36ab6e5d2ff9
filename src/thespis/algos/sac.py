"""Soft Actor-Critic. Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905 (equations below)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array

from thespis.algos.held_noise import Held
from thespis.algos.hyper_parameters import Discounting, SoftLearningRates
from thespis.algos.presets.sac import PRESETS
from thespis.algos.soft_actor_critic import SoftActorCritic, State
from thespis.core import Mean, Metrics, Mode, ThespisError, Transition, mean
from thespis.nn.distributions import RANGE, LogDerivative, Std, TanhGaussian
from thespis.nn.networks import Critics
from thespis.nn.train_state import TrainState
from thespis.tuning.hyper import LogUniform, Uniform, prior
from thespis.xla import fast_random


@dataclass(frozen=True)
class SAC(SoftActorCritic):
    """Maximum-entropy actor-critic for continuous actions."""

    std: Std = "exp"
    """Parametrisation of the standard deviation: exp(raw), with raw clipped (exp) or squashed by
    tanh (tanh) to log_std_range, or softplus(raw) + 0.001."""
    log_std_range: tuple[float, ...] = RANGE
    """Lower and upper bound of the log standard deviation."""
    log_derivative: LogDerivative = "exact"
    """Correction for tanh in log-probabilities: exact, or log(1 - a^2 + 1e-6) (epsilon)."""
    order: Literal["sequential", "simultaneous", "actor-first"] = "sequential"
    """Order of updates: the actor maximises the values of the updated critics (sequential) or of
    those before the update (simultaneous); with actor-first, critics then use the updated actor and
    temperature."""
    actor_every: int = 1
    """Number of critic updates per update of the actor and the temperature."""
    critic_loss: Literal["sum", "half-mean"] = "sum"
    """Critic loss: the sum of squared errors over critics, or half of their mean."""
    store_policy: bool = False
    """Store the policy's mean and standard deviation with every transition."""
    init_w: float | None = None
    """Initialise the actor's last layer uniformly within +-init_w."""
    noise_repeat: int = 1
    """Maximum number of steps k that reuse the same exploration noise, where k has a probability
    proportional to 1 / k^2."""

    class Hyper(Discounting, SoftLearningRates):
        alpha: float = prior(
            1.0, LogUniform(1e-2, 1), "initial (or fixed) temperature", low=0, initial=True
        )
        target_entropy: float = prior(-1.0, Uniform(-2, 0), "target entropy per action dimension")

    presets: ClassVar[dict[str, dict]] = PRESETS

    def __post_init__(self):
        super().__post_init__()
        _ = self.box  # refuses other actions
        if len(self.log_std_range) != 2 or self.log_std_range[0] >= self.log_std_range[1]:
            raise ThespisError(f"log_std_range = {self.log_std_range}: give the lower number first")
        free_output = (
            self.actor_network.unit in ("none", "hidden") and self.actor_network.body != "simbav2"
        )
        if self.init_w is not None and not free_output:
            raise ThespisError(
                f"init_w = {self.init_w:g}: weights of the actor keep unit length; leave init_w out"
            )

    # --- life cycle -------------------------------------------------------------------------

    def make_actor(self, key) -> Any:
        k_net, k_last = random.split(key)
        actor = self.make_network(k_net, 2 * self.box.size)
        return actor if self.init_w is None else actor.with_last(k_last, self.init_w)

    def make_critics(self, key) -> Critics:
        return self.make_critic(key, self.box.size, self.value_head.outputs)

    def memory(self, key, n: int) -> Any:
        return Held.none(n, self.box.size) if self.noise_repeat > 1 else None

    def act(self, state: State, hp, memory, obs, key, step, mode: Mode) -> Any:
        policy = self.policy(self.acting(state), self.see(state, obs))
        if mode == "random":
            action = fast_random.uniform(key, policy.mean.shape, -1, 1)
        elif mode == "explore" and self.noise_repeat > 1:
            memory = memory.next(key, self.noise_repeat)
            action = jnp.tanh(policy.mean + jnp.exp(policy.log_std) * memory.draw)
        else:
            action = policy.sample(key)[0] if mode == "explore" else policy.mode()
        extra = {"mu": policy.mean, "sigma": jnp.exp(policy.log_std)} if self.store_policy else None
        return action, memory, extra

    # --- learning ---------------------------------------------------------------------------

    def update(self, state: State, hp, b: Transition, key, step) -> tuple[State, Metrics, Array]:
        k_next, k_now = random.split(key)
        hp, b = self.scheduled(hp, step), self.scale_rewards(state, b)
        obs, next_obs = self.see(state, b.obs), self.see(state, b.next_obs)
        alpha = self.alpha(state, hp)
        learn = partial(self.actor_step, hp=hp, b=b, obs=obs, alpha=alpha, key=k_now, step=step)
        actor_first = self.order == "actor-first"
        new, actor_metrics = learn(state, state.critic.params) if actor_first else (state, {})

        # Critics: regress every Q_i on the soft Bellman target (eq. 5).
        next_action, next_log_p = self.policy(self.acting(new), next_obs).sample(k_next)
        now, then = (obs, b.action), (next_obs, next_action)
        bonus = -self.alpha(new, hp) * next_log_p
        critic, result = self.learn_critics(state, state.target, hp, b, now, then, bonus, k_now)

        if not actor_first:
            critic_for_actor = critic if self.order == "sequential" else state.critic
            new, actor_metrics = learn(state, critic_for_actor.params)
        metrics = result.metrics | actor_metrics
        if self.actor_every == 1:
            metrics["total_loss"] = metrics["actor_loss"] + result.loss + metrics["ent_coef_loss"]
        metrics |= {"ent_coef": alpha, "obs_mean": obs.mean(), "obs_std": obs.std()}
        target = self.update_target(hp, state.target, critic.params, step)
        return dataclasses.replace(new, critic=critic, target=target), metrics, result.td_error

    def actor_step(
        self, state: State, critic, hp, b: Transition, obs, alpha, key, step
    ) -> tuple[State, dict[str, Any]]:
        """Trains actor and temperature, if they are due in this update -> state, metrics."""
        learn = lambda: self.learn_actor(state, critic, hp, b, obs, alpha, key)
        if self.actor_every == 1:
            actor, temperature, metrics = learn()
        else:
            first = 0 if self.order == "actor-first" else self.actor_every - 1
            due = step % self.actor_every == first
            zeros = jax.tree.map(lambda x: jnp.zeros(x.shape), jax.eval_shape(learn)[2])
            skip = lambda: (state.actor, state.temperature, zeros)
            actor, temperature, metrics = jax.lax.cond(due, learn, skip)
            metrics = {name: Mean(x, due.astype(jnp.float32)) for name, x in metrics.items()}
        return dataclasses.replace(state, actor=actor, temperature=temperature), metrics

    def learn_actor(
        self, state: State, critic, hp, b: Transition, obs, alpha, key
    ) -> tuple[TrainState, TrainState | None, Metrics]:
        """Takes one gradient step of actor and temperature -> both, and metrics."""

        # Actor: maximise the soft value (eq. 7-9).
        def actor_loss(actor):
            raw, new = self.with_encoder(actor, critic).train(obs, b.valid)
            value, log_p = self.soft_value(self.distribution(raw), critic, alpha, obs, key)
            return -mean(value, b.valid), (new, mean(log_p, b.valid))

        actor, (loss, log_p) = self.apply_gradient(state.actor, actor_loss, hp, hp.actor_lr)

        # Temperature: hold the entropy at its target (eq. 18).
        surplus = -log_p - hp.target_entropy * self.box.size  # entropy above its target
        temperature, alpha_loss = self.learn_temperature(state, hp, surplus)
        metrics = {"actor_loss": loss, "ent_coef_loss": alpha_loss, "log_prob": log_p}
        return actor, temperature, metrics

    # --- what variants override -------------------------------------------------------------

    def policy(self, actor, obs) -> TanhGaussian:
        return self.distribution(actor(obs))

    def distribution(self, raw: Array) -> TanhGaussian:
        """Returns the policy that the outputs of the actor's network stand for."""
        low, high = self.log_std_range
        return TanhGaussian.from_outputs(raw, self.std, self.log_derivative, log_stds=(low, high))

    def soft_value(self, policy: TanhGaussian, critic, alpha, obs, key) -> tuple[Array, Array]:
        """Returns V(s) = Q(s, a) - alpha log pi(a|s) for one a ~ pi (eq. 3), and log pi(a|s)."""
        k_critic = random.fold_in(key, 3)
        action, log_p = policy.sample(key)
        return self.actor_value(critic, obs, action, k_critic) - alpha * log_p, log_p

    def total_critic_loss(self, losses) -> Array:
        return losses.sum() if self.critic_loss == "sum" else 0.5 * losses.mean()
