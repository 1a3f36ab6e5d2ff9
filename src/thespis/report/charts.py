"""Turns runs into charts, which are plain data; the scripts in `page/` draw them."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.report import lineage_plots, logged, statistics
from thespis.report.logged import Histogram
from thespis.report.plots import WORDS, Group, members_of
from thespis.report.source import RETURN, Source

NUMBERS = 1_000_000  # most numbers in all charts of a page, about 5 MB
POINTS = 1000  # most points of a line
COLUMNS = 160  # most columns of a histogram over time
SECTIONS = {
    "eval": "Evaluations",
    "rollout": "Episodes",
    "train": "Learning",
    "replay": "Replay",
    "time": "Speed",
}
LEFT_OUT = ("step", "member", RETURN, "time/elapsed_s", "time/transitions", "train/n_updates")
UNITS = {
    "time/fps": "steps per second",
    "time/compile_s": "seconds",
    "rollout/ep_len_mean": "steps per episode",
    "eval/mean_ep_length": "steps per episode",
    "eval/std_reward": "std of returns",
    "replay/size": "rows",
}


@dataclass
class Numbers:
    """Arrays as text, each stored once; charts refer to them by their index."""

    packed: list[str] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)

    def store(self, values: Any, kind: str = "<f4") -> int:
        raw = np.asarray(values, kind).tobytes()
        if raw not in self.places:
            self.places[raw] = len(self.packed)
            self.packed.append(kind[-1] + base64.b64encode(raw).decode())
        return self.places[raw]

    def points(self, x: Any, most: int, **values: Any) -> dict[str, int]:
        """Stores a line of at most `most` points: x as float64 for large steps, y as float32."""
        some = thin(len(x), most)
        packed = {name: self.store(np.asarray(y)[some]) for name, y in values.items()}
        return {"x": self.store(np.asarray(x)[some], "<f8"), **packed}


def thin(n: int, most: int) -> np.ndarray:
    """Returns at most `most` of n indices, evenly spread, with the first and the last."""
    return np.unique(np.linspace(0, n - 1, min(n, max(most, 2))).round().astype(int))


# --- charts of any runs ---------------------------------------------------------------------


@dataclass
class Charts:
    """Makes charts of runs; `groups` are runs that differ only in their seeds."""

    sources: dict[Path, Source]
    groups: list[Group]
    numbers: Numbers

    def __post_init__(self):
        self.place = {folder: i for i, folder in enumerate(self.sources)}
        self.members = sum(len(source.seeds) for source in self.sources.values())

    def returns(self) -> list[dict]:
        """Returns a chart of evaluations, over steps and over time, per environment."""
        charts, most = [], min(POINTS, max(100, NUMBERS // 4 // self.members))
        for i, env in enumerate(dict.fromkeys(group.env for group in self.groups)):
            lines = [
                line
                for j, group in enumerate(self.groups)
                if group.env == env
                for line in self.curve(group, j, RETURN, most, iqm=True)
            ]
            banded = any("low" in by for line in lines for by in line["by"].values())
            note = "IQM over seeds with 95 % bootstrap interval" if banded else ""
            chart = {"id": f"returns-{i}", "title": env, "y": WORDS[RETURN], "floor": True}
            charts.append(chart | {"note": note, "series": lines})
        return charts

    def panels(self) -> list[dict]:
        """Returns a small chart of every other metric that changes, by section."""
        sources = self.sources.values()
        names = list(dict.fromkeys(name for x in sources for name in x.table))
        tuned = all(x.tuned for x in sources)
        names = [
            name
            for name in names
            if name not in LEFT_OUT
            and not name.startswith(("hparams_asked/", *["hparams/"] * tuned))
            and any(changes(x.table.get(name)) for x in sources)
        ]
        most = min(POINTS, max(50, NUMBERS // max(1, self.members * len(names))))
        charts = []
        for name in names:
            curves = [self.curve(group, j, name, most) for j, group in enumerate(self.groups)]
            lines = [line for curve in curves for line in curve]
            section, _, title = name.partition("/")
            title = title or name
            chart = {"id": name, "title": title, "section": SECTIONS.get(section, section)}
            chart["y"] = UNITS.get(name) or WORDS.get(name) or words(title)
            charts += [chart | {"series": lines}] if lines else []
        order = [*SECTIONS.values()]
        place = lambda chart: order.index(chart["section"]) if chart["section"] in order else 3.5
        return sorted(charts, key=place)

    def curve(
        self, group: Group, colour: int, metric: str, most: int, iqm: bool = False
    ) -> list[dict]:
        """Returns the line of a group, and faint lines of its members.

        The line is the mean over members or, with `iqm`, their interquartile mean with an interval
        if there are two or more seeds. Members of a tuned population copy each other, so they have
        no interval.
        """
        here = [x for f in group.folders if metric in (x := self.sources[f]).table]
        lines: dict[str, list] = {"steps": [], "time": []}
        names, runs = [], []
        for source in here:
            by_steps = members_of(source.table, metric)
            if len(by_steps) > 1 and same(list(by_steps.values())):  # such as speed
                by_steps = dict([next(iter(by_steps.items()))])
            clock = "time/elapsed_s" if "time/elapsed_s" in source.table else "step"
            by_time = members_of(source.table, metric, clock)
            names += [source.name(m) for m in by_steps]
            runs += [self.place[source.folder]] * len(by_steps)
            lines["steps"] += by_steps.values()
            lines["time"] += [by_time.get(m, by_steps[m]) for m in by_steps]
        if not names:
            return []
        points, tuned = self.numbers.points, any(source.tuned for source in here)
        look = {"group": group.label, "colour": colour}
        whole = {"name": group.label, **look, "bold": True, "members": len(names)}
        whole |= {"runs": list(dict.fromkeys(runs)), "tuned": tuned, "iqm": iqm}
        if len(names) == 1:
            by = {axis: points(x, most, y=y) for axis, [(x, y)] in lines.items()}
            return [whole | {"by": by}]
        faint = [
            {"name": name, **look, "runs": [run]}
            | {"by": {axis: points(x, most, y=y) for axis, (x, y) in zip(lines, both)}}
            for name, run, *both in zip(names, runs, *lines.values(), strict=True)
        ]
        by = {}
        for axis, pairs in lines.items():
            try:
                grid, values = statistics.on_grid(*zip(*pairs, strict=True))
            except ThespisError:  # no steps in common
                continue
            some = thin(len(grid), most)
            grid, values = grid[some], values[:, some]
            middle = statistics.iqm(values) if iqm else statistics.mean(values)
            banded = iqm and not tuned
            interval = statistics.bootstrap(values, statistics.iqm, draws=1000) if banded else None
            low_high = dict(zip(("low", "high"), interval)) if interval else {}
            by[axis] = points(grid, most, y=middle, **low_high)
        return [*faint, *([whole | {"by": by}] if by else [])]

    def histograms(self) -> list[dict]:
        """Returns a chart of every histogram and group: the distribution of values over steps."""
        sources = self.sources.values()
        charts = []
        for name in dict.fromkeys(name for x in sources for name in x.histograms):
            for j, group in enumerate(self.groups):
                here = [f for f in group.folders if name in self.sources[f].histograms]
                if here:
                    total = logged.total([self.sources[f].histograms[name] for f in here])
                    chart = {"id": f"histogram-{j}-{name}", "title": name.partition("/")[2] or name}
                    chart["note"] = group.label if len(self.groups) > 1 else ""
                    chart["y"] = words(chart["title"])
                    chart |= {"runs": [self.place[f] for f in here], "colour": j}
                    charts.append(chart | {"histogram": self.shares(total)})
        return charts

    def shares(self, histogram: Histogram) -> dict[str, Any]:
        """Returns the counts in columns of steps; neighbouring columns are merged if too many."""
        ends = thin(len(histogram.steps), COLUMNS)
        counts = np.add.reduceat(histogram.counts, np.concatenate([[0], ends[:-1] + 1]), axis=0)
        steps = np.concatenate([[0], histogram.steps[ends]])
        store = self.numbers.store
        return {"edges": histogram.edges, "steps": store(steps, "<f8"), "counts": store(counts)}


def words(name: str) -> str:
    """Returns the name of a metric as the title of an axis."""
    return name.replace("_", " ").replace("/", " ")


def same(lines: list[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Returns whether all members have the same line."""
    return all(np.array_equal(a, b) for line in lines[1:] for a, b in zip(lines[0], line))


def changes(values: np.ndarray | None) -> bool:
    """Returns whether a column has more than one value, apart from rounding."""
    known = values[np.isfinite(values)] if values is not None else ()
    return len(known) > 0 and not np.allclose(known, known[0], rtol=1e-6, atol=0)


# --- charts of a population -----------------------------------------------------------------


def population_charts(story: lineage_plots.Story, numbers: Numbers) -> dict[str, Any]:
    """Returns the members of a population with the winning line, schedules and family tree."""
    line, edges = story.line(story.winner), np.array(story.edges)
    winner = {"name": "winning line", "group": "winning line", "colour": 0, "bold": True}
    other = {"group": "other members", "colour": -1}

    def life(slot: int) -> dict[str, Any]:
        """Returns the line of a slot: its successive members, with gaps in between."""
        lives = [life for life in story.lives(slot) if life[0]]
        gap = lambda values, end: [x for life in values for x in (*life, end)]
        x = gap([steps for steps, _ in lives], story.end)
        y = gap([values for _, values in lives], math.nan)
        return {"name": f"member {slot}", **other, "by": {"steps": numbers.points(x, 10**9, y=y)}}

    x, y = story.along(line)
    best = winner | {"by": {"steps": numbers.points(x, POINTS, y=y)}}
    members = {
        "id": "members",
        "title": f"{story.members} members, and the line that won",
        "y": WORDS.get(story.metric, story.metric),
        "floor": True,
        "note": "copies branch off from their parents",
        "series": [*map(life, range(story.members)), best],
    }
    schedules = []
    for name, values in story.schedules.items():
        stairs = lambda y: {"steps": numbers.points(edges, 10**9, y=[*y, y[-1]])}
        lines = [
            {"name": f"member {m}", **other, "step": True, "by": stairs(values[:, m])}
            for m in range(story.members)
        ]
        lines.append(winner | {"step": True, "by": stairs(story.schedule(name, line))})
        scale = lineage_plots.scale_of(name, values)
        chart = {"id": f"schedule-{name}", "title": name, "y": name, "scale": scale}
        schedules.append(chart | {"series": lines})
    copies = [
        [one.step, one.parent_of(m), m]
        for one in story.rounds
        for m in one.member.tolist()
        if one.parent_of(m) != m
    ]
    tree = {
        "id": "family-tree",
        "title": "Family tree",
        "note": "a row per member, coloured by its score; a curve is a copy being made",
        "y": "member",
        "tree": {
            "members": story.members,
            "edges": story.edges,
            "line": line,
            "metric": WORDS.get(story.metric, story.metric),
            "scores": numbers.store(story.scores),
            "copies": copies,
            "tuned": {name: numbers.store(values) for name, values in story.schedules.items()},
        },
    }
    return {"members": members, "schedules": schedules, "tree": tree, "winner": story.winner}
