"""A snapshot of a run: all that a checkpoint must contain for training to continue from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from thespis.engine.loop import Learner, Loop
from thespis.errors import ThespisError
from thespis.replay.priorities import Priorities, Rule
from thespis.replay.ring import Replay
from thespis.runs import checkpoint
from thespis.runs.best import Best
from thespis.runs.build import blank
from thespis.runs.checkpoint import Stored
from thespis.runs.config import Config
from thespis.runs.lineage import FILE
from thespis.runs.metrics import Note
from thespis.tuning import hyper
from thespis.xla.multihost import Rows, from_all, read
from thespis.xla.placement import ROWS_OF_MEMBERS, to_device

LONGEST = 1e12  # seconds that anything may have taken


class Snapshot(NamedTuple):
    """All that training changes, and the time that it took."""

    learner: Learner
    hps: Any
    best: Best
    rounds: Any  # of a tuned population (tuning_rounds.py), or None
    lineage: tuple[int, bytes | None]  # rows of lineage.csv and its content, if that was saved
    elapsed: float  # seconds
    programs: dict[str, float]  # seconds that each program took to compile
    callbacks: dict[str, Any] | None = None  # state of the callbacks (callbacks.py), if any


def save(folder: Path, step: int, now: Snapshot, env: str) -> None:
    """Writes a checkpoint, and removes all but it and the one before; `env` is a label."""
    size, tuned = int(now.learner.replay.size), now.rounds is not None
    parts = split(now.learner, now.hps, now.best, now.rounds)
    parts["replay"] = by_row(lambda rows: Rows(rows, size), parts["replay"])
    info = {"rows": size, "elapsed": now.elapsed, "programs": now.programs, "env": env}
    if now.callbacks is not None:
        info["callbacks"] = now.callbacks
    if tuned:
        info["lineage"], content = now.lineage
        parts["lineage"] = {FILE: np.frombuffer(content or b"", np.uint8)}
    checkpoint.save(folder, step, parts, info)
    checkpoint.prune(folder)


def refuse_not_finite(state: Any, where: str) -> None:
    """Raises an error that names the first part of a state with a number that is not finite."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if not np.isfinite(read(leaf)).all():
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise ThespisError(
                f"{where}: {name} is not finite, so it is not saved; try smaller learning rates or "
                "rewards"
            )


def load(
    folder: Path,
    config: Config,
    loop: Loop,
    env: str,
    rounds: Any,
    members: int,
    member: int | None,
    note: Note,
) -> Snapshot:
    """Returns the newest undamaged checkpoint of a run of `members`: all of them, or one.

    The expected shapes follow from the config, and those of the tuner from `rounds`.
    """
    learner, Hyper = blank(config, loop), config.Algorithm.Hyper
    hps = hyper.fill(Hyper, {}, config.members)
    template = split(learner, hps, Best.empty(learner.state, hps), rounds)
    template = by_member(lambda x, axis: resize(x, axis, members), template)

    def expected(manifest: dict[str, Any]) -> dict[str, Any]:
        info, parts = manifest["info"], dict(template)
        if not is_info(info):
            raise checkpoint.Damaged(f"a checkpoint in {folder} is damaged: its info is invalid")
        if rounds is not None and "lineage" in manifest["parts"]:
            parts["lineage"] = checkpoint.shapes(folder, manifest, "lineage")
        cut = lambda x: resize(x, 0, info["rows"])
        return parts | {"replay": by_row(cut, parts["replay"])}

    defaults = hyper.defaults(Hyper)
    defaults |= {f"hyper.{name}": x for name, x in defaults.items()}  # for the best policies
    path, parts = checkpoint.load_newest(folder, expected, note, defaults, ("replay",))
    manifest = checkpoint.manifest(path)
    check_same(folder, path, manifest, env)
    if member is not None:
        parts = by_member(lambda x, axis: np.take(x, [member], axis), parts)
    best, lineage = parts.pop("best"), parts.pop("lineage", {}).get(FILE)
    replay = grow(parts.pop("replay"), loop.capacity, loop.rule, loop.mesh)
    parts, info = to_device(parts), manifest["info"]
    return Snapshot(
        Learner(state=parts["state"], replay=replay, **parts["actors"], **parts["progress"]),
        parts["hyper"],
        best,
        parts.get("tuning"),
        (info.get("lineage", 0), None if lineage is None else lineage.tobytes()),
        info["elapsed"],
        info.get("programs", {}),
        info.get("callbacks"),
    )


def is_info(info: dict[str, Any]) -> bool:
    """Returns whether this is what `save` writes, whoever has written it."""
    info = {"lineage": 0, "programs": {}} | info
    kinds = {"rows": int, "elapsed": float, "env": str, "lineage": int, "programs": dict}
    if any(type(info.get(name)) is not kind for name, kind in kinds.items()):
        return False
    seconds = [info["elapsed"], *info["programs"].values()]
    return all(isinstance(x, int | float) and 0 <= x < LONGEST for x in seconds)


def check_same(folder: Path, path: Path, manifest: dict[str, Any], env: str) -> None:
    """Refuses a checkpoint of another environment, or of another step than other processes'."""
    saved = manifest["info"]["env"]
    if saved != env:
        raise ThespisError(f"{path} was saved on env = {saved}, not {env}: resume with that one")
    steps = set(from_all(np.array(manifest["step"])).tolist())
    if len(steps) > 1:
        raise ThespisError(
            f"processes read checkpoints of steps {sorted(steps)} in {folder.parent}: give all "
            "processes the same files"
        )


# --- the parts of a checkpoint ----------------------------------------------------------------


def split(x: Learner, hps: Any, best: Best, rounds: Any = None) -> dict[str, Any]:
    """Returns the parts, one file each, so that evaluation reads the state without the replay."""
    return ({} if rounds is None else {"tuning": rounds}) | {
        "state": x.state,
        "actors": {"actors": x.actors, "world": x.world},
        "replay": stored(x.replay),
        "progress": {"metric_sums": x.metric_sums, "clock": x.clock},
        "hyper": hps,
        "best": best,
    }


def stored(replay: Replay) -> dict[str, Any]:
    """Returns a replay without the tree of its priorities, which follows from the rest."""
    p, names = replay.priorities, ("weight", "uses", "highest", "written")
    return vars(replay) | {"priorities": p and {name: getattr(p, name) for name in names}}


def by_row(f: Callable, replay: dict[str, Any]) -> dict[str, Any]:
    """Applies `f(leaf)` to every leaf [rows, members, ...] of a stored replay."""
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
    """Puts stored rows into a ring of `capacity`; only a ring that never wrapped may grow.

    It does so leaf by leaf, so that at most one of them is in memory twice.
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
