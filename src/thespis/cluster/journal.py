"""What was decided at each meeting, on disk before anybody acts on it.

groups/decisions/000000005000/   hyper-parameters, who copies whom, the tuner's memory, lineage
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thespis.runs import checkpoint
from thespis.runs.config import Config
from thespis.runs.lineage import FILE
from thespis.runs.metrics import Note
from thespis.tuning import hyper
from thespis.xla.placement import to_device


class Entry(NamedTuple):
    """A meeting after which training went on."""

    step: int
    hps: Any  # from then on
    parents: np.ndarray | None  # whom each member copied; None if there was no exchange
    rounds: Any  # of a tuned population, or None
    lineage: bytes
    elapsed: float  # seconds
    deadline: float | None = None  # seconds that exchanges wait for late groups, or else for all


def write(folder: Path, entry: Entry, oldest: int | None = None) -> None:
    """Writes an entry, and keeps the one before, and those since the `oldest` step of a group."""
    members = len(next(iter(vars(entry.hps).values())))
    parents = np.arange(members) if entry.parents is None else entry.parents
    parts: dict[str, Any] = {"hyper": entry.hps, "parents": {"parents": np.int32(parents)}}
    if entry.rounds is not None:
        parts["tuning"] = entry.rounds
        parts["lineage"] = {FILE: np.frombuffer(entry.lineage, np.uint8)}
    info = {"exchanged": entry.parents is not None, "elapsed": entry.elapsed}
    checkpoint.save(folder, entry.step, parts, info | {"deadline": entry.deadline})
    steps = [int(path.name.rstrip(checkpoint.REPLACED)) for path in checkpoint.latest(folder)]
    first = entry.step if oldest is None else oldest
    checkpoint.prune(folder, max(2, sum(step >= first for step in steps)))


def newest(folder: Path, config: Config, rounds: Any, note: Note) -> Entry | None:
    """Returns the newest entry that is whole; `rounds` has the shapes of the tuner's memory."""
    if not checkpoint.latest(folder):
        return None
    expected, known = shapes(folder, config, rounds), hyper.defaults(config.Algorithm.Hyper)
    return entry_of(*checkpoint.load_newest(folder, expected, note, known), rounds)


def earlier(folder: Path, config: Config, rounds: Any, step: int) -> list[Entry]:
    """Returns the entries before a step that are still there and whole."""
    expected, known = shapes(folder, config, rounds), hyper.defaults(config.Algorithm.Hyper)
    entries = []
    for path in checkpoint.latest(folder):
        with suppress(checkpoint.Damaged):
            manifest = checkpoint.manifest(path)
            if manifest["step"] < step:
                parts = checkpoint.load(path, expected(manifest), known)
                entries.append(entry_of(path, parts, rounds))
    return entries


def shapes(folder: Path, config: Config, rounds: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns what tells the shapes of an entry from its manifest."""
    Hyper, members = config.Algorithm.Hyper, config.members
    template: dict[str, Any] = {"hyper": hyper.fill(Hyper, {}, members)}
    template["parents"] = {"parents": np.zeros(members, np.int32)}
    if rounds is not None:
        template["tuning"] = rounds

    def expected(manifest: dict[str, Any]) -> dict[str, Any]:
        if rounds is None:
            return template
        return template | {"lineage": checkpoint.shapes(folder, manifest, "lineage")}

    return expected


def entry_of(path: Path, parts: dict[str, Any], rounds: Any) -> Entry:
    """Returns an entry from what was read."""
    manifest = checkpoint.manifest(path)
    info, lineage = manifest["info"], parts.pop("lineage", {}).get(FILE, np.zeros(0, np.uint8))
    parents = np.asarray(parts["parents"]["parents"]) if info.get("exchanged") else None
    tuned = None if rounds is None else to_device(parts["tuning"])
    hps, elapsed = to_device(parts["hyper"]), info.get("elapsed")
    deadline = info.get("deadline")
    among = parents is None or ((parents >= 0) & (parents < parents.size)).all()
    timed = isinstance(elapsed, float) and math.isfinite(elapsed)
    paced = deadline is None or (isinstance(deadline, float) and deadline >= 0)
    if not (among and timed and paced):
        raise checkpoint.Damaged(f"{path} is damaged: it is not what was decided; restore it")
    return Entry(manifest["step"], hps, parents, tuned, lineage.tobytes(), elapsed, deadline)
