"""The lineage of a population: which member copied which, and all tuned hyper-parameters.

    step,member,parent,score,age,before/gamma,...,after/gamma,...

There is one row per member and exchange. A member that is replaced because it was not finite adds
a row without a score; so does every member if a callback changes tuned hyper-parameters.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.runs import files, metrics

FILE = "lineage.csv"
COLUMNS = ("step", "member", "parent", "score", "age")


class LineageLog:
    """Appends to `<folder>/lineage.csv`. Nothing stays open between calls."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        saved: bytes | None = None,
        note: metrics.Note = lambda text: None,
    ):
        """Opens the file, cut back to the content `saved` in a checkpoint if there is any."""
        self.path, self.names = Path(folder) / FILE, tuple(names)
        header = [*COLUMNS, *(f"{when}/{n}" for when in ("before", "after") for n in names)]
        if saved is not None:
            self.restore(saved, note)
        metrics.repair(self.path, header, note)

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
        """Writes a row for each of the `members`; all arrays are [all members]."""
        rows = b""
        for m in members:
            score = "" if scores is None else metrics.text(scores[m])
            numbers = [step, m, int(parents[m]), score, int(age[m])]
            values = [metrics.text(x[n][m]) for x in (before, after) for n in self.names]
            rows += metrics.line([*map(str, numbers), *values])
        files.append(self.path, rows, durable=True)

    def restore(self, saved: bytes, note: metrics.Note) -> None:
        """Restores the content saved in a checkpoint; a file that differs from it is renamed."""
        try:
            content = files.read(self.path) if os.path.lexists(self.path) else None
        except OSError:
            content = b""
        if content == saved:
            return
        if content is None:
            note(f"{self.path} was missing: it is restored from the checkpoint")
        elif not content.startswith(saved):
            aside = files.set_aside(self.path, content or None)
            note(
                f"{self.path} was damaged: it is restored from the checkpoint, and the old file is "
                f"now {aside}"
            )
        files.write(self.path, saved)

    def cut(self, rows: int) -> None:
        """Keeps this many rows, the number when a checkpoint was saved."""
        header, lines = metrics.lines(self.path)
        files.write(self.path, b"".join(map(metrics.line, [header, *lines[:rows]])))

    @property
    def content(self) -> bytes:
        return metrics.load(self.path)

    @property
    def rows(self) -> int:
        return len(metrics.lines(self.path)[1])


def read(folder: Path, members: int | None = None) -> dict[str, np.ndarray]:
    """Returns the columns of a run's lineage, NaN where a cell is empty; no rows without a file."""
    path = folder / FILE
    if not os.path.lexists(path):
        return {name: np.zeros(0) for name in COLUMNS}
    table = metrics.read(path, members, strict=True)
    changes = [name for name in table if name.startswith(("before/", "after/"))]
    pairs = {name.partition("/")[2] for name in changes}
    most = np.inf if members is None else members
    whole = {*COLUMNS} <= {*table} and len(changes) == 2 * len(pairs)
    if not whole or not all(np.isfinite(table[name]).all() for name in changes):
        raise ThespisError(f"{path} is damaged: it lacks columns or values; restore it")
    if not ((table["parent"] >= 0) & (table["parent"] < most) & (table["parent"] % 1 == 0)).all():
        raise ThespisError(f"{path} is damaged: it has parents that are not members; restore it")
    return table


def ancestry(table: dict[str, np.ndarray], member: int) -> tuple[int, list[int]]:
    """Returns the first ancestor of a member, and the rows of its line of descent, oldest first."""
    line, done = [], None
    # The rows of a round are sorted by member, and parents are members before that round.
    new = (np.diff(table["step"]) != 0) | (np.diff(table["member"]) <= 0)
    rounds = np.cumsum([0, *new])
    for row in reversed(range(len(table["step"]))):
        if table["member"][row] == member and rounds[row] != done:
            line.append(row)
            member, done = int(table["parent"][row]), rounds[row]
    return member, line[::-1]


def schedule(folder: Path, member: int) -> tuple[dict[str, float], list[tuple[int, Any]]]:
    """Returns the first hyper-parameters of a member's line, and [(step, changes)]."""
    table, log = read(folder), metrics.read(folder / "metrics.csv", strict=True)
    first, rows = ancestry(table, member)
    first_rows = np.flatnonzero(log["member"] == first)
    prefix = "hparams/"
    now = {
        name.removeprefix(prefix): float(log[name][first_rows[0]])
        for name in log
        if name.startswith(prefix) and len(first_rows)
    }
    start, changes = dict(now), []
    for row in rows:
        after = {n.removeprefix("after/"): x[row] for n, x in table.items() if "after/" in n}
        new = {name: float(x) for name, x in after.items() if x != now.get(name)}
        if new:
            changes.append((int(table["step"][row]), new))
            now |= new
    return start, changes
