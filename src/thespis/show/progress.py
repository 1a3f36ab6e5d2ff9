"""What a run says while it runs: its first lines, a bar with an honest ETA, a final table."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.text import Text

from thespis.show.table import summary


class Silent:
    """Says nothing."""

    @property
    def command(self) -> str:
        return shlex.join(sys.argv)

    @contextmanager
    def watching(self, folder: Path) -> Iterator[None]:
        """Around a run, however it ends."""
        self.begin(folder)
        try:
            yield
        finally:
            self.end()

    def begin(self, folder: Path) -> None: ...
    def advance(self, step: int, total: int, elapsed: float, compiling: float) -> None: ...
    def row(self, step: int, rows: list[dict[str, float]]) -> None: ...
    def note(self, text: str) -> None: ...
    def done(self, run, state: str, curve: Path | None) -> None: ...
    def end(self) -> None: ...


class Terminal(Silent):
    """A live bar on a terminal, plain lines elsewhere."""

    def __init__(self, config, console: Console | None = None):
        self.config = config
        self.console = console or Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            Rate(),
            console=self.console,
            transient=True,
            refresh_per_second=4,
        )
        self.task = None
        self.marks: list[tuple[float, int]] = []  # (seconds without compiling, step)

    def begin(self, folder: Path) -> None:
        c = self.config
        seeds = f"seed {c.seeds[0]}" if len(c.seeds) == 1 else f"{len(c.seeds)} seeds"
        preset = f", preset {c.preset}" if c.preset else ""
        self.console.print(
            f"[bold]{c.algo}[/bold] on [bold]{named(c.env)}[/bold]: {c.steps:,} steps, {seeds}{preset}, "
            f"{c.threads} thread{'s' * (c.threads != 1)} -> {folder}"
        )
        self.task = self.bar.add_task(c.algo, total=c.steps, rate=0.0, eta=None, compiling=0.0)
        if self.console.is_terminal:
            self.bar.start()

    def advance(self, step: int, total: int, elapsed: float, compiling: float) -> None:
        if self.task is None:
            return
        self.marks = [*self.marks[-40:], (elapsed - compiling, step)]
        seconds, steps = (b - a for a, b in zip(self.marks[0], self.marks[-1], strict=True))
        rate = steps / seconds if seconds > 0 else 0.0
        eta = (total - step) / rate if rate > 0 else None
        self.bar.update(
            self.task, completed=step, total=total, rate=rate, eta=eta, compiling=compiling
        )

    def row(self, step: int, rows: list[dict[str, float]]) -> None:
        values = [r["eval/mean_reward"] for r in rows if "eval/mean_reward" in r]
        if not values:
            return
        spread = f"[{min(values):,.1f} .. {max(values):,.1f}]" if len(values) > 1 else ""
        fps = rows[0]["time/fps"]
        self.console.print(
            f"{step:>12,}  eval {np.mean(values):>10,.1f} {spread}  {fps:,.0f} steps/s"
        )

    def note(self, text: str) -> None:
        self.console.print(f"[yellow]note:[/yellow] {text}")

    def done(self, run, state: str, curve: Path | None) -> None:
        self.end()
        table = run.metrics
        rows = []
        for m, seed in enumerate(run.config.seeds):
            mine = table["member"] == m
            evals = table["eval/mean_reward"][mine]
            if not np.isfinite(evals).any():
                continue
            last = np.flatnonzero(np.isfinite(evals))[-1]
            rows.append(
                {
                    "seed": seed,
                    "steps": int(table["step"][mine][-1]),
                    "eval reward": evals[last],
                    "± std": table["eval/std_reward"][mine][last],
                    "best": np.nanmax(evals),
                    "updates": int(table["train/n_updates"][mine][-1]),
                }
            )
        if rows:
            self.console.print(
                summary(rows, f"{run.config.algo} on {named(run.config.env)}: {state}")
            )
        seconds, compiling = (
            table[f"time/{k}"][-1] if len(table["step"]) else 0 for k in ("elapsed_s", "compile_s")
        )
        self.console.print(f"{seconds:,.1f} s, of which {compiling:,.1f} s compiling")
        if curve:
            self.console.print(f"curve  {curve}")
        self.console.print(f"run    {run.path}")
        if state == "stopped":
            self.console.print(f"go on  thespis resume {run.path}")

    def end(self) -> None:
        self.bar.stop()


class Rate(ProgressColumn):
    """Steps per second and time left, both without compiling."""

    def render(self, task) -> Text:
        fields = task.fields
        eta = fields["eta"]
        left = (
            "-:--:--" if eta is None else time.strftime("%-H:%M:%S", time.gmtime(min(eta, 86399)))
        )
        compiling = (
            f"  compiled in {fields['compiling']:.1f} s" if fields["compiling"] else "  compiling"
        )
        return Text(f"{fields['rate']:,.0f} steps/s  {left} left{compiling}", style="dim")


def named(env) -> str:
    return env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
