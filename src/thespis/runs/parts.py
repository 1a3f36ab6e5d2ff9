"""The parts of a checkpoint: a learner taken apart by what is read together, and its sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from thespis.engine.loop import Learner
from thespis.replay.priorities import Priorities, Rule
from thespis.replay.ring import Replay
from thespis.runs.best import Best
from thespis.xla.placement import to_device


def split(x: Learner, hps: Any, best: Best, rounds: Any = None) -> dict[str, Any]:
    """The files of a checkpoint: playing needs only the state, and the replay is the largest."""
    return ({} if rounds is None else {"tuning": rounds}) | {
        "state": x.state,
        "actors": {"actors": x.actors, "world": x.world},
        "replay": stored(x.replay),
        "progress": {"metric_sums": x.metric_sums, "clock": x.clock},
        "hyper": hps,
        "best": best,
    }


def stored(replay: Replay) -> dict[str, Any]:
    """All of a replay but the tree of its priorities, which follows from the rest."""
    p, names = replay.priorities, ("weight", "uses", "highest", "written")
    return vars(replay) | {"priorities": p and {name: getattr(p, name) for name in names}}


def by_row(f: Callable, replay: dict[str, Any]) -> dict[str, Any]:
    """`f(leaf)` for every leaf [rows, members, ...] of what is stored of a replay."""
    new, p = replay | {"rows": jax.tree.map(f, replay["rows"])}, replay["priorities"]
    if p is not None:
        new["priorities"] = p | {name: jax.tree.map(f, p[name]) for name in ("weight", "uses")}
    return new


def by_member(f: Callable, parts: dict[str, Any]) -> dict[str, Any]:
    """`f(leaf, axis)` for every leaf of a checkpoint that has an axis of members."""
    at = lambda axis, tree: jax.tree.map(lambda x: f(x, axis), tree)
    replay, progress = by_row(lambda x: f(x, 1), parts["replay"]), parts["progress"]
    if (p := replay["priorities"]) is not None:
        replay["priorities"] = p | {"highest": f(p["highest"], 1)}
    return {
        **parts,
        **{part: at(0, parts[part]) for part in ("state", "actors", "hyper", "best")},
        "replay": replay,
        "progress": progress | {"metric_sums": at(1, progress["metric_sums"])},
    }


def resize(x: Any, axis: int, size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


def grow(parts: dict[str, Any], capacity: int, rule: Rule | None) -> Replay:
    """Stored rows in a ring of `capacity`, which is larger only if none was overwritten yet."""

    def place(x):
        ring = np.zeros((capacity, *x.shape[1:]), x.dtype)
        ring[: x.shape[0]] = x
        return ring

    if parts["rows"].reward.shape[0] != capacity:
        parts = by_row(place, parts | {"head": parts["size"] % capacity})
    parts = to_device(parts)
    if rule is not None:
        weights = Priorities(**parts["priorities"], nodes=None, rule=rule)
        parts["priorities"] = jax.jit(Priorities.rebuilt)(weights)
    return Replay(**parts)
