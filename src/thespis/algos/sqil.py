"""SQIL: soft Q imitation learning. Reddy et al. 2019, https://arxiv.org/abs/1905.11108.

SAC on batches of which one half is the agent's own experience, with reward 0, and the other half
demonstrations, with reward 1. The environment's rewards are never used.

Objective `iq`, whose rewards are those that the critics imply: Garg et al. 2021,
https://arxiv.org/abs/2106.12142; `ls-iq`, in which both halves have fixed rewards and values are
bounded: Al-Hafez et al. 2023, https://arxiv.org/abs/2303.00599.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float

from thespis.algos.actor_critic import ActorCritic
from thespis.algos.critic_learning import numbered
from thespis.algos.discrete_sac import DiscreteSAC
from thespis.algos.imitators import (
    ContinuousImitator,
    DiscreteImitator,
    Imitator,
    Objective,
    largest_return,
)
from thespis.algos.presets.sqil import PRESETS
from thespis.algos.rewards import REWARD_OPTIONS
from thespis.algos.sac import SAC
from thespis.algos.temperature import Form
from thespis.core import Box, Key, Metrics, Mode, ThespisError, Transition, mean
from thespis.nn.distributions import RANGE, LogDerivative, Std
from thespis.tuning.hyper import LogUniform, Uniform, prior

ENDLESS = 1e9  # steps after which any discount is 0


@dataclass(frozen=True)
class SQIL(ActorCritic):
    """Imitates demonstrations, with continuous or discrete actions."""

    objective: Objective = "sqil"
    """Imitation objective: SQIL (rewards 0 for the agent, 1 for demonstrations), IQ-Learn (rewards
    implied by the critics) or LS-IQ (reward -1 for the agent; demonstrations are regressed to the
    largest possible value)."""
    temperature: Form = "fixed"
    """Form of the learned temperature: log alpha with a loss linear in alpha (exp) or in log alpha
    (log), alpha itself (linear), or not learned (fixed)."""
    absorbing: bool = True
    """Treat terminal states as absorbing, with the reward of their half of the batch for ever."""
    std: Std = "exp"
    """Parametrisation of the standard deviation of continuous actions: exp(raw), with raw clipped
    (exp) or squashed by tanh (tanh) to log_std_range, or softplus(raw) + 0.001."""
    log_std_range: tuple[float, ...] = RANGE
    """Lower and upper bound of the log standard deviation of continuous actions."""
    log_derivative: LogDerivative = "exact"
    """Correction for tanh in log-probabilities of continuous actions: exact, or log(1 - a^2 + 1e-6)
    (epsilon)."""
    init_w: float | None = None
    """Initialise the last layer of an actor of continuous actions uniformly within +-init_w."""
    store_policy: bool = False
    """Store the policy's mean and standard deviation, or its logits, with every transition."""
    bc_steps: int | None = None
    """Number of first updates in which the actor is trained by behaviour cloning, while the critics
    learn."""
    monitor_gradients: bool = True
    """Log the actor loss of each half of the batch, and the cosine of their gradients."""
    monitor_policy: bool = True
    """Log the policy's entropy and, for continuous actions, its mean and standard deviation."""

    demonstrated: ClassVar[bool] = True  # it learns from demonstrations

    @classmethod
    def judged_by(cls, options: dict[str, Any]) -> str:
        """Returns the similarity to held-out demonstrations, since it knows no reward."""
        return "eval/similarity"

    class Hyper(SAC.Hyper):
        alpha: float = prior(
            0.01, LogUniform(1e-3, 1), "fixed (or initial) temperature", low=0, initial=True
        )
        entropy_share: float = prior(
            0.7,
            Uniform(0.1, 0.9),
            "target entropy of discrete actions, as a fraction of the log of their number",
        )

    presets: ClassVar[dict[str, dict]] = PRESETS
    unsupported: ClassVar[tuple[str, ...]] = REWARD_OPTIONS

    def __post_init__(self):
        super().__post_init__()
        if self.batch_size % 2:
            raise ThespisError(
                f"batch_size = {self.batch_size}: give an even number, half are demonstrations"
            )
        if self.objective == "iq" and self.n_step > 1:
            raise ThespisError(
                f"n_step = {self.n_step}: objective iq regularises the reward of single steps; "
                "leave n_step at 1, or take objective ls-iq"
            )
        batched = self.actor_network.batched or self.critic_network.batched
        if batched and (self.objective == "iq" or self.bc_steps):
            raise ThespisError("batch norm goes neither with objective iq nor with bc_steps here")
        if self.head != "mse" and self.objective != "sqil":
            raise ThespisError(f"head = {self.head}: objective {self.objective} learns by squares")
        _ = self.base  # refuses what it cannot work with

    @property
    def base(self) -> ContinuousImitator | DiscreteImitator:
        """Returns the algorithm that learns from the batches: SAC for this kind of actions."""
        shared: Any = {f.name: getattr(self, f.name) for f in fields(Imitator)}
        spec = replace(self.spec, reward_dim=None)  # whatever the environment's rewards are
        shared |= {"spec": spec, "reward_weights": None}
        if not isinstance(self.spec.action, Box):
            return DiscreteImitator(**shared, store_logits=self.store_policy, noise_repeat=1)
        names = ("std", "log_std_range", "log_derivative", "init_w", "store_policy")
        return ContinuousImitator(**shared, **{name: getattr(self, name) for name in names})

    def base_hyper(self, hp) -> Any:
        """Returns the hyper-parameters of the base."""
        values = dict(vars(hp))
        share = values.pop("entropy_share")
        if isinstance(self.spec.action, Box):
            return SAC.Hyper(**values)
        return DiscreteSAC.Hyper(**values | {"target_entropy": share, "epsilon_start": 0.0})

    # --- life cycle -------------------------------------------------------------------------

    def init(self, key, hp) -> Any:
        return self.base.init(key, self.base_hyper(hp))

    def act(self, state, hp, memory, obs, key, step, mode: Mode):
        return self.base.act(state, self.base_hyper(hp), memory, obs, key, step, mode)

    # --- learning ---------------------------------------------------------------------------

    def sample(self, replay, demos, hp, key, step) -> Transition:
        """Draws the agent's half first, then as many demonstrations."""
        k_agent, k_demo = random.split(key)
        half = self.batch_size // 2, hp.gamma, self.n_step
        agent_reward = 0.0 if self.objective == "sqil" else -1.0
        agent = self.relabel(replay.transitions(k_agent, *half), hp, agent_reward)
        demo = self.relabel(demos.transitions(k_demo, *half), hp, 1.0)
        if self.objective == "ls-iq":
            demo = self.with_largest_value(demo, hp)
        if agent.drawn is not None:  # only the agent's rows have priorities
            demo = replace(demo, drawn=jax.tree.map(lambda x: -jnp.ones_like(x), agent.drawn))
        agent = replace(agent, extra=None)  # which demonstrations do not have
        return jax.tree.map(lambda *x: jnp.concatenate(x), agent, demo)

    def relabel(self, b: Transition, hp, step_reward: float) -> Transition:
        """Returns a batch in which every step has this reward, whatever the environment's was.

        r = sum_{i<k} gamma^i step_reward, and after a termination, where the critics' target
        stops, gamma^k step_reward / (1 - gamma) more: the value of the absorbing state. Rewards
        that the critics imply (iq) have only the latter.
        """
        discount = jnp.power(hp.gamma, jnp.arange(self.n_step, dtype=jnp.float32))
        reward = jnp.append(0.0, jnp.cumsum(discount))[b.steps.astype(jnp.int32)]
        if self.objective == "iq":
            reward = jnp.zeros_like(reward)
        if self.absorbing and not self.ignore_done:
            reward = reward + b.terminated * hp.gamma**b.steps * largest_return(hp)
        return replace(b, reward=step_reward * reward)

    def with_largest_value(self, b: Transition, hp) -> Transition:
        """Returns a batch whose targets are Q_max = 1 / (1 - gamma), without bootstrapping."""
        reward = jnp.full_like(b.reward, largest_return(hp))
        return replace(b, reward=reward, steps=jnp.full_like(b.steps, ENDLESS))

    def update(self, state, hp, b: Transition, key, step) -> tuple[Any, Metrics, Array]:
        k_update, k_monitor = random.split(key)
        base, hp = self.base, self.base_hyper(hp)
        new, metrics, td_error = base.update(state, hp, b, k_update, step)
        if self.bc_steps:
            metrics["bc_loss"], new = self.clone(state, new, hp, b, step)

        obs, valid = base.see(state, b.obs), base.learned_from(b)
        values = base.q(state.critic.params, obs, b.action)
        metrics |= numbered("q_value", (mean(q, valid) for q in values))
        for name, error, counted in zip(("agent", "demo"), halves(td_error), halves(valid)):
            metrics[f"{name}_td_error"] = mean(error, counted)
        if self.monitor_gradients:
            metrics |= self.compare_gradients(state, new.critic.params, hp, b, k_monitor)
        if self.monitor_policy:
            metrics |= base.policy_metrics(state, obs, b.valid, metrics)
        else:
            metrics.pop("entropy", None)
        return new, metrics, td_error

    def compare_gradients(self, state, critic, hp, b: Transition, key: Key) -> Metrics:
        """Returns the actor's loss on each half, and the cosine of the two gradients."""
        alpha = self.base.alpha(state, hp)

        def losses(actor) -> Float[Array, "2"]:
            value = self.base.actor_values(state, actor, critic, alpha, b.obs, key)
            return -jnp.stack([mean(*half) for half in zip(halves(value), halves(b.valid))])

        loss, vjp = jax.vjp(losses, state.actor.params)
        agent, demo = (
            jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(vjp(one)[0])])
            for one in jnp.eye(2)
        )
        norms = jnp.linalg.norm(agent) * jnp.linalg.norm(demo)
        return {
            "agent_actor_loss": loss[0],
            "demo_actor_loss": loss[1],
            "cos_similarity": (agent @ demo) / jnp.maximum(norms, 1e-12),
        }

    # --- behaviour cloning ------------------------------------------------------------------

    def clone(self, state, new, hp, b: Transition, step) -> tuple[Array, Any]:
        """Returns the loss, and the state: in the first `bc_steps` updates with a cloned actor."""
        obs, action, valid = jax.tree.map(lambda x: halves(x)[1], (b.obs, b.action, b.valid))
        hp = self.scheduled(hp, step)

        def loss(actor):
            return -mean(self.base.log_prob(state, actor, obs, action), valid), (actor, None)

        learn = lambda: self.apply_gradient(state.actor, loss, hp, hp.actor_lr)[0]
        actor = jax.lax.cond(step < self.bc_steps, learn, lambda: new.actor)
        return loss(state.actor.params)[0], eqx.tree_at(lambda s: s.actor, new, actor)


def halves(x: Array) -> tuple[Array, Array]:
    """Splits a batch into the agent's half and the demonstrations' [batch / 2, ...]."""
    return x[: len(x) // 2], x[len(x) // 2 :]
