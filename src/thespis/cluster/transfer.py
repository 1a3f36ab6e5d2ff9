"""Members on their way from one group to another: their weights, and their replays if need be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis.engine.loop import Loop
from thespis.replay.priorities import Priorities
from thespis.replay.ring import Replay
from thespis.runs import checkpoint, snapshot
from thespis.runs.build import blank
from thespis.runs.config import Config

Parcel = dict[str, Any]  # "state" and perhaps "replay": leaves of one member, as lists of arrays


def pack(state: Any, member: int, replay: Replay | None = None) -> Parcel:
    """Returns one member of a group, by its place there, and its rows of a replay if given."""
    parcel = {"state": [np.asarray(x[member]) for x in jax.tree.leaves(state)]}
    if replay is not None:
        parcel["replay"] = columns(snapshot.stored(replay), member, int(replay.size))
    return parcel


def load(folder: Path, config: Config, loop: Loop, member: int, replay: bool, step: int) -> Parcel:
    """Returns the same from the checkpoint of a group at this step; `config` is that group's."""
    path = folder / "checkpoints" / f"{step:012d}"
    learner, rows = blank(config, loop), checkpoint.manifest(path)["info"]["rows"]
    template = {"state": learner.state}
    if replay:
        cut = lambda x: snapshot.resize(x, 0, rows)
        template["replay"] = snapshot.by_row(cut, snapshot.stored(learner.replay))
    parts = checkpoint.load(path, template)
    parcel = {"state": [x[member] for x in jax.tree.leaves(parts["state"])]}
    if replay:
        parcel["replay"] = columns(parts["replay"], member, rows)
    return parcel


def states(state: Any, sources: list[int | Parcel]) -> Any:
    """Returns the states of everybody's parent [members, ...]: a member here, or a parcel."""
    leaves, structure = jax.tree.flatten(state)
    here = [np.asarray(x) for x in leaves]
    leaf = lambda i, source: here[i][source] if isinstance(source, int) else source["state"][i]
    return structure.unflatten([np.stack([leaf(i, s) for s in sources]) for i in range(len(here))])


def columns(stored: dict[str, Any], member: int, size: int) -> list[np.ndarray]:
    """Returns the rows of one member of what is stored of a replay; the tree follows from them."""
    rows, highest = (jax.tree.leaves(tree) for tree in moving(stored))
    return [np.asarray(x)[:size, member] for x in rows] + [
        np.asarray(x)[:, member] for x in highest
    ]


def moving(stored: dict[str, Any]) -> tuple[Any, Any]:
    """Returns what belongs to members: trees of leaves [rows, members, ...] and [1, members]."""
    p = stored["priorities"]
    return (stored["rows"], p and (p["weight"], p["uses"])), p and p["highest"]


def graft(replay: Replay, arrived: dict[int, list[np.ndarray]]) -> Replay:
    """Returns the replay in which some members, by their places, have rows of others."""
    if not arrived:
        return replay
    stored, size = snapshot.stored(replay), int(replay.size)
    (rows, many), (highest, few) = map(jax.tree.flatten, moving(stored))
    for member, new in arrived.items():
        rows = [x.at[:size, member].set(y) for x, y in zip(rows, new)]
        highest = [x.at[:, member].set(y) for x, y in zip(highest, new[len(rows) :])]
    kept, weights = many.unflatten(rows)
    replay = dataclasses.replace(replay, rows=kept)
    if replay.priorities is None:
        return replay
    names = {"weight": weights[0], "uses": weights[1], "highest": few.unflatten(highest)}
    changed = dataclasses.replace(replay.priorities, **names, nodes=None)
    return dataclasses.replace(replay, priorities=jax.jit(Priorities.rebuilt)(changed))
