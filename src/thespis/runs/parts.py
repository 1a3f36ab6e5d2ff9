"""The parts of a checkpoint: a learner taken apart by what is read together, and its sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from thespis.engine.loop import Learner
from thespis.replay.priorities import Priorities, Rule
from thespis.replay.ring import Replay
from thespis.runs.best import Best
from thespis.runs.checkpoint import Stored
from thespis.xla.placement import ROWS_OF_MEMBERS, to_device


def split(x: Learner, hps: Any, best: Best, rounds: Any = None) -> dict[str, Any]:
    """Returns the files of a checkpoint: playing needs the state alone, not the large replay."""
    return ({} if rounds is None else {"tuning": rounds}) | {
        "state": x.state,
        "actors": {"actors": x.actors, "world": x.world},
        "replay": stored(x.replay),
        "progress": {"metric_sums": x.metric_sums, "clock": x.clock},
        "hyper": hps,
        "best": best,
    }


def stored(replay: Replay) -> dict[str, Any]:
    """Returns all of a replay but the tree of its priorities, which follows from the rest."""
    p, names = replay.priorities, ("weight", "uses", "highest", "written")
    return vars(replay) | {"priorities": p and {name: getattr(p, name) for name in names}}


def by_row(f: Callable, replay: dict[str, Any]) -> dict[str, Any]:
    """Applies `f(leaf)` to every leaf [rows, members, ...] of what is stored of a replay."""
    new, p = replay | {"rows": jax.tree.map(f, replay["rows"])}, replay["priorities"]
    if p is not None:
        new["priorities"] = p | {name: jax.tree.map(f, p[name]) for name in ("weight", "uses")}
    return new


def by_member(f: Callable, parts: dict[str, Any]) -> dict[str, Any]:
    """Applies `f(leaf, axis)` to every leaf of a checkpoint that has an axis of members."""
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


def grow(
    parts: dict[str, Any], capacity: int, rule: Rule | None, mesh: Mesh | None = None
) -> Replay:
    """Puts stored rows into a ring of `capacity`, larger only if none was overwritten yet.

    One leaf after another, so that no more than one of them is in memory twice.
    """

    def place(x: np.ndarray | Stored) -> jax.Array:
        ring, rows = np.zeros((capacity, *x.shape[1:]), x.dtype), x.shape[0]
        if isinstance(x, Stored):
            x.fill(ring[:rows])
        else:
            ring[:rows] = x
        return jax.block_until_ready(to_device(ring, mesh, ROWS_OF_MEMBERS))

    grown = parts["rows"].reward.shape[0] != capacity
    parts = by_row(place, parts | ({"head": np.asarray(parts["size"]) % capacity} if grown else {}))
    parts = to_device(jax.tree.map(lambda x: np.asarray(x) if isinstance(x, Stored) else x, parts))
    if rule is not None:
        weights = Priorities(**parts["priorities"], nodes=None, rule=rule)
        parts["priorities"] = jax.jit(Priorities.rebuilt)(weights)
    return Replay(**parts)
