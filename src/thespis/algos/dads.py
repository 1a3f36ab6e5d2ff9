"""DADS: skills that can be told apart and foreseen. Sharma et al. 2020, arxiv.org/abs/1907.01657.

SAC is told of a skill z, which every environment keeps for an episode. A model of the change that
follows, the skill dynamics q(s' - s | s, z), rewards what z makes foreseeable and others do not.
Learning it from older data with importance weights: Sharma et al. 2020, arxiv.org/abs/2004.12974.
Another objective may take its place (metra.py), and the environment's reward be added (smerl.py).
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
import numpy as np
from jax import nn, random
from jaxtyping import Array, Float

from thespis.algos import metra, sac
from thespis.algos.held_noise import Held
from thespis.algos.presets.dads import PRESETS
from thespis.algos.sac import SAC
from thespis.algos.smerl import Returns
from thespis.algos.temperature import init_temperature
from thespis.core import Mean, Metrics, Mode, Row, ThespisError, Transition, mean
from thespis.errors import one_line
from thespis.nn import normalization
from thespis.nn.distributions import Mixture
from thespis.nn.encoders import features
from thespis.nn.networks import MLP
from thespis.nn.normalization import Running
from thespis.nn.train_state import TrainState
from thespis.selection import DESCRIPTOR, choice, function, is_function, name_of
from thespis.tuning.hyper import LogUniform, Uniform, prior
from thespis.values import Reference
from thespis.xla import fast_random

SCALES = np.geomspace(1e-4, 1e4, 33)  # of predictions, at which evaluations measure information
EDGE = 1e-6  # actions nearer than this to a bound count as if there


class State(sac.State):
    dynamics: TrainState  # q: logits, means and scales of a mixture; of METRA phi
    change_stats: Running | None  # of what is predicted
    input_stats: Running | None  # of what the dynamics see
    multiplier: TrainState | None  # METRA's log lambda
    returns: Returns | None  # of skills, if the environment's reward counts


class Memory(eqx.Module):
    """What each of n environments carries."""

    skill: Float[Array, "n size"]
    held: Held | None  # exploration noise, where it is held


class Extra(eqx.Module):
    """What is stored with a step."""

    skill: Float[Array, "... size"]
    log_p: Float[Array, "..."] | None  # of the action when it was done, for importance weights


class SkillObservation(NamedTuple):
    """An observation, and the skill that acts on it."""

    obs: Any
    skill: Float[Array, "... size"]


class Batch(NamedTuple):
    """What the policy learns from, and the dynamics: the same where they have none of their own."""

    policy: Transition
    dynamics: Transition | None

    @property
    def drawn(self):
        """Where the policy's lie, to give their priorities back."""
        return self.policy.drawn


@dataclass(frozen=True)
class DADS(SAC):
    """SAC without rewards: skills that differ in what they do, and can be planned with."""

    objective: Literal["dads", "metra"] = "dads"
    """Skills that can be foreseen, or that lead far apart in a representation of states."""
    skills: int = 2
    """Numbers of a skill; the number of skills if they are one-hot."""
    skill_kind: Literal["uniform", "one-hot"] = "uniform"
    """Skills are points of the cube [-1, 1]^skills (of metra unit vectors), or one of so many."""
    allotment: Literal["sampled", "equal"] = "sampled"
    """Environments draw a skill at every episode's start, or have one of their own for good."""
    descriptor: Reference | Callable[[Any], Array] | None = None
    """What skills should differ in: coordinates of the observation (0,1), observation for all of
    them, a function MODULE:NAME, or a name that the environment offers; by default its first."""
    policy_sees: str | None = None
    """Coordinates of the observation that policy and critics see; by default all but those of the
    descriptor, and all if there is a task (with_reward)."""
    dynamics_sees: str | None = None
    """What the skill dynamics see: descriptor, observation, none, or some of them such as
    descriptor[2:] or observation[0,1]; by default the descriptor, none if the policy sees none.
    Of metra what the representation sees, by default the descriptor."""
    predicts: str = "descriptor"
    """Whose change the skill dynamics predict: descriptor, observation, or some of them."""
    alternatives: int = 100
    """Other skills that estimate how likely a change is at large; one-hot ones are enumerated."""
    components: int = 4
    """Gaussians in the mixture of the skill dynamics."""
    dynamics_hidden: tuple[int, ...] | None = None
    """Hidden layers of the skill dynamics; by default those of the actor."""
    dynamics_std: Literal["fixed", "learned"] = "fixed"
    """Standard deviations of predictions: all dynamics_scale, or learned and never less."""
    dynamics_period: int = 1
    """Updates between those of the skill dynamics."""
    dynamics_data: Literal["recent", "weighted", "replay"] = "recent"
    """The skill dynamics learn from recent rows, or from all, be it with importance weights."""
    recent_steps: int = 10_000
    """Environment steps that count as recent."""
    normalize_target: bool = True
    """Predict changes normalised by running statistics."""
    normalize_input: bool = True
    """The dynamics see numbers normalised by running statistics."""
    with_reward: bool = False
    """Learn from the environment's reward, and differ only where the return is near the best."""
    best_return: float | None = None
    """What with_reward takes for the best return, such as that of a run of sac; by default the
    best that a skill has reached of late."""

    class Hyper(SAC.Hyper):
        dynamics_lr: float = prior(
            1e-3, LogUniform(3e-5, 3e-3), "skill dynamics' learning rate", low=0
        )
        dynamics_scale: float = prior(
            1.0, LogUniform(0.1, 1), "(least) standard deviation of predictions", low=1e-3
        )
        importance_clip: float = prior(
            10.0,
            LogUniform(1, 100),
            "importance weights stay within this factor of 1",
            low=1,
            special=True,
        )
        multiplier: float = prior(
            30.0,
            LogUniform(1, 100),
            "initial weight of metra's constraint",
            low=1e-6,
            initial=True,
            special=True,
        )
        slack: float = prior(
            1e-3,
            LogUniform(1e-4, 1e-1),
            "how far metra's constraint is more than kept",
            low=0,
            special=True,
        )
        diversity_scale: float = prior(
            1.0,
            LogUniform(0.1, 10),
            "factor of the own reward beside the environment's",
            low=0,
            special=True,
        )
        margin: float = prior(
            0.1,
            Uniform(0, 0.5),
            "share of the best return that near the best may lack",
            low=0,
            special=True,
        )

    presets: ClassVar[dict[str, dict]] = PRESETS

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.descriptor, str) and is_function(self.descriptor):
            # The function itself: algorithms whose functions differ are not equal.
            found = function("descriptor", self.descriptor)
            object.__setattr__(self, "descriptor", found)
        if self.n_step != 1:
            raise ThespisError(f"n_step = {self.n_step}: the reward of DADS is of one step; give 1")
        if self.images or self.privileged:
            raise ThespisError("DADS reads vectors: it takes no images and no privileged parts")
        if self.spec.reward_dim is not None:
            raise ThespisError("DADS takes rewards of one number, of which it makes no use")
        if self.allotment == "equal" and self.skill_kind != "one-hot":
            raise ThespisError(
                "allotment = equal needs skills that can be counted: give skill_kind = one-hot"
            )
        if self.best_return is not None and not self.with_reward:
            raise ThespisError(f"best_return = {self.best_return} needs with_reward: add it")
        _ = self.views  # refuses what is not there
        if self.metra and not self.size("dynamics_sees"):
            raise ThespisError("dynamics_sees = none: name what metra's representation should see")

    @property
    def metra(self) -> bool:
        return self.objective == "metra"

    # --- what is seen -----------------------------------------------------------------------

    @cached_property
    def described_by(self) -> str | Callable[[Any], Array]:
        """Coordinates, a function, or the descriptor that is part of the observation."""
        if self.descriptor is not None:
            return self.descriptor
        if isinstance(self.spec.obs, dict) and DESCRIPTOR in self.spec.obs:
            return DESCRIPTOR
        if self.spec.descriptor is None:
            raise ThespisError(
                "the environment offers no descriptor: name the coordinates of the observation in "
                "which skills should differ, such as --descriptor 0,1, or a function MODULE:NAME"
            )
        return self.spec.descriptor

    def observation(self, obs) -> Array:
        """All numbers of an observation [..., n] but a descriptor beside them."""
        spec = self.spec.obs
        if isinstance(spec, dict) and DESCRIPTOR in spec:
            spec, obs = ({k: v for k, v in x.items() if k != DESCRIPTOR} for x in (spec, obs))
        return features(spec, obs)

    def describe(self, obs) -> Float[Array, "... size"]:
        """Where a state is."""
        by = self.described_by
        if by == DESCRIPTOR:
            return features(self.spec.obs[DESCRIPTOR], obs[DESCRIPTOR])
        if callable(by):
            return by(obs)
        numbers = self.observation(obs)
        return pick(numbers, choice("descriptor", by, {"observation": numbers.shape[-1]})[1])

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Numbers in an observation and in a descriptor."""
        obs = jax.tree.map(lambda s: jax.ShapeDtypeStruct((1, *s.shape), s.dtype), self.spec.obs)
        try:
            found = jax.eval_shape(self.describe, obs)
        except (AttributeError, TypeError, ValueError) as error:  # in somebody's own function
            text = f"{type(error).__name__}: {one_line(error)}"
            raise ThespisError(f"descriptor = {self.described_by} raised {text}") from error
        if found.ndim != 2 or found.dtype != jnp.float32:
            raise ThespisError(
                f"descriptor = {name_of(self.described_by)}: it makes {found.dtype}"
                f"{list(found.shape)} of one observation; give a function to float32[1, size]"
            )
        n = jax.eval_shape(self.observation, obs).shape[-1]
        return {"observation": n, DESCRIPTOR: found.shape[-1]}

    @property
    def describes_all(self) -> bool:
        """The descriptor is the observation."""
        by, n = self.described_by, self.sizes["observation"]
        if by == DESCRIPTOR or callable(by):
            return False
        return choice("descriptor", by, self.sizes)[1] == tuple(range(n))

    @cached_property
    def views(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Base and coordinates of what is seen and predicted."""
        sizes = self.sizes
        policy, dynamics, by = self.policy_sees, self.dynamics_sees, self.described_by
        apart = by == DESCRIPTOR  # it is no part of the observation, or some coordinates of it
        part = "" if apart or by == "observation" or not isinstance(by, str) else by
        hidden = choice("descriptor", part, sizes)[1] if part else ()
        rest = tuple(i for i in range(sizes["observation"]) if i not in hidden)
        blind = policy is None and (apart or (part != "" and not self.with_reward))
        views = {
            "predicts": choice("predicts", self.predicts, sizes),
            "policy_sees": choice("policy_sees", policy or "observation", sizes),
            "dynamics_sees": choice(
                "dynamics_sees",
                dynamics or ("none" if blind and not self.metra else DESCRIPTOR),
                sizes,
            ),
        }
        if blind:
            views["policy_sees"] = ("observation", rest)
        if not views["predicts"][1]:
            raise ThespisError("predicts = none: name what the dynamics should predict")
        return views

    def look(self, view: str, obs) -> Float[Array, "... n"]:
        """What one of the `views` shows."""
        base, coordinates = self.views[view]
        return pick(
            self.describe(obs) if base == DESCRIPTOR else self.observation(obs), coordinates
        )

    def size(self, view: str) -> int:
        return len(self.views[view][1])

    @property
    def inputs(self) -> int:
        return self.size("policy_sees") + self.skills

    def see(self, state, obs: SkillObservation) -> Array:
        """What policy and critics read: part of the observation, and the skill."""
        raw = obs.obs if state.stats is None else normalization.normalise(state.stats, obs.obs)
        return jnp.concatenate([self.look("policy_sees", raw), obs.skill], -1)

    # --- life cycle -------------------------------------------------------------------------

    def init(self, key, hp) -> State:
        k_policy, k_dynamics = random.split(key)
        hidden = self.hidden if self.dynamics_hidden is None else self.dynamics_hidden
        n, seen = self.size("predicts"), self.size("dynamics_sees")
        inputs, outputs = seen, self.skills
        if not self.metra:
            inputs = seen + self.skills
            outputs = self.components * (1 + n * (2 if self.dynamics_std == "learned" else 1))
        dynamics = MLP(k_dynamics, (inputs, *hidden, outputs), self.weight_init)
        running = lambda wanted, size: Running.of((size,), prior=0) if wanted else None
        return State(
            **vars(super().init(k_policy, hp)),
            dynamics=TrainState.create(dynamics),
            change_stats=running(self.normalize_target and not self.metra, n),
            input_stats=running(self.normalize_input and seen, seen),
            multiplier=init_temperature("log", hp.multiplier) if self.metra else None,
            returns=Returns.none(self.skills) if self.with_reward else None,
        )

    def memory(self, key, n: int) -> Any:
        k_skill, k_held = random.split(key)
        held = super().memory(k_held, n)
        if self.allotment == "equal":
            return Memory(nn.one_hot(jnp.arange(n) % self.skills, self.skills), held)
        return Memory(self.draw_skills(k_skill, n), held)

    def draw_skills(self, key, n: int) -> Float[Array, "n size"]:
        """Skills from their prior."""
        if self.skill_kind == "one-hot":
            return nn.one_hot(random.randint(key, (n,), 0, self.skills), self.skills)
        if self.metra:
            return self.nearest(fast_random.normal(key, (n, self.skills)))
        return fast_random.uniform(key, (n, self.skills), -1, 1)

    def nearest(self, skill: Float[Array, "... size"]) -> Float[Array, "... size"]:
        """The skill that numbers [..., size] are nearest to."""
        if self.skill_kind == "one-hot":
            return nn.one_hot(skill.argmax(-1), self.skills)
        if self.metra:
            length = jnp.linalg.norm(skill, axis=-1, keepdims=True)
            return skill / jnp.maximum(length, 1e-6)
        return jnp.clip(skill, -1, 1)

    def act(self, state: Any, hp, memory: Any, obs, key, step, mode: Mode) -> Any:
        told = SkillObservation(obs, memory.skill)
        action, held, stored = super().act(state, hp, memory.held, told, key, step, mode)
        log_p = None
        if self.dynamics_data == "weighted":
            log_p = self.policy(state.actor.params, self.see(state, told)).log_prob(action, EDGE)
            if mode == "random":
                log_p = jnp.full_like(log_p, -self.box.size * math.log(2))
        extra = Extra(memory.skill, log_p)
        return action, Memory(memory.skill, held), extra if stored is None else (extra, stored)

    # --- learning ---------------------------------------------------------------------------

    def sample(self, replay, demos, hp, key, step) -> Batch:
        k_policy, k_dynamics = random.split(key)
        batch = super().sample(replay, demos, hp, k_policy, step)
        if self.dynamics_data != "recent":
            return Batch(batch, None)
        recent = max(1, self.recent_steps // replay.ring.rows.reward.shape[2])
        return Batch(batch, replay.transitions(k_dynamics, self.batch_size, hp.gamma, 1, recent))

    def remember(self, state: Any, rows: Row, returns: Float[Array, "n"]) -> State:
        """Keep the returns of episodes that ended in these rows, if they matter."""
        if state.returns is None:
            return state
        new = state.returns.add(self.stored(rows).skill, returns, rows.final)
        return dataclasses.replace(state, returns=new)

    def update(self, state: Any, hp, b: Any, key, step) -> tuple[State, Metrics, Array]:
        k_skills, k_sac = random.split(key)
        policy, old = b.policy, state.dynamics.params

        # What rewards are made of: skill dynamics, or a representation.
        if self.dynamics_period == 1:
            state, told = self.learn_dynamics(state, hp, b)
        else:
            learn = lambda state: self.learn_dynamics(state, hp, b)
            empty = jax.tree.map(lambda x: jnp.zeros(x.shape), jax.eval_shape(learn, state)[1])
            due = step % self.dynamics_period == 0
            state, told = jax.lax.cond(due, learn, lambda state: (state, empty), state)

        net = state.dynamics.params if self.order == "sequential" else old
        skill = self.stored(policy).skill
        given = policy.obs, policy.next_obs, skill, k_skills
        own, target = self.intrinsic(state, net, hp, *given)
        own = reward = jnp.where(policy.terminated > 0, 0.0, own)
        if state.returns is not None:
            # The task's reward, and the own where the skill does well: r + c 1[R(z) near R*] own.
            near = state.returns.near_best(skill, hp.margin, self.best_return)
            reward = policy.reward + hp.diversity_scale * near * own
            told |= {"near_best": mean(near, policy.valid)}

        informed = dataclasses.replace(
            policy,
            obs=SkillObservation(policy.obs, skill),
            next_obs=SkillObservation(policy.next_obs, skill),
            reward=reward,
        )
        state, metrics, td_error = super().update(state, hp, informed, k_sac, step)
        alive = self.alive(policy)
        if not self.metra:
            centre = mean(target.T, alive[None])
            spread = jnp.sqrt(mean((target - centre[None]).T ** 2, alive[None]))
            told |= {"target_mean": centre.mean(), "target_std": spread.mean()}
        change = self.look("predicts", policy.next_obs) - self.look("predicts", policy.obs)
        metrics |= told | {
            "intrinsic_reward": mean(own, policy.valid),
            "change": mean(jnp.abs(change).max(-1), alive),
        }
        return state, metrics, td_error

    def learn_dynamics(self, state: Any, hp, b: Batch) -> tuple[State, dict[str, Mean]]:
        """One step of the skill dynamics or the representation, after that of the statistics."""
        batch = b.policy if b.dynamics is None else b.dynamics
        alive, extra = self.alive(batch), self.stored(batch)
        change = self.look("predicts", batch.next_obs) - self.look("predicts", batch.obs)
        seen = self.look("dynamics_sees", batch.obs)
        stats = {"change_stats": change, "input_stats": seen}
        known = {name: x for name, x in stats.items() if getattr(state, name) is not None}
        new = {name: getattr(state, name).update(x, alive) for name, x in known.items()}
        state = dataclasses.replace(state, **new)
        weight = jnp.ones_like(alive)
        if extra.log_p is not None:
            view = self.see(state, SkillObservation(batch.obs, extra.skill))
            log_p = self.policy(state.actor.params, view).log_prob(batch.action, EDGE)
            reach = jnp.log(hp.importance_clip)
            weight = jnp.exp(jnp.clip(log_p - extra.log_p, -reach, reach))

        if self.metra:
            steps = self.steps(state, batch.obs, batch.next_obs, extra.skill)
            given = state.dynamics, state.multiplier, hp, steps, weight, alive
            dynamics, multiplier, told = metra.learn(*given)
            state = dataclasses.replace(state, dynamics=dynamics, multiplier=multiplier)
        else:
            seen, target = self.normalised(state, batch.obs, batch.next_obs)

            # The most likely model of the changes that skills make (eq. 4).
            def dynamics_loss(net):
                log_q = self.predict(net, hp, seen, extra.skill).log_prob(target)
                return -mean(weight * log_q, alive), None

            dynamics, (loss, _) = state.dynamics.apply_gradient(dynamics_loss, hp.dynamics_lr)
            state, told = dataclasses.replace(state, dynamics=dynamics), {"dynamics_loss": loss}
        return state, {name: Mean(x, jnp.ones(())) for name, x in told.items()}

    def intrinsic(self, state: State, net: MLP, hp, obs, next_obs, skill, key) -> tuple:
        """log q(s'|s, z) - log mean_i q(s'|s, z_i), with z among the z_i -> [batch], target.

        At most log of the number of skills compared, and 0 if the skill does not matter (eq. 6).
        Of METRA (phi(s') - phi(s)) . z, with no target.
        """
        if self.metra:
            return metra.gain(net, *self.steps(state, obs, next_obs, skill))[0], None
        seen, target = self.normalised(state, obs, next_obs)
        # Where nothing is seen, predictions are the same in every state.
        places = seen[:1] if seen.shape[-1] == 0 else seen
        one_hot = self.skill_kind == "one-hot"
        others = jnp.eye(self.skills) if one_hot else self.draw_skills(key, self.alternatives)
        pairs = (places.shape[0], others.shape[0])
        where = jnp.broadcast_to(places[:, None], (*pairs, places.shape[-1]))
        what = jnp.broadcast_to(others[None], (*pairs, self.skills))
        log_others = self.predict(net, hp, where, what).log_prob(target[:, None])
        if one_hot:
            log_own = (log_others * skill).sum(-1)
        else:
            log_own = self.predict(net, hp, seen, skill).log_prob(target)
        ratios = jnp.exp(jnp.clip(log_others - log_own[:, None], -50, 50)).sum(-1)
        also = 0 if one_hot else 1  # the own skill is one of those compared
        return math.log(others.shape[0] + also) - jnp.log(ratios + also), target

    # --- the pieces -------------------------------------------------------------------------

    def stored(self, batch: Transition | Row) -> Extra:
        return batch.extra if isinstance(batch.extra, Extra) else batch.extra[0]

    def alive(self, batch: Transition) -> Array:
        """Transitions whose change counts: those that end an episode for good do not."""
        return batch.valid * (1.0 - batch.terminated)

    def normalised(self, state: State, obs, next_obs) -> tuple[Array, Array]:
        """What the dynamics see, and the change they should predict."""
        seen = self.scaled(state, self.look("dynamics_sees", obs))
        change = self.look("predicts", next_obs) - self.look("predicts", obs)
        if state.change_stats is not None:
            change = state.change_stats(change, floor=1e-12)
        return seen, change

    def scaled(self, state: State, seen: Float[Array, "... n"]) -> Float[Array, "... n"]:
        """What the dynamics see, as they see it."""
        return seen if state.input_stats is None else state.input_stats(seen, floor=1e-12)

    def steps(self, state: State, obs, next_obs, skill) -> tuple[Array, Array, Array]:
        """What METRA's representation sees before and after, and where it should lead."""
        see = lambda obs: self.scaled(state, self.look("dynamics_sees", obs))
        towards = metra.centred(skill) if self.skill_kind == "one-hot" else skill
        return see(obs), see(next_obs), towards

    def predict(self, net: MLP, hp, seen: Array, skill: Array) -> Mixture:
        """q(. | s, z), of normalised changes."""
        raw = net(jnp.concatenate([seen, skill], -1))
        learned = self.dynamics_std == "learned"
        n = self.size("predicts")
        return Mixture.of(raw, self.components, n, hp.dynamics_scale, learned)

    # --- what evaluations tell --------------------------------------------------------------

    def diversity_reward(self, state: State, hp, row: Row, after: Row) -> Float[Array, "n"]:
        """The intrinsic reward of steps from rows to those after them, leaves [n, ...]."""
        reward = self.diversity_between(state, hp, row.obs, after.obs, self.stored(row).skill)
        return jnp.where(after.terminated, 0.0, reward)

    def diversity_between(self, state: State, hp, obs, next_obs, skill) -> Float[Array, "n"]:
        """The same between observations."""
        net, key = state.dynamics.params, random.key(0)  # the same alternatives for all
        return self.intrinsic(state, net, hp, obs, next_obs, skill, key)[0]

    def dependence_terms(self, state: State, hp, row: Row, after: Row) -> Float[Array, "n terms"]:
        """What steps tell of the skill at several scales; of METRA, how far they went along it.

        Any scale gives a lower bound of the information, so the greatest of them is one as well.
        """
        skill = self.stored(row).skill
        if self.metra:
            steps = self.steps(state, row.obs, after.obs, skill)
            terms = jnp.stack(
                [*metra.gain(state.dynamics.params, *steps), jnp.ones(skill.shape[0])], -1
            )
        else:
            told = lambda scale: eqx.tree_at(lambda h: h.dynamics_scale, hp, scale)
            at = lambda scale: self.diversity_between(state, told(scale), row.obs, after.obs, skill)
            terms = jax.vmap(at)(jnp.asarray(SCALES, jnp.float32)).T
        return jnp.where(after.terminated[:, None], 0.0, terms)

    def dependence(self, terms: Float[Array, "n terms"]) -> Float[Array, "n"]:
        """Nats that episodes tell of their skill, at the scale that fits all of them best.

        Of METRA steps along the skill, if the mean square of a step's length is made 1: what its
        constraint asks, kept to the letter.
        """
        if self.metra:
            gain, length, steps = terms.T
            unit = jnp.sqrt(length.sum() / jnp.maximum(steps.sum(), 1.0))
            return gain / jnp.maximum(unit, 1e-6)
        return terms[:, terms.mean(0).argmax()]

    @classmethod
    def judged_by(cls, options: dict[str, Any]) -> str:
        """With a task, by its reward."""
        return "eval/mean_reward" if options.get("with_reward") else "eval/skill_dependence"

    def complaint(self, metrics: dict[str, Any]) -> str | None:
        """Why learning cannot work, as far as a row of metrics tells."""
        if metrics.get("train/change") != 0:
            return None
        return (
            f"descriptor = {name_of(self.described_by)} never changes, so there is nothing to tell "
            "skills apart by: choose coordinates that the actions move, such as --descriptor 0,1"
        )


def pick(x: Array, coordinates: tuple[int, ...]) -> Array:
    """Some of the last axis."""
    if coordinates == tuple(range(x.shape[-1])):
        return x
    return x[..., np.asarray(coordinates, int)]
