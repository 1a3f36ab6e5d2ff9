"""metrics.csv of a run, from the rows that its groups report."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from thespis.runs.config import Config
from thespis.runs.log_keys import other_names
from thespis.runs.metrics import MetricsLog, lines, to_numbers

Row = Any  # step, member, metrics by name, counts by name: as a list, once it was in a file


class RunLog:
    """Keeps rows until a meeting has taken place, and writes them once and in order."""

    def __init__(self, config: Config, folder: Path, reporter: Any):
        self.config, self.folder, self.reporter = config, folder, reporter
        self.log: Any = None  # once a group has told what is measured
        self.pending: dict[tuple[int, int], list[Row]] = {}  # by first member of a group, and step
        self.unseen: dict[int, list[Row]] = {}  # written, by step: some members are late

    def open(self, measured: dict[str, Any], last: int) -> None:
        """Opens metrics.csv, cut back to this step."""
        edges = {name: tuple(x) for name, x in measured["edges"].items()}
        names, members = other_names(self.config.log_keys), self.config.members
        args = self.folder, measured["columns"], members, names, edges, self.reporter.note, last
        self.log = MetricsLog(*args)
        self.log.cut(last)
        header, rows = lines(self.log.path)
        self.written = {(int(row[0]), int(row[1])) for row in rows}
        counts = Counter(step for step, _ in self.written)
        for step, member, *numbers in to_numbers(rows)[0]:
            if counts[int(step)] < members:  # of those who are late, some are still to come
                values = {k: x for k, x in zip(header[2:], numbers) if not math.isnan(x)}
                self.unseen.setdefault(int(step), []).append((int(step), int(member), values, {}))

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
        for row in new:
            self.unseen.setdefault(row[0], []).append(row)
        self.show()

    def show(self) -> None:
        """Lets the reporter see rows of all members, as a trainer does, once all have theirs."""
        edges = dict(self.log.histograms.edges)
        for step in sorted(self.unseen):
            if len(self.unseen[step]) == self.config.members:
                rows = sorted(self.unseen.pop(step), key=lambda row: row[1])
                counts = [{k: (np.array(x), edges[k]) for k, x in row[3].items()} for row in rows]
                self.reporter.row(step, [row[2] for row in rows], counts)
