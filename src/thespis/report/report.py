"""Writes a page about a run, or about several: curves, population, videos, configuration.

The page is made from the run folders alone, holds everything it shows and opens from the disk.
Here runs become charts, which are plain data; `page/report.js` draws them.
"""

from __future__ import annotations

import base64
import html
import json
import math
import mimetypes
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from thespis import __version__
from thespis.errors import ThespisError, listed
from thespis.report import lineage_plots, statistics
from thespis.report.plots import WORDS, Group, groups_of, members_of, read_table
from thespis.runs import directory, files
from thespis.runs.files import output

RETURN = "eval/mean_reward"
NUMBERS = 1_000_000  # in all charts of a page: some 5 MB
POINTS = 1000  # of a line
PICTURES = 4.0  # megabytes of plots that are put into the page; the rest is linked
DRAWN_HERE = ("learning_curve", "members", "family_tree", "schedules")  # left out as pictures
VIDEOS, STILLS = (".mp4", ".webm", ".gif"), (".png", ".svg", ".jpg", ".jpeg", ".webp")
SECTIONS = {
    "eval": "Evaluations",
    "rollout": "Episodes",
    "train": "Learning",
    "replay": "Replay",
    "time": "Speed",
}
PAGE = Path(__file__).with_name("page")


def report(
    runs: Sequence[Path | str],
    path: Path | str | None = None,
    video_mb: float = 16.0,
    live: float | None = None,
) -> Path:
    """Writes the page of a run (by default its report.html), or of several, and returns its path.

    At most `video_mb` megabytes of videos are put into the page, others are linked. A `live` page
    reloads itself after so many seconds.
    """
    folders = list(dict.fromkeys(map(directory.find, runs)))
    if not folders:
        raise ThespisError("no runs to report: name at least one run folder")
    alone = len(folders) == 1
    file = output(folders[0], path, "report.html") if alone else Path(path or "report.html")
    if file.suffix.lower() not in (".html", ".htm"):
        raise ThespisError(f"cannot write {file.name}: a report is .html")
    with files.writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    content = page(list(map(Source, folders)), file.parent, video_mb, live)
    files.write(file, content.encode())
    return file


def watch(
    runs: Sequence[Path | str],
    path: Path | str | None = None,
    video_mb: float = 16.0,
    every: float = 5.0,
) -> Iterable[Path]:
    """Keeps a page up to date while one of its runs goes on; yields it whenever it is written."""
    before = None
    try:
        while any(directory.status_of(folder)["state"] == "running" for folder in runs):
            now = [stamp(directory.find(folder)) for folder in runs]
            if now != before:
                yield report(runs, path, video_mb, live=every)
            before = now
            time.sleep(every)
    finally:  # however it ends, the page does not wait for more
        written = report(runs, path, video_mb)
    yield written


def stamp(folder: Path) -> list[float]:
    """Returns times that change when there is something new to show."""
    watched = ("metrics.csv", "status.json", "videos", "plots")
    return [x.lstat().st_mtime for name in watched if os.path.lexists(x := folder / name)]


# --- the data of a run ----------------------------------------------------------------------


class Source:
    """The data of a run folder, as far as it has been written."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.config = directory.read_config(folder)
        self.seeds = self.config["seeds"]
        self.status = directory.status_of(folder)
        self.programs = directory.programs_of(folder)

    @cached_property
    def table(self) -> dict[str, np.ndarray]:
        return read_table(self.folder)

    @cached_property
    def story(self) -> lineage_plots.Story | None:
        """The story of a population that was tuned, once there is one."""
        if not os.path.lexists(self.folder / "lineage.csv"):
            return None
        fitness = self.config.get("pbt", {}).get("fitness", RETURN)
        try:
            return lineage_plots.read(self.folder, fitness if fitness in self.table else RETURN)
        except ThespisError:
            return None

    def name(self, member: int) -> str:
        if self.config.get("tuner"):
            return f"member {member}"
        return f"seed {self.seeds[member]}" if member < len(self.seeds) else f"member {member}"

    def last(self, column: str) -> float:
        """Returns the newest value of a column of the whole run."""
        values = self.table.get(column, np.zeros(0))
        values = values[np.isfinite(values)]
        return float(values[-1]) if len(values) else math.nan


# --- charts ---------------------------------------------------------------------------------


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
        """Stores a line of at most so many points: x as float64 for large steps, y as float32."""
        some = thin(len(x), most)
        packed = {name: self.store(np.asarray(y)[some]) for name, y in values.items()}
        return {"x": self.store(np.asarray(x)[some], "<f8"), **packed}


def thin(n: int, most: int) -> np.ndarray:
    """Returns at most so many of n indices, evenly spread, with the first and the last."""
    return np.unique(np.linspace(0, n - 1, min(n, max(most, 2))).round().astype(int))


def return_charts(groups: list[Group], sources: dict[Path, Source], numbers: Numbers) -> list[dict]:
    """Returns a chart of evaluations, over steps and over time, per environment."""
    charts = []
    for i, env in enumerate(dict.fromkeys(group.env for group in groups)):
        lines = [
            line
            for j, group in enumerate(groups)
            if group.env == env
            for line in curve(group, j, RETURN, sources, numbers, POINTS, band=True)
        ]
        banded = any(line.get("members", 1) > 1 for line in lines)
        note = "IQM over seeds with 95 % bootstrap interval" if banded else ""
        chart = {"id": f"returns-{i}", "title": env, "y": WORDS[RETURN], "floor": True}
        charts.append(chart | {"note": note, "series": lines})
    return charts


def curve(
    group: Group,
    colour: int,
    metric: str,
    sources: dict[Path, Source],
    numbers: Numbers,
    most: int,
    band: bool = False,
) -> list[dict]:
    """Returns the line of a group, with its interval if wanted, and faint ones of its members."""
    here = [sources[folder] for folder in group.folders if metric in sources[folder].table]
    lines: dict[str, list] = {"steps": [], "time": []}
    names = []
    for source in here:
        by_steps = members_of(source.table, metric)
        if len(by_steps) > 1 and same(list(by_steps.values())):  # as the speed of a program is
            by_steps = dict([next(iter(by_steps.items()))])
        clock = "time/elapsed_s" if "time/elapsed_s" in source.table else "step"
        by_time = members_of(source.table, metric, clock)
        names += [source.name(m) for m in by_steps]
        lines["steps"] += by_steps.values()
        lines["time"] += [by_time[m] for m in by_steps]
    if not names:
        return []
    whole = {"name": group.label, "group": group.label, "colour": colour, "bold": True}
    whole["members"] = len(names)
    if len(names) == 1:
        by = {axis: numbers.points(x, most, y=y) for axis, [(x, y)] in lines.items()}
        return [whole | {"by": by}]
    faint = [
        {"name": name, "group": group.label, "colour": colour}
        | {"by": {axis: numbers.points(x, most, y=y) for axis, (x, y) in zip(lines, both)}}
        for name, *both in zip(names, *lines.values(), strict=True)
    ]
    by = {}
    for axis, pairs in lines.items():
        try:
            grid, values = statistics.on_grid(*zip(*pairs, strict=True))
        except ThespisError:  # one has ended before another began
            continue
        some = thin(len(grid), most)
        grid, values = grid[some], values[:, some]
        middle = statistics.iqm(values) if band else statistics.mean(values)
        interval = statistics.bootstrap(values, statistics.iqm, draws=1000) if band else None
        low_high = dict(zip(("low", "high"), interval)) if interval else {}
        by[axis] = numbers.points(grid, most, y=middle, **low_high)
    return [*faint, *([whole | {"by": by}] if by else [])]


def same(lines: list[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Tells whether all members have the same line."""
    return all(np.array_equal(a, b) for line in lines[1:] for a, b in zip(lines[0], line))


def panels(groups: list[Group], sources: dict[Path, Source], numbers: Numbers) -> list[dict]:
    """Returns a small chart of every other metric that changes, by section."""
    names = list(dict.fromkeys(name for x in sources.values() for name in x.table))
    left_out = ("step", "member", RETURN, "time/elapsed_s", "time/transitions", "train/n_updates")
    tuned = all(x.config.get("tuner") for x in sources.values())
    names = [
        name
        for name in names
        if name not in left_out
        and not name.startswith(("hparams_asked/", *["hparams/"] * tuned))
        and any(changes(x.table.get(name)) for x in sources.values())
    ]
    members = sum(len(x.seeds) for x in sources.values())
    most = min(POINTS, max(50, NUMBERS // max(1, members * len(names))))
    charts = []
    for name in names:
        lines = [
            line for j, g in enumerate(groups) for line in curve(g, j, name, sources, numbers, most)
        ]
        section, _, title = name.partition("/")
        section = SECTIONS.get(section, section)
        chart = {"id": name, "title": title or name, "section": section, "series": lines}
        charts += [chart] if lines else []
    order = [*SECTIONS.values()]
    place = lambda chart: order.index(chart["section"]) if chart["section"] in order else 3.5
    return sorted(charts, key=place)


def changes(values: np.ndarray | None) -> bool:
    """Tells whether a column has more than one value."""
    known = values[np.isfinite(values)] if values is not None else ()
    return len(known) > 0 and not np.all(known == known[0])


def population_charts(story: lineage_plots.Story, numbers: Numbers) -> dict[str, Any]:
    """Returns the members of a population with the winning line, schedules and family tree."""
    line, edges = story.line(story.winner), np.array(story.edges)
    winner = {"name": "winning line", "group": "winning line", "colour": 0, "bold": True}
    other = {"group": "other members", "colour": -1}

    def life(slot: int) -> dict[str, Any]:
        """Returns the line of a slot: its members one after another, with gaps between."""
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
        chart = {"id": f"schedule-{name}", "title": name, "scale": scale, "series": lines}
        schedules.append(chart)
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


# --- facts ----------------------------------------------------------------------------------


def facts(source: Source, colour: int) -> dict[str, Any]:
    """Returns the contents of the tables: state, results of every member, speed."""
    config, table = source.config, source.table
    evaluated = members_of(table, RETURN) if RETURN in table else {}
    rows = [
        {
            "name": source.name(m),
            "last": rewards[-1],
            "best": rewards.max(),
            "at": steps[rewards.argmax()],
        }
        for m, (steps, rewards) in evaluated.items()
    ]
    last = np.array([row["last"] for row in rows])
    interval = statistics.bootstrap(last[:, None], statistics.iqm) if len(last) > 1 else None
    tuned = bool(config.get("tuner"))
    step, total = source.status["step"], config.get("steps") or math.nan
    step = max(step, int(table["step"].max()) if table else 0)
    speed, elapsed = source.last("time/fps"), source.last("time/elapsed_s")
    compiled = source.last("time/compile_s")
    running = source.status["state"] == "running"
    return {
        "path": str(source.folder),
        "title": f"{config['algo']} on {config['env']}",
        "colour": colour,
        "state": source.status["state"],
        "error": source.status.get("error"),
        "step": step,
        "steps": total,
        "tuned": tuned,
        "members": rows,
        "last": statistics.iqm(last) if len(last) and not tuned else last.max(initial=-math.inf),
        "interval": [x[0] for x in interval] if interval and not tuned else None,
        "best": max((row["best"] for row in rows), default=math.nan),
        "fps": step / (elapsed - compiled) if elapsed > compiled else speed,
        "updates": source.last("train/n_updates"),
        "elapsed": elapsed,
        "compiled": compiled,
        "programs": source.programs,
        "left": (total - step) / speed if running and speed > 0 else None,
        "seeds": source.seeds,
        "config": settings(config),
        "command": config.get("command"),
    }


def settings(config: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Returns all settings as text, in groups."""
    groups = {
        "hp": "Hyper-parameters",
        "options": "Algorithm",
        "pbt": "Population",
        "versions": "Versions",
    }
    grouped = (*groups, "command", "schedule")
    sections = {"Run": {name: x for name, x in config.items() if name not in grouped}}
    sections |= {title: config.get(name) or {} for name, title in groups.items()}
    schedule = {f"from step {step:,}": changed for step, changed in config.get("schedule") or ()}
    sections |= {"Schedule": schedule}
    return {title: {k: text(v) for k, v in x.items()} for title, x in sections.items() if x}


def text(value: Any) -> str:
    """Returns a setting for people to read."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return " ".join(map(text, value))
    if isinstance(value, dict):
        return ", ".join(f"{k} {text(v)}" for k, v in value.items())
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    return str(value)


def media(
    sources: list[Source], folder: str, suffixes: tuple[str, ...], megabytes: float, here: Path
) -> list[dict[str, Any]]:
    """Returns the files in a folder of the runs: embedded while there is room, else linked."""
    items, left = [], megabytes * 2**20
    for source in sources:
        place = source.folder / folder
        for file in sorted(place.rglob("*")) if not place.is_symlink() else ():
            suffix, drawn = file.suffix.lower(), folder == "plots" and file.stem in DRAWN_HERE
            if suffix not in suffixes or drawn or file.name.startswith("."):
                continue
            try:
                with files.open_regular(file) as opened:  # which follows no links
                    size = os.fstat(opened.fileno()).st_size
                    inside = size <= left
                    content = opened.read(size) if inside else b""
            except OSError:  # not a regular file, or just removed
                continue
            left -= size if inside else 0
            run = f"{source.config['algo']} {source.folder.name}: " if len(sources) > 1 else ""
            item = {
                "name": run + file.stem.replace("_", " ").replace("-", " "),
                "moves": suffix in (".mp4", ".webm"),
                "inside": inside,
                "megabytes": size / 2**20,
                "source": embedded(file, content) if inside else link(file, here),
            }
            items.append(item)
    return items


def embedded(file: Path, content: bytes) -> str:
    """Returns the content as a data URL."""
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def link(file: Path, here: Path) -> str:
    """Returns a relative URL, so that the page and the run may move together."""
    from urllib.parse import quote

    return quote(os.path.relpath(file, here).replace(os.sep, "/"))


# --- the page -------------------------------------------------------------------------------


def page(sources: list[Source], here: Path, video_mb: float, live: float | None) -> str:
    """Returns the HTML of the whole page."""
    by_folder = {source.folder: source for source in sources}
    groups, numbers = groups_of(by_folder), Numbers()
    colour = {folder: i for i, group in enumerate(groups) for folder in group.folders}
    labels, tasks = (list(dict.fromkeys(x)) for x in zip(*((g.label, g.env) for g in groups)))
    title = f"{listed(labels, 'and')} on {listed(tasks, 'and')}"
    alone = sources[0] if len(sources) == 1 else None
    story = alone.story if alone else None
    data = {
        "title": title if len(title) < 100 else f"{len(sources)} runs",
        "version": __version__,
        "made": datetime.now().astimezone().isoformat(timespec="seconds"),
        "live": live,
        "groups": [group.label for group in groups],
        "runs": [facts(source, colour[source.folder]) for source in sources],
        "returns": [] if story else return_charts(groups, by_folder, numbers),
        "population": population_charts(story, numbers) if story else None,
        "panels": panels(groups, by_folder, numbers),
        "videos": media(sources, "videos", VIDEOS, video_mb, here),
        "pictures": media(sources, "plots", STILLS, PICTURES, here),
    }
    data["numbers"] = numbers.packed
    parts = {
        "title": html.escape(data["title"]),
        "style": (PAGE / "report.css").read_text("utf-8"),
        "script": (PAGE / "report.js").read_text("utf-8"),
        # Nothing in a run may end the element that holds it.
        "data": json.dumps(clean(data), allow_nan=False).replace("<", "\\u003c"),
    }
    frame = (PAGE / "report.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], frame)


def clean(value: Any) -> Any:
    """Returns what JSON can hold: no NaN, no NumPy."""
    if isinstance(value, dict):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean(v) for v in value]
    if isinstance(value, np.generic | np.ndarray):
        return clean(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
