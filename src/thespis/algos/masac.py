"""Multi-agent SAC: every agent acts on what it sees itself, critics may see everyone.

SAC, Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905 (equations below), and its discrete
form, Christodoulou 2019, https://arxiv.org/abs/1910.07207, under the central critics of Lowe et
al. 2017, https://arxiv.org/abs/1706.02275. Those of discrete agents give the values of all own
actions beside the actions of others: Foerster et al. 2018, https://arxiv.org/abs/1705.08926.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import nn, random
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float

from thespis.algos.actor_critic import ActorCritic, numbered
from thespis.algos.epsilon import Schedule, astray, epsilon_of
from thespis.algos.presets.masac import PRESETS
from thespis.algos.sac import SAC
from thespis.algos.temperature import Form, alpha_of, init_temperature, update_temperature
from thespis.core import (
    AGENTS,
    ALIVE,
    ENDED,
    MASK,
    PAID,
    STATE,
    Box,
    Discrete,
    Metrics,
    Mode,
    Row,
    ThespisError,
    Transition,
    mean,
    polyak,
)
from thespis.nn import normalization
from thespis.nn.distributions import Categorical, LogDerivative, TanhGaussian
from thespis.nn.encoders import features, width
from thespis.nn.networks import MLP
from thespis.nn.train_state import TrainState
from thespis.tuning.hyper import LogUniform, Uniform, prior
from thespis.xla import fast_random


class Team(eqx.Module):
    """One network that is told which agent it stands for, or one for each agent."""

    networks: tuple[MLP, ...]

    def __call__(self, x: Float[Array, "... agents _"]) -> Float[Array, "... agents _"]:
        agents = x.shape[-2]
        if len(self.networks) == 1:
            return self.networks[0](named(x))
        each = [net(x[..., i, :]) for i, net in zip(range(agents), self.networks, strict=True)]
        return jnp.stack(each, -2)


def named(x: Float[Array, "... agents _"]) -> Float[Array, "... agents _"]:
    """With the one-hot name of each of several agents."""
    agents = x.shape[-2]
    if agents == 1:
        return x
    names = jnp.broadcast_to(jnp.eye(agents), (*x.shape[:-1], agents))
    return jnp.concatenate([x, names], -1)


class State(eqx.Module):
    actor: TrainState  # of a `Team`
    critic: TrainState  # of a `Team` for each critic
    target: tuple[Team, ...]
    temperature: (
        TrainState | None
    )  # of log alpha (or alpha) [1] if weights are shared, else [agents]
    stats: Any  # running statistics of each agent's observations and of the state, or None


class Seen(NamedTuple):
    """An observation as networks read it, leaves [batch, ...]."""

    own: Float[Array, "batch agents _"]
    state: Float[Array, "batch _"] | None  # the global one, if there is one
    alive: Float[Array, "batch agents"]
    ended: Float[Array, "batch agents"]
    legal: Bool[Array, "batch agents n"]


@dataclass(frozen=True)
class MASAC(ActorCritic):
    """SAC for several agents at once, with continuous or discrete actions."""

    critic: Literal["joint", "state", "own"] = "joint"
    """What critics read: all observations and actions, the state and the own action, or what the
    agent itself sees and does (independent SAC)."""
    shared_weights: bool = True
    """One actor, and one network per critic, for all agents; else one for each agent."""
    team_reward: bool = False
    """Every agent learns from the team's reward, where the environment rewards each by itself."""
    temperature: Form = "log"
    """Loss of the temperature: alpha of log alpha, log alpha, alpha itself, or none (fixed)."""
    log_derivative: LogDerivative = "exact"
    """Of tanh in log-probabilities: exact, or log(1 - a^2 + 1e-6)."""
    entropy_unit: Literal["log-actions", "actions"] = "log-actions"
    """What discrete_entropy multiplies: the log of the number of legal actions, or the number."""
    epsilon_schedule: Schedule = "linear"
    """How the chance of random discrete actions goes from epsilon_start to epsilon_end."""
    store_logits: bool = False
    """Store the logits of discrete actors with every transition."""

    class Hyper(SAC.Hyper):
        discrete_entropy: float = prior(
            0.3, Uniform(0.05, 0.9), "wanted entropy of discrete actions, see entropy_unit"
        )
        epsilon_start: float = prior(
            0.0, Uniform(0, 1), "first chance of a random discrete action", 0, 1, special=True
        )
        epsilon_end: float = prior(
            0.0, Uniform(0, 0.1), "last chance of a random discrete action", 0, 1, special=True
        )
        epsilon_decay: float = prior(
            1e4, LogUniform(1e3, 1e5), "steps between the two", low=1, special=True
        )

    own_networks: ClassVar[bool] = True
    presets: ClassVar[dict[str, dict]] = PRESETS
    several: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        kinds = {type(action) for action in self.spec.actions}
        if len(kinds) > 1:
            raise ThespisError(
                "MASAC needs actions of one kind, not some agents with continuous and some with "
                "discrete ones: wrap the environment so that all are alike"
            )
        mask = self.own[MASK].shape if self.masked else (self.size,)
        if not self.continuous and mask != (self.size,):
            raise ThespisError(
                f"the {MASK} of observations has shape {mask}, but there are {self.size} "
                f"actions: give one entry per action, shape {(self.size,)}"
            )

    def check_encoder(self) -> None:
        for name in ("conv_channels", "conv_kernels", "conv_strides", "privileged"):
            if getattr(self, name):
                raise ThespisError(
                    f"{name}: MASAC reads images as plain numbers, and only its critics see the "
                    "state; leave it out"
                )

    # --- what is known of the agents --------------------------------------------------------

    @property
    def agents(self) -> int:
        return len(self.spec.actions)

    @property
    def continuous(self) -> bool:
        return isinstance(self.spec.actions[0], Box)

    @property
    def own(self) -> Any:
        """Shapes and types of what one agent observes."""
        less = lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype)
        return jax.tree.map(less, self.spec.obs[AGENTS])

    @property
    def images(self) -> list[tuple[int, int, int]]:
        return []  # they are read as plain numbers

    @property
    def masked(self) -> bool:
        return isinstance(self.own, dict) and MASK in self.own

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers in each agent's action, or discrete actions that each has."""
        return tuple(a.n if isinstance(a, Discrete) else a.size for a in self.spec.actions)

    @property
    def size(self) -> int:
        """The largest of them: agents that have less ignore the rest."""
        return max(self.sizes)

    @property
    def used(self) -> np.ndarray:
        """Which numbers or actions an agent has [agents, size]."""
        return np.arange(self.size)[None] < np.array(self.sizes)[:, None]

    @property
    def own_rewards(self) -> bool:
        """Each agent learns from a reward of its own."""
        return self.spec.reward_dim == self.agents and not self.team_reward

    @property
    def for_team(self) -> bool:
        """Critics tell what the whole team will get, the entropy of all included."""
        return self.critic == "joint" and not self.own_rewards

    @property
    def views(self) -> int:
        """Values that a critic gives of one moment: one of the team, or one of each agent."""
        return 1 if self.for_team and self.continuous else self.agents

    @property
    def weights(self) -> np.ndarray:
        """By which agents' rewards make up the team's: their mean, unless reward_weights says."""
        if self.reward_weights is not None or self.spec.reward_dim != self.agents:
            return super().weights
        return np.full(self.agents, 1 / self.agents, np.float32)

    def scalar_reward(self, reward, obs):
        return self.scalar(self.of_paid(reward, obs))

    def of_paid(self, reward, obs):
        """Rewards whose mean is that of the agents who were paid: who has left counts no more."""
        shared = PAID in self.spec.obs and self.reward_weights is None
        if not shared or self.spec.reward_dim != self.agents:
            return reward
        paid = obs[PAID].astype(np.float32)
        return reward * paid * (self.agents / paid.sum(-1, keepdims=True).clip(1))

    # --- life cycle -------------------------------------------------------------------------

    def init(self, key, hp) -> State:
        k_actor, *k_critics = random.split(key, 1 + self.critics)
        outputs = 2 * self.size if self.continuous else self.size
        actor = self.make_team(k_actor, self.agents, width(self.own), self.hidden, outputs)
        hidden = self.hidden if self.critic_hidden is None else self.critic_hidden
        sizes = self.read, hidden, 1 if self.continuous else self.size
        critic = tuple(self.make_team(k, self.views, *sizes) for k in k_critics)
        alpha = jnp.full(len(actor.networks), jnp.asarray(hp.alpha, jnp.float32))
        temperature = init_temperature(self.temperature, alpha)
        return State(
            TrainState.create(actor),
            TrainState.create(critic),
            critic,
            temperature,
            self.make_stats(),
        )

    def make_team(self, key, agents: int, inputs: int, hidden, outputs: int) -> Team:
        shared = self.shared_weights or agents == 1
        names = agents if shared and agents > 1 else 0
        keys = random.split(key, 1 if shared else agents)
        sizes = (inputs + names, *hidden, outputs)
        return Team(tuple(MLP(k, sizes, self.weight_init) for k in keys))

    @property
    def read(self) -> int:
        """Numbers that critics read: see `views_of`."""
        mine, obs = self.size if self.continuous else 0, self.spec.obs
        if self.critic == "own":
            return width(self.own) + mine
        everyone = width(obs[AGENTS])
        if self.critic == "joint" and self.views > 1:
            return everyone + (self.agents - 1) * self.size + mine
        world = width(obs[STATE]) if STATE in obs else everyone
        alive = self.agents if ALIVE in obs else 0
        return world + alive + (self.agents * self.size if self.critic == "joint" else mine)

    def make_stats(self) -> Any:
        if not self.normalize_observations:
            return None
        every = lambda x: jnp.broadcast_to(x, (self.agents, *x.shape))
        own = jax.tree.map(every, normalization.statistics(self.own))
        state = self.spec.obs.get(STATE)
        return own, None if state is None else normalization.statistics(state)

    def observe(self, state: State, rows: Row) -> State:
        if state.stats is None:
            return state
        own, world = state.stats
        alive = self.alive(rows.obs)
        own = jax.vmap(normalization.update, (0, 1, 1))(own, rows.obs[AGENTS], alive)
        if world is not None:
            world = normalization.update(world, rows.obs[STATE])
        return eqx.tree_at(lambda s: s.stats, state, (own, world))

    def act(self, state: State, hp, memory, obs, key, step, mode: Mode):
        policy = self.policy(state.actor.params, self.look(state, obs))
        if isinstance(policy, TanhGaussian):
            if mode == "random":
                return fast_random.uniform(key, policy.mean.shape, -1, 1), memory, None
            return policy.mode() if mode == "greedy" else policy.sample(key)[0], memory, None
        extra = {"logits": policy.logits} if self.store_logits else None
        if mode == "greedy":
            return policy.mode(), memory, extra
        chance = 1.0 if mode == "random" else epsilon_of(self.epsilon_schedule, hp, step)
        return astray(policy, chance, random.fold_in(key, 0)).sample(key), memory, extra

    # --- learning ---------------------------------------------------------------------------

    def sample(self, replay, demos, hp, key, step) -> Transition:
        for_all = PAID in self.spec.obs and not self.own_rewards
        paid = self.of_paid if for_all else None
        return replay.transitions(key, self.batch_size, hp.gamma, self.n_step, paid=paid)

    def update(self, state: State, hp, b: Transition, key, step) -> tuple[State, Metrics, Array]:
        k_next, k_now = random.split(key)
        now, then = self.look(state, b.obs), self.look(state, b.next_obs)
        alpha = alpha_of(self.temperature, state.temperature, hp.alpha)
        alpha = jnp.broadcast_to(alpha, (self.agents,))[None]
        mine = b.valid[:, None] * now.alive  # [batch, agents]: who did something

        # Critics: regress every Q_i on the soft Bellman target (eq. 5), what others do next being
        # drawn from their present policies. A team counts the entropy of all, an agent its own.
        next_q, entropy = self.soft(state.actor.params, state.target, then, k_next)
        bonus = alpha * entropy
        team_bonus = (then.alive * bonus).sum(-1, keepdims=True)
        next_value = next_q + (team_bonus if self.for_team else bonus)
        target, valid = self.targets(hp, b, now, then, next_value)

        def critic_loss(critic):
            error = self.q(critic, now, b.action) - target[None]
            squares = self.means(b.weight[None, :, None] * error**2, valid)
            return squares.sum(), (error, squares.sum(-1))

        critic, (q_loss, (error, squares)) = state.critic.apply_gradient(critic_loss, hp.critic_lr)

        # Actors: each maximises its soft value (eq. 7-9), the present actions of others given.
        def actor_loss(actor):
            q, entropy = self.soft(actor, critic.params, now, k_now)
            bonus, acted = alpha * entropy, mine
            if self.views == 1:
                bonus, acted = (now.alive * bonus).sum(-1, keepdims=True), b.valid[:, None]
            return -self.means(q + bonus, acted).sum(), entropy

        actor, (pi_loss, entropies) = state.actor.apply_gradient(actor_loss, hp.actor_lr)

        # Temperatures: hold the entropy of each policy at its target (eq. 18).
        wanted = self.wanted(hp, now)
        surplus = self.means(entropies - wanted, mine)
        temperature, alpha_loss = update_temperature(
            self.temperature, state.temperature, surplus, hp.alpha_lr
        )

        td_error = jnp.abs(error).mean(0)
        metrics = {
            "actor_loss": pi_loss,
            "critic_loss": q_loss,
            **numbered("critic_loss", squares),
            "ent_coef": alpha.mean(),
            "ent_coef_loss": alpha_loss,
            "total_loss": pi_loss + q_loss + alpha_loss,
            "td_error": self.means(td_error, valid).mean(),
            "target_value": self.means(next_value, valid).mean(),
            "entropy": self.means(entropies, mine).mean(),
            "target_entropy": self.means(wanted, mine).mean(),
            "alive": now.alive.mean(),
        }
        if self.store_logits and not self.continuous:
            behaviour = Categorical(b.extra["logits"], now.legal)
            metrics["behaviour_entropy"] = self.means(behaviour.entropy(), mine).mean()
        parts = {
            "actor": actor,
            "critic": critic,
            "target": polyak(state.target, critic.params, hp.tau),
            "temperature": temperature,
        }
        priorities = (td_error * valid).sum(-1) / jnp.maximum(valid.sum(-1), 1.0)
        return dataclasses.replace(state, **parts), metrics, priorities

    # --- what networks read -----------------------------------------------------------------

    def alive(self, obs) -> Bool[Array, "... agents"]:
        """Who acts on an observation."""
        if ALIVE in obs:
            return obs[ALIVE]
        first, one = (jax.tree.leaves(x)[0] for x in (obs[AGENTS], self.own))
        return jnp.ones(first.shape[: first.ndim - one.ndim], bool)

    def look(self, state: State, obs) -> Seen:
        own, world = obs[AGENTS], obs.get(STATE)
        alive = self.alive(obs)
        ended = obs.get(ENDED, ~alive)
        legal = jnp.broadcast_to(self.used[None], (*alive.shape, self.size))
        if self.masked and not self.continuous:
            legal = legal & own[MASK]
        if state.stats is not None:
            own = jax.vmap(normalization.normalise, (0, 1), 1)(state.stats[0], own)
            world = None if world is None else normalization.normalise(state.stats[1], world)
        own = features(self.own, own)
        world = None if world is None else features(self.spec.obs[STATE], world)
        number = lambda x: x.astype(jnp.float32)
        return Seen(own, world, number(alive), number(ended), legal)

    def views_of(self, seen: Seen, action: Float[Array, "batch agents _"]) -> Array:
        """What critics read for each of their views [batch, views, _].

        `action` are all numbers, or one-hot choices. Others are given: no gradient reaches them.
        Values are of all own choices, so critics do not read which one it was.
        """
        batch, join = len(action), lambda *parts: jnp.concatenate(parts, -1)
        action = action * jnp.asarray(self.used, jnp.float32)[None]
        mine = [action] if self.continuous else []
        if self.critic == "own":
            return join(seen.own, *mine)
        present = action * seen.alive[..., None]
        if self.critic == "joint" and self.views > 1:
            # Everyone in turn, the agent itself first: so its own things have their own places.
            order = (np.arange(self.agents)[:, None] + np.arange(self.agents)) % self.agents
            turned = lambda x, order: x[:, order].reshape(batch, self.agents, -1)
            others = turned(stop_gradient(present), order[:, 1:])
            return join(turned(seen.own * seen.alive[..., None], order), *mine, others)
        alive = [seen.alive] if ALIVE in self.spec.obs else []
        world = seen.own.reshape(batch, -1) if seen.state is None else seen.state
        if self.critic == "joint":
            return join(world, *alive, present.reshape(batch, -1))[:, None]
        world = join(world, *alive)[:, None]
        return join(jnp.broadcast_to(world, (batch, self.views, world.shape[-1])), *mine)

    # --- values -----------------------------------------------------------------------------

    def policy(self, actor: Team, seen: Seen) -> TanhGaussian | Categorical:
        out = actor(seen.own)
        if not self.continuous:
            return Categorical.of(out, seen.legal)
        used = None if self.used.all() else jnp.asarray(self.used)
        return TanhGaussian.of(out, "exp", self.log_derivative, used)

    def q(self, critic: tuple[Team, ...], obs: Seen, action) -> Float[Array, "critics batch views"]:
        """Q of actions as they are stored."""
        if self.continuous:
            return self.values(critic, obs, action)[..., 0]
        values = self.values(critic, obs, nn.one_hot(action, self.size))
        return jnp.take_along_axis(values, action[None, ..., None], -1)[..., 0]

    def values(self, critic: tuple[Team, ...], seen: Seen, action) -> Array:
        x = self.views_of(seen, action)
        return jnp.stack([team(x) for team in critic])

    def soft(self, actor: Team, critic: tuple[Team, ...], seen: Seen, key) -> tuple[Array, Array]:
        """min_i Q_i under the present policies [batch, views], and entropies [batch, agents].

        Own actions are drawn and bear a gradient, or all are weighed; those of others are drawn.
        """
        policy = self.policy(actor, seen)
        if isinstance(policy, TanhGaussian):
            action, log_p = policy.sample(key)
            return self.q(critic, seen, action).min(0), -log_p
        drawn = nn.one_hot(policy.sample(key), self.size)
        return policy.expect(self.values(critic, seen, drawn).min(0)), policy.entropy()

    def means(self, x: Float[Array, "... batch views"], valid: Array) -> Float[Array, "... n"]:
        """Means over those whom each of n networks stands for: all agents, or one each."""
        shape = (1, -1) if self.shared_weights else valid.T.shape
        x = x.swapaxes(-1, -2).reshape(*x.shape[:-2], *shape)
        return mean(x, valid.T.reshape(*[1] * (x.ndim - 2), *shape))

    def targets(self, hp, b: Transition, now: Seen, then: Seen, next_value) -> tuple[Array, Array]:
        """r + gamma^k V(s') of every view [batch, views], and what critics learn from."""
        column = lambda x: jnp.broadcast_to(x[:, None], (len(x), self.views))
        reward = b.reward if self.own_rewards else column(self.scalar(b.reward))
        valid, terminated = column(b.valid), column(b.terminated)
        if self.views > 1:  # of those who acted; who has ended expects nothing more
            terminated = jnp.maximum(terminated, then.ended)
            valid = valid * now.alive
            if self.n_step > 1:  # who was cut off on the way has no last observation there
                valid = valid * (1.0 - (1.0 - then.alive) * (1.0 - terminated))
        going = 1.0 if self.ignore_done else 1.0 - terminated
        discount = column(hp.gamma**b.steps)
        if self.drop_truncated:
            valid = valid * (1.0 - column(b.truncated))
        return hp.reward_scale * reward + discount * going * next_value, valid

    def wanted(self, hp, seen: Seen) -> Float[Array, "batch agents"]:
        """The target entropy of every agent."""
        if self.continuous:
            each = hp.target_entropy * jnp.asarray(self.sizes, jnp.float32)
            return jnp.broadcast_to(each[None], seen.alive.shape)
        n = seen.legal.sum(-1).astype(jnp.float32)
        many = jnp.log(jnp.maximum(n, 1.0)) if self.entropy_unit == "log-actions" else n
        return hp.discrete_entropy * many
