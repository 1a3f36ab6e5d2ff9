"""A run on disk: reads its metrics and policies, and evaluates them."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis import envs, errors
from thespis.core import Mode, WithSkills, capability, cut_short, privileged
from thespis.engine.evaluation import Evaluator
from thespis.engine.loop import Loop
from thespis.engine.recorder import Recorder
from thespis.engine.rollout import FrozenPolicy
from thespis.envs import Autoreset, stepping
from thespis.envs.pettingzoo import PettingZoo
from thespis.errors import ThespisError, shown
from thespis.replay.demonstrations import Episode
from thespis.runs import checkpoint, config_file, lineage, metrics, trust, zoo
from thespis.runs.best import best_member
from thespis.runs.build import build, state_shapes
from thespis.runs.config import Config
from thespis.runs.directory import find, status_of
from thespis.tuning import hyper
from thespis.values import convert, counted, plain

FRAMES = {"pandas": {}, "polars": {"nan_to_null": True}}  # libraries, and how they take NaN
LATER = 2**30  # offset of seeds: evaluations after training draw other start states than during it


class SavedRun:
    """The folder of a run, opened for reading.

    `env` and `eval_env` replace environments that the run got as objects, not by name; `eval_env`
    may also be another environment with the same spaces. `trust` allows importing code that its
    config.json names.
    """

    def __init__(
        self,
        path: Path | str,
        env: Any = None,
        eval_env: Any = None,
        demos: Any = None,
        trust: bool = False,
    ):
        self.path = find(path)
        self.config, self.saved = config_file.read(self.path, trust)
        self.config = dataclasses.replace(self.config, trust=trust)
        self.env, self.eval_env = env, eval_env
        if demos is not None:
            self.config = dataclasses.replace(self.config, demos=demos)
        self.signal = 0  # the signal that has just stopped its training
        self.demos_missing = self.saved.get("demos_given") and demos is None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def status(self) -> dict[str, Any]:
        """The `state` (running, stopped, done or failed) and the `step`."""
        return status_of(self.path)

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """The columns of metrics.csv, NaN where there is no value."""
        return metrics.read(self.path / "metrics.csv", self.config.members)

    def frame(self, library: str = "pandas") -> Any:
        """Returns the metrics as a data frame of "pandas" or "polars", with the members' seeds.

        It has one row per step and member.
        """
        module = frame_library(library)
        table = self.metrics
        first = {name: table.pop(name).astype(int) for name in ("step", "member")}
        first["seed"] = np.array(self.config.seeds, int)[first["member"]]
        return module.DataFrame(first | table, **FRAMES[library])

    @property
    def lineage(self) -> dict[str, np.ndarray]:
        """The columns of lineage.csv: parents, and tuned hyper-parameters before and after."""
        return lineage.read(self.path, self.config.members)

    @property
    def parents(self) -> list[int]:
        """The member that each one copied last, or itself."""
        parents, table = list(range(self.config.members)), self.lineage
        for m, parent in zip(table["member"], table["parent"], strict=True):
            if m != parent:
                parents[int(m)] = int(parent)
        return parents

    def build(self, config: Config, training: bool = True) -> tuple[Loop, Any]:
        """Returns (loop, evaluation environment) for this run's config, or a longer one."""
        for name in ("env", "eval_env"):
            if getattr(self, name) is None and self.saved.get(f"{name}_given"):
                raise ThespisError(
                    f"{self.path} has {name} = {getattr(self.config, name)}, which was given as an "
                    f"object: pass it as {name}, from Python"
                )
        trust.check(self.path, self.saved, config.trust)
        pieces = build(config, self.env, self.eval_env, training)
        if self.env is not None:
            name, label = self.config.env, envs.label(pieces[0].env)
            trained_on = name if self.saved.get("env_given") else envs.label(name)
            if label != trained_on:
                raise ThespisError(
                    f"env = {label}: {self.path} was trained on {trained_on}; leave env out, or "
                    "pass another environment to play in as eval_env"
                )
        return pieces

    @cached_property
    def parts(self) -> tuple[Loop, Any]:
        return self.build(self.config, training=False)

    # --- policies ---------------------------------------------------------------------------

    def member(self, number: int | str = "best", which: str = "last") -> int:
        """Returns a member's number; "best" is the one with the best "last" or "best" score."""
        check_which(which)
        members, text = self.config.members, str(plain(number))
        if text == "best":
            return best_member(self.path, which)
        if not text.isdecimal() or int(text) >= members:
            available = f"members 0 to {members - 1}" if members > 1 else "one member, 0"
            raise ThespisError(f"member = {shown(text)}: {self.path} has {available}; or give best")
        return int(text)

    def chosen(self, member: int | str | None, which: str = "last") -> list[int]:
        """Returns a list of one member's number, or of all members if None or "all"."""
        if member is None or str(plain(member)) == "all":
            return list(range(self.config.members))
        return [self.member(member, which)]

    def policies(self, which: str = "last") -> FrozenPolicy:
        """Returns all members at the "last" step, or each at its "best": leaves [members, ...]."""
        check_which(which)
        if which == "best" and not checkpoint.latest(self.path / "best"):
            raise ThespisError(
                f"{zoo.spelled(self.path)} has no best policy: it was never evaluated, or only the "
                "last one was kept; use that: without --best, in Python which='last'"
            )
        loop, _ = self.parts
        parts, manifest = self.read(which, {"state": state_shapes(self.config, loop)})
        step = manifest["info"].get("step") if which == "best" else manifest["step"]
        try:
            steps = np.broadcast_to(np.asarray(step, np.int32), self.config.members)
        except (TypeError, ValueError, OverflowError) as error:
            raise checkpoint.Damaged(f"{self.path} is damaged: the step of a policy") from error
        return FrozenPolicy(parts["state"], parts["hyper"], jnp.asarray(steps))

    def frozen(self, member: int, which: str = "last") -> FrozenPolicy:
        """Returns the policy of one member."""
        return jax.tree.map(lambda x: x[member], self.policies(which))

    def state(self, which: str = "last") -> tuple[Any, Any]:
        """Returns the state and hyper-parameters of all members, at their "last" or "best" step."""
        policies = self.policies(which)
        return policies.state, policies.hp

    def hypers(self, which: str = "last") -> Any:
        """Returns the hyper-parameters of all members, leaves [members]."""
        return self.read(which, {})[0]["hyper"]

    def read(self, which: str, shapes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns parts of the newest or best checkpoint with the hypers, and its manifest."""
        folder = self.path / ("checkpoints" if which == "last" else "best")
        Hyper = self.config.Algorithm.Hyper
        templates = {**shapes, "hyper": hyper.fill(Hyper, {}, self.config.members)}
        defaults = hyper.defaults(Hyper)
        for part, tree in shapes.items():
            defaults |= checkpoint.moments(part, tree)
        path, parts = checkpoint.load_newest(folder, templates, note, defaults)
        return jax.tree.map(jnp.array, parts), checkpoint.manifest(path)

    def policy(
        self,
        member: int | str = "best",
        which: str = "last",
        stochastic: bool = False,
        skill: Any = None,
    ) -> Policy:
        """Returns one member's policy, in the environment's units; `skill` fixes its skill."""
        frozen = self.frozen(self.member(member, which), which)
        return Policy(self.parts[0], frozen, stochastic, skill)

    def evaluate(
        self,
        episodes: int = 100,
        member: int | str | None = None,
        which: str = "last",
        seed: int = 0,
    ) -> dict[str, Any]:
        """Plays deterministic episodes; returns mean_reward, std_reward, returns and lengths.

        Without a member (or with "all"), all members are evaluated, and returns and lengths have
        one list per member. For vector rewards, mean_rewards has the mean of every dimension.
        """
        episodes, seed = counted("episodes", episodes), seed_of(seed)
        chosen = self.chosen(member, which)
        loop, eval_env = self.parts
        loop = dataclasses.replace(loop, mesh=None)  # any number of members
        policies = jax.tree.map(lambda x: x[jnp.asarray(chosen)], self.policies(which))
        seeds = jnp.asarray([self.config.seeds[m] for m in chosen], jnp.int32)
        played = Evaluator(loop, eval_env, episodes).play(policies, seeds, LATER + seed)
        if text := cut_short(eval_env, played.lengths):
            note(text)
        lists = lambda x: x.tolist() if len(x) > 1 else x[0].tolist()
        names = loop.algo.spec.rewards
        parts = {n: float(played.parts[..., i].mean()) for i, n in enumerate(names)}
        return {
            "mean_reward": float(played.returns.mean()),
            "std_reward": float(played.returns.std()),
            "returns": lists(played.returns),
            "lengths": lists(played.lengths),
            **({"mean_rewards": parts} if parts else {}),
        }

    def record(
        self,
        episodes: int = 20,
        member: int | str = "best",
        which: str = "last",
        stochastic: bool = False,
        seed: int = 0,
    ) -> list[Episode]:
        """Records demonstrations: whole episodes of a member's policy in the run's environment."""
        episodes, seed = counted("episodes", episodes), seed_of(seed)
        policy, loop = self.frozen(self.member(member, which), which), self.parts[0]
        mode = "explore" if stochastic else "greedy"
        recorder = Recorder(loop.algo, loop.env, episodes, mode)
        episodes_played = recorder(policy, LATER + seed)
        if text := cut_short(loop.env, [episode.length for episode in episodes_played]):
            note(text)
        return episodes_played


def frame_library(name: Any) -> Any:
    """Imports the library of a data frame."""
    if name not in FRAMES:
        raise ThespisError(f"frame({shown(name)}): give {' or '.join(FRAMES)}")
    try:
        return import_module(name)
    except ImportError:
        raise ThespisError(
            f"frame({name!r}) needs a missing library: pip install 'thespis[{name}]'"
        ) from None


def check_which(which: Any) -> None:
    if not isinstance(which, str) or which not in ("last", "best"):
        raise ThespisError(f"which = {shown(which)}: give last or best")


def seed_of(value: Any) -> int:
    """Returns a valid seed for episodes after training."""
    seed = convert("seed", int, value)
    if not 0 <= seed < LATER:
        raise ThespisError(f"seed = {seed}: give a number from 0 to {LATER - 1}")
    return seed


def note(text: str) -> None:
    print(f"note: {errors.printable(text)}", file=sys.stderr)


class Policy:
    """Acts on one observation, or on a batch of them; it keeps the algorithm's memory."""

    def __init__(
        self, loop: Loop, frozen: FrozenPolicy, stochastic: bool = False, skill: Any = None
    ):
        self.algo, self.env, self.frozen = loop.algo, loop.env, frozen
        self.mode: Mode = "explore" if stochastic else "greedy"
        self.skill = skill  # if None, algorithms with skills draw one per episode
        self.skilled = capability(self.algo, WithSkills)
        if skill is not None and self.skilled is None:
            name = type(self.algo).__name__
            raise ThespisError(f"skill = {skill}: {name} has no skills; leave it out")
        self.batch = reader(loop.env, privileged(loop.algo))
        agents = loop.algo.spec.agents
        self.keys = loop.env.layout.keys if isinstance(loop.env, PettingZoo) else agents
        self.jitted = jax.jit(self._act)
        self.reset()

    def reset(self, seed: int = 0) -> None:
        """Begins a new episode."""
        self.memory, self.time, self.seed = None, 0, seed

    def __call__(self, obs: Any) -> Any:
        """Returns the action for an observation, both in the environment's units and shapes.

        With several agents, it is a dict of the actions of the agents in the observation.
        """
        batch, alone = self.batch(obs)
        action, spec = self.act(batch), self.algo.spec
        actions = [x[0] if alone else x for x in spec.to_env(action)]
        if not spec.agents:
            return actions[0]
        acts = lambda key: not isinstance(self.env, PettingZoo) or key in obs
        return {key: x for key, x in zip(self.keys, actions, strict=True) if acts(key)}

    def act(self, obs: Any) -> np.ndarray:
        """Returns the actions [n, ...] in the algorithm's units, for a batch of observations."""
        action, self.memory = self.jitted(self.frozen, self.memory, obs, self.seed, self.time)
        self.time += 1
        return np.asarray(action)

    def at(self, frozen: FrozenPolicy) -> Policy:
        """Returns a policy with other parameters, which shares the compiled program."""
        other = copy.copy(self)
        other.frozen = frozen
        other.reset()
        return other

    def _act(self, frozen, memory, obs, seed, time):
        k_act, k_memory = jax.random.split(jax.random.fold_in(jax.random.key(seed), time))
        n = jax.tree.leaves(obs)[0].shape[0]
        memory = self.algo.memory(k_memory, n) if memory is None else memory
        if self.skill is not None and self.skilled is not None:
            skill = jnp.asarray(self.skill, jnp.float32)
            memory = self.skilled.follow(memory, jnp.broadcast_to(skill, (n, self.skilled.skills)))
        return frozen.act(self.algo, memory, obs, k_act, self.mode)[:2]


def same_shapes(spec: Any, batch: Any) -> bool:
    """Returns whether arrays [n, ...] are a batch of the observations that a spec describes."""
    arrays = jax.tree.leaves(batch)
    shapes = [(len(arrays[0]), *s.shape) for s in jax.tree.leaves(spec)] if arrays[0].ndim else []
    return [x.shape for x in arrays] == shapes


def misfit(env: Any, spec: Any, obs: Any) -> ThespisError:
    """Returns the error for an observation that does not fit this environment."""
    shape = lambda x: f"shape {np.shape(x)}" if hasattr(x, "shape") else shown(x)
    expected = jax.tree.map(lambda s: s.shape, spec)
    what = shape(obs)
    if isinstance(obs, dict):
        what = ", ".join(f"{key}: {shape(x)}" for key, x in obs.items())
    first = isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict)
    advice = "give only the observation that reset returns: obs, info = env.reset()"
    if not first:
        advice = f"{env.name} has {expected}, and a batch has one more axis in front"
    return ThespisError(f"the policy cannot act on {what}: {advice}")


def reader(env: Any, unseen: tuple[str, ...] = ()) -> Callable[[Any], tuple[Any, bool]]:
    """Returns a function: observation -> (batch for networks, whether it was a single one).

    Keys of a dict that are `unseen` are left out, and may be missing.
    """
    visible = lambda tree: {k: x for k, x in tree.items() if k not in unseen} if unseen else tree
    if isinstance(env, Autoreset):
        spec = visible(env.spec.obs)
        first = jax.tree.leaves(spec)[0]

        def from_task(obs):
            try:
                obs = jax.tree.map(lambda s, x: np.asarray(x, s.dtype), spec, visible(obs))
            except (TypeError, ValueError, AttributeError) as error:
                raise misfit(env, spec, obs) from error
            alone = jax.tree.leaves(obs)[0].ndim == len(first.shape)
            batch = jax.tree.map(lambda x: x[None], obs) if alone else obs
            if not same_shapes(spec, batch):
                raise misfit(env, spec, obs)
            return batch, alone

        return from_task
    if isinstance(env, PettingZoo):
        return lambda obs: (env.layout.read(obs), True)

    space: Any = env.observation_space
    node = [part for part in env.node if part[0] not in unseen] if unseen else env.node

    def from_gymnasium(obs):
        try:
            return read_batch(obs)
        except (TypeError, ValueError, LookupError, StopIteration) as error:
            raise misfit(env, env.spec.obs, obs) from error

    def read_batch(obs):
        inner, kind = obs, space
        while kind.shape is None:  # a dict or a tuple: look at its first part
            key = next(k for k in kind if k in inner) if isinstance(inner, dict) else 0
            inner, kind = inner[key], kind[key]
        alone = np.ndim(inner) == len(kind.shape)
        pick = lambda i: obs if alone else jax.tree.map(lambda x: x[i], obs)
        out = stepping.empty(node, 1 if alone else len(inner))
        for i in range(1 if alone else len(inner)):
            stepping.write(node, out, i, pick(i))
        return out, alone

    return from_gymnasium
