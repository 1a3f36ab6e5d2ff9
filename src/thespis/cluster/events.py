"""What happens to groups, as notes and as rows of lineage.csv: deaths, restarts and moves."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from thespis.cluster.workers import Worker
from thespis.runs import files, lineage
from thespis.runs.tuning_rounds import Tuning, values

DIED, STARTED, MOVED = lineage.EVENTS


def write(folder: Path, tuning: Tuning | None, hps: Any, kind: int, worker: Worker) -> None:
    """Adds a row for each member of a group; `hps` are those of all members."""
    now, step = values(hps), max(worker.step, 0)
    everyone = np.arange(len(next(iter(now.values()))))
    if tuning:
        log, born = tuning.lineage, np.asarray(tuning.rounds.born)
    else:
        log, born = lineage.LineageLog(folder, (), events=True), np.zeros_like(everyone)
    log.append(step, worker.members, everyone, None, step - born, now, now, kind)


def later(folder: Path, past: bytes) -> bytes:
    """Returns the lines of events that lineage.csv has beyond what a decision knows.

    The first one, at step 0, knows of nothing.
    """
    path = folder / lineage.FILE
    if not os.path.lexists(path):
        return b""
    with suppress(OSError):
        content = files.read(path)
        past = past or content[: content.find(b"\n") + 1]  # the names of the columns
        if content.startswith(past):
            tail = content[len(past) :].split(b"\n")[:-1]
            return b"".join(x + b"\n" for x in tail if not x.endswith(b","))
    return b""


def named(worker: Worker) -> str:
    """Returns how users know a group."""
    first, last = worker.members.start, worker.members.stop - 1
    members = f"{first}" if first == last else f"{first} to {last}"
    return f"group {worker.number} (members {members})"
