"""TD3: twin delayed deterministic policy gradient. Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from thespis.algos.actor_critic import ActorCritic
from thespis.algos.critic_learning import CriticStep
from thespis.algos.held_noise import Held
from thespis.algos.hyper_parameters import Discounting, LearningRates
from thespis.algos.presets.td3 import PRESETS
from thespis.core import Mean, Metrics, Mode, ThespisError, Transition, mean, polyak
from thespis.nn.networks import Critics
from thespis.nn.train_state import TrainState
from thespis.tuning.hyper import Uniform, prior, special_prior
from thespis.xla import fast_random


class State(eqx.Module):
    actor: TrainState
    critic: TrainState
    target_actor: Any
    target_critic: Critics | None  # None if critics have no targets
    stats: Any  # running statistics of the observations, or None
    reward_stats: Any  # of the returns, or None


class Memory(eqx.Module):
    """The memory of n environments, if every episode has noise of its own standard deviation."""

    held: Held | None
    share: Float[Array, "n"]  # which lies so far between noise_low and noise


@dataclass(frozen=True)
class TD3(ActorCritic):
    """Deterministic actor-critic with smoothed targets and a delayed actor."""

    delay: int = 2
    """Number of critic updates per update of the actor."""
    order: Literal["sequential", "simultaneous"] = "sequential"
    """Order of updates: the actor maximises the value of the updated critic (sequential) or of the
    one before the update (simultaneous)."""
    critic_target: Literal["delayed", "every"] = "delayed"
    """Update the target critics only with the actor (delayed), or at every update."""
    actor_reduce: Literal["min", "mean", "first"] = "first"
    """Value of several critics that the actor maximises: their minimum, their mean, or the
    first."""
    noise_repeat: int = 1
    """Maximum number of steps k that reuse the same exploration noise, where k has a probability
    proportional to 1 / k^2."""
    noise_per_episode: bool = False
    """Sample the std of the exploration noise for every episode, between noise_low and noise."""

    class Hyper(Discounting, LearningRates):
        noise: float = prior(0.1, Uniform(0, 0.2), "std of the exploration noise", low=0)
        noise_low: float = special_prior(0.0, Uniform(0, 0.1), "lowest std of noise_per_episode", 0)
        target_noise: float = prior(0.2, Uniform(0, 1), "std of the target policy noise", low=0)
        noise_clip: float = prior(0.5, Uniform(0, 1), "bound of the target policy noise", low=0)

    presets: ClassVar[dict[str, dict]] = PRESETS

    def __post_init__(self):
        super().__post_init__()
        _ = self.box  # refuses other actions
        rare = self.target_every > 1 and self.critic_target == "delayed"
        if rare and self.target_every % self.delay:
            raise ThespisError(
                f"target_every = {self.target_every}: targets follow with the actor's updates; "
                f"give a multiple of {self.delay}, the delay"
            )

    # --- life cycle -------------------------------------------------------------------------

    def init(self, key, hp) -> State:
        k_actor, k_critic = random.split(key)
        actor = self.make_network(k_actor, self.box.size)
        critic = self.make_critic(k_critic, self.box.size, self.value_head.outputs)
        return State(
            actor=self.train_state(actor),
            critic=self.train_state(critic),
            target_actor=actor,
            target_critic=self.make_target(critic),
            stats=self.make_stats(),
            reward_stats=self.make_reward_stats(),
        )

    def memory(self, key, n: int) -> Held | Memory | None:
        held = Held.none(n, self.box.size) if self.noise_repeat > 1 else None
        return Memory(held, fast_random.uniform(key, (n,))) if self.noise_per_episode else held

    def act(self, state: State, hp, memory, obs, key, step, mode: Mode):
        actor = self.with_encoder(state.actor.params, state.critic.params)
        action = jnp.tanh(actor(self.see(state, obs)))
        if mode == "random":
            action = fast_random.uniform(key, action.shape, -1, 1)
        if mode == "explore":
            held, noise = memory, hp.noise
            if self.noise_per_episode:
                held = memory.held
                noise = (hp.noise_low + memory.share * (hp.noise - hp.noise_low))[:, None]
            if self.noise_repeat > 1:
                held = held.next(key, self.noise_repeat)
            draw = fast_random.normal(key, action.shape) if held is None else held.draw
            action = jnp.clip(action + noise * draw, -1, 1)
            memory = replace(memory, held=held) if self.noise_per_episode else held
        return action, memory, None

    # --- learning ---------------------------------------------------------------------------

    def update(self, state: State, hp, b: Transition, key, step) -> tuple[State, Metrics, Array]:
        k_critic, k_actor = random.fold_in(key, 0), random.fold_in(key, 3)
        hp, b = self.scheduled(hp, step), self.scale_rewards(state, b)
        obs, next_obs = self.see(state, b.obs), self.see(state, b.next_obs)

        # Critics: smoothed target action, clipped double Q (eq. 14, algorithm 1).
        noise = hp.target_noise * fast_random.normal(key, b.action.shape)
        noise = jnp.clip(noise, -hp.noise_clip, hp.noise_clip)
        encoding = state.critic.params if state.target_critic is None else state.target_critic
        target_actor = self.with_encoder(state.target_actor, encoding)
        next_action = jnp.clip(jnp.tanh(target_actor(next_obs)) + noise, -1, 1)
        arguments = hp, b, (obs, b.action), (next_obs, next_action), None, k_critic
        critic, result = self.learn_critics(state, state.target_critic, *arguments)

        # Actor and targets: every `delay` updates, the actor up the first critic (eq. 15).
        critic_for_actor = critic.params if self.order == "sequential" else state.critic.params

        def actor_loss(actor):
            raw, new = self.with_encoder(actor, critic_for_actor).train(obs, b.valid)
            value = self.actor_value(critic_for_actor, obs, jnp.tanh(raw), k_actor)
            return -mean(value, b.valid), (new, None)

        follow = lambda target: self.update_target(hp, target, critic.params, step)

        def learn(actor, target_actor, target_critic):
            actor, (loss, _) = self.apply_gradient(actor, actor_loss, hp, hp.actor_lr)
            target_actor = self.update_target_actor(hp, target_actor, actor.params, step)
            return actor, target_actor, follow(target_critic), loss

        def skip(actor, target_actor, target_critic):
            if self.critic_target == "every":
                target_critic = follow(target_critic)
            return actor, target_actor, target_critic, jnp.zeros(())

        due = (step + 1) % self.delay == 0
        networks = (state.actor, state.target_actor, state.target_critic)
        actor, target_actor, target_critic, pi_loss = jax.lax.cond(due, learn, skip, *networks)

        metrics = result.metrics | {"actor_loss": Mean(pi_loss, due.astype(jnp.float32))}
        parts = {"actor": actor, "critic": critic}
        parts |= {"target_actor": target_actor, "target_critic": target_critic}
        state, more = self.after_update(replace(state, **parts), hp, b, result, step)
        return state, metrics | more, self.priority(result)

    def update_target_actor(self, hp, target_actor, actor, step: Array) -> Any:
        """Returns the target actor after an update of the actor."""
        return polyak(target_actor, actor, hp.tau)

    def after_update(
        self, state: Any, hp, b: Transition, result: CriticStep, step: Array
    ) -> tuple[Any, Metrics]:
        """Trains whatever else a variant has -> state, metrics: nothing here."""
        return state, {}

    def priority(self, result: CriticStep) -> Array:
        """Returns the priorities of transitions: [batch]."""
        return result.td_error
