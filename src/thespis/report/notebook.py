"""Shows runs in a notebook: a card of each, a comparison of several, and a live training.

Everything is HTML and SVG without scripts, in the colours of the notebook, light or dark. Text from
runs is escaped, since they may be untrusted.
"""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError, printable
from thespis.report import statistics
from thespis.report.charts import thin
from thespis.report.facts import facts
from thespis.report.media import videos
from thespis.report.plots import WORDS, Curve, groups_of, members_of, thousands
from thespis.report.progress import Speed, clock, duration, ranges, tuned
from thespis.report.report import PAGE, choose
from thespis.report.source import RETURN, Source
from thespis.report.table import cells, decimal
from thespis.runs.config import DIVERSITY
from thespis.runs.reporter import Counted, Silent, stopped
from thespis.selection import name_of

MEGABYTES = 8.0  # largest video in a card
PAUSE = 0.25  # seconds between updates of a display
POINTS, LARGEST = 200, 1e100  # most points of a line, and the largest number that is drawn
COLOURS = ("#2b8cd0", "#e0762a", "#18a077", "#c56ba0", "#c08a12", "#5aaede", "#8a8f94")


# --- a run ----------------------------------------------------------------------------------


def card(folder: Path, notes: Iterable[str] = ()) -> str:
    """Returns the HTML of a run: state, results, curve, video, command; or an error."""
    try:
        return page(*card_parts(Source(folder)), *note_lines(notes))
    except ThespisError as error:
        return page(f"<b>{safe(folder)}</b>", soft(error), *note_lines(notes))


def card_parts(source: Source) -> list[str]:
    """Returns the parts of a card."""
    known, metric = facts(source, 0), metric_of([source])
    step, steps = known["step"], known["steps"]
    shown = {
        "steps": f"{step:,}" + (f" of {steps:,}" if steps != step else ""),
        "last return" + (" (IQM)" if known["interval"] else ""): number(known["last"]),
        "best": number(known["best"]),
        "steps/s": f"{known['fps']:,.0f}" if math.isfinite(known["fps"]) else "",
        "time": duration(known["elapsed"]) if math.isfinite(known["elapsed"]) else "",
    }
    values = [f"<span>{safe(k)} <b>{safe(v)}</b></span>" for k, v in shown.items() if v]
    parts = [
        heading(known["title"], known["state"]),
        f'<div class="path">{safe(known["path"])}</div>',
        *(soft(x) for x in (", ".join(known["tags"]), known["notes"]) if x),
        *(soft(known[why]) for why in ("error", "reason") if known[why]),
        f'<div class="facts">{"".join(values)}</div>',
        f'<div class="side">{charts(curves([source], metric), metric)}{moving(source)}</div>',
    ]
    if len(rows := known["members"]) > 1:
        title = "member" if known["tuned"] else "seed"
        number_of = lambda row: row["name"].split()[-1]
        names = {"last": "last return", "best": "best", "at": "at step"}
        lines = [{title: number_of(r)} | {new: r[k] for k, new in names.items()} for r in rows]
        parts.append(table(lines))
    return [*parts, *(f"<code>{safe(command)}</code>" for command in known["commands"])]


def moving(source: Source) -> str:
    """Returns the first video of a run that is small enough, or the names of larger ones."""
    items = videos([source], MEGABYTES, None)
    for item in items:
        if item["inside"] and item["moves"]:
            return f'<video controls loop muted src="{safe(item["source"])}"></video>'
        if item["inside"]:
            return f'<img alt="{safe(item["name"])}" src="{safe(item["source"])}">'
    return "".join(soft(item["file"]) for item in items)


# --- several runs ---------------------------------------------------------------------------


class Comparison:
    """Several runs side by side; a notebook shows their curves and a table, `print` the table."""

    def __init__(self, folders: Sequence[Path | str]):
        self.sources, self.faults = choose(folders).read()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per run."""
        rows = []
        for source in self.sources:
            known = facts(source, 0)
            last, best = (float(known[k]) for k in ("last", "best"))
            rows.append(
                {
                    "run": known["path"],
                    "what": known["title"],
                    "state": known["state"],
                    "seeds": len(source.seeds),
                    "steps": known["step"],
                    "last return": last if math.isfinite(last) else None,
                    "best": best if math.isfinite(best) else None,
                }
            )
        return rows

    def __str__(self) -> str:
        from rich.console import Console

        from thespis.report.table import summary

        console = Console(width=200, color_system=None, force_jupyter=False)
        with console.capture() as captured:
            console.print(summary(self.rows))
        lines = captured.get().splitlines()
        return "\n".join(line.rstrip() for line in lines if line.strip())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        metric = metric_of(self.sources)
        drawn = charts(curves(self.sources, metric), metric)
        return page(f'<div class="side">{drawn}</div>', table(self.rows), *note_lines(self.faults))


# --- curves ---------------------------------------------------------------------------------


def metric_of(sources: Sequence[Source]) -> str:
    """Returns the metric of curves: returns, or the intrinsic reward of runs without rewards."""
    return DIVERSITY if all(DIVERSITY in source.table for source in sources) else RETURN


def curves(sources: Sequence[Source], metric: str) -> list[Curve]:
    """Returns a curve for each group of runs that has values."""
    tables = {source.folder: source.table for source in sources}
    result = []
    for group in groups_of(tables):
        read = [tables[folder] for folder in group.folders if metric in tables[folder]]
        runs = [run for table in read for run in members_of(table, metric).values()]
        result += [Curve(group.label, runs, group.env)] if runs else []
    return result


def charts(curves: Sequence[Curve], metric: str = RETURN) -> str:
    """Returns a drawing for each environment."""
    envs = dict.fromkeys(curve.env for curve in curves)
    return "".join(chart([c for c in curves if c.env == env], metric) for env in envs)


def chart(curves: Sequence[Curve], metric: str, size: tuple[int, int] = (440, 220)) -> str:
    """Returns an SVG of every seed, and of the interquartile mean of each curve."""
    from matplotlib.ticker import MaxNLocator

    (width, height), (left, top, bottom) = size, (58, 20, 34)
    curves = [replace(curve, runs=[drawable(*run) for run in curve.runs]) for curve in curves]
    ends = [x[-1] for curve in curves for x, _ in curve.runs]
    values = np.concatenate([y for curve in curves for _, y in curve.runs])
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - max(0.5, 0.1 * abs(low)), high + max(0.5, 0.1 * abs(high))
    last = float(max(*ends, 1))
    right = width - 12
    at_x = lambda x: left + (right - left) * x / last
    at_y = lambda y: height - bottom - (height - bottom - top) * (y - low) / (high - low)
    ticks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values
    text = lambda x, y, words, anchor: (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{safe(words)}</text>'
    )
    several = any(len(curve.runs) > 1 for curve in curves)
    title = f"{curves[0].env}: {WORDS.get(metric, metric)}{', IQM over seeds' * several}"
    parts = [text(0, 12, title, "start")]
    for tick in ticks(low, high):
        if low <= tick <= high:
            parts.append(
                f'<line x1="{left}" x2="{right}" y1="{at_y(tick):.1f}" y2="{at_y(tick):.1f}" '
                'stroke="currentColor" stroke-opacity=".15"/>'
            )
            parts.append(text(left - 6, at_y(tick) + 4, f"{tick:,.6g}", "end"))
    for tick in ticks(0, last):
        if 0 <= tick <= last:
            parts.append(text(at_x(tick), height - bottom + 15, thousands(tick), "middle"))
    parts.append(text((left + right) / 2, height - 4, "environment steps", "middle"))
    line = lambda x, y, look: (
        f'<polyline fill="none" {look} points="'
        + " ".join(f"{at_x(a):.1f},{at_y(b):.1f}" for a, b in zip(x, y, strict=True))
        + '"/>'
    )
    legend = []
    for i, curve in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        one = len(curve.runs) == 1
        faint = f'stroke="{colour}" stroke-width="1" stroke-opacity=".45"'
        thick = f'stroke="{colour}" stroke-width="2" stroke-linejoin="round"'
        parts += [line(x, y, thick if one else faint) for x, y in curve.runs]
        if not one:
            try:
                grid, seeds = statistics.on_grid(*zip(*curve.runs, strict=True))
                parts.append(line(grid, statistics.iqm(seeds), thick))
            except ThespisError:  # no steps in common
                pass
        for x, y in curve.runs:
            if len(x) == 1:  # a line through one point is invisible
                dot = f'cx="{at_x(x[0]):.1f}" cy="{at_y(y[0]):.1f}"'
                parts.append(f'<circle {dot} r="2.5" fill="{colour}"/>')
        legend.append(f'<span><i style="background: {colour}"></i>{safe(curve.label)}</span>')
    drawing = f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'
    named = f'<div class="legend">{"".join(legend)}</div>' if len(curves) > 1 else ""
    return f'<div class="chart">{drawing}{named}</div>'


def drawable(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns a curve with few enough points, and values that are not too large for axes."""
    some = thin(len(steps), POINTS)
    return np.clip(steps[some], 0, LARGEST), np.clip(values[some], -LARGEST, LARGEST)


# --- a training -----------------------------------------------------------------------------


class Notebook(Silent):
    """A display that is updated in place while a run is trained, and shows its card at the end."""

    def __init__(self):
        self.handle, self.drawn, self.notes, self.speed = None, 0.0, [], Speed()

    def begin(self, config, folder: Path | str, step: int) -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports]

        self.config, self.folder, self.step, self.total = config, folder, step, config.steps
        self.state, self.rate, self.left = "running", None, None
        self.rewards: dict[int, tuple[list[int], list[float]]] = {}
        self.handle = display(self.html(), display_id=True)

    def compiling(self) -> None:
        self.rate = self.left = None
        self.refresh(now=True)

    def advance(self, step: int, total: int, elapsed: float, compiling: float) -> None:
        self.step, self.total = step, total
        self.rate = self.speed.at(step, elapsed, compiling)
        learning = step > self.config.learning_starts
        self.left = (total - step) / self.rate if self.rate and learning else None
        self.refresh()

    def row(self, step: int, rows: list[dict[str, Any]], counted: Counted = None) -> None:
        for m, row in enumerate(rows):
            if math.isfinite(row.get(RETURN, math.nan)):
                steps, rewards = self.rewards.setdefault(m, ([], []))
                steps.append(step)
                rewards.append(float(row[RETURN]))
        self.refresh()

    def note(self, text: str) -> None:
        if self.handle is None:
            super().note(text)
            return
        self.notes.append(text)
        self.refresh(now=True)

    def end(self) -> None:
        self.state = "failed" if sys.exc_info()[0] else self.state
        self.refresh(now=True)

    def done(self, run, state: str, curve: Path | None) -> None:
        notes = [*self.notes, *([stopped(run)] if state == "stopped" else [])]
        if self.handle is not None:
            self.handle.update(as_html(card(run.path, notes)))

    def refresh(self, now: bool = False) -> None:
        """Redraws the display, at most every `PAUSE` seconds unless `now`."""
        if self.handle is not None and (now or time.monotonic() - self.drawn >= PAUSE):
            self.handle.update(self.html())
            self.drawn = time.monotonic()

    def html(self) -> Any:
        config = self.config
        seeds = f"seed{'s' * (len(config.seeds) > 1)} {ranges(config.seeds)}"
        words = [f"{self.step:,} of {self.total:,} steps", seeds]
        words += [tuned(config)] if config.tuner else []
        words += [f"{self.rate:,.0f} steps/s"] if self.rate else ["compiling"]
        words += [f"{clock(self.left)} left"] if self.left is not None else []
        runs = [(np.array(x), np.array(y)) for x, y in self.rewards.values()]
        task = name_of(config.env)
        filled = 100 * min(self.step / max(self.total, 1), 1)
        parts = [
            heading(f"{config.algo} on {task}", self.state),
            f'<div class="path">{safe(self.folder)}</div>',
            f'<div class="bar"><div style="width: {filled:.1f}%"></div></div>',
            f'<div class="facts">{"".join(f"<span>{safe(word)}</span>" for word in words)}</div>',
            charts([Curve(config.algo, runs, printable(task))]) if runs else "",
        ]
        return as_html(page(*parts, *note_lines(self.notes)))


# --- HTML -----------------------------------------------------------------------------------


def page(*parts: str) -> str:
    style = (PAGE / "notebook.css").read_text("utf-8")
    return f'<div class="thespis"><style>{style}</style>{"".join(parts)}</div>'


def as_html(text: str) -> Any:
    """Returns an object that IPython displays as HTML."""
    from IPython.display import HTML  # pyright: ignore[reportMissingImports]

    return HTML(text)


def safe(text: object) -> str:
    """Escapes text for HTML."""
    return html.escape(printable(text))


def heading(title: str, state: str) -> str:
    return f'<div><b>{safe(title)}</b><span class="state">{safe(state)}</span></div>'


def soft(text: object) -> str:
    return f'<div class="soft">{safe(text)}</div>'


def note_lines(notes: Iterable[str]) -> list[str]:
    return [soft(f"note: {text}") for text in notes]


def number(value: Any) -> str:
    return decimal(value) if math.isfinite(value) else ""


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns rows as an HTML table, with numbers formatted as in the terminal."""
    names = list(rows[0])
    words = [n for n in names if any(isinstance(row[n], str) for row in rows)]
    look = lambda name: ' class="words"' if name in words else ""
    columns = [cells(name, [row[name] for row in rows]) for name in names]
    line = lambda line: "".join(
        f"<td{look(n)}>{safe(x)}</td>" for n, x in zip(names, line, strict=True)
    )
    head = "".join(f"<th{look(name)}>{safe(name)}</th>" for name in names)
    body = "".join(f"<tr>{line(values)}</tr>" for values in zip(*columns, strict=True))
    drawn = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{drawn}</div>'
