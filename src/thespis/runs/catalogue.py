"""Lists the runs in a folder, with their config, progress and rewards."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError, or_all, shown
from thespis.runs import metrics
from thespis.runs.directory import read_config, status_of
from thespis.runs.files import refuse_link, regular, writing
from thespis.runs.naming import default_out
from thespis.runs.process import alone, busy

RETURN = "eval/mean_reward"
SEARCHED = ("run", "algo", "env", "tags", "notes", "tuner", "state")  # fields for filters
MARKS = ("status.json", "metrics.csv", "checkpoints")  # by which a run is known, with config.json


def catalogue(out: Path | str | None = None) -> list[dict[str, Any]]:
    """Returns an entry per run below this folder, the most recently active first.

    `last` is the mean of the last evaluations of all seeds (in a tuned population, that of the best
    member), `best` the highest evaluation of any; both are None before the first evaluation.
    `reason` says why a callback has ended the run, if one has.
    """
    root = Path(default_out() if out is None else out)
    if not os.path.isdir(root):  # also where a name is too long, or may not be read
        raise ThespisError(f"there is no folder {root}: give the folder of your runs as --out")
    entries = filter(None, map(entry, run_folders(root)))
    return sorted(entries, key=lambda run: run["active"], reverse=True)


def run_folders(root: Path) -> list[Path]:
    """Returns the folders below this one that look like runs, sorted by name."""
    runs = []
    for here, folders, files in os.walk(root):
        if "config.json" in files or {*MARKS[:2]} <= {*files}:
            folders.clear()  # a run holds no runs
            runs.append(Path(here))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
    return runs


def matches(run: dict[str, Any], words: tuple[str, ...]) -> bool:
    """Returns whether an entry contains all of these words; FIELD=WORD looks in one field."""
    for word in words:
        name, equals, text = word.partition("=")
        if equals and name not in SEARCHED:
            raise ThespisError(f"filter = {word}: unknown field {name}{or_all(name, SEARCHED)}")
        where = [run[name]] if equals else [run[field] for field in SEARCHED]
        if not any(text in str(x) if equals else word in str(x) for x in where if x):
            return False
    return True


def ordered(runs: list[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """Sorts entries: text ascending, numbers descending, and those without a value last."""
    known = [run for run in runs if run[by] is not None]
    number = any(not isinstance(run[by], str) for run in known)
    known = sorted(known, key=lambda run: run[by], reverse=number)
    return known + [run for run in runs if run[by] is None]


def refuse_to_delete(folder: Path) -> None:
    """Raises a `ThespisError` unless this is the folder of a run that is not being trained."""
    refuse_link(folder)
    line = entry(folder)
    if line is None or line["state"] == "damaged":
        raise ThespisError(f"{folder} cannot be read as a run: check it, and delete it by hand")
    if line["state"] == "running" or busy(folder):
        raise ThespisError(f"{folder} is being trained: stop it first")


def remove(folder: Path) -> None:
    """Deletes a run; links in it are deleted, not followed."""
    with alone(folder), writing(folder):
        shutil.rmtree(folder)


def entry(folder: Path) -> dict[str, Any] | None:
    """Returns the entry of a run, "damaged" if its files cannot be read; None if it is no run."""
    known = dict.fromkeys(("algo", "env", "members", "tuner", "tags", "notes", "step", "steps"))
    known |= dict.fromkeys(("last", "best", "reason"))
    try:
        line = readable(folder)
    except (ThespisError, AttributeError, KeyError, TypeError, ValueError):
        if not any(map(os.path.lexists, (folder / name for name in MARKS))):
            return None
        line = {"state": "damaged"}
    files = [p for name in ("config.json", *MARKS[:2]) if os.path.lexists(p := folder / name)]
    active = max((p.lstat().st_mtime for p in files), default=0.0)
    return {"run": str(folder), "state": line["state"], **known, **line, "active": active}


def readable(folder: Path) -> dict[str, Any]:
    """Returns the fields of an entry, read from the files of a run."""
    config, status = read_config(folder), status_of(folder)
    log, members = folder / "metrics.csv", len(config["seeds"])
    begun = os.path.lexists(log) and not (regular(log) and log.lstat().st_size == 0)
    table = metrics.read(log, members, strict=True) if begun else {}
    rewards = table.get(RETURN, np.full(len(table.get("step", ())), np.nan))
    last = [
        x[np.isfinite(x)][-1:]
        for x in (rewards[table["member"] == m] for m in set(table.get("member", ())))
    ]
    last = np.concatenate([np.zeros(0), *last])
    summary = np.max if config.get("tuner") else np.mean
    logged = int(table["step"].max()) if len(table.get("step", ())) else 0
    return {
        "state": status["state"],
        "algo": config["algo"],
        "env": config["env"],
        "members": members,
        "tuner": config.get("tuner"),
        "tags": [str(tag) for tag in config.get("tags") or []],
        "notes": config.get("notes"),
        "step": max(status["step"], logged),
        "steps": config.get("steps"),
        "last": float(summary(last)) if len(last) else None,
        "best": float(np.nanmax(rewards)) if len(last) else None,
        "reason": shown(status["reason"]) if status.get("reason") else None,
    }


def ago(seconds: float) -> str:
    """Formats a duration as 12 s, 5 min, 3 h or 2 days."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            count = math.floor(seconds / size)
            return f"{count} {unit if count > 1 or unit != 'days' else 'day'}"
    return f"{max(0, math.floor(seconds))} s"
