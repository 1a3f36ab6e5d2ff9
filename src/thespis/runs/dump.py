"""What broke a member: its failing update is found again, named, and kept in a file.

    faults/member_3/000000012345/
      manifest.json      what broke, when, and the run's config
      state.safetensors  hyper.safetensors  row.safetensors  batch.safetensors

`reproduce(path)` runs that update again. From the last moment that is remembered, a member learns
once more from the rows that are in its replay; environments are not needed for that.
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
from thespis.runs.build import blank, build, shown
from thespis.runs.directory import read_json
from thespis.runs.files import inside
from thespis.tuning import hyper
from thespis.xla.multihost import read
from thespis.xla.placement import to_device

# Which tensor comes first, by the beginnings of the names of metrics and of parts of the state.
# Targets follow the networks of which they are copies, so only the target's value counts here.
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


class Found(NamedTuple):
    """An update that gave something that is not finite, leaves without an axis of members."""

    what: str  # observation, reward, normaliser, target, critic, actor, temperature, return
    tensor: str  # the first of its tensors
    iteration: int
    updates: int  # done before this iteration
    update: int  # which one of this iteration
    state: Any  # before
    row: Any = None  # that arrived in this iteration
    batch: Any = None  # None if it was not an update that failed
    after: Any = None  # the state, afterwards
    metrics: Any = None


# --- a moment to return to ------------------------------------------------------------------


def copied(tree: Any) -> Any:
    """Returns a copy on the same devices, with nothing to compile."""
    return jax.device_put(tree, jax.tree.map(lambda x: x.sharding, tree), may_alias=False)


class Anchor(eqx.Module):
    """All that learning changes, except the rows that are in the replay afterwards as well."""

    state: Any
    metric_sums: MetricSums
    clock: Clock
    head: Int[Array, ""]
    size: Int[Array, ""]
    priorities: Priorities | None
    lost: Row | None  # the oldest rows: those that are overwritten next

    @classmethod
    def take(cls, x: Learner, window: int) -> Anchor:
        """Copies what the replay will not keep for `window` iterations."""
        replay, lost = x.replay, None
        window = min(window, replay.capacity)
        if int(replay.size) + window > replay.capacity:
            next_ones = (replay.head + jnp.arange(window)) % replay.capacity
            lost = jax.tree.map(lambda rows: rows[next_ones], replay.rows)
        kept = x.state, x.metric_sums, x.clock, replay.head, replay.size, replay.priorities
        state, sums, clock, head, size, priorities = copied(kept)
        return cls(state, sums, clock, head, size, priorities, lost)

    @property
    def iteration(self) -> int:
        return self.clock.now

    def of_member(self, now: Learner, member: int) -> Learner:
        """Returns one member's learner of that moment; actors and environments do not matter."""
        rows = of_one(now.replay.rows, member, 1)
        if self.lost is not None:
            lost = of_one(self.lost, member, 1)
            where = (np.asarray(self.head) + np.arange(len(lost.reward))) % now.replay.capacity
            rows = jax.tree.map(lambda ring, x: ring.at[where].set(x), rows, lost)
        copy = lambda tree: to_device(jax.device_get(tree))
        priorities = self.priorities
        if priorities is not None:
            names = ("weight", "uses", "nodes", "highest")
            parts = of_one({name: getattr(priorities, name) for name in names}, member, 1)
            written = copy(priorities.written)
            priorities = dataclasses.replace(priorities, **parts, written=written)
        return Learner(
            state=of_one(self.state, member),
            actors=of_one(now.actors, member),
            world=None,
            replay=Replay(rows, copy(self.head), copy(self.size), priorities),
            metric_sums=of_one(self.metric_sums, member, 1),
            clock=copy(self.clock),
        )


def of_one(tree, member: int, axis: int = 0):
    """Returns a copy of one member's part, wherever members are."""

    def take(x):
        if isinstance(x, jax.Array) and not x.is_fully_addressable:  # a member of all processes
            return read(jax.lax.slice_in_dim(x, member, member + 1, axis=axis))
        return np.take(np.asarray(x), [member], axis)

    return to_device(jax.tree.map(take, tree))


# --- finding --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Tracer:
    """Finds the update after which something was not finite."""

    loop: Loop
    start: int
    """The iteration in which learning starts."""

    def __call__(
        self, anchor: Anchor, now: Learner, hps, seeds, member: int, demos=None
    ) -> Found | None:
        """Returns the fault; None if it does not fail again, as may be where rounding differs."""
        hps, seeds = of_one((hps, seeds), member)
        rows = of_one(now.replay.rows, member, 1)
        inputs = rows, int(anchor.head), anchor.iteration, hps, demos, seeds
        failed = self.advance(anchor.of_member(now, member), inputs, now.clock.now)
        if bool(whole(failed)):
            return None
        last = failed.clock.now - 1
        x = self.advance(anchor.of_member(now, member), inputs, last)
        begun = self.moment(x, *inputs, learn=last >= self.start)
        return examine(self.loop, *begun, clock=x.clock)

    def advance(self, x: Learner, inputs, end: int) -> Learner:
        """Learns until `end`, or until something is not finite."""
        for learn, stop in ((False, min(self.start, end)), (True, end)):
            if x.clock.now < stop and bool(whole(x)):
                x = self.follow(x, *inputs, jnp.int32(stop), learn=learn)
        return x

    @staticmethod
    def row(ring: Row, head, begin, iteration) -> Row:
        """Returns what arrived in an iteration, and what was done about it."""
        at = (head + iteration - begin) % ring.reward.shape[0]
        return jax.tree.map(lambda rows: rows[at], ring)

    @cached_property
    def moment(self):
        """The program that returns what an iteration begins with, for the only member."""
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

            going = lambda x: (x.clock.iteration < end) & whole(x)
            return jax.lax.while_loop(going, body, x)

        return jax.jit(run, static_argnames="learn", donate_argnums=0)


def whole(x: Learner) -> Bool[Array, ""]:
    """Tells whether all that a learner of one member has and had is finite."""
    return healthy(x.state).all() & (x.metric_sums.fault[0] < 0).all()


def healthy(state) -> Bool[Array, "members"]:
    """Tells which members [members, ...] have nothing but finite numbers."""
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(x).reshape(len(x), -1).all(1) for x in floats]).all(0)


# --- naming ---------------------------------------------------------------------------------


def examine(loop: Loop, state, hp, row: Row, batches, key, clock: Clock) -> Found | None:
    """Repeats the learning of one iteration, update by update, until something is not finite."""
    iteration = clock.now
    if tensor := bad(row.obs, "obs") or bad(row.reward, "reward"):
        what = "reward" if tensor == "reward" else "observation"
        return Found(what, tensor, iteration, 0, 0, state, row)
    observed = program(loop, "observe")(state, row)
    if (tensor := bad(observed, "")) and not bad(state, ""):
        return Found("normaliser", tensor, iteration, 0, 0, state, row, after=observed)
    due = int(loop.tick(clock, True).updates - clock.updates) if batches is not None else 0
    update, state = program(loop, "update"), observed
    for i in range(due):
        batch = jax.tree.map(lambda x, i=i: x[i], batches)
        after, metrics = once(update, state, hp, batch, key, clock, i)
        if name := culprit(batch, after, metrics):
            updates = int(clock.updates)
            return Found(*name, iteration, updates, i, state, row, batch, after, metrics)
        state = after
    return None


@lru_cache(maxsize=2)
def program(loop: Loop, name: str):
    """Returns a method of the algorithm, compiled once for all members that break."""
    return jax.jit({"observe": loop.algo.observe, "update": loop.algo.update}[name])


def once(update, state, hp, batch, key, clock: Clock, i: int):
    """Does the update number i of an iteration, as the loop does it."""
    k_update = random.fold_in(random.fold_in(key, Use.UPDATE), i)
    return update(state, hp, batch, k_update, clock.updates + i)[:2]


def culprit(batch, after, metrics) -> tuple[str, str] | None:
    """Returns (what, tensor) that is not finite first, in the order in which an update computes."""
    for what, words in (("observation", ("obs", "next_obs")), ("reward", ("reward",))):
        for word in words:
            if tensor := bad(getattr(batch, word, None), word):
                return what, tensor
    begins = lambda name, words: name.startswith(words)
    for what, words in METRICS.items():
        names = [bad(x, name) for name, x in metrics.items() if begins(name, words)]
        parts = PARTS.get(what, ())
        names += [bad(x, name) for name, x in vars(after).items() if parts and begins(name, parts)]
        if any(names):
            return what, next(filter(None, names))
    rest = [(bad(x, name), name) for name, x in (vars(after) | metrics).items()]
    return next(((name, tensor) for tensor, name in rest if tensor), None)


def bad(tree, name: str) -> str:
    """Returns the name of the first leaf that is not finite, or nothing."""
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.issubdtype(x.dtype, jnp.floating) and not np.isfinite(x).all():
            rest = jax.tree_util.keystr(path, simple=True, separator=".")
            return ".".join(filter(None, (name, rest)))
    return ""


# --- files ----------------------------------------------------------------------------------


def write(folder: Path, fault: Found, hp, member: int, seed: int, envs: int) -> Path:
    """Writes a fault of a run -> where."""
    parts = {"state": fault.state, "hyper": jax.tree.map(jnp.asarray, hp)}
    parts |= {n: x for n in ("row", "batch") if (x := getattr(fault, n)) is not None}
    info = {name: getattr(fault, name) for name in ("what", "tensor", *TIME)}
    info |= {"member": member, "seed": seed, "config": read_json(folder / "config.json")}
    place = inside(folder, "faults", f"member_{member}")
    return checkpoint.save(place, fault.iteration * envs, parts, info)


def reproduce(
    path: Path | str, env: Any = None, eval_env: Any = None, *, trust: bool = False
) -> Found | None:
    """Runs again what failed -> what was not finite first, or None if all is finite now.

    `env` and `eval_env` are needed only if they were given as objects, not by name. `trust` is
    for faults in runs of others that name code of their own.
    """
    path = Path(path)
    saved = checkpoint.manifest(path)
    info = saved["info"]
    trusted.check(path, info["config"], trust)
    config = config_file.parse(info["config"])
    alone: Any = {"seeds": (info["seed"],), "hp": {}, "tuner": None, "devices": 1}
    config = dataclasses.replace(config, **alone)
    loop, eval_env = build(config, env, eval_env)
    seeds, hps = jnp.array(config.seeds), hyper.fill(loop.algo.Hyper, {})
    x, keys = blank(config, loop), member_keys(seeds, Stream.TRAIN, info["iteration"])

    batches = jax.eval_shape(loop.draw, x.replay, hps, shown(loop), keys, x.clock)
    less = lambda axes, tree: jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[axes:], x.dtype), tree
    )
    shapes = {"state": less(1, x.state), "hyper": less(1, hps)}
    shapes |= {"row": less(2, x.replay.rows), "batch": less(2, batches)}
    shapes = {part: shapes[part] for part in saved["parts"]}
    parts = to_device(checkpoint.load(path, shapes))
    state, hp = parts["state"], parts["hyper"]

    if info["what"] == "return":
        return played(loop, eval_env, config.eval_episodes, state, hp, seeds, info["iteration"])
    clock = Clock(jnp.array([info["iteration"], info["updates"], 0], jnp.int32))
    if "batch" not in parts:
        return examine(loop, state, hp, parts["row"], None, keys[0], clock)
    args = state, hp, parts["batch"], keys[0], clock, info["update"]
    after, metrics = once(program(loop, "update"), *args)
    name = culprit(parts["batch"], after, metrics)
    if name is None:
        return None
    at = {k: info[k] for k in TIME}
    rest = {"row": parts["row"], "batch": parts["batch"], "after": after, "metrics": metrics}
    return Found(*name, **at, state=state, **rest)


def played(loop: Loop, env, episodes: int, state, hp, seeds, time: int) -> Found | None:
    """Evaluates a policy -> a fault if one of its returns is not finite, else None."""
    policy = FrozenPolicy(state, hp, jnp.int32(time * loop.envs))
    one = jax.tree.map(lambda x: x[None], policy)
    returns, _ = Evaluator(loop, env, episodes)(one, seeds, time)
    return None if np.isfinite(returns).all() else Found("return", "return", time, 0, 0, state)
