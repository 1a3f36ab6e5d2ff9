"""DADS: diverse and predictable skills. Sharma et al. 2020, https://arxiv.org/abs/1907.01657.

SAC observes a skill z, which every environment keeps for an episode. A model of the change that
follows (skill_dynamics.py) rewards changes that z makes predictable and other skills do not.
From older data, with importance weights: Sharma et al. 2020, https://arxiv.org/abs/2004.12974.
Another objective may replace it (metra.py), and the environment's reward be added (smerl.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import nn, random
from jaxtyping import Array, Float

from thespis.algos import soft_actor_critic
from thespis.algos.held_noise import Held
from thespis.algos.metra import METRA
from thespis.algos.presets.dads import PRESETS
from thespis.algos.rewards import REWARD_OPTIONS
from thespis.algos.sac import SAC
from thespis.algos.skill_dynamics import SkillDynamics
from thespis.algos.skill_views import SkillViews
from thespis.algos.smerl import Returns
from thespis.core import Mean, Metrics, Mode, Row, ThespisError, Transition, mean
from thespis.nn import normalization
from thespis.nn.networks import MLP
from thespis.nn.normalization import Running
from thespis.nn.train_state import TrainState
from thespis.selection import function, is_function, name_of
from thespis.tuning.hyper import LogUniform, Uniform, prior, special_prior
from thespis.values import Reference, Word

EDGE = 1e-6  # distance from a bound to which actions are clipped for log-probabilities


class State(soft_actor_critic.State):
    dynamics: TrainState  # the network of the objective: skill dynamics q, or METRA's phi
    change_stats: Running | None  # of the changes that are predicted
    input_stats: Running | None  # of the inputs of the dynamics
    multiplier: TrainState | None  # METRA's log lambda
    returns: Returns | None  # of skills, if the environment's reward counts


class Memory(eqx.Module):
    """The memory of n environments."""

    skill: Float[Array, "n size"]
    held: Held | None  # exploration noise, if it is held for several steps


class Extra(eqx.Module):
    """What is stored with a step."""

    skill: Float[Array, "... size"]
    log_p: Float[Array, "..."] | None  # of the action when it was taken, for importance weights


class SkillObservation(NamedTuple):
    """An observation and the skill that acts on it."""

    obs: Any
    skill: Float[Array, "... size"]


class Batch(NamedTuple):
    """The batch of the policy, and that of the dynamics if it is another one."""

    policy: Transition
    dynamics: Transition | None

    @property
    def drawn(self):
        """Returns the rows of the policy's transitions, whose priorities are updated."""
        return self.policy.drawn


@dataclass(frozen=True)
class DADS(SAC):
    """Learns, without rewards, skills that differ in their effects and can be planned with."""

    objective: Literal["dads", "metra"] = "dads"
    """Objective: skills with predictable effects (dads), or far apart in a learned representation
    (metra)."""
    skills: int = 2
    """Dimension of a skill; for one-hot skills, their number."""
    skill_kind: Literal["uniform", "one-hot"] = "uniform"
    """Type of skills: vectors in the cube [-1, 1]^skills (unit vectors with metra), or one-hot."""
    assignment: Literal["sampled", "equal"] = "sampled"
    """Sample a skill at the start of every episode, or give each environment a fixed one."""
    descriptor: Reference | Callable[[Any], Array] | None = None
    """Descriptor in which skills should differ: coordinates of the observation (0,1), observation
    for all of them, a function MODULE:NAME, or a descriptor of the environment by name; by default
    its first."""
    policy_sees: str | None = None
    """Coordinates of the observation that policy and critics see; by default all but those of the
    descriptor, or all of them with with_reward."""
    dynamics_sees: Word | None = None
    """Input of the skill dynamics, or of metra's representation: descriptor, observation, none, or
    a part such as descriptor[2:] or observation[0,1]; by default the descriptor, or none if the
    policy does not see it (dads only)."""
    predicts: str = "descriptor"
    """Quantity whose change the skill dynamics predict: descriptor, observation, or a part of
    them."""
    alternatives: int = 100
    """Number of other skills sampled to estimate the marginal probability of a change; one-hot
    skills are enumerated."""
    components: int = 4
    """Number of Gaussians in the mixture of the skill dynamics."""
    dynamics_hidden: tuple[int, ...] | None = None
    """Widths of the hidden layers of the skill dynamics; by default those of the actor."""
    dynamics_std: Literal["fixed", "learned"] = "fixed"
    """Standard deviation of predictions: fixed at dynamics_scale, or learned with that minimum."""
    dynamics_period: int = 1
    """Number of updates between updates of the skill dynamics."""
    dynamics_data: Literal["recent", "weighted", "replay"] = "recent"
    """Training data of the skill dynamics: recent steps, or the whole replay with (weighted) or
    without (replay) importance weights."""
    recent_steps: int = 10_000
    """Number of environment steps that count as recent."""
    normalize_target: bool = True
    """Predict changes normalised by running statistics."""
    normalize_input: bool = True
    """Normalise the input of the skill dynamics by running statistics."""
    with_reward: bool = False
    """Maximise the environment's reward, with the intrinsic reward only for skills whose return is
    near the best (as in SMERL)."""
    best_return: float | None = None
    """Best return for with_reward, such as that of a run of sac; by default the best recent return
    of any skill."""

    class Hyper(SAC.Hyper):
        dynamics_lr: float = prior(
            1e-3, LogUniform(3e-5, 3e-3), "learning rate of the skill dynamics", low=0
        )
        dynamics_scale: float = prior(
            1.0, LogUniform(0.1, 1), "standard deviation of predictions, or its minimum", low=1e-3
        )
        importance_clip: float = special_prior(
            10.0, LogUniform(1, 100), "largest factor by which importance weights differ from 1", 1
        )
        multiplier: float = special_prior(
            30.0,
            LogUniform(1, 100),
            "initial Lagrange multiplier of metra's constraint",
            low=1e-6,
            initial=True,
        )
        slack: float = special_prior(
            1e-3, LogUniform(1e-4, 1e-1), "slack of metra's constraint", low=0
        )
        diversity_scale: float = special_prior(
            1.0, LogUniform(0.1, 10), "weight of the intrinsic reward, with with_reward", low=0
        )
        margin: float = special_prior(
            0.1, Uniform(0, 0.5), "fraction of the best return within which a skill is near it", 0
        )

    presets: ClassVar[dict[str, dict]] = PRESETS
    unsupported: ClassVar[tuple[str, ...]] = REWARD_OPTIONS

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.descriptor, str) and is_function(self.descriptor):
            # The function instead of its name: algorithms whose functions differ are not equal.
            object.__setattr__(self, "descriptor", function("descriptor", self.descriptor))
        if self.n_step != 1:
            raise ThespisError(f"n_step = {self.n_step}: the reward of DADS is of one step; give 1")
        if self.images or self.privileged:
            raise ThespisError("DADS reads vectors: it takes no images and no privileged parts")
        if self.spec.reward_dim is not None:
            raise ThespisError("DADS takes rewards of one number, of which it makes no use")
        if self.assignment == "equal" and self.skill_kind != "one-hot":
            raise ThespisError(
                "assignment = equal needs skills that can be counted: give skill_kind = one-hot"
            )
        if self.best_return is not None and not self.with_reward:
            raise ThespisError(f"best_return = {self.best_return} needs with_reward: add it")
        _ = self.views.selected, self.intrinsic_objective  # refuse what does not exist

    @property
    def intrinsic_objective(self) -> SkillDynamics | METRA:
        """Returns the objective, which makes the intrinsic reward."""
        return METRA(self) if self.objective == "metra" else SkillDynamics(self)

    # --- inputs -----------------------------------------------------------------------------

    @cached_property
    def views(self) -> SkillViews:
        """Returns what policy and skill dynamics see and predict."""
        descriptor: Any = self.descriptor
        choices = self.policy_sees, self.dynamics_sees, self.predicts
        defaults = not self.with_reward, self.objective != "metra"
        return SkillViews(self.spec, descriptor, *choices, *defaults)

    @property
    def inputs(self) -> int:
        """Returns the size of the vectors that `see` returns."""
        return self.views.size("policy_sees") + self.skills

    def see(self, state, obs: SkillObservation) -> Array:
        """Returns the input of policy and critics: part of the observation, and the skill."""
        raw = obs.obs if state.stats is None else normalization.normalise(state.stats, obs.obs)
        return jnp.concatenate([self.views.look("policy_sees", raw), obs.skill], -1)

    def describe(self, obs) -> Float[Array, "... size"]:
        """Returns the descriptor of observations."""
        return self.views.describe(obs)

    def scaled(self, state: State, seen: Float[Array, "... n"]) -> Float[Array, "... n"]:
        """Normalises the input of the dynamics, if they have statistics."""
        return seen if state.input_stats is None else state.input_stats(seen, floor=1e-12)

    # --- life cycle -------------------------------------------------------------------------

    def init(self, key, hp) -> State:
        """Makes the networks of SAC and of the objective, and their statistics."""
        k_policy, k_dynamics = random.split(key)
        objective, views = self.intrinsic_objective, self.views
        hidden = self.hidden if self.dynamics_hidden is None else self.dynamics_hidden
        inputs, outputs = objective.sizes
        dynamics = MLP(k_dynamics, (inputs, *hidden, outputs), self.weight_init)
        seen = views.size("dynamics_sees")
        running = lambda wanted, size: Running.create((size,), prior=0) if wanted else None
        return State(
            **vars(super().init(k_policy, hp)),
            dynamics=TrainState.create(dynamics),
            change_stats=running(objective.normalizes_target, views.size("predicts")),
            input_stats=running(self.normalize_input and seen, seen),
            multiplier=objective.multiplier(hp),
            returns=Returns.none(self.skills) if self.with_reward else None,
        )

    def memory(self, key, n: int) -> Any:
        """Returns a skill for every environment, which it keeps for the episode."""
        k_skill, k_held = random.split(key)
        held = super().memory(k_held, n)
        if self.assignment == "equal":
            return Memory(nn.one_hot(jnp.arange(n) % self.skills, self.skills), held)
        return Memory(self.draw_skills(k_skill, n), held)

    def draw_skills(self, key, n: int) -> Float[Array, "n size"]:
        """Draws skills from their prior."""
        if self.skill_kind == "one-hot":
            return nn.one_hot(random.randint(key, (n,), 0, self.skills), self.skills)
        return self.intrinsic_objective.draw(key, (n, self.skills))

    def nearest(self, skill: Float[Array, "... size"]) -> Float[Array, "... size"]:
        """Returns the nearest skill."""
        if self.skill_kind == "one-hot":
            return nn.one_hot(skill.argmax(-1), self.skills)
        return self.intrinsic_objective.nearest(skill)

    def follow(self, memory: Any, skill: Float[Array, "n size"]) -> Memory:
        """Returns a memory that follows these skills."""
        return dataclasses.replace(memory, skill=skill)

    def act(self, state: Any, hp, memory: Any, obs, key, step, mode: Mode) -> Any:
        """Acts as SAC does, on the observation and the skill."""
        joined = SkillObservation(obs, memory.skill)
        action, held, stored = super().act(state, hp, memory.held, joined, key, step, mode)
        log_p = None
        if self.dynamics_data == "weighted":
            log_p = self.policy(state.actor.params, self.see(state, joined)).log_prob(action, EDGE)
            if mode == "random":
                log_p = jnp.full_like(log_p, -self.box.size * math.log(2))
        extra = Extra(memory.skill, log_p)
        return action, Memory(memory.skill, held), extra if stored is None else (extra, stored)

    # --- learning ---------------------------------------------------------------------------

    def sample(self, replay, demos, hp, key, step) -> Batch:
        """Draws a batch for the policy, and perhaps one of recent rows for the dynamics."""
        k_policy, k_dynamics = random.split(key)
        batch = super().sample(replay, demos, hp, k_policy, step)
        if self.dynamics_data != "recent":
            return Batch(batch, None)
        recent = max(1, self.recent_steps // replay.ring.rows.reward.shape[2])
        return Batch(batch, replay.transitions(k_dynamics, self.batch_size, hp.gamma, 1, recent))

    def remember(self, state: Any, rows: Row, returns: Float[Array, "n"]) -> State:
        """Stores the returns of episodes that ended in these rows, if rewards count."""
        if state.returns is None:
            return state
        new = state.returns.add(self.stored(rows).skill, returns, rows.final)
        return dataclasses.replace(state, returns=new)

    def update(self, state: Any, hp, b: Any, key, step) -> tuple[State, Metrics, Array]:
        """Takes one step of the objective, and one of SAC on its intrinsic reward."""
        k_skills, k_sac = random.split(key)
        policy, old = b.policy, state.dynamics.params

        # The objective: skill dynamics, or a representation.
        learn = lambda state: self.learn_dynamics(state, self.scheduled(hp, step), b)
        if self.dynamics_period == 1:
            state, learned = learn(state)
        else:
            zeros = jax.tree.map(lambda x: jnp.zeros(x.shape), jax.eval_shape(learn, state)[1])
            due = step % self.dynamics_period == 0
            state, learned = jax.lax.cond(due, learn, lambda state: (state, zeros), state)

        net = state.dynamics.params if self.order == "sequential" else old
        skill = self.stored(policy).skill
        steps = policy.obs, policy.next_obs, skill, k_skills
        intrinsic, target = self.intrinsic(state, net, hp, *steps)
        intrinsic = reward = jnp.where(policy.terminated > 0, 0.0, intrinsic)
        if state.returns is not None:
            # SMERL: the task's reward, and the intrinsic one for skills with R(z) near R*.
            near = state.returns.near_best(skill, hp.margin, self.best_return)
            reward = policy.reward + hp.diversity_scale * near * intrinsic
            learned |= {"near_best": mean(near, policy.valid)}

        batch = dataclasses.replace(
            policy,
            obs=SkillObservation(policy.obs, skill),
            next_obs=SkillObservation(policy.next_obs, skill),
            reward=reward,
        )
        state, metrics, td_error = super().update(state, hp, batch, k_sac, step)
        alive = self.alive(policy)
        metrics |= learned | self.intrinsic_objective.target_metrics(target, alive)
        metrics |= {
            "intrinsic_reward": mean(intrinsic, policy.valid),
            "change": mean(jnp.abs(self.change(policy)).max(-1), alive),
        }
        return state, metrics, td_error

    def learn_dynamics(self, state: Any, hp, b: Batch) -> tuple[State, dict[str, Mean]]:
        """Updates the statistics, then takes one step of the objective."""
        batch = b.policy if b.dynamics is None else b.dynamics
        alive, extra = self.alive(batch), self.stored(batch)
        seen = self.views.look("dynamics_sees", batch.obs)
        update = lambda stats, x: None if stats is None else stats.update(x, alive)
        change_stats = update(state.change_stats, self.change(batch))
        input_stats = update(state.input_stats, seen)
        state = dataclasses.replace(state, change_stats=change_stats, input_stats=input_stats)
        weight = jnp.ones_like(alive)
        if extra.log_p is not None:
            inputs = self.see(state, SkillObservation(batch.obs, extra.skill))
            log_p = self.policy(state.actor.params, inputs).log_prob(batch.action, EDGE)
            bound = jnp.log(hp.importance_clip)
            weight = jnp.exp(jnp.clip(log_p - extra.log_p, -bound, bound))
        learn = self.intrinsic_objective.learn
        state, metrics = learn(state, hp, batch, extra.skill, weight, alive)
        return state, {name: Mean(x, jnp.ones(())) for name, x in metrics.items()}

    def intrinsic(self, state: State, net: MLP, hp, obs, next_obs, skill, key) -> tuple:
        """Returns the intrinsic reward [batch], and the target of the objective's network."""
        return self.intrinsic_objective.reward(state, net, hp, obs, next_obs, skill, key)

    def change(self, batch: Transition) -> Float[Array, "batch n"]:
        """Returns the changes to predict, before they are normalised."""
        look = self.views.look
        return look("predicts", batch.next_obs) - look("predicts", batch.obs)

    def stored(self, batch: Transition | Row) -> Extra:
        """Returns what was stored with steps."""
        return batch.extra if isinstance(batch.extra, Extra) else batch.extra[0]

    def alive(self, batch: Transition) -> Array:
        """Returns 1 for transitions whose change counts, 0 if they are invalid or terminate."""
        return batch.valid * (1.0 - batch.terminated)

    # --- evaluations ------------------------------------------------------------------------

    def diversity_reward(self, state: State, hp, row: Row, after: Row) -> Float[Array, "n"]:
        """Returns the intrinsic reward of the steps from `row` to `after`, leaves [n, ...]."""
        reward = self.diversity_between(state, hp, row.obs, after.obs, self.stored(row).skill)
        return jnp.where(after.terminated, 0.0, reward)

    def diversity_between(self, state: State, hp, obs, next_obs, skill) -> Float[Array, "n"]:
        """Returns the intrinsic reward between observations."""
        net, key = state.dynamics.params, random.key(0)  # always compares the same alternatives
        return self.intrinsic(state, net, hp, obs, next_obs, skill, key)[0]

    def dependence_terms(self, state: State, hp, row: Row, after: Row) -> Float[Array, "n terms"]:
        """Returns terms of steps, whose sums over episodes `dependence` needs."""
        steps = row.obs, after.obs, self.stored(row).skill
        terms = self.intrinsic_objective.dependence_terms(state, hp, *steps)
        return jnp.where(after.terminated[:, None], 0.0, terms)

    def dependence(self, terms: Float[Array, "n terms"]) -> Float[Array, "n"]:
        """Returns how much each episode depended on its skill: nats, or steps of METRA."""
        return self.intrinsic_objective.dependence(terms)

    @classmethod
    def judged_by(cls, options: dict[str, Any]) -> str:
        """Returns the metric that chooses the best policy: the reward if it counts."""
        return "eval/mean_reward" if options.get("with_reward") else "eval/skill_dependence"

    def complaint(self, metrics: dict[str, Any]) -> str | None:
        """Returns why learning cannot work, judged by a row of metrics; None if it can."""
        if metrics.get("train/change") != 0:
            return None
        return (
            f"descriptor = {name_of(self.views.described_by)} never changes, so there is nothing "
            "to tell skills apart by: choose coordinates that the actions move, such as "
            "--descriptor 0,1"
        )
