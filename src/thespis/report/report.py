"""Writes an HTML page about a run, several runs, or a whole folder of them.

The page is made from the run folders alone, contains everything it shows and opens from the disk.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from thespis import __version__
from thespis.errors import ThespisError, listed, printable
from thespis.report import sweep_results
from thespis.report.charts import Charts, Numbers, population_charts
from thespis.report.facts import facts
from thespis.report.media import pictures, videos
from thespis.report.plots import groups_of
from thespis.report.source import Source
from thespis.runs import directory, files
from thespis.runs.catalogue import run_folders
from thespis.runs.files import output

PAGE = Path(__file__).with_name("page")
SCRIPTS = ("numbers", "elements", "chart", "tree", "histogram", "sections", "sweep", "report")
POLICY = (  # only the page's own scripts run, and nothing is fetched from elsewhere
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
    "img-src data: file: 'self'; media-src data: file: 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)


def report(
    runs: Sequence[Path | str],
    path: Path | str | None = None,
    video_mb: float = 16.0,
    live: float | None = None,
) -> Path:
    """Writes the page of a run (by default its report.html), or of several, and returns its path.

    A folder that is not a run means all runs in it, and gets a report.html, too. At most
    `video_mb` megabytes of videos are embedded in the page, others are linked. A page with `live`
    reloads itself every `live` seconds.
    """
    chosen = choose(runs)
    place = chosen.root or (chosen.folders[0] if len(chosen.folders) == 1 else None)
    file = output(place, path, "report.html") if place else Path(path or "report.html")
    if file.suffix.lower() not in (".html", ".htm"):
        raise ThespisError(f"cannot write {file.name}: a report is .html")
    with files.writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    content = page(chosen, file.parent, video_mb, live)
    files.write(file, content.encode())
    return file


def watch(
    runs: Sequence[Path | str],
    path: Path | str | None = None,
    video_mb: float = 16.0,
    every: float = 5.0,
) -> Iterable[Path]:
    """Keeps a page up to date while one of its runs is running; yields it after every update.

    The page of a folder is updated for ever, since another run may start in it.
    """
    before = None
    try:
        while (chosen := choose(runs)).goes_on:
            now = chosen.stamp
            if now != before:
                yield report(runs, path, video_mb, live=every)
            before = now
            time.sleep(every)
    finally:  # however it ends, the last page does not reload itself
        written = report(runs, path, video_mb)
    yield written


# --- which runs -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """The runs of a page."""

    folders: list[Path]
    in_folders: frozenset[Path]
    """Those that were found in a folder; damaged ones among them are left out."""
    root: Path | None
    """The folder that contains them, if only that was named."""

    @property
    def goes_on(self) -> bool:
        """Whether there may be more to show later."""
        states = (directory.status_of(folder)["state"] for folder in self.folders)
        return bool(self.in_folders) or any(state == "running" for state in states)

    @property
    def stamp(self) -> list[Any]:
        """A value that changes when there is something new to show."""
        return [(str(folder), *stamp(folder)) for folder in self.folders]

    def read(self) -> tuple[list[Source], list[str]]:
        """Returns the runs, and the errors of those that are left out."""
        sources, faults = [], []
        for folder in self.folders:
            try:
                source = Source(folder)
                source.table  # noqa: B018, which reads metrics.csv
                sources.append(source)
            except ThespisError as error:
                if folder not in self.in_folders:
                    raise
                faults.append(str(error))
        if not sources:
            raise ThespisError(faults[0])
        return sources, faults


def choose(paths: Sequence[Path | str]) -> Chosen:
    """Returns the runs at these paths; a folder that is not a run means all runs in it."""
    folders: dict[Path, bool] = {}
    for path in paths:
        for folder in (inside := runs_in(Path(path))) or [directory.find(path)]:
            folders[folder] = folders.get(folder, True) and bool(inside)
    if not folders:
        raise ThespisError("no runs to report: name at least one run folder")
    in_folders = frozenset(folder for folder, inside in folders.items() if inside)
    whole = len(paths) == 1 and bool(in_folders)
    return Chosen(list(folders), in_folders, Path(paths[0]) if whole else None)


def runs_in(folder: Path) -> list[Path]:
    """Returns the runs in a folder; none if it is a run itself, or / (which takes too long)."""
    is_run = lambda x: os.path.lexists(x / "config.json")
    if is_run(folder) or folder.resolve() == Path(folder.anchor or "/"):
        return []
    return [run for run in run_folders(folder) if is_run(run)]


def stamp(folder: Path) -> list[Any]:
    """Returns a value that changes when there is something new to show of a run."""
    watched = ("config.json", "metrics.csv", "status.json", "videos", "plots")
    times = [x.lstat().st_mtime for name in watched if os.path.lexists(x := folder / name)]
    return [directory.status_of(folder)["state"], *times]


# --- the page -------------------------------------------------------------------------------


def page(
    chosen: Chosen,
    here: Path | None,
    video_mb: float = 16.0,
    live: float | None = None,
    edition: str | None = None,
) -> str:
    """Returns the HTML of the whole page, which will be in the folder `here`.

    If it is served instead, `here` is None, and `edition` identifies this version of it.
    """
    sources, faults = chosen.read()
    by_folder = {source.folder: source for source in sources}
    numbers = Numbers()
    charts = Charts(by_folder, groups_of(by_folder), numbers)
    groups = charts.groups
    colour = {folder: i for i, group in enumerate(groups) for folder in group.folders}
    story = sources[0].story if len(sources) == 1 else None
    data = {
        "title": title(chosen, [(group.label, group.env) for group in groups]),
        "version": __version__,
        "made": datetime.now().astimezone().isoformat(timespec="seconds"),
        "live": live,
        "edition": edition,
        "faults": faults,
        "sweep": sweep_results.facts(chosen.root) if chosen.root else None,
        "groups": [group.label for group in groups],
        "runs": [facts(source, colour[source.folder]) for source in sources],
        "returns": [] if story else charts.returns(),
        "population": population_charts(story, numbers) if story else None,
        "panels": charts.panels(),
        "histograms": charts.histograms(),
        "videos": videos(sources, video_mb, here),
        "pictures": pictures(sources, here),
    }
    data["numbers"] = numbers.packed
    part = lambda name: (PAGE / name).read_text("utf-8").strip()
    scripts = {
        "theme": part("theme.js"),
        "script": "\n\n".join(part(f"{name}.js") for name in SCRIPTS),
    }
    parts = scripts | {
        "title": html.escape(data["title"]),
        "policy": POLICY.format(scripts=" ".join(map(digest, scripts.values()))),
        "style": part("report.css"),
        # Text from a run must not end the element that contains it.
        "data": json.dumps(clean(data), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], part("report.html")) + "\n"


def title(chosen: Chosen, groups: list[tuple[str, str]]) -> str:
    """Returns the title: the labels and environments if they are short, or a folder's name."""
    if chosen.root:
        many = f"{len(chosen.folders)} run{'s' * (len(chosen.folders) != 1)}"
        return printable(f"{many} in {chosen.root.resolve().name}/")
    labels, tasks = (list(dict.fromkeys(x)) for x in zip(*groups, strict=True))
    text = f"{listed(labels, 'and')} on {listed(tasks, 'and')}"
    return text if len(text) < 100 else f"{len(chosen.folders)} runs"


def digest(script: str) -> str:
    """Returns the digest by which the content security policy allows a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def clean(value: Any) -> Any:
    """Returns a value that JSON can represent, without NaN and NumPy types."""
    if isinstance(value, dict):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean(v) for v in value]
    if isinstance(value, np.generic | np.ndarray):
        return clean(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
