"""Collects the contents of a page's tables: state, results, settings and commands of a run."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.report import statistics
from thespis.report.plots import members_of
from thespis.report.source import RETURN, Source
from thespis.runs import lineage
from thespis.runs.directory import KERNEL


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
    last, tuned = np.array([row["last"] for row in rows]), source.tuned
    interval = statistics.bootstrap(last[:, None], statistics.iqm) if len(last) > 1 else None
    step, total = source.status["step"], config.get("steps") or math.nan
    step = max(step, int(table["step"].max()) if table else 0)
    speed, elapsed = source.last("time/fps"), source.last("time/elapsed_s")
    compiled = source.last("time/compile_s")
    running = source.status["state"] == "running"
    return {
        "path": str(source.folder),
        "title": f"{config['algo']} on {config['env']}",
        "name": name_of(source),
        "tags": [text(tag) for tag in listed(config.get("tags"))],
        "notes": text(config["notes"]) if config.get("notes") else None,
        "processes": processes(source),
        "colour": colour,
        "state": source.status["state"],
        "error": source.status.get("error"),
        "reason": source.status.get("reason"),  # why a callback has ended it
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
        "active": active(source),
        "seeds": source.seeds,
        "config": settings(config),
        "commands": commands(config),
    }


def name_of(source: Source) -> str | None:
    """Returns the name that the user gave a run; of a template, what it became: the folder's."""
    name = source.config.get("name")
    filled = isinstance(name, str) and "{" in name
    return (source.folder.name if filled else text(name)) if name else None


def processes(source: Source) -> str | None:
    """Returns what happened to the processes of a run on several machines, if anything did."""
    try:
        counts = lineage.happened(source.folder)
    except ThespisError:  # damaged, which other parts of the page may tell
        return None
    counted = ", ".join(f"{n} {what}" for what, n in counts.items())
    return f"processes: {counted}" if counted else None


def active(source: Source) -> float:
    """Returns the time at which the run last wrote a file, in seconds since 1970."""
    files = (source.folder / name for name in ("config.json", "status.json", "metrics.csv"))
    return max((x.lstat().st_mtime for x in files if os.path.lexists(x)), default=math.nan)


def commands(config: dict[str, Any]) -> list[str]:
    """Returns the command that started the run, then those that resumed it, as users typed them."""
    typed = [config.get("command"), *listed(config.get("resumes"))]
    return [x for x in typed if isinstance(x, str) and x and KERNEL not in x]


def listed(value: Any) -> list[Any]:
    """Returns a list in a config, or a list of the single value that it has instead."""
    return value if isinstance(value, list) else [value] if value else []


def settings(config: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Returns all settings as text, in groups; the run's identity stays with this user."""
    groups = {
        "hp": "Hyper-parameters",
        "options": "Algorithm",
        "pbt": "Population",
        "versions": "Versions",
    }
    others = (*groups, "command", "resumes", "schedule", "identity")
    sections = {"Run": {name: x for name, x in config.items() if name not in others}}
    sections |= {title: config.get(name) or {} for name, title in groups.items()}
    schedule = {f"from step {step:,}": changed for step, changed in config.get("schedule") or ()}
    sections |= {"Schedule": schedule}
    return {title: {k: text(v) for k, v in x.items()} for title, x in sections.items() if x}


def text(value: Any) -> str:
    """Formats a setting for display; one that is empty or not set is a dash."""
    if value is None or value in ("", [], {}):
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return " ".join(map(text, value))
    if isinstance(value, dict):
        return ", ".join(f"{k} {text(v)}" for k, v in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
