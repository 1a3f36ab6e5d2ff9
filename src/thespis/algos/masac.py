"""Multi-agent SAC: every agent acts on its own observation, critics may see all agents.

SAC, Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905 (equations below), and its discrete
form, Christodoulou 2019, https://arxiv.org/abs/1910.07207, with the central critics of Lowe et
al. 2017, https://arxiv.org/abs/1706.02275. For discrete actions, critics value all actions of an
agent given those of the others: Foerster et al. 2018, https://arxiv.org/abs/1705.08926.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import nn, random
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from thespis.algos import epsilon
from thespis.algos.critic_learning import CRITIC_OPTIONS, numbered
from thespis.algos.multi_agent import MultiAgent, Team, TeamObservation
from thespis.algos.presets.masac import PRESETS
from thespis.algos.sac import SAC
from thespis.algos.temperature import Form, alpha_of, init_temperature, update_temperature
from thespis.core import ALIVE, PAID, Metrics, Mode, Transition, mean, polyak
from thespis.nn.distributions import Categorical, LogDerivative, TanhGaussian
from thespis.nn.encoders import width
from thespis.nn.heads import smallest
from thespis.nn.networks import Network
from thespis.nn.train_state import TrainState
from thespis.tuning.hyper import Uniform, prior
from thespis.xla import fast_random


class State(eqx.Module):
    actor: TrainState  # of a `Team`
    critic: TrainState  # of a `Team` for each critic
    target: tuple[Team, ...]
    temperature: TrainState | None  # log alpha (or alpha): [1] if weights are shared, else [agents]
    stats: Any  # running statistics of each agent's observations and of the state, or None
    reward_stats: Any  # of the returns, or None


@dataclass(frozen=True)
class MASAC(MultiAgent):
    """SAC for several agents at once, with continuous or discrete actions."""

    critic: Literal["joint", "state", "own"] = "joint"
    """Input of critics: all observations and actions (joint), the state and the agent's action, or
    only the agent's own observation and action (independent SAC)."""
    shared_weights: bool = True
    """Share the networks of actor and critics between agents, instead of one set per agent."""
    temperature: Form = "log"
    """Form of the learned temperature: log alpha with a loss linear in alpha (exp) or in log alpha
    (log), alpha itself (linear), or not learned (fixed)."""
    log_derivative: LogDerivative = "exact"
    """Correction for tanh in log-probabilities: exact, or log(1 - a^2 + 1e-6) (epsilon)."""
    entropy_unit: Literal["log-actions", "actions"] = "log-actions"
    """Unit of discrete_entropy: the log of the number of legal actions, or the number."""
    epsilon_schedule: epsilon.Schedule = "linear"
    """Schedule of the probability of random discrete actions, from epsilon_start to epsilon_end."""
    store_logits: bool = False
    """Store the logits of discrete actors with every transition."""

    class Hyper(SAC.Hyper):
        discrete_entropy: float = prior(
            0.3, Uniform(0.05, 0.9), "target entropy of discrete actions, in units of entropy_unit"
        )
        epsilon_start: float = epsilon.start_prior(0.0, special=True)
        epsilon_end: float = epsilon.end_prior(0.0, special=True)
        epsilon_decay: float = epsilon.decay_prior(1e4, special=True)

    plain_networks: ClassVar[bool] = True
    unsupported: ClassVar[tuple[str, ...]] = (*CRITIC_OPTIONS, "shared_encoder")
    presets: ClassVar[dict[str, dict]] = PRESETS

    @property
    def team_value(self) -> bool:
        """Tells whether critics value the team's return, with the entropy of all agents."""
        return self.critic == "joint" and not self.individual_rewards

    @property
    def views(self) -> int:
        """Returns the number of values per time step: one for the team, or one per agent."""
        return 1 if self.team_value and self.continuous else self.agents

    # --- life cycle -------------------------------------------------------------------------

    def init(self, key, hp) -> State:
        """Makes actors, critics, temperatures and statistics."""
        k_actor, *k_critics = random.split(key, 1 + self.critics)
        outputs = 2 * self.size if self.continuous else self.size
        sizes = self.agents, width(self.local_spec), outputs
        actor = self.make_team(k_actor, self.full_actor_network, *sizes)
        sizes = self.views, self.critic_width, 1 if self.continuous else self.size
        critic = tuple(self.make_team(k, self.full_critic_network, *sizes) for k in k_critics)
        alpha = jnp.full(len(actor.networks), jnp.asarray(hp.alpha, jnp.float32))
        temperature = init_temperature(self.temperature, alpha)
        parts = self.train_state(actor), self.train_state(critic)
        stats = self.make_stats(), self.make_reward_stats()
        return State(*parts, critic, temperature, *stats)

    def make_team(self, key, network: Network, agents: int, inputs: int, outputs: int) -> Team:
        """Returns one network for all agents, which also reads who it is for, or one for each."""
        shared = self.shared_weights or agents == 1
        ids = agents if shared and agents > 1 else 0
        keys = random.split(key, 1 if shared else agents)
        return Team(tuple(network.build(k, inputs + ids, outputs) for k in keys))

    def act(self, state: State, hp, memory, obs, key, step, mode: Mode):
        """Draws or chooses the action of every agent on its own observation."""
        policy = self.policy(state.actor.params, self.see_team(state, obs))
        if isinstance(policy, TanhGaussian):
            if mode == "random":
                return fast_random.uniform(key, policy.mean.shape, -1, 1), memory, None
            return policy.mode() if mode == "greedy" else policy.sample(key)[0], memory, None
        extra = {"logits": policy.logits} if self.store_logits else None
        if mode == "greedy":
            return policy.mode(), memory, extra
        chance = 1.0 if mode == "random" else epsilon.epsilon_of(self.epsilon_schedule, hp, step)
        policy = epsilon.with_random_actions(policy, chance, random.fold_in(key, 0))
        return policy.sample(key), memory, extra

    # --- learning ---------------------------------------------------------------------------

    def sample(self, replay, demos, hp, key, step) -> Transition:
        """Draws transitions; the team's reward is the mean over the agents that received one."""
        as_team = PAID in self.spec.obs and not self.individual_rewards
        paid = self.rewards_of_paid if as_team else None
        return replay.transitions(key, self.batch_size, hp.gamma, self.n_step, paid=paid)

    def update(self, state: State, hp, b: Transition, key, step) -> tuple[State, Metrics, Array]:
        """Takes one gradient step of critics, actors and temperatures."""
        k_next, k_now = random.split(key)
        hp, b = self.scheduled(hp, step), self.scale_rewards(state, b)
        now, then = self.see_team(state, b.obs), self.see_team(state, b.next_obs)
        alpha = alpha_of(self.temperature, state.temperature, hp.alpha)
        alpha = jnp.broadcast_to(alpha, (self.agents,))[None]
        acted = b.valid[:, None] * now.alive  # [batch, agents]

        # Critics: regress every Q_i on the soft Bellman target (eq. 5), with the others' next
        # actions from their present policies. A team counts the entropy of all, an agent its own.
        next_q, entropy = self.soft_values(state.actor.params, state.target, then, k_next)
        bonus = alpha * entropy
        team_bonus = (then.alive * bonus).sum(-1, keepdims=True)
        next_value = next_q + (team_bonus if self.team_value else bonus)
        target, valid = self.targets(hp, b, now, then, next_value)

        def critic_loss(critic):
            error = self.q(critic, now, b.action) - target[None]
            squares = self.network_means(b.weight[None, :, None] * error**2, valid)
            return squares.sum(), (critic, (error, squares.sum(-1)))

        trained = self.apply_gradient(state.critic, critic_loss, hp, hp.critic_lr)
        critic, (q_loss, (error, squares)) = trained

        # Actors: each maximises its soft value (eq. 7-9), given the present actions of others.
        def actor_loss(actor):
            q, entropy = self.soft_values(actor, critic.params, now, k_now)
            bonus, counted = alpha * entropy, acted
            if self.views == 1:
                bonus, counted = (now.alive * bonus).sum(-1, keepdims=True), b.valid[:, None]
            return -self.network_means(q + bonus, counted).sum(), (actor, entropy)

        trained = self.apply_gradient(state.actor, actor_loss, hp, hp.actor_lr)
        actor, (pi_loss, entropies) = trained

        # Temperatures: hold the entropy of each policy at its target (eq. 18).
        target_entropies = self.target_entropies(hp, now)
        surplus = self.network_means(entropies - target_entropies, acted)
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
            "td_error": self.network_means(td_error, valid).mean(),
            "target_value": self.network_means(next_value, valid).mean(),
            "entropy": self.network_means(entropies, acted).mean(),
            "target_entropy": self.network_means(target_entropies, acted).mean(),
            "alive": now.alive.mean(),
        }
        if self.store_logits and not self.continuous:
            behaviour = Categorical(b.extra["logits"], now.legal)
            metrics["behaviour_entropy"] = self.network_means(behaviour.entropy(), acted).mean()
        target = polyak(state.target, critic.params, hp.tau)
        parts = {"actor": actor, "critic": critic, "target": target, "temperature": temperature}
        return dataclasses.replace(state, **parts), metrics, mean(td_error, valid)

    # --- inputs -----------------------------------------------------------------------------

    def see_team(self, state: State, obs) -> TeamObservation:
        """Returns the inputs of networks, normalised."""
        return self.team_observation(self.normalised(state.stats, obs))

    @property
    def critic_width(self) -> int:
        """Returns the size of the critics' inputs."""
        batched = lambda s: jax.ShapeDtypeStruct((1, *s.shape), s.dtype)
        action = jax.ShapeDtypeStruct((1, self.agents, self.size), jnp.float32)
        inputs = lambda obs, action: self.critic_inputs(self.team_observation(obs), action)
        return jax.eval_shape(inputs, jax.tree.map(batched, self.spec.obs), action).shape[-1]

    def critic_inputs(
        self, seen: TeamObservation, action: Float[Array, "batch agents _"]
    ) -> Float[Array, "batch views _"]:
        """Returns the critics' input for each of their values.

        `action` holds vectors, or discrete actions as one-hot. Those of other agents get no
        gradient. Critics of discrete actions value all actions of an agent, so they do not read
        which one it took.
        """
        batch, join = len(action), lambda *parts: jnp.concatenate(parts, -1)
        action = action * jnp.asarray(self.used, jnp.float32)[None]
        own_action = [action] if self.continuous else []
        if self.critic == "own":
            return join(seen.local, *own_action)
        present = action * seen.alive[..., None]
        if self.critic == "joint" and self.views > 1:
            # All agents in turn, the agent itself first, so that its inputs are always the first.
            order = (np.arange(self.agents)[:, None] + np.arange(self.agents)) % self.agents
            rotated = lambda x, order: x[:, order].reshape(batch, self.agents, -1)
            others = rotated(stop_gradient(present), order[:, 1:])
            return join(rotated(seen.local * seen.alive[..., None], order), *own_action, others)
        alive = [seen.alive] if ALIVE in self.spec.obs else []
        state = seen.local.reshape(batch, -1) if seen.state is None else seen.state
        if self.critic == "joint":
            return join(state, *alive, present.reshape(batch, -1))[:, None]
        state = join(state, *alive)[:, None]
        return join(jnp.broadcast_to(state, (batch, self.views, state.shape[-1])), *own_action)

    # --- values -----------------------------------------------------------------------------

    def policy(self, actor: Team, seen: TeamObservation) -> TanhGaussian | Categorical:
        """Returns the distributions of all agents' actions."""
        out = actor(seen.local)
        if not self.continuous:
            return Categorical.from_logits(out, seen.legal)
        used = None if self.used.all() else jnp.asarray(self.used)
        return TanhGaussian.from_outputs(out, "exp", self.log_derivative, used)

    def q(
        self, critic: tuple[Team, ...], obs: TeamObservation, action
    ) -> Float[Array, "critics batch views"]:
        """Returns the values of actions as they are stored."""
        if self.continuous:
            return self.values(critic, obs, action)[..., 0]
        values = self.values(critic, obs, nn.one_hot(action, self.size))
        return jnp.take_along_axis(values, action[None, ..., None], -1)[..., 0]

    def values(self, critic: tuple[Team, ...], seen: TeamObservation, action) -> Array:
        """Returns all outputs of all critics [critics, batch, views, _]."""
        inputs = self.critic_inputs(seen, action)
        return jnp.stack([team(inputs) for team in critic])

    def soft_values(
        self, actor: Team, critic: tuple[Team, ...], seen: TeamObservation, key
    ) -> tuple[Array, Array]:
        """Returns min_i Q_i of the policies [batch, views], and their entropies [batch, agents].

        Continuous actions are drawn with a gradient. For discrete ones the values are expected
        ones over an agent's own actions, given draws of the others.
        """
        policy = self.policy(actor, seen)
        if isinstance(policy, TanhGaussian):
            action, log_p = policy.sample(key)
            return smallest(self.q(critic, seen, action)), -log_p
        drawn = nn.one_hot(policy.sample(key), self.size)
        return policy.expect(smallest(self.values(critic, seen, drawn))), policy.entropy()

    def network_means(
        self, x: Float[Array, "... batch views"], valid: Array
    ) -> Float[Array, "... n"]:
        """Averages over the agents of each of n networks: all of them, or one each."""
        shape = (1, -1) if self.shared_weights else valid.T.shape
        x = x.swapaxes(-1, -2).reshape(*x.shape[:-2], *shape)
        return mean(x, valid.T.reshape(*[1] * (x.ndim - 2), *shape))

    def targets(
        self, hp, b: Transition, now: TeamObservation, then: TeamObservation, next_value
    ) -> tuple[Array, Array]:
        """Returns r + gamma^k V(s') [batch, views], and which entries critics learn from."""
        column = lambda x: jnp.broadcast_to(x[:, None], (len(x), self.views))
        reward = b.reward if self.individual_rewards else column(self.scalar(b.reward))
        valid, terminated = column(b.valid), column(b.terminated)
        if self.views > 1:  # agents that acted; those that have ended have no further value
            terminated = jnp.maximum(terminated, then.ended)
            valid = valid * now.alive
            if self.n_step > 1:  # an agent that was truncated on the way has no s' there
                valid = valid * (1.0 - (1.0 - then.alive) * (1.0 - terminated))
        alive = 1.0 if self.ignore_done else 1.0 - terminated
        discount = column(hp.gamma**b.steps)
        if self.drop_truncated:
            valid = valid * (1.0 - column(b.truncated))
        return hp.reward_scale * reward + discount * alive * next_value, valid

    def target_entropies(self, hp, seen: TeamObservation) -> Float[Array, "batch agents"]:
        """Returns the target entropy of every agent."""
        if self.continuous:
            targets = hp.target_entropy * jnp.asarray(self.sizes, jnp.float32)
            return jnp.broadcast_to(targets[None], seen.alive.shape)
        n = seen.legal.sum(-1).astype(jnp.float32)
        unit = jnp.log(jnp.maximum(n, 1.0)) if self.entropy_unit == "log-actions" else n
        return hp.discrete_entropy * unit
