"""Finds the update at which a member became NaN or infinite, and saves it for debugging.

    faults/member_3/000000012345/
      manifest.json      what is not finite, when, and the run's config
      state.safetensors  hyper.safetensors  row.safetensors  batch.safetensors

`reproduce(path)` runs that update again. To find it, the member repeats its updates from the last
`Anchor`, with the rows in its replay; no environment is needed for that.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Bool, Int

from thespis.core import Row, Step
from thespis.engine.evaluation import Evaluator
from thespis.engine.loop import Clock, Learner, Loop
from thespis.engine.metric_sums import MetricSums
from thespis.engine.rollout import FrozenPolicy
from thespis.engine.streams import Stream, Use, member_keys
from thespis.replay.priorities import Priorities
from thespis.replay.ring import Replay
from thespis.runs import checkpoint, config_file
from thespis.runs import trust as trusted
from thespis.runs.build import blank, blank_demos, build
from thespis.runs.directory import checked_config, read_json
from thespis.runs.files import inside
from thespis.tuning import hyper
from thespis.xla.multihost import read
from thespis.xla.placement import to_device

# The order in which an update computes tensors, by prefixes of metrics and of parts of the state.
# Target networks only follow the networks they copy, so only the target's value is listed.
METRICS = {
    "target": ("target_value",),
    "critic": ("critic", "td_error", "q"),
    "actor": ("actor", "log_prob", "policy"),
    "temperature": ("ent_coef", "alpha", "temperature"),
}
PARTS = {
    "critic": ("critic",),
    "actor": ("actor",),
    "temperature": ("temperature", "alpha"),
}
TIME = ("iteration", "updates", "update")


class FailedUpdate(NamedTuple):
    """An update with a result that is not finite; leaves have no axis of members."""

    what: str  # observation, reward, normaliser, target, critic, actor, temperature, return
    tensor: str  # the first one that is not finite
    iteration: int
    updates: int  # updates before this iteration
    update: int  # index of the update within this iteration
    state: Any  # the state before the update
    row: Any = None  # the environment step of this iteration
    batch: Any = None  # None if something else than an update failed
    after: Any = None  # the state after the update
    metrics: Any = None


# --- a state to repeat updates from ---------------------------------------------------------


def copied(tree: Any) -> Any:
    """Returns a copy on the same devices, without compiling anything."""
    return jax.device_put(tree, jax.tree.map(lambda x: x.sharding, tree), may_alias=False)


class Anchor(eqx.Module):
    """All that updates change, except the rows that the replay still has afterwards."""

    state: Any
    metric_sums: MetricSums
    clock: Clock
    head: Int[Array, ""]
    size: Int[Array, ""]
    priorities: Priorities | None
    lost: Row | None  # the oldest rows, which will be overwritten next

    @classmethod
    def take(cls, x: Learner, window: int) -> Anchor:
        """Copies the state, and the rows that the next `window` iterations overwrite."""
        replay, lost = x.replay, None
        window = min(window, replay.capacity)
        if int(replay.size) + window > replay.capacity:
            overwritten = (replay.head + jnp.arange(window)) % replay.capacity
            lost = jax.tree.map(lambda rows: rows[overwritten], replay.rows)
        parts = x.state, x.metric_sums, x.clock, replay.head, replay.size, replay.priorities
        state, sums, clock, head, size, priorities = copied(parts)
        return cls(state, sums, clock, head, size, priorities, lost)

    @property
    def iteration(self) -> int:
        return self.clock.now

    def restore(self, now: Learner, member: int) -> Learner:
        """Returns one member's learner at that time; actors and environments are not restored."""
        rows = member_part(now.replay.rows, member, 1)
        if self.lost is not None:
            lost = member_part(self.lost, member, 1)
            where = (np.asarray(self.head) + np.arange(len(lost.reward))) % now.replay.capacity
            rows = jax.tree.map(lambda ring, x: ring.at[where].set(x), rows, lost)
        copy = lambda tree: to_device(jax.device_get(tree))
        priorities = self.priorities
        if priorities is not None:
            names = ("weight", "uses", "nodes", "highest")
            parts = member_part({name: getattr(priorities, name) for name in names}, member, 1)
            written = copy(priorities.written)
            priorities = dataclasses.replace(priorities, **parts, written=written)
        return Learner(
            state=member_part(self.state, member),
            actors=member_part(now.actors, member),
            world=None,
            replay=Replay(rows, copy(self.head), copy(self.size), priorities),
            metric_sums=member_part(self.metric_sums, member, 1),
            clock=copy(self.clock),
        )


def member_part(tree, member: int, axis: int = 0):
    """Returns a copy of one member's part of a tree, also from other processes."""

    def take(x):
        if isinstance(x, jax.Array) and not x.is_fully_addressable:  # members of other processes
            return read(jax.lax.slice_in_dim(x, member, member + 1, axis=axis))
        return np.take(np.asarray(x), [member], axis)

    return to_device(jax.tree.map(take, tree))


# --- finding --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Tracer:
    """Finds the first update with a result that is not finite."""

    loop: Loop
    start: int
    """The iteration in which learning starts."""

    def __call__(
        self, anchor: Anchor, now: Learner, hps, seeds, member: int, demos=None
    ) -> FailedUpdate | None:
        """Returns the failed update; None if it does not fail again, as rounding may differ."""
        hps, seeds = member_part((hps, seeds), member)
        rows = member_part(now.replay.rows, member, 1)
        inputs = rows, int(anchor.head), anchor.iteration, hps, demos, seeds
        failed = self.advance(anchor.restore(now, member), inputs, now.clock.now)
        if bool(all_finite(failed)):
            return None
        last = failed.clock.now - 1
        x = self.advance(anchor.restore(now, member), inputs, last)
        begun = self.moment(x, *inputs, learn=last >= self.start)
        return examine(self.loop, *begun, clock=x.clock)

    def advance(self, x: Learner, inputs, end: int) -> Learner:
        """Repeats the updates until `end`, or until something is not finite."""
        for learn, stop in ((False, min(self.start, end)), (True, end)):
            if x.clock.now < stop and bool(all_finite(x)):
                x = self.follow(x, *inputs, jnp.int32(stop), learn=learn)
        return x

    @staticmethod
    def row(ring: Row, head, begin, iteration) -> Row:
        """Returns the environment step of an iteration, with the action that followed."""
        at = (head + iteration - begin) % ring.reward.shape[0]
        return jax.tree.map(lambda rows: rows[at], ring)

    @cached_property
    def moment(self):
        """The program that returns the inputs of an iteration's updates, of the only member."""
        loop = self.loop

        def moment(x: Learner, ring, head, begin, hps, demos, seeds, learn: bool):
            row = self.row(ring, head, begin, x.clock.iteration)
            keys = member_keys(seeds, Stream.TRAIN, x.clock.iteration)
            batches = loop.draw(x.replay, hps, demos, keys, x.clock) if learn else None
            return jax.tree.map(lambda x: x[0], (x.state, hps, row, batches, keys))

        return jax.jit(moment, static_argnames="learn")

    @cached_property
    def follow(self):
        loop = self.loop

        def run(x: Learner, ring, head, begin, hps, demos, seeds, end, learn: bool) -> Learner:
            def body(x: Learner) -> Learner:
                row = self.row(ring, head, begin, x.clock.iteration)
                arrived = Step(row.obs, row.reward, row.terminated, row.truncated)
                answer = row.action, x.actors.memory, row.extra
                keys = member_keys(seeds, Stream.TRAIN, x.clock.iteration)
                return loop.store_and_learn(x, hps, demos, arrived, answer, keys, learn)

            going = lambda x: (x.clock.iteration < end) & all_finite(x)
            return jax.lax.while_loop(going, body, x)

        return jax.jit(run, static_argnames="learn", donate_argnums=0)


def all_finite(x: Learner) -> Bool[Array, ""]:
    """Returns whether the state and all metrics so far of one member's learner are finite."""
    return healthy(x.state).all() & (x.metric_sums.fault[0] < 0).all()


def healthy(state) -> Bool[Array, "members"]:
    """Returns which members of a state [members, ...] have only finite numbers."""
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(x).reshape(len(x), -1).all(1) for x in floats]).all(0)


# --- naming ---------------------------------------------------------------------------------


def examine(loop: Loop, state, hp, row: Row, batches, key, clock: Clock) -> FailedUpdate | None:
    """Repeats the updates of one iteration one by one, until something is not finite."""
    iteration = clock.now
    if tensor := not_finite(row.obs, "obs") or not_finite(row.reward, "reward"):
        what = "reward" if tensor == "reward" else "observation"
        return FailedUpdate(what, tensor, iteration, 0, 0, state, row)
    observed = program(loop, "observe")(state, row)
    if (tensor := not_finite(observed, "")) and not not_finite(state, ""):
        return FailedUpdate("normaliser", tensor, iteration, 0, 0, state, row, after=observed)
    due = int(loop.tick(clock, True).updates - clock.updates) if batches is not None else 0
    update, state = program(loop, "update"), observed
    for i in range(due):
        batch = jax.tree.map(lambda x, i=i: x[i], batches)
        after, metrics = repeat_update(update, state, hp, batch, key, clock, i)
        if name := first_not_finite(batch, after, metrics):
            updates = int(clock.updates)
            return FailedUpdate(*name, iteration, updates, i, state, row, batch, after, metrics)
        state = after
    return None


@lru_cache(maxsize=2)
def program(loop: Loop, name: str):
    """Returns a method of the algorithm, compiled once for all members that fail."""
    return jax.jit({"observe": loop.algo.observe, "update": loop.algo.update}[name])


def repeat_update(update, state, hp, batch, key, clock: Clock, i: int):
    """Does the update with index i of an iteration, as the loop does it."""
    k_update = random.fold_in(random.fold_in(key, Use.UPDATE), i)
    return update(state, hp, batch, k_update, clock.updates + i)[:2]


def first_not_finite(batch, after, metrics) -> tuple[str, str] | None:
    """Returns (what, tensor) of the first tensor of an update that is not finite, or None."""
    for what, words in (("observation", ("obs", "next_obs")), ("reward", ("reward",))):
        for word in words:
            if tensor := not_finite(getattr(batch, word, None), word):
                return what, tensor
    begins = lambda name, words: name.startswith(words)
    for what, words in METRICS.items():
        names = [not_finite(x, name) for name, x in metrics.items() if begins(name, words)]
        parts = PARTS.get(what, ())
        names += [
            not_finite(x, name) for name, x in vars(after).items() if parts and begins(name, parts)
        ]
        if any(names):
            return what, next(filter(None, names))
    rest = [(not_finite(x, name), name) for name, x in (vars(after) | metrics).items()]
    return next(((name, tensor) for tensor, name in rest if tensor), None)


def not_finite(tree, name: str) -> str:
    """Returns the name of the first leaf that is not finite, or an empty string."""
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.issubdtype(x.dtype, jnp.floating) and not np.isfinite(x).all():
            rest = jax.tree_util.keystr(path, simple=True, separator=".")
            return ".".join(filter(None, (name, rest)))
    return ""


# --- files ----------------------------------------------------------------------------------


def write(folder: Path, fault: FailedUpdate, hp, member: int, seed: int, envs: int) -> Path:
    """Saves a failed update in the folder of a run, and returns its path."""
    parts = {"state": fault.state, "hyper": jax.tree.map(jnp.asarray, hp)}
    parts |= {n: x for n in ("row", "batch") if (x := getattr(fault, n)) is not None}
    info = {name: getattr(fault, name) for name in ("what", "tensor", *TIME)}
    info |= {"member": member, "seed": seed, "config": read_json(folder / "config.json")}
    place = inside(folder, "faults", f"member_{member}")
    return checkpoint.save(place, fault.iteration * envs, parts, info)


def reproduce(
    path: Path | str, env: Any = None, eval_env: Any = None, *, trust: bool = False
) -> FailedUpdate | None:
    """Repeats a failed update; returns what is not finite first, or None if all is finite now.

    `env` and `eval_env` are needed only if the run got them as objects, not by name. `trust`
    allows a run from elsewhere to import the code that it names.
    """
    path = Path(path)
    saved = checkpoint.manifest(path)
    info = saved["info"]
    saved_config = checked_config(path / checkpoint.MANIFEST, info.get("config"))
    trusted.check(path, saved_config, trust)
    config = config_file.parsed(path / checkpoint.MANIFEST, saved_config)
    alone: Any = {"seeds": (info["seed"],), "hp": {}, "tuner": None, "devices": 1}
    config = dataclasses.replace(config, **alone)
    loop, eval_env = build(config, env, eval_env)
    seeds, hps = jnp.array(config.seeds), hyper.fill(loop.algo.Hyper, {})
    x, keys = blank(config, loop), member_keys(seeds, Stream.TRAIN, info["iteration"])

    batches = jax.eval_shape(loop.draw, x.replay, hps, blank_demos(loop), keys, x.clock)
    without = lambda axes, tree: jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[axes:], x.dtype), tree
    )
    shapes = {"state": without(1, x.state), "hyper": without(1, hps)}
    shapes |= {"row": without(2, x.replay.rows), "batch": without(2, batches)}
    shapes = {part: shapes[part] for part in saved["parts"]}
    parts = to_device(checkpoint.load(path, shapes))
    state, hp = parts["state"], parts["hyper"]

    if info["what"] == "return":
        return evaluate_again(
            loop, eval_env, config.eval_episodes, state, hp, seeds, info["iteration"]
        )
    clock = Clock(jnp.array([info["iteration"], info["updates"], 0], jnp.int32))
    if "batch" not in parts:
        return examine(loop, state, hp, parts["row"], None, keys[0], clock)
    args = state, hp, parts["batch"], keys[0], clock, info["update"]
    after, metrics = repeat_update(program(loop, "update"), *args)
    name = first_not_finite(parts["batch"], after, metrics)
    if name is None:
        return None
    at = {k: info[k] for k in TIME}
    rest = {"row": parts["row"], "batch": parts["batch"], "after": after, "metrics": metrics}
    return FailedUpdate(*name, **at, state=state, **rest)


def evaluate_again(
    loop: Loop, env, episodes: int, state, hp, seeds, time: int
) -> FailedUpdate | None:
    """Evaluates a policy; returns a failure if one of its returns is not finite, else None."""
    policy = FrozenPolicy(state, hp, jnp.int32(time * loop.envs))
    one = jax.tree.map(lambda x: x[None], policy)
    returns, _ = Evaluator(loop, env, episodes)(one, seeds, time)
    return (
        None if np.isfinite(returns).all() else FailedUpdate("return", "return", time, 0, 0, state)
    )
