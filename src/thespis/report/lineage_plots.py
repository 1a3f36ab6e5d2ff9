"""Draws the returns, the hyper-parameters and the family tree of a population.

Only metrics.csv and lineage.csv are read.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.report.plots import (
    FAINT,
    GREY,
    INK,
    PALETTE,
    WORDS,
    legend,
    rows_axis,
    sheet,
    steps_axis,
    table_with,
)
from thespis.runs import directory, lineage
from thespis.runs.files import inside

WINNER, OTHERS = PALETTE[0], "#B8B8B8"
RETURN = "eval/mean_reward"


# --- the history of a population ------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """One exchange: the parents of its members, and hyper-parameters before and after."""

    step: float
    member: np.ndarray
    parent: np.ndarray
    score: np.ndarray
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]

    def parent_of(self, member: int) -> int:
        here = np.flatnonzero(self.member == member)
        return int(self.parent[here[0]]) if len(here) else member


@dataclass(frozen=True)
class Story:
    """The history of a population."""

    steps: np.ndarray  # of evaluations
    values: np.ndarray  # [evaluations, members] of the metric, NaN where there is none
    rounds: list[Round]
    metric: str

    @property
    def members(self) -> int:
        return self.values.shape[1]

    @property
    def end(self) -> float:
        return max(self.steps[-1], 1.0)

    @property
    def winner(self) -> int:
        """The member with the best last evaluation."""
        last = self.values[np.isfinite(self.values).any(1)][-1]
        return int(np.nanargmax(last))

    def line(self, member: int) -> list[int]:
        """Returns the slots of a member's ancestors, one before the first and after each round."""
        slots = [member]
        for one in reversed(self.rounds):
            slots.append(one.parent_of(slots[-1]))
        return slots[::-1]

    @property
    def edges(self) -> list[float]:
        """Steps between which no member is replaced."""
        return [0.0, *(r.step for r in self.rounds), self.end]

    def schedule(self, name: str, slots: list[int]) -> np.ndarray:
        """Returns a hyper-parameter between the edges, for these slots."""
        return self.schedules[name][np.arange(len(slots)), slots]

    @cached_property
    def schedules(self) -> dict[str, np.ndarray]:
        """{hyper-parameter: [eras, members]}: the value that was set last or, before the first
        round, the value then."""
        schedules = {}
        for name in self.rounds[0].after if self.rounds else ():
            values = np.full((len(self.rounds) + 1, self.members), np.nan)
            for i, one in reversed(list(enumerate(self.rounds))):
                values[i] = values[i + 1]
                values[i, one.member] = one.before[name]
            last = np.full(self.members, np.nan)
            for i, one in enumerate(self.rounds, 1):
                last[one.member] = one.after[name]
                values[i] = np.where(np.isnan(last), values[i], last)
            schedules[name] = values
        return schedules

    def lives(self, slot: int) -> list[tuple[list[float], list[float]]]:
        """Returns the curves of a slot's successive members; each starts at its parent's value."""
        births = [(r.step, r.parent_of(slot)) for r in self.rounds if r.parent_of(slot) != slot]
        lives, begin, parent = [], -math.inf, slot
        for end, after in [*births, (math.inf, slot)]:
            known = np.isfinite(self.values[:, slot])
            selected = (self.steps > begin) & (self.steps <= end) & known
            steps, values = self.steps[selected].tolist(), self.values[selected, slot].tolist()
            root = self.value_at(parent, begin)
            if root is not None and parent != slot:
                steps, values = [begin, *steps], [root, *values]
            lives.append((steps, values))
            begin, parent = end, after
        return lives

    def value_at(self, slot: int, step: float) -> float | None:
        """Returns the newest value of a member at a step."""
        before = (self.steps <= step) & np.isfinite(self.values[:, slot])
        return float(self.values[before, slot][-1]) if before.any() else None

    def along(self, line: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the evaluations along a line of ancestors."""
        # A round follows the evaluation of its step.
        era = np.searchsorted([r.step for r in self.rounds], self.steps, side="left")
        values = self.values[np.arange(len(era)), np.array(line)[era]]
        known = np.isfinite(values)
        return self.steps[known], values[known]

    @property
    def scores(self) -> np.ndarray:
        """[eras, members]: the score of each member at the end of an era, or its last value."""
        scores = np.full((len(self.rounds) + 1, self.members), np.nan)
        for i, one in enumerate(self.rounds):
            scores[i, one.member] = one.score
        for slot in range(self.members):
            value = self.value_at(slot, math.inf)
            scores[-1, slot] = np.nan if value is None else value
        return scores


def read(folder: Path | str, metric: str = RETURN) -> Story:
    """Reads the history of a run's population."""
    folder = directory.find(folder)
    table = table_with(folder, metric)
    steps, members = np.unique(table["step"]), int(table["member"].max()) + 1
    values = np.full((len(steps), members), np.nan)
    place = np.searchsorted(steps, table["step"]), table["member"].astype(int)
    values[place] = table[metric]
    some = np.isfinite(values).any(1)
    if not some.any():
        raise ThespisError(f"{folder} has no {metric} yet: wait for its first value")
    # The result of a round at the last evaluation is not known yet.
    rounds = [r for r in _rounds(folder, members) if r.step < steps[some][-1]]
    return Story(steps[some], values[some], rounds, metric)


def _rounds(folder: Path, members: int) -> list[Round]:
    if not os.path.lexists(folder / "lineage.csv"):
        raise ThespisError(f"{folder} has no lineage.csv: it is not a tuned population")
    table = lineage.read(folder, members)
    step = table["step"]
    # The members of a round are in order; two rounds may fall on one step.
    new = np.flatnonzero((np.diff(step) != 0) | (np.diff(table["member"]) <= 0)) + 1
    names = [name.removeprefix("after/") for name in table if name.startswith("after/")]
    rounds = []
    for rows in np.split(np.arange(len(step)), new) if len(step) else []:
        before, after = ({n: table[f"{x}/{n}"][rows] for n in names} for x in ("before", "after"))
        member, parent = (table[name][rows].astype(int) for name in ("member", "parent"))
        score = table["score"][rows]
        rounds.append(Round(float(step[rows[0]]), member, parent, score, before, after))
    return rounds


# --- plots ----------------------------------------------------------------------------------


def draw(folder: Path | str, metric: str = RETURN) -> list[Path]:
    """Draws all plots of a population into its folder `plots`."""
    folder = directory.find(folder)
    story = read(folder, metric)
    plots = {"members": returns, "family_tree": family_tree, "schedules": schedules}
    if not (story.rounds and story.rounds[0].after):
        del plots["schedules"]
    return [plot(story, inside(folder, "plots", f"{name}.png")) for name, plot in plots.items()]


def returns(story: Story, path: Path | str) -> Path:
    """Draws all returns, copies branching off from their parents; the winning line in colour."""
    with sheet(path, (7.2, 4.2)) as figure:
        panel = figure.subplots()
        for slot in range(story.members):
            *replaced, last = story.lives(slot)
            for steps, values in [*replaced, last]:
                panel.plot(steps, values, color=OTHERS, linewidth=1, zorder=2)
            for steps, values in replaced:
                panel.plot(steps[-1:], values[-1:], "o", color=OTHERS, markersize=3, zorder=2)
        steps, values = story.along(story.line(story.winner))
        panel.plot(steps, values, color="white", linewidth=4.5, zorder=3)
        panel.plot(steps, values, color=WINNER, linewidth=2.4, zorder=4)
        panel.plot(steps[-1:], values[-1:], "o", color=WINNER, markersize=6, zorder=5)
        _floor(panel, story.values)
        steps_axis(panel, story.end, 0.015)
        panel.grid(axis="y")
        panel.set_ylabel(WORDS.get(story.metric, story.metric))
        panel.set_title(f"{story.members} members")
        legend(figure, [(_name(story), WINNER, "-", 2.4), ("other members", OTHERS, "-", 1.2)])
    return Path(path)


def schedules(story: Story, path: Path | str) -> Path:
    """Draws each hyper-parameter along the winning line, with other members in grey."""
    names = list(story.rounds[0].after) if story.rounds else []
    if not names:
        raise ThespisError("nothing was tuned: there are no schedules to plot")
    columns = 2 if len(names) == 4 else min(len(names), 3 if len(names) <= 6 else 4)
    rows = math.ceil(len(names) / columns)
    line = story.line(story.winner)
    with sheet(path, (3.4 * columns, 2.4 * rows + 0.5)) as figure:
        figure.get_layout_engine().set(h_pad=0.1)
        panels = figure.subplots(rows, columns, squeeze=False)
        for name, panel in zip(names, panels.flat, strict=False):
            members = [story.schedule(name, [slot] * len(line)) for slot in range(story.members)]
            scale = _scale(panel, name, np.array(members))
            for values in members:
                panel.stairs(scale(values), story.edges, baseline=None, color=OTHERS, linewidth=0.8)
            winner = scale(story.schedule(name, line))
            panel.stairs(winner, story.edges, baseline=None, color="white", linewidth=4.5, zorder=3)
            panel.stairs(winner, story.edges, baseline=None, color=WINNER, linewidth=2.4, zorder=4)
            steps_axis(panel, story.end, 0.015)
            panel.grid(axis="y")
            panel.set_title(name)
            panel.set_ylabel(name)
        for panel in panels.flat[len(names) :]:
            panel.set_axis_off()
        legend(figure, [(_name(story), WINNER, "-", 2.4), ("other members", OTHERS, "-", 1.2)])
    return Path(path)


def family_tree(story: Story, path: Path | str) -> Path:
    """Draws the copies of members: a row per member, coloured by score, with the winning line."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    line, edges, scores = story.line(story.winner), story.edges, story.scores
    known = scores[np.isfinite(scores)]
    low, high = np.quantile(known, [0.1, 1]) if len(known) else (0, 1)
    colours = matplotlib.colormaps["viridis"]
    norm = Normalize(low, max(high, low + 1e-9))
    with sheet(path, (7.6, 0.34 * story.members + 1.8)) as figure:
        panel = figure.subplots()
        for i, (start, end) in enumerate(pairwise(edges)):
            for slot in range(story.members):
                colour = colours(norm(scores[i, slot])) if np.isfinite(scores[i, slot]) else FAINT
                panel.hlines(slot, start, end, colour, linewidth=8, zorder=2)
        reach = min(0.35 * np.diff(edges).min(), 0.02 * story.end)
        for one in story.rounds:
            for slot in range(story.members):
                if one.parent_of(slot) != slot:
                    bend = _bend(one.step, one.parent_of(slot), slot, reach)
                    panel.plot(*bend, color="white", linewidth=2.6, zorder=3)
                    panel.plot(*bend, color=GREY, linewidth=1.2, zorder=4)
        bends = [_bend(r.step, *pair, reach) for r, pair in zip(story.rounds, pairwise(line))]
        track = np.hstack([[[0], [line[0]]], *bends, [[story.end], [line[-1]]]])
        panel.plot(*track, color="white", linewidth=4, zorder=5)
        panel.plot(*track, color=INK, linewidth=2.2, zorder=6)
        panel.plot(story.end, line[-1], "o", color=INK, markersize=7, zorder=7, clip_on=False)
        steps_axis(panel, story.end, 0.015)
        rows_axis(panel, [str(slot) for slot in range(story.members)])
        panel.set_ylabel("member")
        look = {
            "pad": 0.02,
            "fraction": 0.05,
            "extend": "min" if (known < low).any() else "neither",
        }
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=panel, **look)
        bar.set_label(WORDS.get(story.metric, story.metric))
        bar.outline.set_visible(False)  # pyright: ignore
        legend(figure, [(_name(story), INK, "-", 2.2), ("a copy is made", GREY, "-", 1.2)])
    return Path(path)


# --- parts of plots -------------------------------------------------------------------------


def _bend(step: float, parent: int, slot: int, reach: float) -> np.ndarray:
    """Returns a curve from one row to another around a step: x, y [2, points]."""
    t = np.linspace(-1, 1, 41)
    return np.stack([step + reach * t, parent + (slot - parent) * (1 + np.sin(t * np.pi / 2)) / 2])


def _scale(panel, name: str, values: np.ndarray) -> Any:
    """Sets a logarithmic scale if values call for one; returns the transformation to draw by."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    scale = scale_of(name, values)
    if scale == "linear":
        return lambda x: x
    drawn = (lambda x: 1 - x) if scale == "gamma" else (lambda x: x)
    known = drawn(values[np.isfinite(values)])
    span = known.max() / known.min()
    digits = (1, 2, 5) if span < 30 else (1, 3) if span < 1000 else (1,)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=digits, numticks=8))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{drawn(x):.4g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    if scale == "gamma":
        panel.invert_yaxis()
    return drawn


def scale_of(name: str, values: np.ndarray) -> str:
    """Returns "linear", "log" or "gamma", which is the logarithm of the distance from 1."""
    known = values[np.isfinite(values)]
    if name == "gamma" and len(known) and (known < 1).all():
        return "gamma"
    wide = len(known) and known.min() > 0 and known.max() / known.min() > 15
    return "log" if wide else "linear"


def _floor(panel, values: np.ndarray) -> None:
    """Cuts off very low values, so that failed members do not compress the others' curves."""
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, 0.05), known.max()
    low = max(known.min(), low - 0.5 * (high - low))
    margin = 0.05 * (high - low or 1.0)
    panel.set_ylim(low - margin, high + margin)


def _name(story: Story) -> str:
    return f"winning line (member {story.winner})"
