"""The parts of a checkpoint: a learner taken apart by what is read together, and its sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from thespis.loop import Learner
from thespis.replay import Replay
from thespis.runs.best import Best


def split(x: Learner, hps: Any, best: Best, rounds: Any = None) -> dict[str, Any]:
    """The files of a checkpoint: playing needs only the state, and the replay is the largest."""
    return ({} if rounds is None else {"tuning": rounds}) | {
        "state": x.state,
        "actors": {"actors": x.actors, "world": x.world},
        "replay": dict(vars(x.replay)),
        "progress": {"tally": x.tally, "clock": x.clock},
        "hyper": hps,
        "best": best,
    }


def by_member(f: Callable, parts: dict[str, Any]) -> dict[str, Any]:
    """`f(leaf, axis)` for every leaf of a checkpoint that has an axis of members."""
    at = lambda axis, tree: jax.tree.map(lambda x: f(x, axis), tree)
    replay, progress = parts["replay"], parts["progress"]
    return {
        **parts,
        **{part: at(0, parts[part]) for part in ("state", "actors", "hyper", "best")},
        "replay": replay | {"rows": at(1, replay["rows"])},
        "progress": progress | {"tally": at(1, progress["tally"])},
    }


def resize(x: Any, axis: int, size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


def grow(replay: Replay, capacity: int) -> Replay:
    """Stored rows in a ring of `capacity`, which is larger only if none was overwritten yet."""

    def place(x):
        return jnp.zeros((capacity, *x.shape[1:]), x.dtype).at[: x.shape[0]].set(x)

    head = replay.head if replay.capacity == capacity else replay.size % capacity
    return Replay(jax.tree.map(place, replay.rows), head, replay.size)
