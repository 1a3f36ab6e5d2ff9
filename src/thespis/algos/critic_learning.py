"""How critics learn, in parts that variants may override."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from thespis.algos.actor_critic_networks import ActorCriticNetworks
from thespis.algos.optimization import Optimization
from thespis.algos.rewards import Rewards
from thespis.core import Metrics, ThespisError, Transition, mean, polyak
from thespis.nn.heads import Categorical, CategoricalTarget, Head, Huber, Quantile, Scalar
from thespis.nn.train_state import TrainState

# Options of `learn_critics`, which algorithms with their own loss of critics do not support.
CRITIC_OPTIONS = ("subset", "head", "target_reduce", "target_update", "target_every")
CRITIC_OPTIONS += ("actor_reduce",)


@dataclass(frozen=True)
class CriticLearning(Optimization, Rewards, ActorCriticNetworks):
    """Trains critics towards r + gamma^k V(s'), and updates their targets."""

    subset: int | None = None
    """Number of critics, chosen at random for every update, that form the target (as in REDQ); by
    default all of them."""
    target_reduce: Literal["min", "mean", "truncated"] = "min"
    """Value of several critics in targets: their minimum, their mean, or a truncated mixture of
    quantiles (as in TQC)."""
    actor_reduce: Literal["min", "mean", "first"] = "min"
    """Value of several critics that the actor maximises: their minimum, their mean, or the
    first."""
    target_update: Literal["polyak", "copy", "none"] = "polyak"
    """How target critics follow the critics: slowly by tau (polyak), by copies every target_every
    updates, or no target critics (none), which needs batch norm."""
    target_every: int = 1
    """Number of updates between updates of the target critics."""
    head: Literal["mse", "huber", "categorical", "quantile"] = "mse"
    """Output of critics: a value, trained by the squared error (mse) or Huber loss, or a
    distribution of returns, as probabilities (categorical) or quantiles."""
    atoms: int = 101
    """Number of atoms of a categorical head."""
    categorical_target: CategoricalTarget = "projected"
    """Target of a categorical head: the projected distribution of returns (as in C51), or the
    expected return as two-hot or Gaussian-smoothed (HL-Gauss) class probabilities."""
    quantiles: int = 25
    """Number of quantiles of a quantile head."""
    dropped_quantiles: int = 2
    """Number of largest quantiles per critic to drop with target_reduce = truncated."""
    ignore_done: bool = False
    """Bootstrap through terminations as well."""
    drop_truncated: bool = False
    """Leave transitions at a time limit out of the critics' loss."""

    def check_critics(self) -> None:
        """Refuses heads, reductions and targets that do not fit together."""
        network = self.critic_network
        held = network.batched and (network.norm == "batch" or network.input_norm == "none")
        if self.target_update == "none" and not held:
            raise ThespisError(
                "target_update = none: critics without targets diverge unless batch norm holds "
                "them; add critic.norm = batch, or keep the targets"
            )
        if self.target_update == "none" and self.subset is not None:
            raise ThespisError("subset is of target critics, and there are none: leave one out")
        if self.subset is not None and not 1 <= self.subset <= self.critics:
            raise ThespisError(f"subset = {self.subset}: give 1 to {self.critics}, the critics")
        if self.target_reduce == "truncated" and self.head != "quantile":
            raise ThespisError("target_reduce = truncated is of quantiles: add head = quantile")
        if self.head == "quantile" and not 0 <= self.dropped_quantiles < self.quantiles:
            raise ThespisError(
                f"dropped_quantiles = {self.dropped_quantiles}: give less than {self.quantiles}, "
                "the quantiles of a critic"
            )

    @cached_property
    def value_head(self) -> Head:
        """Returns the head, which says what the outputs of critics mean."""
        match self.head:
            case "categorical":
                return Categorical(self.atoms, self.value_bound, self.categorical_target)
            case "quantile":
                return Quantile(self.quantiles, self.dropped_quantiles)
            case _:
                return Scalar() if self.head == "mse" else Huber()

    def learn_critics(
        self, state: Any, target_critic: Any, hp, b: Transition, now: tuple, then: tuple, bonus, key
    ) -> tuple[TrainState, CriticStep]:
        """Takes one step of the critics towards r + gamma^k (Q(s', a') + bonus).

        `now` holds the inputs (s, a), `then` (s', a'). Each part is a method of its own: the
        passes through the networks, the reduction over critics, the target and the loss.
        """
        k_extra, k_pass, k_reduce = (random.fold_in(key, i) for i in range(3))

        def loss(critic):
            out, next_out, new = self.critic_passes(critic, target_critic, now, then, b, k_pass)
            after = self.reduce_target(next_out, then, k_reduce)
            target, valid = self.bellman_target(hp, b, after, bonus)
            losses, error = self.critic_losses(hp, out, target, now, b, target_critic)
            losses = mean(b.weight[None] * losses, valid[None])
            extra = self.extra_critic_loss(state, hp, critic, b, valid, k_extra)
            value = self.value_head.value(after)
            value = value if bonus is None else value + bonus
            report = self.value_head.report(target)
            parts = losses, error, value, next_out, valid, report, target
            return self.total_critic_loss(losses) + extra, (new, parts)

        critic, (total, parts) = self.apply_gradient(state.critic, loss, hp, hp.critic_lr)
        return critic, CriticStep(total, *parts)

    def critic_passes(
        self, critic: Any, target_critic: Any, now: tuple, then: tuple, b: Transition, key
    ) -> tuple[Array, Array, Any]:
        """Returns outputs of critics for (s, a), of their targets for (s', a'), and the critics.

        The latter have new running statistics, if they have any: batch norms see (s, a) and
        (s', a') as one batch.
        """
        k_now, k_then, k_subset = (random.fold_in(key, i) for i in range(3))
        if self.subset is not None:
            target_critic = target_critic.draw(k_subset, self.subset)
        inputs, next_inputs = self.network_inputs(*now), self.network_inputs(*then)
        if not critic.batched:
            out = self.taken(critic(*inputs, key=k_now), now[1])
            return out, target_critic(*next_inputs, key=k_then), critic
        both = tuple(jnp.concatenate(pair) for pair in zip(inputs, next_inputs, strict=True))
        valid = jnp.concatenate([b.valid, b.valid])
        halves, new = critic.train(*both, valid=valid, key=k_now)
        out, next_out = jnp.split(halves, 2, 1)
        if self.target_update != "none":
            next_out = target_critic.train(*both, valid=valid, key=k_then)[0][:, len(b.valid) :]
        return self.taken(out, now[1]), stop_gradient(next_out), new

    def network_inputs(self, obs, action) -> tuple[Array, ...]:
        """Returns the inputs of the critics' networks for (s, a)."""
        return obs, action

    def taken(self, out: Array, action) -> Array:
        """Returns the networks' outputs for the actions that were taken: here all of them."""
        return out

    def outputs(self, critic: Any, obs, action, key=None) -> Array:
        """Returns the outputs of every critic for (s, a): [critics, batch, outputs of the head]."""
        return self.taken(critic(*self.network_inputs(obs, action), key=key), action)

    def q(self, critic: Any, obs, action) -> Array:
        """Returns Q_i(s, a) for every critic i: [critics, batch]."""
        return self.value_head.value(self.outputs(critic, obs, action))

    def reduce_target(self, out: Array, then: tuple, key) -> Array:
        """Reduces the outputs of all target critics for s' to one: [batch, outputs]."""
        head = self.value_head
        if self.target_reduce == "truncated" and isinstance(head, Quantile):
            return head.truncated(out)
        return head.smallest(out) if self.target_reduce == "min" else head.average(out)

    def reduce_actor(self, out: Array, key) -> Array:
        """Reduces the outputs of all critics to what the actor maximises: [batch, outputs]."""
        head = self.value_head
        return head.average(out) if self.actor_reduce == "mean" else head.smallest(out)

    def actor_value(self, critic: Any, obs, action, key) -> Array:
        """Returns the value of actions in the actor's loss: [batch]."""
        k_pass, k_reduce = random.fold_in(key, 0), random.fold_in(key, 1)
        critic = critic.first if self.actor_reduce == "first" else critic
        out = self.outputs(critic, obs, action, key=k_pass)
        return self.value_head.value(self.reduce_actor(out, k_reduce))

    def bellman_target(self, hp, b: Transition, after: Array, bonus) -> tuple[Any, Array]:
        """Returns r + gamma^k (V(s') + bonus), and which entries the critics learn from."""
        alive = 1.0 if self.ignore_done else 1.0 - b.terminated
        reward, discount = hp.reward_scale * self.scalar(b.reward), hp.gamma**b.steps * alive
        return self.value_head.target(after, reward, discount, bonus), self.learned_from(b)

    def learned_from(self, b: Transition) -> Array:
        """Returns 1 for the entries of a batch that the critics learn from, else 0."""
        return b.valid * (1.0 - b.truncated) if self.drop_truncated else b.valid

    def critic_losses(self, hp, out: Array, target: Any, now: tuple, b, target_critic) -> tuple:
        """Returns the loss of every entry [critics, batch], and its error."""
        return self.value_head.loss(out, target)

    def total_critic_loss(self, losses: Float[Array, "critics"]) -> Array:
        """Returns the loss of all critics."""
        return losses.sum()

    def extra_critic_loss(self, state, hp, critic, b: Transition, valid, key) -> Any:
        """Returns a further term of the critics' loss: none here."""
        return 0.0

    def make_target(self, critic: Any) -> Any:
        """Returns the targets of new critics; None without target critics."""
        return None if self.target_update == "none" else critic

    def update_target(self, hp, target_critic: Any, critic: Any, step: Array) -> Any:
        """Returns the target critics after update number `step`, the first of which is 0."""
        if self.target_update == "none":
            return None

        def follow(target):
            return polyak(target, critic, hp.tau) if self.target_update == "polyak" else critic

        if self.target_every == 1:
            return follow(target_critic)
        due = (step + 1) % self.target_every == 0
        return jax.lax.cond(due, follow, lambda target: target, target_critic)


class CriticStep(NamedTuple):
    """The results of one gradient step of the critics."""

    loss: Array
    losses: Array  # of every critic
    error: Array  # [critics, batch]
    next_value: Array  # V(s') [batch]
    next_out: Array  # of the target critics [critics, batch, ...]
    valid: Array  # which entries were learned from
    report: dict[str, Array]  # what the head reports [batch]
    target: Any  # what was learned; [batch] if the head is scalar

    @property
    def td_error(self) -> Array:
        """Returns the absolute error, averaged over the critics: [batch]."""
        return jnp.abs(self.error).mean(0)

    @property
    def metrics(self) -> Metrics:
        return {
            "critic_loss": self.loss,
            **numbered("critic_loss", self.losses),
            "td_error": mean(self.td_error, self.valid),
            "target_value": mean(self.next_value, self.valid),
            **{name: mean(x, self.valid) for name, x in self.report.items()},
        }


def numbered(name: str, values: Any) -> Metrics:
    """Returns one metric per value, such as one per critic, numbered from 1."""
    return {f"{name}_{i}": value for i, value in enumerate(values, 1)}
