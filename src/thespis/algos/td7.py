"""TD7: TD3 with learned state-action embeddings. Fujimoto et al. 2023, https://arxiv.org/abs/2306.02451."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array

from thespis.algos import td3
from thespis.algos.critic_learning import CriticStep
from thespis.algos.presets.td7 import PRESETS
from thespis.algos.td3 import TD3
from thespis.core import Metrics, ThespisError, Transition, mean
from thespis.nn.embeddings import FAR, EmbeddedActor, EmbeddedCritics, EmbeddedNetwork, Embedding
from thespis.nn.networks import Network
from thespis.nn.train_state import TrainState
from thespis.tuning.hyper import LogUniform, Uniform, prior, special_prior

ELU = Network(activation="elu")


class State(td3.State):
    encoder: TrainState  # learns the embeddings; critics have a copy, target critics an older one


@dataclass(frozen=True)
class TD7(TD3):
    """TD3 with state-action embeddings, prioritised replay and copied targets.

    An encoder learns to predict the embedding of s' from those of s and a (eq. 2). Critics and
    actor use a copy of it, target networks the copy before that; all are copied every
    `target_every` updates. Values in targets stay within the range of earlier targets.
    """

    embedding: int = 256
    """Width of the embeddings."""
    encoder_network: Network = field(default=ELU, metadata={"group": "encoder"})
    """The networks of the encoder."""
    critic_network: Network = field(default=ELU, metadata={"group": "critic"})
    """The network of each critic."""
    head: Literal["mse", "huber"] = "huber"
    """Loss of the critics: the squared error (mse) or the Huber loss."""
    actor_reduce: Literal["min", "mean", "first"] = "mean"
    """Value of several critics that the actor maximises: their minimum, their mean, or the
    first."""
    target_update: Literal["copy"] = "copy"
    """Target networks are copies, made every target_every updates."""
    target_every: int = 250
    """Number of updates between copies of all networks, a multiple of delay."""
    prioritized_replay: bool = True
    """Sample transitions in proportion to their last TD error to the power of priority_alpha."""
    importance_weights: bool = False
    """Correct the bias of prioritized_replay by importance weights."""

    class Hyper(TD3.Hyper):
        actor_lr: float = prior(3e-4, LogUniform(3e-5, 3e-3), "learning rate of the actor", low=0)
        critic_lr: float = prior(
            3e-4, LogUniform(3e-5, 3e-3), "learning rate of the critics", low=0
        )
        encoder_lr: float = prior(
            3e-4, LogUniform(3e-5, 3e-3), "learning rate of the encoder", low=0
        )
        priority_alpha: float = special_prior(0.4, Uniform(0, 1), "exponent of priorities", low=0)

    presets: ClassVar[dict[str, dict]] = PRESETS
    unsupported: ClassVar[tuple[str, ...]] = ("privileged", "shared_encoder", "critic_target")

    def __post_init__(self):
        super().__post_init__()
        if self.images:
            raise ThespisError("TD7 reads vectors, and this observation has images: take td3")
        if self.encoder_network.batched or self.encoder_network.dropout:
            raise ThespisError(
                "encoder.*: the encoder has neither batch norm nor dropout; take norm layer or rms"
            )
        if self.target_every % self.delay:
            raise ThespisError(
                f"target_every = {self.target_every}: copies are made with the actor's updates; "
                f"give a multiple of {self.delay}, the delay"
            )

    # --- networks ---------------------------------------------------------------------------

    def make_network(self, key, outputs: int) -> EmbeddedNetwork:
        inputs = self.inputs + self.embedding
        return EmbeddedNetwork(key, self.inputs, inputs, outputs, self.full_actor_network)

    def make_critic(self, key, inputs: int, outputs: int = 1) -> EmbeddedCritics:
        k_embedding, k_critic = random.fold_in(key, 0), random.fold_in(key, 1)
        network = self.complete(self.encoder_network, self.hidden)
        embedding = Embedding(k_embedding, self.inputs, inputs, self.embedding, network)
        plain = self.inputs + inputs
        return EmbeddedCritics(
            k_critic, self.critics, embedding, plain, outputs, self.full_critic_network
        )

    def with_encoder(self, actor, critic) -> EmbeddedActor:
        return EmbeddedActor(critic.embedding, actor)

    def init(self, key, hp) -> State:
        state = super().init(key, hp)
        return State(**vars(state), encoder=self.train_state(state.critic.params.embedding))

    # --- learning ---------------------------------------------------------------------------

    def critic_passes(self, critic, target_critic, now: tuple, then: tuple, b: Transition, key):
        """Clips values of s' to the range of the targets until the last copy."""
        out, next_out, new = super().critic_passes(critic, target_critic, now, then, b, key)
        return out, target_critic.bounded(next_out), new

    def learn_critics(self, state, target_critic, hp, b: Transition, now, then, bonus, key):
        """Takes a step of the critics but not their embedding; tracks the range of targets."""
        arguments = target_critic, hp, b, now, then, bonus, key
        trained, result = super().learn_critics(state, *arguments)
        old, valid = state.critic.params, result.valid > 0
        parts = (
            old.embedding,
            jnp.minimum(old.low, jnp.where(valid, result.target, FAR).min()),
            jnp.maximum(old.high, jnp.where(valid, result.target, -FAR).max()),
        )
        critic = eqx.tree_at(lambda c: (c.embedding, c.low, c.high), trained.params, parts)
        return replace(trained, params=critic), result

    def priority(self, result: CriticStep) -> Array:
        """Returns the largest error of the critics, at least 1 (LAP)."""
        return jnp.maximum(jnp.abs(result.error).max(0), 1.0)

    def update_target_actor(self, hp, target_actor, actor, step: Array) -> Any:
        return self.if_due(step, actor, target_actor)

    def if_due(self, step: Array, new: Any, old: Any) -> Any:
        """Returns `new` after the updates at which networks are copied, else `old`."""
        due = (step + 1) % self.target_every == 0
        return jax.tree.map(lambda x, y: jnp.where(due, x, y), new, old)

    def after_update(
        self, state: State, hp, b: Transition, result: CriticStep, step: Array
    ) -> tuple[State, Metrics]:
        """Trains the encoder, and gives the critics a copy of it when that is due."""
        obs, next_obs = self.see(state, b.obs), self.see(state, b.next_obs)

        def loss(encoder: Embedding):
            predicted = encoder.of_pair(encoder.of_state(obs), b.action)
            error = predicted - stop_gradient(encoder.of_state(next_obs))
            return mean((error**2).mean(-1), b.valid), (encoder, None)

        encoder, (encoder_loss, _) = self.apply_gradient(state.encoder, loss, hp, hp.encoder_lr)
        critic = state.critic.params
        copy = self.if_due(step, encoder.params, critic.embedding)
        critic = replace(state.critic, params=eqx.tree_at(lambda c: c.embedding, critic, copy))
        return replace(state, critic=critic, encoder=encoder), {"encoder_loss": encoder_loss}
