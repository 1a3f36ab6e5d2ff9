"""What every actor-critic here shares: the sizes of its networks, what they see, its batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from thespis.core import (
    MASK,
    Box,
    Discrete,
    Metrics,
    Row,
    Spec,
    ThespisError,
    Transition,
    mean,
    polyak,
)
from thespis.nn import normalization
from thespis.nn.encoders import Conv, Encoder, Layers, features, image, layers_for, width
from thespis.nn.heads import Categorical, CategoricalTarget, Head, Huber, Quantile, Scalar
from thespis.nn.layers import Init
from thespis.nn.networks import MLP, Critics, EncodedNetwork, Network
from thespis.nn.normalization import ReturnScale
from thespis.nn.norms import batch_norms, with_statistics
from thespis.nn.train_state import Adam, TrainState
from thespis.replay.priorities import Rule
from thespis.tuning.hyper import LogUniform, Uniform, prior

# Choices of `learn_critics`, which those that learn their critics otherwise do not have.
OF_CRITICS = ("subset", "target_reduce", "actor_reduce", "target_update", "target_every", "head")
OF_REWARDS = ("reward_norm",)


@dataclass(frozen=True)
class ActorCritic:
    """The static choices and methods that do not differ. A state's `stats` are None or running."""

    spec: Spec
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the actor, and of the critics unless critic_hidden says otherwise."""
    critic_hidden: tuple[int, ...] | None = None
    """Hidden layers of the critics."""
    critics: int = 2
    """Number of critics."""
    subset: int | None = None
    """Critics, drawn at random for every update, that make the target; by default all of them."""
    target_reduce: Literal["min", "mean", "truncated"] = "min"
    """Targets use the smallest of the critics' values, their mean, or of quantiles all but the
    largest."""
    actor_reduce: Literal["min", "mean", "first"] = "min"
    """The actor maximises the smallest of the critics' values, their mean, or the first."""
    target_update: Literal["polyak", "copy", "none"] = "polyak"
    """Target critics follow slowly, are copies of the critics, or there are none: this needs batch
    norm."""
    target_every: int = 1
    """Updates between those of the target critics."""
    head: Literal["mse", "huber", "categorical", "quantile"] = "mse"
    """What critics learn: a value by squared errors or Huber's loss, probabilities of returns, or
    their quantiles."""
    atoms: int = 101
    """Returns of which a categorical head gives the probabilities."""
    value_bound: float = 5.0
    """They reach from minus this to this."""
    categorical_target: CategoricalTarget = "projected"
    """A categorical head learns the projected distribution of returns, or their expectation as a
    class: between two atoms, or smoothed by a Gaussian."""
    quantiles: int = 25
    """Quantiles of a quantile head."""
    dropped_quantiles: int = 2
    """Quantiles per critic that target_reduce = truncated leaves out."""
    batch_size: int = 256
    """Transitions (or windows) of every update."""
    n_step: int = 1
    """Rewards summed before bootstrapping."""
    normalize_observations: bool = False
    """Networks see observations normalised by running statistics; the replay keeps them raw."""
    ignore_done: bool = False
    """Bootstrap through terminations as well."""
    drop_truncated: bool = False
    """Leave transitions that end by a time limit out of the critic's loss."""
    weight_init: Init = "torch"
    """Initial weights: +-1/sqrt(n) with biases, or +-sqrt(3/n) without."""
    actor_network: Network = field(default=Network(), metadata={"group": "actor"})
    """The actor's network."""
    critic_network: Network = field(default=Network(), metadata={"group": "critic"})
    """The network of each critic."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Optimiser of actor and critics; adamw has a weight_decay."""
    adam_b1: float = 0.9
    """Share of the mean of gradients that Adam keeps at every update."""
    adam_b2: float = 0.999
    """Share of the mean of their squares that Adam keeps."""
    max_grad_norm: float | None = None
    """Length that gradients are cut to; by default they are not."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How learning rates go to lr_end of themselves over the run."""
    reward_norm: Literal["none", "std", "bounded"] = "none"
    """Scale rewards by the running deviation of discounted returns, and no returns beyond
    value_bound if bounded; the replay keeps them raw."""
    resets: tuple[int, ...] = ()
    """Environment steps at which networks, targets, temperature and optimisers begin anew."""
    reward_weights: tuple[float, ...] | None = None
    """Weights of the dimensions of a vector reward, by default 1 each."""
    prioritized_replay: bool = False
    """Draw transitions in proportion to their last TD error to the power of priority_alpha."""
    importance_weights: bool = True
    """Weigh transitions of prioritized_replay so that those drawn more often count no more."""
    max_use: int | None = None
    """Draws after which prioritized_replay leaves a transition out."""
    max_staleness: int | None = None
    """Steps after which prioritized_replay leaves a transition out."""

    conv_channels: tuple[int, ...] | None = None
    """Channels of the convolutions that read images, by default those that suit their size."""
    conv_kernels: tuple[int, ...] | None = None
    """Their kernels, in pixels."""
    conv_strides: tuple[int, ...] | None = None
    """Their strides, in pixels."""
    shared_encoder: bool = True
    """The actor reads images by the critics' convolutions, which only the critics train."""
    privileged: tuple[str, ...] = ()
    """Keys of a dict observation that only the critics see: acting does without them."""

    class Hyper(eqx.Module):
        """Numbers of prioritized_replay."""

        priority_alpha: float = prior(
            0.6, Uniform(0, 1), "exponent of priorities", low=0, special=True
        )
        priority_beta: float = prior(
            0.4, Uniform(0, 1), "first exponent of importance weights", low=0, special=True
        )
        priority_anneal: float = prior(
            1e5, LogUniform(1e4, 1e6), "updates until that exponent is 1", low=1, special=True
        )
        weight_decay: float = prior(
            1e-2, LogUniform(1e-4, 1e-1), "weight decay of adamw", low=0, special=True
        )
        lr_end: float = prior(
            0.1,
            LogUniform(1e-2, 1),
            "last learning rates, as a share of the first",
            0,
            special=True,
        )
        schedule_updates: float = prior(
            0.0,
            Uniform(0, 1e6),
            "updates of lr_schedule, 0 for all of the run",
            0,
            special=True,
        )

    several: ClassVar[bool] = False  # agents
    own_passes: ClassVar[bool] = False  # it has a loss of its own: no batch norm, no dropout
    without: ClassVar[tuple[str, ...]] = ()  # options that it takes no notice of

    def __post_init__(self):
        name, agents = type(self).__name__, len(self.spec.agents)
        if agents and not self.several:
            raise ThespisError(f"{name} is for one agent, and there are {agents}: take masac")
        if not agents and self.several:
            discrete = isinstance(self.spec.action, Discrete)
            instead = "discrete-sac" if discrete else "sac"
            raise ThespisError(f"{name} is for several agents, and there is one: take {instead}")
        limits = {name: getattr(self, name) for name in ("max_use", "max_staleness")}
        for limited, limit in limits.items():
            if limit is not None and not self.prioritized_replay:
                raise ThespisError(f"{limited} = {limit} needs prioritized_replay: add it")
        if not (self.importance_weights or self.prioritized_replay):
            raise ThespisError("importance_weights = False needs prioritized_replay: add it")
        for option in fields(self):
            if option.name in self.without and getattr(self, option.name) != option.default:
                raise ThespisError(f"{option.name}: this algorithm has no such choice")
        self.check_critics()
        for group, network in (("actor", self.actor_network), ("critic", self.critic_network)):
            if self.own_passes and (network.batched or network.dropout):
                raise ThespisError(
                    f"{group}.*: {name} has neither batch norm nor dropout; take norm layer or rms"
                )
        self.check_encoder()
        given, dim = self.reward_weights, self.spec.reward_dim
        if given is not None and len(given) != dim:
            kind = "one number" if dim is None else f"a vector of {dim}"
            raise ThespisError(
                f"reward_weights = {given}: the reward is {kind}; give one weight per dimension"
            )

    def check_critics(self) -> None:
        """Refuses heads, reductions and targets that do not go together."""
        if self.target_update == "none" and not self.critic_network.batched:
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
        """Returns what the outputs of critics mean."""
        match self.head:
            case "categorical":
                return Categorical(self.atoms, self.value_bound, self.categorical_target)
            case "quantile":
                return Quantile(self.quantiles, self.dropped_quantiles)
            case _:
                return Scalar() if self.head == "mse" else Huber()

    @property
    def box(self) -> Box:
        if not isinstance(self.spec.action, Box):
            name = type(self).__name__
            raise ThespisError(
                f"{name} needs continuous actions, not {self.spec.action}: take discrete-sac"
            )
        return self.spec.action

    # --- what networks see ------------------------------------------------------------------

    @property
    def inputs(self) -> int:
        """Numbers that stand for an observation: as many as `see` returns."""
        return width(self.spec.obs)

    @property
    def images(self) -> list[tuple[int, int, int]]:
        return [size for leaf in jax.tree.leaves(self.spec.obs) if (size := image(leaf))]

    @property
    def layers(self) -> Layers | None:
        """Convolutions, if they were chosen."""
        chosen = self.conv_channels, self.conv_kernels, self.conv_strides
        return None if None in chosen else Layers(*chosen)  # pyright: ignore

    @property
    def unseen(self) -> tuple[int, ...]:
        """The leaves of an observation that the actor does not see."""
        if not self.privileged:
            return ()
        leaves = enumerate(jax.tree_util.tree_leaves_with_path(self.spec.obs))
        return tuple(i for i, (path, _) in leaves if path[0].key in self.privileged)

    def check_encoder(self) -> None:
        """Refuse convolutions that do not fit, and privileged keys that are not there."""
        chosen = (self.conv_channels, self.conv_kernels, self.conv_strides)
        if any(x is not None for x in chosen) and len({x and len(x) for x in chosen}) > 1:
            raise ThespisError(
                "conv_channels, conv_kernels and conv_strides go together: give all three, with "
                "one number per layer each"
            )
        for size in self.images:
            if not Conv.width(size, self.layers or layers_for(size)):
                raise ThespisError(
                    f"an image of {size[0]} x {size[1]} pixels is too small for its convolutions: "
                    "give smaller conv_kernels and conv_strides"
                )
        keys = self.spec.obs if isinstance(self.spec.obs, dict) else {}
        for key in self.privileged:
            if key not in keys or key == MASK or len(self.privileged) >= len(keys):
                there = f"has the keys {', '.join(keys)}" if keys else "is no dict"
                raise ThespisError(
                    f"privileged = {key}: the observation {there}; name some that actors can do "
                    "without"
                )

    def reads(self, skip: tuple[int, ...] = ()) -> int:
        """Numbers that a network reads of what `see` returns, by way of an encoder."""
        total = self.inputs
        for i, leaf in enumerate(jax.tree.leaves(self.spec.obs)):
            size, flat = image(leaf), math.prod(leaf.shape)
            made = Conv.width(size, self.layers or layers_for(size)) if size else flat
            total += (0 if i in skip else made) - flat
        return total

    def make_encoder(self, key) -> Encoder:
        return Encoder(random.fold_in(key, 0), self.spec.obs, self.layers, self.weight_init)

    def make_network(self, key, outputs: int) -> MLP | EncodedNetwork:
        """Of an actor: from what `see` returns to `outputs`."""
        own = bool(self.unseen) if not self.images else not self.shared_encoder
        encoder = self.make_encoder(key) if own else None
        body = self.built_actor.build(key, self.reads(self.unseen), outputs)
        return body if encoder is None else EncodedNetwork(encoder, body, self.unseen)

    def complete(self, network: Network, hidden: tuple[int, ...]) -> Network:
        """Returns the choices of a network with what it leaves to the algorithm."""
        chosen = hidden if network.hidden is None else network.hidden
        return replace(network, hidden=chosen, init=network.init or self.weight_init)

    def with_encoder(self, actor, critic) -> Any:
        """The actor as a function of what `see` returns: with the critics' encoder if it shares it.

        It is no part of what the actor learns, so no gradient of its loss reaches it.
        """
        shares = self.images and self.shared_encoder
        return EncodedNetwork(critic.encoder, actor, self.unseen) if shares else actor

    def make_critic(self, key, inputs: int, outputs: int = 1) -> Critics:
        """Critics of the observation and `inputs` more numbers."""
        sizes = (self.reads() + inputs, outputs)
        encoder = self.make_encoder(key) if self.images else None
        build = self.built_critic.build
        return Critics(key, self.critics, sizes, encoder=encoder, build=build)

    @property
    def built_actor(self) -> Network:
        """Returns all choices of the actor's network."""
        return self.complete(self.actor_network, self.hidden)

    @property
    def built_critic(self) -> Network:
        """Returns all choices of a critic's network."""
        hidden = self.hidden if self.critic_hidden is None else self.critic_hidden
        return self.complete(self.critic_network, hidden)

    def make_stats(self):
        return normalization.statistics(self.spec.obs) if self.normalize_observations else None

    def memory(self, key, n: int) -> Any:
        return None

    def observe(self, state, rows: Row):
        if state.stats is None:
            return state
        return eqx.tree_at(lambda s: s.stats, state, normalization.update(state.stats, rows.obs))

    def make_reward_stats(self) -> ReturnScale | None:
        return ReturnScale.of() if self.normalizes_rewards else None

    @property
    def normalizes_rewards(self) -> bool:
        return self.reward_norm != "none"

    def observe_returns(self, state, returns: Float[Array, "n"], valid: Float[Array, "n"]) -> Any:
        """Returns the state after new rows with these discounted returns."""
        return replace(state, reward_stats=state.reward_stats.update(returns, valid))

    def scale_rewards(self, state, b: Transition) -> Transition:
        """Returns a batch whose rewards are scaled by the returns that they make, if wanted."""
        if not self.normalizes_rewards:
            return b
        bound = self.value_bound if self.reward_norm == "bounded" else None
        return replace(b, reward=state.reward_stats.factor(bound) * b.reward)

    def reset(self, state, hp, key) -> Any:
        """Returns a state that begins anew, but for its running statistics."""
        kept = {name: x for name, x in vars(state).items() if name.endswith("stats")}
        return replace(self.init(key, hp), **kept)  # pyright: ignore

    def rule(self, envs: int) -> Rule | None:
        """Which rows of a prioritised replay may be drawn; None where all are drawn alike."""
        if not self.prioritized_replay:
            return None
        age = None if self.max_staleness is None else -(-self.max_staleness // envs)
        if age is not None and age <= self.n_step:
            raise ThespisError(
                f"max_staleness = {self.max_staleness} leaves no {self.n_step}-step transition "
                f"of {envs} environment(s): give more than {self.n_step * envs}"
            )
        return Rule(self.n_step, self.max_use, age)

    def beta(self, hp, step: Array) -> Array:
        """The exponent of importance weights after `step` updates: it goes to 1 in a line.

        0 makes all weights 1.
        """
        if not self.importance_weights:
            return jnp.zeros_like(hp.priority_beta)
        done = jnp.minimum(step.astype(jnp.float32) / hp.priority_anneal, 1.0)
        return hp.priority_beta + (1.0 - hp.priority_beta) * done

    def sample(self, replay, demos, hp, key, step) -> Any:
        return replay.transitions(key, self.batch_size, hp.gamma, self.n_step)

    def see(self, state, obs) -> Array:
        """What the networks read: one normalised vector [..., n].

        Where privileged parts are missing they are 0: then only an actor can read it.
        """
        if self.privileged and not set(self.privileged) <= obs.keys():
            first = next(iter(self.spec.obs.keys() - set(self.privileged)))
            lead = obs[first].shape[: obs[first].ndim - len(self.spec.obs[first].shape)]
            blank = lambda key: jnp.zeros((*lead, *self.spec.obs[key].shape))
            dark = {key: blank(key).astype(self.spec.obs[key].dtype) for key in self.privileged}
            obs = {**obs, **dark}
        obs = obs if state.stats is None else normalization.normalise(state.stats, obs)
        return features(self.spec.obs, obs)

    @property
    def weights(self) -> np.ndarray:
        """Of the reward's dimensions [d]; a reward of one number has one."""
        given = self.reward_weights or (1.0,) * (self.spec.reward_dim or 1)
        return np.asarray(given, np.float32)

    def scalar(self, reward):  # no annotation: the arrays of host environments are NumPy's
        """Rewards as one number [...], by their weights; what is one number already stays."""
        return reward if self.spec.reward_dim is None else reward @ self.weights

    def scalar_reward(self, reward, obs):
        """The same of rewards that came with these observations, of which returns are made."""
        return self.scalar(reward)

    # --- optimisers -------------------------------------------------------------------------

    def train_state(self, params: Any) -> TrainState:
        """Returns parameters with the optimiser that was chosen, before any update."""
        return TrainState.create(
            params, Adam(self.adam_b1, self.adam_b2, max_norm=self.max_grad_norm)
        )

    def scheduled(self, hp, step: Array) -> Any:
        """Returns hyper-parameters whose learning rates are those of an update of the run."""
        if self.lr_schedule == "constant":
            return hp
        done = jnp.minimum(step.astype(jnp.float32) / jnp.maximum(hp.schedule_updates, 1.0), 1.0)
        left = 1.0 - done if self.lr_schedule == "linear" else 0.5 * (1.0 + jnp.cos(jnp.pi * done))
        factor = hp.lr_end + (1.0 - hp.lr_end) * left
        return replace(hp, **{n: x * factor for n, x in vars(hp).items() if n.endswith("_lr")})

    def apply_gradient(self, trained: TrainState, loss, hp, lr) -> tuple[TrainState, Any]:
        """Takes one step down `loss(params) -> loss, (networks, aux)` -> state, (loss, aux).

        The networks are those that the loss asked, with new running statistics if they have any.
        """

        def of_norms(params):
            value, (networks, aux) = loss(params)
            return value, (batch_norms(networks), aux)

        decay = hp.weight_decay if self.optimizer == "adamw" else None
        trained, (value, (norms, aux)) = trained.apply_gradient(of_norms, lr, decay)
        return replace(trained, params=with_statistics(trained.params, norms)), (value, aux)

    # --- learning of the critics: what variants override ------------------------------------

    def learn_critics(
        self, state: Any, target_critic: Any, hp, b: Transition, now: tuple, then: tuple, bonus, key
    ) -> tuple[TrainState, CriticStep]:
        """Takes one step of the critics towards r + gamma^k (Q(s', a') + bonus).

        `now` is what critics read of s and a, `then` of s' and a'. Each part is a method of its
        own: the passes through the networks, the reduction over critics, the target, the loss.
        """
        k_more, k_pass, k_reduce = (random.fold_in(key, i) for i in range(3))

        def loss(critic):
            out, next_out, new = self.critic_passes(critic, target_critic, now, then, b, k_pass)
            after = self.reduce_target(next_out, then, k_reduce)
            target, valid = self.bellman_target(hp, b, after, bonus)
            losses, error = self.critic_losses(hp, out, target, now, b, target_critic)
            each = mean(b.weight[None] * losses, valid[None])
            more = self.extra_critic_loss(state, hp, critic, b, valid, k_more)
            value = self.value_head.value(after)
            value = value if bonus is None else value + bonus
            parts = each, error, value, next_out, valid, self.value_head.report(target)
            return self.total_critic_loss(each) + more, (new, parts)

        critic, (total, parts) = self.apply_gradient(state.critic, loss, hp, hp.critic_lr)
        return critic, CriticStep(total, *parts)

    def critic_passes(
        self, critic: Any, target_critic: Any, now: tuple, then: tuple, b: Transition, key
    ) -> tuple[Array, Array, Any]:
        """Returns outputs of critics for (s, a), of their targets for (s', a'), and the critics.

        The latter are those with new running statistics, where there are any: batch norms see
        (s, a) and (s', a') as one batch.
        """
        k_now, k_then, k_subset = (random.fold_in(key, i) for i in range(3))
        if self.subset is not None:
            target_critic = target_critic.draw(k_subset, self.subset)
        if not critic.batched:
            out = self.outputs(critic, *now, key=k_now)
            return out, self.outputs(target_critic, *then, key=k_then), critic
        both = tuple(jnp.concatenate(pair) for pair in zip(now, then, strict=True))
        valid = jnp.concatenate([b.valid, b.valid])
        halves, new = critic.train(*both, valid=valid, key=k_now)
        out, next_out = jnp.split(halves, 2, 1)
        if self.target_update != "none":
            next_out = target_critic.train(*both, valid=valid, key=k_then)[0][:, len(b.valid) :]
        return out, stop_gradient(next_out), new

    def outputs(self, critic: Any, obs, action, key=None) -> Array:
        """Returns what every critic says of (s, a): [critics, batch, outputs of the head]."""
        return critic(obs, action, key=key)

    def q(self, critic: Any, obs, action) -> Array:
        """Returns Q_i(s, a) for every critic i: [critics, batch]."""
        return self.value_head.value(self.outputs(critic, obs, action))

    def reduce_target(self, out: Array, then: tuple, key) -> Array:
        """Returns what stands for the value of s', of all critics: [batch, outputs]."""
        head = self.value_head
        if self.target_reduce == "truncated" and isinstance(head, Quantile):
            return head.truncated(out)
        return head.smallest(out) if self.target_reduce == "min" else head.average(out)

    def reduce_actor(self, out: Array, key) -> Array:
        """Returns what the actor maximises, of all critics: [batch, outputs]."""
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
        """Returns what the critics' loss has beyond their errors: nothing here."""
        return 0.0

    def make_target(self, critic: Any) -> Any:
        """Returns the target critics of new critics, None if they have no targets."""
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
    """What a step of the critics tells."""

    loss: Array
    losses: Array  # of every critic
    error: Array  # [critics, batch]
    next_value: Array  # V(s') [batch]
    next_out: Array  # of the target critics [critics, batch, ...]
    valid: Array  # which entries were learned from
    report: dict[str, Array]  # of the head [batch]

    @property
    def td_error(self) -> Array:
        """The size of the error, as a mean over the critics: [batch]."""
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
    """One metric of each of several, such as critics, counted from 1."""
    return {f"{name}_{i}": value for i, value in enumerate(values, 1)}
