"""When a run in groups equals one of a single process, bit for bit."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests import small
from thespis.runs import checkpoint, metrics

ALIKE = ("replay.head", "replay.size", "replay.priorities.written")  # for all members


def arrays(run: Path) -> dict[str, np.ndarray]:
    """The newest checkpoint, with the replays that are in the groups' folders."""
    found = small.arrays(run)
    parts = [small.arrays(folder) for folder in sorted((run / "groups").glob("[0-9]*"))]
    for name in [name for name in parts[0] if name.startswith("replay.")] if parts else ():
        every = [part[name] for part in parts]
        found[name] = every[0] if name in ALIKE else np.concatenate(every, 1)
    return found


def history(run: Path) -> list[str]:
    """The lines of lineage.csv but for those of events, and without their column."""
    header, *lines = (run / "lineage.csv").read_text().splitlines()
    if not header.endswith(",event"):
        return [header, *lines]
    return [line.rpartition(",")[0] for line in [header, *lines] if line.endswith((",", ",event"))]


def differences(a: Path, b: Path) -> list[str]:
    """What two runs do not share: arrays, rows of metrics, lineage, best policies."""
    left, right = arrays(a), arrays(b)
    if left.keys() != right.keys():
        return [f"arrays {left.keys() ^ right.keys()}"]
    same = lambda x, y: x.shape == y.shape and x.tobytes() == y.tobytes()
    names = [name for name in left if not name.startswith("lineage")]
    found = [f"array {name}" for name in names if not same(left[name], right[name])]
    found += metrics.differences(a / "metrics.csv", b / "metrics.csv")
    if (a / "lineage.csv").exists() and history(a) != history(b):
        found.append("lineage.csv")
    best = [checkpoint.latest(run / "best")[0] / "state.safetensors" for run in (a, b)]
    one, two = map(load_file, best)
    return found + [f"best {name}" for name in one if not same(one[name], two[name])]
