"""What algorithms for several agents share: their actions, rewards and observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from thespis.algos.actor_critic import ActorCritic
from thespis.core import (
    AGENTS,
    ALIVE,
    ENDED,
    MASK,
    PAID,
    STATE,
    Box,
    Discrete,
    Row,
    ThespisError,
    has_mask,
)
from thespis.nn import normalization
from thespis.nn.encoders import features


class Team(eqx.Module):
    """One network for all agents, which reads their one-hot numbers, or one network per agent."""

    networks: tuple[Any, ...]

    def __call__(self, x: Float[Array, "... agents _"]) -> Float[Array, "... agents _"]:
        agents = x.shape[-2]
        if len(self.networks) == 1:
            return self.networks[0](with_agent_id(x))
        outputs = [net(x[..., i, :]) for i, net in zip(range(agents), self.networks, strict=True)]
        return jnp.stack(outputs, -2)


def with_agent_id(x: Float[Array, "... agents _"]) -> Float[Array, "... agents _"]:
    """Appends the one-hot number of every agent, if there are several."""
    agents = x.shape[-2]
    if agents == 1:
        return x
    numbers = jnp.broadcast_to(jnp.eye(agents), (*x.shape[:-1], agents))
    return jnp.concatenate([x, numbers], -1)


class TeamObservation(NamedTuple):
    """The inputs of networks, leaves [batch, ...]."""

    local: Float[Array, "batch agents _"]  # the observation of each agent
    state: Float[Array, "batch _"] | None  # the global state, if there is one
    alive: Float[Array, "batch agents"]
    ended: Float[Array, "batch agents"]
    legal: Bool[Array, "batch agents n"]


@dataclass(frozen=True)
class MultiAgent(ActorCritic):
    """Reads observations, rewards and actions of several agents."""

    team_reward: bool = False
    """Train every agent on the team's reward, if the environment has a reward per agent."""

    multi_agent: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if len({type(action) for action in self.spec.actions}) > 1:
            raise ThespisError(
                f"{type(self).__name__} needs actions of one kind, not some agents with continuous "
                "and some with discrete ones: wrap the environment so that all are alike"
            )
        if self.individual_rewards and self.normalizes_rewards:
            raise ThespisError(
                f"reward_norm = {self.reward_norm} is by returns of the team, and each agent has a "
                "reward of its own: add team_reward, or leave reward_norm out"
            )
        if not self.continuous:
            self.check_mask(self.local_spec, self.size)

    def check_encoder(self) -> None:
        """Refuses options of encoders, since there are none."""
        for option in ("conv_channels", "conv_kernels", "conv_strides", "privileged"):
            if getattr(self, option):
                raise ThespisError(
                    f"{option}: {type(self).__name__} reads images as plain numbers, and only its "
                    "critics see the state; leave it out"
                )

    # --- agents and their actions -----------------------------------------------------------

    @property
    def agents(self) -> int:
        """Returns the number of agents."""
        return len(self.spec.actions)

    @property
    def continuous(self) -> bool:
        """Tells whether actions are continuous; else they are discrete."""
        return isinstance(self.spec.actions[0], Box)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Returns the dimension of each agent's action, or its number of discrete actions."""
        return tuple(a.n if isinstance(a, Discrete) else a.size for a in self.spec.actions)

    @property
    def size(self) -> int:
        """Returns the largest of the `sizes`; agents with fewer ignore the rest."""
        return max(self.sizes)

    @property
    def used(self) -> np.ndarray:
        """Tells which dimensions, or discrete actions, each agent has: bool [agents, size]."""
        return np.arange(self.size)[None] < np.array(self.sizes)[:, None]

    # --- rewards ----------------------------------------------------------------------------

    @property
    def individual_rewards(self) -> bool:
        """Tells whether each agent learns from a reward of its own."""
        return self.spec.reward_dim == self.agents and not self.team_reward

    @property
    def weights(self) -> np.ndarray:
        """Returns the weights of the agents' rewards: equal ones, unless reward_weights is set."""
        if self.reward_weights is not None or self.spec.reward_dim != self.agents:
            return super().weights
        return np.full(self.agents, 1 / self.agents, np.float32)

    def scalar_reward(self, reward, obs):
        """Returns the team's reward [...], which is summed to returns."""
        return self.scalar(self.rewards_of_paid(reward, obs))

    def rewards_of_paid(self, reward, obs):
        """Scales rewards so that their mean is that of the agents that received one.

        Agents that have left the episode do not count.
        """
        shared = PAID in self.spec.obs and self.reward_weights is None
        if not shared or self.spec.reward_dim != self.agents:
            return reward
        paid = obs[PAID].astype(np.float32)
        return reward * paid * (self.agents / paid.sum(-1, keepdims=True).clip(1))

    # --- observations -----------------------------------------------------------------------

    @property
    def local_spec(self) -> Any:
        """Returns shapes and types of what one agent observes."""
        one_agent = lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype)
        return jax.tree.map(one_agent, self.spec.obs[AGENTS])

    @property
    def images(self) -> list[tuple[int, int, int]]:
        """Returns an empty list: images are read as plain numbers."""
        return []

    @property
    def masked(self) -> bool:
        """Tells whether observations say which actions are legal."""
        return has_mask(self.local_spec)

    def make_stats(self) -> Any:
        """Returns new statistics of each agent's observations and of the state, or None."""
        if not self.normalize_observations:
            return None
        repeat = lambda x: jnp.broadcast_to(x, (self.agents, *x.shape))
        local = jax.tree.map(repeat, normalization.statistics(self.local_spec))
        state = self.spec.obs.get(STATE)
        return local, None if state is None else normalization.statistics(state)

    def observe(self, state: Any, rows: Row) -> Any:
        """Updates the statistics; those of an agent by the rows on which it acts."""
        if state.stats is None:
            return state
        local, joint = state.stats
        alive = self.alive(rows.obs)
        local = jax.vmap(normalization.update, (0, 1, 1))(local, rows.obs[AGENTS], alive)
        if joint is not None:
            joint = normalization.update(joint, rows.obs[STATE])
        return eqx.tree_at(lambda s: s.stats, state, (local, joint))

    def alive(self, obs) -> Bool[Array, "... agents"]:
        """Tells which agents act on an observation."""
        if ALIVE in obs:
            return obs[ALIVE]
        first, one = (jax.tree.leaves(x)[0] for x in (obs[AGENTS], self.local_spec))
        return jnp.ones(first.shape[: first.ndim - one.ndim], bool)

    def normalised(self, stats: Any, obs) -> Any:
        """Normalises agents' observations and the state by running statistics, if there are any."""
        if stats is None:
            return obs
        local = jax.vmap(normalization.normalise, (0, 1), 1)(stats[0], obs[AGENTS])
        state = {STATE: normalization.normalise(stats[1], obs[STATE])} if STATE in obs else {}
        return {**obs, AGENTS: local, **state}

    def team_observation(self, obs) -> TeamObservation:
        """Returns the inputs of networks."""
        local, alive = obs[AGENTS], self.alive(obs)
        legal = jnp.broadcast_to(self.used[None], (*alive.shape, self.size))
        if self.masked and not self.continuous:
            legal = legal & local[MASK]
        state = features(self.spec.obs[STATE], obs[STATE]) if STATE in obs else None
        ended = obs.get(ENDED, ~alive).astype(jnp.float32)
        alive = alive.astype(jnp.float32)
        return TeamObservation(features(self.local_spec, local), state, alive, ended, legal)
