"""metrics.csv of a run, from the rows that its groups report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from thespis.runs.config import Config
from thespis.runs.log_keys import other_names
from thespis.runs.metrics import MetricsLog, lines

Row = Any  # step, member, metrics by name, counts by name: as a list, once it was in a file


class RunLog:
    """Keeps rows until a meeting has taken place, and writes them once and in order."""

    def __init__(self, config: Config, folder: Path, reporter: Any):
        self.config, self.folder, self.reporter = config, folder, reporter
        self.log: Any = None  # once a group has told what is measured
        self.pending: dict[tuple[int, int], list[Row]] = {}  # by first member of a group, and step

    def open(self, measured: dict[str, Any], last: int) -> None:
        """Opens metrics.csv, cut back to this step."""
        edges = {name: tuple(x) for name, x in measured["edges"].items()}
        names, members = other_names(self.config.log_keys), self.config.members
        args = self.folder, measured["columns"], members, names, edges, self.reporter.note, last
        self.log = MetricsLog(*args)
        self.log.cut(last)
        self.written = {(int(row[0]), int(row[1])) for row in lines(self.log.path)[1]}

    def keep(self, first: int, step: int, rows: list[Row]) -> None:
        """Takes the rows that a group reported at this step; `first` is its first member."""
        self.pending[first, step] = rows

    def write(self, step: int) -> None:
        """Writes what was reported up to this step; somebody has to do once more what is newer."""
        rows = [
            (row[0], first + row[1], row[2], row[3])
            for (first, reported), group_rows in self.pending.items()
            for row in group_rows
            if reported <= step
        ]
        self.pending = {}
        new = [row for row in rows if row[:2] not in self.written]
        for row in sorted(new, key=lambda row: row[:2]):
            self.log.append(*row)
            self.written.add(row[:2])
        self.log.sync()
        self.show(new)

    def show(self, rows: list[Row]) -> None:
        """Lets the reporter see rows of all members, as a trainer does."""
        edges = dict(self.log.histograms.edges)
        for step in sorted({row[0] for row in rows}):
            mine = sorted((row for row in rows if row[0] == step), key=lambda row: row[1])
            if len(mine) == self.config.members:
                counts = [{k: (np.array(x), edges[k]) for k, x in row[3].items()} for row in mine]
                self.reporter.row(step, [row[2] for row in mine], counts)
