"""SQIL: soft Q imitation learning. Reddy et al. 2019, https://arxiv.org/abs/1905.11108.

SAC on batches of which one half is the agent's own experience, worth 0, and the other half
demonstrations, worth 1. What the environment pays is never looked at.
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
from thespis.algos.discrete_sac import DiscreteSAC
from thespis.algos.sac import SAC
from thespis.algos.temperature import Form, alpha_of
from thespis.core import Box, Key, Metrics, Mode, ThespisError, Transition, mean
from thespis.hyper import LogUniform, Uniform, prior


@dataclass(frozen=True)
class SQIL(ActorCritic):
    """Imitation of demonstrations, for continuous and discrete actions."""

    temperature: Form = "fixed"
    """Loss of the temperature: alpha of log alpha, log alpha, alpha itself, or none (fixed)."""
    absorbing: bool = True
    """After a termination the episode goes on for ever, worth as much as its half of the batch."""
    bc_steps: int | None = None
    """First updates in which the actor clones the demonstrations, while the critics learn."""
    monitor_gradients: bool = True
    """Report both halves' actor losses, and the cosine of their gradients."""
    monitor_policy: bool = True
    """Report the policy's entropy and, of continuous actions, its mean and deviation."""

    demonstrated: ClassVar[bool] = True  # learns from demonstrations: a run must have some

    class Hyper(SAC.Hyper):
        alpha: float = prior(
            0.01, LogUniform(1e-3, 1), "fixed (or initial) temperature", low=0, initial=True
        )
        entropy_share: float = prior(
            0.7, Uniform(0.1, 0.9), "wanted entropy of discrete actions, of the log of their number"
        )

    presets: ClassVar[dict[str, dict]] = {}

    def __post_init__(self):
        super().__post_init__()
        if self.batch_size % 2:
            raise ThespisError(
                f"batch_size = {self.batch_size}: give an even number, half are demonstrations"
            )
        _ = self.base  # refuses what it cannot work with

    @property
    def base(self) -> SAC | DiscreteSAC:
        """What learns from the batches: SAC for this kind of actions."""
        names = [f.name for f in fields(ActorCritic)] + ["temperature"]
        shared: Any = {name: getattr(self, name) for name in names}
        spec = replace(self.spec, reward_dim=None)  # whatever the environment pays
        shared |= {"spec": spec, "reward_weights": None}
        return (SAC if isinstance(self.spec.action, Box) else DiscreteSAC)(**shared)

    def numbers(self, hp) -> Any:
        """The hyper-parameters as the base has them."""
        known = dict(vars(hp))
        share = known.pop("entropy_share")
        if isinstance(self.spec.action, Box):
            return SAC.Hyper(**known)
        return DiscreteSAC.Hyper(**known | {"target_entropy": share})

    # --- life cycle -------------------------------------------------------------------------

    def init(self, key, hp) -> Any:
        return self.base.init(key, self.numbers(hp))

    def act(self, state, hp, memory, obs, key, step, mode: Mode):
        return self.base.act(state, self.numbers(hp), memory, obs, key, step, mode)

    # --- learning ---------------------------------------------------------------------------

    def sample(self, replay, demos, hp, key, step) -> Transition:
        """The agent's half first, then as many demonstrations."""
        k_agent, k_demo = random.split(key)
        given = self.batch_size // 2, hp.gamma, self.n_step
        agent = self.relabel(replay.transitions(k_agent, *given), hp, 0.0)
        demo = self.relabel(demos.transitions(k_demo, *given), hp, 1.0)
        if agent.drawn is not None:  # priorities go back to the agent's rows alone
            demo = replace(demo, drawn=jax.tree.map(lambda x: -jnp.ones_like(x), agent.drawn))
        return jax.tree.map(lambda *x: jnp.concatenate(x), agent, demo)

    def relabel(self, b: Transition, hp, worth: float) -> Transition:
        """Every step is `worth` that much, whatever the environment paid for it.

        r = sum_{i<k} gamma^i worth, and after a termination, where the critics' target stops,
        gamma^k worth / (1 - gamma) more: the absorbing state's value.
        """
        discount = jnp.power(hp.gamma, jnp.arange(self.n_step, dtype=jnp.float32))
        reward = jnp.append(0.0, jnp.cumsum(discount))[b.steps.astype(jnp.int32)]
        if self.absorbing and not self.ignore_done:
            rest = hp.gamma**b.steps / jnp.maximum(1.0 - hp.gamma, 1e-6)
            reward = reward + b.terminated * rest
        return replace(b, reward=worth * reward)

    def update(self, state, hp, b: Transition, key, step) -> tuple[Any, Metrics, Array]:
        k_update, k_monitor = random.split(key)
        base, hp = self.base, self.numbers(hp)
        new, metrics, td_error = base.update(state, hp, b, k_update, step)
        if self.bc_steps:
            metrics["bc_loss"], new = self.clone(state, new, hp, b, step)

        obs, (_, valid) = base.see(state, b.obs), base.bellman(hp, b, td_error)
        for i, q in enumerate(base.q(state.critic.params, obs, b.action), 1):
            metrics[f"q_value_{i}"] = mean(q, valid)  # of what was done
        for who, error, of in zip(("agent", "demo"), halves(td_error), halves(valid)):
            metrics[f"{who}_td_error"] = mean(error, of)
        if self.monitor_gradients:
            metrics |= self.compare(state, new.critic.params, hp, b, k_monitor)
        if self.monitor_policy and isinstance(base, SAC):
            acting = base.sighted(state.actor.params, state.critic.params)
            policy = base.policy(acting, obs)
            metrics["mu"] = mean(policy.mean.mean(-1), b.valid)
            metrics["sigma"] = mean(jnp.exp(policy.log_std).mean(-1), b.valid)
            metrics["entropy"] = -metrics["log_prob"]  # of the squashed actions
        elif not self.monitor_policy:
            metrics.pop("entropy", None)
        return new, metrics, td_error

    def compare(self, state, critic, hp, b: Transition, key: Key) -> Metrics:
        """The actor's loss of each half alone, and the cosine of the two gradients."""
        alpha = alpha_of(self.temperature, state.temperature, hp.alpha)

        def losses(actor) -> Float[Array, "2"]:
            value = self.soft_value(state, actor, critic, alpha, b.obs, key)
            return -jnp.stack([mean(*half) for half in zip(halves(value), halves(b.valid))])

        loss, pull = jax.vjp(losses, state.actor.params)
        agent, demo = (
            jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(pull(one)[0])])
            for one in jnp.eye(2)
        )
        lengths = jnp.linalg.norm(agent) * jnp.linalg.norm(demo)
        return {
            "agent_actor_loss": loss[0],
            "demo_actor_loss": loss[1],
            "cos_similarity": (agent @ demo) / jnp.maximum(lengths, 1e-12),
        }

    def soft_value(self, state, actor, critic, alpha, obs, key) -> Float[Array, "batch"]:
        """What the actor climbs, at observations as the environment gives them."""
        base, seen = self.base, self.base.see(state, obs)
        actor = base.sighted(actor, critic)
        if isinstance(base, SAC):
            return base.soft_value(actor, critic, alpha, seen, key)[0]
        policy = base.policy(state, actor, obs)
        return policy.expect(base.reduced(critic(seen))) + alpha * policy.entropy()

    # --- behaviour cloning ------------------------------------------------------------------

    def clone(self, state, new, hp, b: Transition, step) -> tuple[Array, Any]:
        """The loss, and the state whose actor follows it as long as `bc_steps` says."""
        obs, action, valid = jax.tree.map(lambda x: halves(x)[1], (b.obs, b.action, b.valid))

        def loss(actor):
            return -mean(self.log_prob(state, actor, obs, action), valid), None

        follow = lambda: state.actor.descend(loss, hp.actor_lr)[0]
        actor = jax.lax.cond(step < self.bc_steps, follow, lambda: new.actor)
        return loss(state.actor.params)[0], eqx.tree_at(lambda s: s.actor, new, actor)

    def log_prob(self, state, actor, obs, action) -> Float[Array, "batch"]:
        """log pi(a|s) of actions that were not drawn here."""
        base = self.base
        actor = base.sighted(actor, state.critic.params)
        if isinstance(base, SAC):
            return base.policy(actor, base.see(state, obs)).log_prob(action)
        return jnp.take_along_axis(base.policy(state, actor, obs).log_p, action[:, None], -1)[:, 0]


def halves(x: Array) -> tuple[Array, Array]:
    """The agent's part and the demonstrations' [batch / 2, ...] of a batch."""
    return x[: len(x) // 2], x[len(x) // 2 :]
