"""What SAC for continuous and for discrete actions share: the temperature and the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
from jax import random
from jaxtyping import Array

from thespis.algos.actor_critic import ActorCritic
from thespis.algos.temperature import Form, alpha_of, init_temperature, update_temperature
from thespis.nn.networks import Critics
from thespis.nn.train_state import TrainState


class State(eqx.Module):
    actor: TrainState
    critic: TrainState
    target: Critics | None  # None if critics have no targets
    temperature: TrainState | None  # of log alpha, or alpha if linear; None if fixed
    stats: Any  # running statistics of the observations, or None
    reward_stats: Any  # of the returns, or None


@dataclass(frozen=True)
class SoftActorCritic(ActorCritic):
    """Maximises rewards, and entropy weighed by a temperature."""

    temperature: Form = "log"
    """Form of the learned temperature: log alpha with a loss linear in alpha (exp) or in log alpha
    (log), alpha itself (linear), or not learned (fixed)."""

    def init(self, key, hp) -> Any:
        """Makes actor, critics, temperature and statistics."""
        k_actor, k_critic = random.split(key)
        critic = self.make_critics(k_critic)
        return State(
            actor=self.train_state(self.make_actor(k_actor)),
            critic=self.train_state(critic),
            target=self.make_target(critic),
            temperature=init_temperature(self.temperature, hp.alpha),
            stats=self.make_stats(),
            reward_stats=self.make_reward_stats(),
        )

    def make_actor(self, key) -> Any:
        """Returns a new actor, as its network builds it."""
        raise NotImplementedError

    def make_critics(self, key) -> Critics:
        """Returns new critics."""
        raise NotImplementedError

    def acting(self, state: State) -> Any:
        """Returns the actor as a function of what `see` returns."""
        return self.with_encoder(state.actor.params, state.critic.params)

    def alpha(self, state: State, hp) -> Array:
        """Returns the temperature."""
        return alpha_of(self.temperature, state.temperature, hp.alpha)

    def learn_temperature(self, state: State, hp, surplus) -> tuple[TrainState | None, Array]:
        """Lowers the temperature if there is a surplus of entropy -> its state, the loss."""
        return update_temperature(self.temperature, state.temperature, surplus, hp.alpha_lr)
