"""Reads the data of a run that pages show, as far as it has been written."""

from __future__ import annotations

import math
import os
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from thespis.errors import ThespisError
from thespis.report import lineage_plots, logged
from thespis.report.logged import Histogram
from thespis.report.plots import read_table
from thespis.runs import directory, metrics

RETURN = "eval/mean_reward"


class Source:
    """The data of a run folder, as far as it has been written."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.config = directory.read_config(folder)
        self.seeds = self.config["seeds"]
        self.tuned = bool(self.config.get("tuner"))
        self.status = directory.status_of(folder)
        self.programs = directory.programs_of(folder)

    @cached_property
    def table(self) -> dict[str, np.ndarray]:
        return read_table(self.folder)

    @cached_property
    def story(self) -> lineage_plots.Story | None:
        """The history of a tuned population, once there is one."""
        if not self.tuned or not os.path.lexists(self.folder / "lineage.csv"):
            return None
        fitness = self.config.get("pbt", {}).get("fitness", RETURN)
        try:
            return lineage_plots.read(self.folder, fitness if fitness in self.table else RETURN)
        except ThespisError:
            return None

    @cached_property
    def logged(self) -> logged.Logged:
        """The images and histograms of callbacks, if the run has callbacks."""
        if not self.config.get("callbacks"):
            return logged.Logged([], {})
        return logged.read(self.folder, len(self.seeds))

    @cached_property
    def histograms(self) -> dict[str, Histogram]:
        """The histograms of the run, by name; {} if there are none that can be read."""
        return self.logged.histograms | self.counted

    @property
    def counted(self) -> dict[str, Histogram]:
        """The histograms that the algorithm counts, which are in histograms.csv."""
        path = self.folder / "histograms.csv"
        try:
            table = metrics.read(path, len(self.seeds)) if os.path.lexists(path) else {}
        except ThespisError:
            return {}
        bins: dict[str, list[tuple[float, float, str]]] = {}
        for column in table:
            name, *ends = column.rsplit(":", 2)
            try:
                low, high = map(float, ends)
            except ValueError:  # step and member, and damaged columns
                continue
            bins.setdefault(name, []).append((low, high, column))
        steps, row = np.unique(table.get("step", np.zeros(0)), return_inverse=True)
        histograms = {}
        for name, ends in bins.items():
            edges = (ends[0][0], *(high for _, high, _ in ends))
            joined = all(a[1] == b[0] for a, b in pairwise(ends))
            if not joined or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
                continue
            counts = np.zeros((len(steps), len(ends)))
            np.add.at(counts, row, np.stack([np.nan_to_num(table[c]) for *_, c in ends], 1))
            if (counts > 0).any():
                histograms[name] = Histogram(edges, steps, counts)
        return histograms

    def name(self, member: int) -> str:
        if self.tuned or member >= len(self.seeds):
            return f"member {member}"
        return f"seed {self.seeds[member]}"

    def last(self, column: str) -> float:
        """Returns the newest value of a column, NaN if there is none."""
        values = self.table.get(column, np.zeros(0))
        values = values[np.isfinite(values)]
        return float(values[-1]) if len(values) else math.nan
