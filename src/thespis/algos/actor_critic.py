"""What every actor-critic here shares: the sizes of its networks, what they see, its batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array

from thespis.core import MASK, Box, Discrete, Metrics, Row, Spec, ThespisError, Transition
from thespis.nn import normalization
from thespis.nn.networks import (
    MLP,
    Conv,
    Critics,
    EncodedNetwork,
    Encoder,
    Init,
    Layers,
    features,
    image,
    layers_for,
    width,
)
from thespis.replay.priorities import Rule
from thespis.tuning.hyper import LogUniform, Uniform, prior


@dataclass(frozen=True)
class ActorCritic:
    """The static choices and methods that do not differ. A state's `stats` are None or running."""

    spec: Spec
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the actor, and of the critics unless critic_hidden says otherwise."""
    critic_hidden: tuple[int, ...] | None = None
    """Hidden layers of the critics."""
    critics: int = 2
    """Number of critics; targets use the smallest of their values."""
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

    several: ClassVar[bool] = False  # agents

    def __post_init__(self):
        name, agents = type(self).__name__, len(self.spec.agents)
        if agents and not self.several:
            raise ThespisError(f"{name} is for one agent, and there are {agents}: take masac")
        if not agents and self.several:
            discrete = isinstance(self.spec.action, Discrete)
            instead = "discrete-sac" if discrete else "sac"
            raise ThespisError(f"{name} is for several agents, and there is one: take {instead}")
        limits = {name: getattr(self, name) for name in ("max_use", "max_staleness")}
        for name, limit in limits.items():
            if limit is not None and not self.prioritized_replay:
                raise ThespisError(f"{name} = {limit} needs prioritized_replay: add it")
        if not (self.importance_weights or self.prioritized_replay):
            raise ThespisError("importance_weights = False needs prioritized_replay: add it")
        self.check_encoder()
        given, dim = self.reward_weights, self.spec.reward_dim
        if given is not None and len(given) != dim:
            kind = "one number" if dim is None else f"a vector of {dim}"
            raise ThespisError(
                f"reward_weights = {given}: the reward is {kind}; give one weight per dimension"
            )

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
        sizes = (self.reads(self.unseen), *self.hidden, outputs)
        own = bool(self.unseen) if not self.images else not self.shared_encoder
        encoder = self.make_encoder(key) if own else None
        body = MLP(key, sizes, self.weight_init)
        return body if encoder is None else EncodedNetwork(encoder, body, self.unseen)

    def with_encoder(self, actor, critic) -> Any:
        """The actor as a function of what `see` returns: with the critics' encoder if it shares it.

        It is no part of what the actor learns, so no gradient of its loss reaches it.
        """
        shares = self.images and self.shared_encoder
        return EncodedNetwork(critic.encoder, actor, self.unseen) if shares else actor

    def make_critic(self, key, inputs: int, outputs: int = 1) -> Critics:
        """Critics of the observation and `inputs` more numbers."""
        hidden = self.hidden if self.critic_hidden is None else self.critic_hidden
        sizes = (self.reads() + inputs, *hidden, outputs)
        encoder = self.make_encoder(key) if self.images else None
        return Critics(key, self.critics, sizes, self.weight_init, encoder)

    def make_stats(self):
        return normalization.statistics(self.spec.obs) if self.normalize_observations else None

    def memory(self, key, n: int) -> Any:
        return None

    def observe(self, state, rows: Row):
        if state.stats is None:
            return state
        return eqx.tree_at(lambda s: s.stats, state, normalization.update(state.stats, rows.obs))

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

    def q(self, critic: Any, obs, action) -> Array:
        """Q_i(s, a) for every critic i: [critics, batch]."""
        return critic(obs, action)[..., 0]

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

    def bellman(self, hp, b: Transition, next_value: Array) -> tuple[Array, Array]:
        """The target r + gamma^k V(s'), and which entries the critics learn from."""
        alive = 1.0 if self.ignore_done else 1.0 - b.terminated
        target = hp.reward_scale * self.scalar(b.reward) + hp.gamma**b.steps * alive * next_value
        return target, b.valid * (1.0 - b.truncated) if self.drop_truncated else b.valid


def numbered(name: str, values: Any) -> Metrics:
    """One metric of each of several, such as critics, counted from 1."""
    return {f"{name}_{i}": value for i, value in enumerate(values, 1)}
