"""The lineage of a population: who copied whom, and every tuned hyper-parameter before and after.

    step,member,parent,score,age,before/gamma,...,after/gamma,...

One row per member and exchange. A member that is replaced because something in it was not finite
has a row of its own, without a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis.runs import metrics
from thespis.runs.directory import sync, write, writing

FILE = "lineage.csv"
COLUMNS = ("step", "member", "parent", "score", "age")


class LineageLog:
    """Appends to `<folder>/lineage.csv`. Nothing stays open between calls."""

    def __init__(self, folder: Path, names: Sequence[str]):
        self.path, self.names = Path(folder) / FILE, tuple(names)
        header = [*COLUMNS, *(f"{when}/{n}" for when in ("before", "after") for n in names)]
        if self.path.exists():
            metrics.compare(self.path, metrics.lines(self.path)[0], header)
        else:
            write(self.path, metrics.line(header))

    def append(
        self,
        step: int,
        members: Iterable[int],
        parents: np.ndarray,
        scores: np.ndarray | None,
        age: np.ndarray,
        before: dict[str, np.ndarray],
        after: dict[str, np.ndarray],
    ) -> None:
        """A row for each of the `members`; all arrays are [all members]."""
        rows = b""
        for m in members:
            score = "" if scores is None else metrics.text(scores[m])
            numbers = [step, m, int(parents[m]), score, int(age[m])]
            values = [metrics.text(x[n][m]) for x in (before, after) for n in self.names]
            rows += metrics.line([*map(str, numbers), *values])
        with writing(self.path), open(self.path, "ab") as file:
            file.write(rows)
            sync(file)

    def cut(self, rows: int) -> None:
        """Keep this many rows, as when a checkpoint was saved."""
        header, found = metrics.lines(self.path)
        kept = b"".join(map(metrics.line, [header, *found[:rows]]))
        if kept != self.path.read_bytes():
            write(self.path, kept)

    @property
    def rows(self) -> int:
        return len(metrics.lines(self.path)[1])

    def asked(self, hps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the tuner asked for last: of every member its newest row, or else of `hps`."""
        table = read(self.path.parent)
        asked = {name: np.array(hps[name]) for name in self.names}
        for i, m in enumerate(table["member"].astype(int)):
            for name in self.names:
                asked[name][m] = table[f"after/{name}"][i]
        return asked


def read(folder: Path) -> dict[str, np.ndarray]:
    """The columns of a run's lineage, NaN where a cell is empty; of no rows if there is none."""
    path = folder / FILE
    return metrics.read(path) if path.exists() else {name: np.zeros(0) for name in COLUMNS}


def ancestry(table: dict[str, np.ndarray], member: int) -> tuple[int, list[int]]:
    """The member from which this one descends, and the rows of that line, oldest first."""
    line, done = [], None
    # Of one round the members stand in order, and parents are as they were before it.
    new = (np.diff(table["step"]) != 0) | (np.diff(table["member"]) <= 0)
    rounds = np.cumsum([0, *new])
    for row in reversed(range(len(table["step"]))):
        if table["member"][row] == member and rounds[row] != done:
            line.append(row)
            member, done = int(table["parent"][row]), rounds[row]
    return member, line[::-1]


def schedule(folder: Path, member: int) -> tuple[dict[str, float], list[tuple[int, Any]]]:
    """The hyper-parameters with which a member's line began, and [(step, those that changed)]."""
    table, log = read(folder), metrics.read(folder / "metrics.csv")
    first, rows = ancestry(table, member)
    mine = np.flatnonzero(log["member"] == first)
    prefix = "hparams/"
    now = {
        name.removeprefix(prefix): float(log[name][mine[0]])
        for name in log
        if name.startswith(prefix) and len(mine)
    }
    start, changes = dict(now), []
    for row in rows:
        after = {n.removeprefix("after/"): x[row] for n, x in table.items() if "after/" in n}
        new = {name: float(x) for name, x in after.items() if x != now.get(name)}
        if new:
            changes.append((int(table["step"][row]), new))
            now |= new
    return start, changes
