"""Shows a run in the terminal: a heading, a progress bar with the time left, and a final table."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from thespis import tuning
from thespis.errors import printable
from thespis.report.table import decimal, summary, wide
from thespis.runs.config import RETURN, SIMILARITY
from thespis.runs.reporter import Counted, Silent, stopped
from thespis.selection import name_of
from thespis.xla import threads

MARKS = 40  # chunks of half a second over which the speed is measured


class Terminal(Silent):
    """Shows a progress bar on a terminal, and plain lines elsewhere."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True, highlight=False)
        columns = [
            BarColumn(24, complete_style="cyan", finished_style="cyan"),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            Rate(Column(no_wrap=True)),
        ]
        self.bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=4)
        self.speed = Speed()

    def begin(self, config, folder: Path | str, step: int) -> None:
        self.config, (_, processes) = config, threads.process_index_and_count()
        facts = [
            f"{config.steps:,} steps" + (f" from step {step:,}" if step else ""),
            f"seed{'s' * (len(config.seeds) > 1)} {ranges(config.seeds)}",
            *([f"preset {config.preset}"] if config.preset else []),
            *([tuned(config)] if config.tuner else []),
            *([f"{processes} processes"] if processes > 1 else []),
            *([f"{config.devices} devices"] if (config.devices or 1) > 1 else []),
            f"{config.threads} thread{'s' * (config.threads != 1)}",
        ]
        head = f"[bold]{config.algo}[/bold] on [bold]{escape(name_of(config.env))}[/bold]"
        self.print(f"{head}: {', '.join(facts)}")
        self.print(f"[dim]{escape(str(folder))}[/dim]")
        none = {"rate": None, "left": None, "compiled": 0.0, "since": time.monotonic()}
        self.task = self.bar.add_task("", total=config.steps, completed=step, **none)
        if self.console.is_terminal:
            self.bar.start()

    def compiling(self) -> None:
        self.bar.update(self.task, rate=None, since=time.monotonic())

    def advance(self, step: int, total: int, elapsed: float, compiling: float) -> None:
        rate = self.speed.at(step, elapsed, compiling)
        # Warm-up is much faster than learning, so the time left is shown only after it.
        left = (total - step) / rate if rate and step > self.config.learning_starts else None
        shown = {"rate": rate, "left": left, "compiled": compiling}
        self.bar.update(self.task, completed=step, total=total, **shown)

    def row(self, step: int, rows: list[dict[str, Any]], counted: Counted = None) -> None:
        rewards = [r["eval/mean_reward"] for r in rows if "eval/mean_reward" in r]
        if not rewards:
            return
        spread = f" ± {decimal(np.std(rewards)):<7}" if len(rewards) > 1 else ""
        if self.config.tuner:
            spread += f"  best {decimal(max(rewards)):>9} (member {np.argmax(rewards)})"
        if SIMILARITY in rows[0]:
            spread += f"  similarity {np.mean([r[SIMILARITY] for r in rows]):>5.2f}"
        width = len(f"{self.config.steps:,}")
        self.print(
            f"{step:>{width},} steps  reward {decimal(np.mean(rewards)):>9}{spread}"
            f"  [dim]{rows[0]['time/fps']:>7,.0f} steps/s[/dim]"
        )

    def note(self, text: str) -> None:
        self.print(f"[yellow]note:[/yellow] {escape(text)}")

    def done(self, run, state: str, curve: Path | None) -> None:
        self.end()
        table, hypers = run.metrics, []
        table_of = lambda m: {name: column[table["member"] == m] for name, column in table.items()}
        seeds, judge = run.config.seeds, run.config.judge
        rows = [outcome(seed, table_of(m), judge) for m, seed in enumerate(seeds)]
        rows = [row for row in rows if row]
        if rows and run.config.tuner:
            rows, hypers = population(run, rows)
        elif len(rows) > 1:
            mean = {name: np.mean([row[name] for row in rows]) for name in ("reward", "best")}
            rows.append({"seed": "mean", **mean})
        if rows:
            title = f"{run.config.algo} on {name_of(run.config.env)}: {state}"
            self.console.print("", summary(rows, title))
        if hypers:
            wide(self.console, summary(hypers))
        if len(table["step"]):
            seconds, compiling = (table[f"time/{k}"][-1] for k in ("elapsed_s", "compile_s"))
            self.print(f"time   {duration(seconds)}, of which {duration(compiling)} compiling")
        if curve:
            self.print(f"curve  {escape(str(curve))}")
        if (page := run.path / "report.html").exists():
            self.print(f"report {escape(str(page))}")
        self.print(f"run    {escape(str(run.path))}")
        if state == "stopped":
            self.note(stopped(run))

    def end(self) -> None:
        if self.bar.live.is_started:
            self.bar.stop()

    def print(self, text: str) -> None:
        self.console.print(printable(text), soft_wrap=True)


class Speed:
    """Recent steps per second, without the time spent on compiling."""

    def __init__(self):
        self.marks: list[tuple[int, float]] = []
        self.compiling = 0.0

    def at(self, step: int, elapsed: float, compiling: float) -> float | None:
        """Adds a measurement; returns None until there are two without compiling in between."""
        if compiling > self.compiling:  # another program, with another speed
            self.marks, self.compiling = [], compiling
        self.marks = [*self.marks[-MARKS:], (step, elapsed)]
        steps, seconds = (b - a for a, b in zip(self.marks[0], self.marks[-1], strict=True))
        return steps / seconds if seconds > 0 else None


class Rate(ProgressColumn):
    """Steps per second and time left, both without compiling."""

    def render(self, task) -> Text:
        rate, left, compiled = (task.fields[k] for k in ("rate", "left", "compiled"))
        if rate is None:
            spent = time.monotonic() - task.fields["since"]
            return Text(f"compiling, {duration(spent)}", style="dim")
        parts = [f"{rate:,.0f} steps/s"]
        parts += [f"{clock(left)} left"] if left is not None else []
        return Text("  ".join([*parts, f"{compiled:.0f} s compiling"]), style="dim")


def in_notebook() -> bool:
    """Returns whether this code runs in a notebook, which can show more than text."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in shell.config


# --- text -----------------------------------------------------------------------------------


def outcome(seed: int, table: dict[str, np.ndarray], judge: str = RETURN) -> dict[str, Any] | None:
    """Returns one row of the final table; None before the first evaluation.

    The best is the evaluation of the saved best policy, chosen by `judge`, whatever its reward.
    """
    evaluated = np.flatnonzero(np.isfinite(table["eval/mean_reward"]))
    if not len(evaluated):
        return None
    last, best = evaluated[-1], np.nanargmax(table.get(judge, table[RETURN]))
    return {
        "seed": seed,
        "steps": int(table["step"][last]),
        "reward": table["eval/mean_reward"][last],
        "± std": table["eval/std_reward"][last],
        "best": table["eval/mean_reward"][best],
        "at step": int(table["step"][best]),
    }


def population(run, rows: list[dict[str, Any]]) -> tuple[list, list]:
    """Returns rows for the members of a population, and rows of their hyper-parameters."""
    config, hypers = run.config, vars(run.hypers())
    names = tuning.varying(config.tuning, config.Algorithm.Hyper, config.hp)
    best, parents = run.member("best"), run.parents
    member = lambda m: {"member": f"{m} ★" if m == best else str(m)}
    parent = lambda m: {"copied": str(parents[m]) if parents[m] != m else "–"}
    left_out = ("seed", "at step")
    short = lambda row: {name: x for name, x in row.items() if name not in left_out}
    number = lambda name, m: f"{float(hypers[name][m]):.3g}"
    return (
        [member(m) | short(row) | parent(m) for m, row in enumerate(rows)],
        [member(m) | {n: number(n, m) for n in names} for m in range(len(rows)) if names],
    )


def tuned(config) -> str:
    return f"{config.tuner} every {config.pbt['interval']:,} steps"


def ranges(numbers: tuple[int, ...]) -> str:
    """Returns "0-2, 5" for 0, 1, 2 and 5."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def duration(seconds: float) -> str:
    """Returns 2.5 s, 3:20 min or 1:02:03 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{clock(seconds)} {'h' if round(seconds) >= 3600 else 'min'}"


def clock(seconds: float) -> str:
    """Returns 0:03, 3:20 or 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minutes}:{second:02}"
