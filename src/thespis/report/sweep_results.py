"""The results of a sweep: a table of its jobs, the best setting, and heat maps over two choices.

They are made from the folders of the jobs, and kept as results.csv beside them.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.report import scores, statistics
from thespis.report.plots import WORDS, Curve, members_of, read_table
from thespis.report.source import RETURN
from thespis.runs import directory, files
from thespis.runs.naming import safe

PLAN, FILE = "sweep.toml", "results.csv"
FIRST = ("job", "algo", "env")
LAST = ("state", "step", "of_steps", "seeds", "iqm", "low", "high", "best", "seconds")
TEXTS = ("error", "command")
NUMBERS = ("step", "of_steps", "seeds", "iqm", "low", "high", "best", "seconds")
BYTES = 2**26  # at most, of a results.csv
JOBS = 10_000  # at most, of a sweep
CHOICES, MAPS, CELLS = 20, 500, 2500  # at most: choices with maps, all maps, and cells of one
DISTINCT = 12  # values of a choice that have a row each; more are put into bins
BINS = 6
Row = dict[str, Any]


# --- a line per job -------------------------------------------------------------------------


def measured(folder: Path, metric: str) -> Row:
    """Returns what the folder of a run says of its results, as far as it has been written.

    The score of a seed is its last evaluation; `iqm` is over seeds, with its 95 % interval. Of a
    population that is tuned it is the best member's, without one.
    """
    config, table = directory.read_config(folder), read_table(folder)
    members = members_of(table, metric) if metric in table else {}
    last = np.array([values[-1] for _, values in members.values()])
    tuned = bool(config.get("tuner"))
    row: Row = {"of_steps": config.get("steps"), "seeds": len(config["seeds"])}
    if len(last):
        row["iqm"] = float(last.max() if tuned else statistics.iqm(last))
        row["best"] = float(max(values.max() for _, values in members.values()))
        row["step"] = int(max(steps[-1] for steps, _ in members.values()))
    interval = None if tuned else statistics.bootstrap(last[:, None], statistics.iqm)
    if interval:
        row |= {name: float(x[0]) for name, x in zip(("low", "high"), interval)}
    elapsed = table.get("time/elapsed_s", np.zeros(0))
    elapsed = elapsed[np.isfinite(elapsed)]
    return row | ({"seconds": float(elapsed.max())} if len(elapsed) else {})


def write(folder: Path, rows: Sequence[Row]) -> Path:
    """Writes the table of a sweep."""
    names = dict.fromkeys(name for row in rows for name in row)
    choices = [name for name in names if name not in (*FIRST, *LAST, *TEXTS)]
    text = io.StringIO()
    table = csv.DictWriter(text, [*FIRST, *choices, *LAST, *TEXTS], restval="", lineterminator="\n")
    table.writeheader()
    table.writerows({name: cell(x) for name, x in row.items()} for row in rows)
    files.write(folder / FILE, text.getvalue().encode())
    return folder / FILE


def cell(value: Any) -> str:
    """Returns a value as a cell; None is an empty one."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(folder: Path) -> list[Row]:
    """Reads the table of a sweep: numbers where they belong, all else as text."""
    path = folder / FILE
    try:
        text = files.read(path, BYTES).decode()
        lines = list(csv.DictReader(io.StringIO(text), strict=True))
    except OSError as error:
        raise ThespisError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (ValueError, csv.Error) as error:
        raise ThespisError(f"{path} is damaged ({error}): go on with the sweep") from error
    if lines and not {*FIRST, "state"} <= {*lines[0]}:
        raise ThespisError(f"{path} is damaged: it has no column job; go on with the sweep")
    named = [line["job"] and safe(line["job"]) == line["job"] for line in lines]
    if len(lines) > JOBS or not all(named):
        raise ThespisError(f"{path} is damaged: it has no names of jobs; go on with the sweep")
    return [
        {str(name): number(x) if name in NUMBERS else x or "" for name, x in line.items() if name}
        for line in lines
    ]


def number(text: str | None) -> float | None:
    try:
        x = float(text or "nan")
    except ValueError:
        return None
    return x if math.isfinite(x) else None


def choices_of(rows: Sequence[Row]) -> list[str]:
    """Returns the choices of a sweep, which are all other columns."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in (*FIRST, *LAST, *TEXTS)]


# --- the best -------------------------------------------------------------------------------


def best(folder: Path, rows: Sequence[Row], metric: str) -> Row | None:
    """Returns the setting with the highest IQM, or None if nothing is done yet.

    On several environments it is that of normalised scores: 0 is the mean first evaluation of all
    jobs on one, 1 the best. Only settings that are done on all of them are compared.
    """
    names, done = choices_of(rows), [row for row in rows if row["state"] == "done"]
    done = [row for row in done if row.get("iqm") is not None]
    every = dict.fromkeys(row["env"] for row in rows)
    settings: dict[tuple, dict[str, Row]] = {}
    for row in done:
        key = (row["algo"], *(cell(row.get(name)) for name in names))
        settings.setdefault(key, {}).setdefault(row["env"], row)  # Optuna may repeat itself
    whole = {k: list(jobs.values()) for k, jobs in settings.items() if len(jobs) == len(every)}
    if not whole:
        return None
    ranked: dict[tuple, Any] = {
        key: tuple(jobs[0].get(name) for name in ("iqm", "low", "high"))
        for key, jobs in whole.items()
    }
    if len(every) > 1:
        ranked = normalised(folder, whole, metric)
    key = max(ranked, key=lambda key: ranked[key][0])
    first, (middle, low, high) = whole[key][0], ranked[key]
    return {
        "algo": first["algo"],
        "choices": {name: first[name] for name in names if first.get(name) not in (None, "")},
        "iqm": middle,
        "low": low,
        "high": high,
        "normalised": len(every) > 1,
        "commands": {row["env"]: row.get("command", "") for row in whole[key]},
        "jobs": [row["job"] for row in whole[key]],
    }


def normalised(
    folder: Path, settings: dict[tuple, list[Row]], metric: str
) -> dict[tuple, tuple[float, float | None, float | None]]:
    """Returns the IQM over all seeds and environments of each setting, and its 95 % interval."""
    curves = [
        Curve(
            str(i),
            list(members_of(read_table(folder / "jobs" / row["job"]), metric).values()),
            row["env"],
        )
        for i, rows in enumerate(settings.values())
        for row in rows
    ]
    try:
        table = scores.table(curves, metric)
    except ThespisError:  # an environment on which all scores are the same
        return {
            key: (float(np.mean([r["iqm"] for r in rows])), None, None)
            for key, rows in settings.items()
        }
    ranked = {}
    for i, key in enumerate(settings):
        final = table.final(str(i))
        interval = statistics.stratified([final], statistics.pooled_iqm) or (None, None)
        ends = (None if x is None else float(x) for x in interval)
        ranked[key] = (float(statistics.pooled_iqm(final)), *ends)
    return ranked


# --- heat maps ------------------------------------------------------------------------------


def heat_maps(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns a map of mean IQMs for every environment and pair of choices; the algorithm is one.

    Values that are many numbers are put into bins. Jobs that were not finished are left out, and so
    are maps that nobody could read.
    """
    done = [row for row in rows if row["state"] == "done" and row.get("iqm") is not None]
    several = lambda name: len({cell(row.get(name)) for row in done} - {""}) > 1
    names = [name for name in (*choices_of(rows)[:CHOICES], "algo") if several(name)]
    maps = []
    for env in dict.fromkeys(row["env"] for row in done):
        here = [row for row in done if row["env"] == env]
        for y, x in itertools.combinations(names, 2):
            columns, column = bins([cell(row.get(x)) for row in here])
            lines, line = bins([cell(row.get(y)) for row in here])
            if len(maps) == MAPS or len(columns) * len(lines) > CELLS:
                continue
            cells: list[list[list[float]]] = [[[] for _ in columns] for _ in lines]
            for row, i, j in zip(here, line, column, strict=True):
                cells[i][j].append(row["iqm"])
            means = [[float(np.mean(c)) if c else None for c in line] for line in cells]
            counts = [[len(c) for c in line] for line in cells]
            maps.append(
                {"env": env, "x": x, "y": y, "columns": columns, "lines": lines}
                | {"iqm": means, "jobs": counts}
            )
    return maps


def bins(values: list[str]) -> tuple[list[str], list[int]]:
    """Returns the labels of rows or columns, and in which each value is; numbers in their order."""
    distinct = list(dict.fromkeys(values))
    known = {text: number(text) for text in distinct}
    numeric = all(x is not None for x in known.values())
    if numeric:
        distinct.sort(key=lambda text: known[text] or 0.0)
    if not numeric or len(distinct) <= DISTINCT:
        index = {text: i for i, text in enumerate(distinct)}
        return [text or "–" for text in distinct], [index[text] for text in values]
    numbers = np.array([known[text] for text in values], float)
    edges = np.quantile(numbers, np.linspace(0, 1, BINS + 1))
    place = np.clip(np.searchsorted(edges, numbers, "right") - 1, 0, BINS - 1)
    return [f"{a:.3g} to {b:.3g}" for a, b in itertools.pairwise(edges)], place.tolist()


# --- for the page ---------------------------------------------------------------------------


def facts(folder: Path) -> dict[str, Any] | None:
    """Returns what the page of a sweep shows beside its runs; None of any other folder."""
    if not all(os.path.lexists(folder / name) for name in (PLAN, FILE)):
        return None
    rows, metric = read(folder), metric_of(folder)
    envs = {env: i for i, env in enumerate(dict.fromkeys(row["env"] for row in rows))}
    order = lambda row: (
        envs[row["env"]],  # returns on different environments are not compared
        row["state"] != "done",
        row.get("iqm") is None,
        -(row.get("iqm") or 0.0),
    )
    return {
        "choices": choices_of(rows),
        "rows": sorted(rows, key=order),
        "best": best(folder, rows, metric),
        "maps": heat_maps(rows),
        "metric": WORDS.get(metric, metric),
    }


def metric_of(folder: Path) -> str:
    """Returns the metric that a sweep compares by."""
    try:
        said = tomllib.loads(files.read(folder / PLAN, BYTES).decode())
    except (OSError, ValueError):
        return RETURN
    return said["metric"] if isinstance(said.get("metric"), str) else RETURN
