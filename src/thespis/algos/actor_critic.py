"""What all actor-critics share: batches, priorities, and checks of their options.

Its bases are in files of their own: networks in actor_critic_networks.py, rewards in rewards.py,
optimisers in optimization.py, and the learning of critics in critic_learning.py.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from thespis.algos.critic_learning import CriticLearning
from thespis.core import MASK, Box, Discrete, Spec, ThespisError, has_mask
from thespis.nn.networks import Network
from thespis.replay.priorities import Rule
from thespis.tuning.hyper import LogUniform, Uniform, special_prior


@dataclass(frozen=True)
class ActorCritic(CriticLearning):
    """The base of all algorithms. The `stats` of a state are running statistics, or None."""

    batch_size: int = 256
    """Number of transitions (or windows) per update."""
    n_step: int = 1
    """Number of steps of n-step returns."""
    resets: tuple[int, ...] = ()
    """Environment steps at which networks, targets, temperature and optimisers are reset."""
    prioritized_replay: bool = False
    """Sample transitions in proportion to their last TD error to the power of priority_alpha."""
    importance_weights: bool = True
    """Correct the bias of prioritized_replay by importance weights."""
    max_use: int | None = None
    """Maximum number of times that prioritized_replay samples a transition."""
    max_staleness: int | None = None
    """Age in environment steps after which prioritized_replay ignores a transition."""

    class Hyper(eqx.Module):
        priority_alpha: float = special_prior(0.6, Uniform(0, 1), "exponent of priorities", low=0)
        priority_beta: float = special_prior(
            0.4, Uniform(0, 1), "initial exponent of importance weights", low=0
        )
        priority_anneal: float = special_prior(
            1e5, LogUniform(1e4, 1e6), "updates until priority_beta has grown to 1", low=1
        )
        weight_decay: float = special_prior(
            1e-2, LogUniform(1e-4, 1e-1), "weight decay of adamw", low=0
        )
        lr_end: float = special_prior(
            0.1, LogUniform(1e-2, 1), "final learning rates, as a fraction of the initial ones", 0
        )
        schedule_updates: float = special_prior(
            0.0, Uniform(0, 1e6), "length of lr_schedule in updates; 0 for the whole run", 0
        )

    multi_agent: ClassVar[bool] = False
    plain_networks: ClassVar[bool] = False  # its own losses have no use for batch norm and dropout
    unsupported: ClassVar[tuple[str, ...]] = ()  # options that must keep their defaults

    def __post_init__(self):
        name = type(self).__name__
        if not isinstance(self.spec, Spec):
            call = f'thespis.train({name}, env="Pendulum-v1", steps=20_000)'
            raise ThespisError(f"{name} is made of the Spec of an environment; to train: {call}")
        agents = len(self.spec.agents)
        if agents and not self.multi_agent:
            raise ThespisError(f"{name} is for one agent, and there are {agents}: take masac")
        if not agents and self.multi_agent:
            discrete = isinstance(self.spec.action, Discrete)
            instead = "discrete-sac" if discrete else "sac"
            raise ThespisError(f"{name} is for several agents, and there is one: take {instead}")
        limits = {"max_use": self.max_use, "max_staleness": self.max_staleness}
        for option, limit in limits.items():
            if limit is not None and not self.prioritized_replay:
                raise ThespisError(f"{option} = {limit} needs prioritized_replay: add it")
        weighted = self.importance_weights or not type(self).importance_weights  # by default
        if not (weighted or self.prioritized_replay):
            raise ThespisError("importance_weights = False needs prioritized_replay: add it")
        for option in fields(self):
            if option.name in self.unsupported and getattr(self, option.name) != option.default:
                raise ThespisError(f"{option.name}: this algorithm has no such choice")
            if isinstance(network := getattr(self, option.name), Network):
                check_body(option.metadata.get("group", option.name), network, option.default)
        self.check_critics()
        for group, network in (("actor", self.actor_network), ("critic", self.critic_network)):
            if self.plain_networks and (network.batched or network.dropout):
                raise ThespisError(
                    f"{group}.*: {name} has neither batch norm nor dropout; take norm layer or rms"
                )
        if self.actor_network.dropout:
            raise ThespisError("actor.dropout: only critics have dropout; leave it out")
        self.check_encoder()
        weights, dim = self.reward_weights, self.spec.reward_dim
        if weights is not None and len(weights) != dim:
            kind = "one number" if dim is None else f"a vector of {dim}"
            raise ThespisError(
                f"reward_weights = {weights}: the reward is {kind}; give one weight per dimension"
            )

    @property
    def box(self) -> Box:
        """Returns the space of continuous actions; refuses discrete ones."""
        if not isinstance(self.spec.action, Box):
            name = type(self).__name__
            raise ThespisError(
                f"{name} needs continuous actions, not {self.spec.action}: take discrete-sac"
            )
        return self.spec.action

    @property
    def actions(self) -> int:
        """Returns the number of discrete actions; refuses continuous ones."""
        if not isinstance(self.spec.action, Discrete):
            name = type(self).__name__
            raise ThespisError(
                f"{name} needs discrete actions, not {self.spec.action}: take sac or td3"
            )
        return self.spec.action.n

    def check_mask(self, obs: Any, actions: int) -> None:
        """Refuses an action mask, if the spec of observations has one, of a wrong shape."""
        if has_mask(obs) and obs[MASK].shape != (actions,):
            raise ThespisError(
                f"the {MASK} of observations has shape {obs[MASK].shape}, but there are {actions} "
                f"actions: give one entry per action, shape {(actions,)}"
            )

    def memory(self, key, n: int) -> Any:
        return None

    def reset(self, state, hp, key) -> Any:
        """Returns a new state with the running statistics of the old one."""
        stats = {name: x for name, x in vars(state).items() if name.endswith("stats")}
        return replace(self.init(key, hp), **stats)  # pyright: ignore

    def sample(self, replay, demos, hp, key, step) -> Any:
        return replay.transitions(key, self.batch_size, hp.gamma, self.n_step)

    def rule(self, envs: int) -> Rule | None:
        """Returns which rows a prioritised replay may draw; None for uniform draws."""
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
        """Returns the exponent of importance weights, which grows linearly to 1; 0 for none."""
        if not self.importance_weights:
            return jnp.zeros_like(hp.priority_beta)
        done = jnp.minimum(step.astype(jnp.float32) / hp.priority_anneal, 1.0)
        return hp.priority_beta + (1.0 - hp.priority_beta) * done


def check_body(group: str, network: Network, default: Any) -> None:
    """Refuses choices that the network's body does not have, unless they are defaults."""
    for name in network.unused:
        value = getattr(network, name)
        if value not in (getattr(Network(), name), getattr(default, name, None)):
            raise ThespisError(
                f"{group}.{name} = {value}: body = {network.body} has no such choice; leave it out"
            )
