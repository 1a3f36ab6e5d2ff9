"""Who is told how a run goes: what is asked of a reporter, and those that say little."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from thespis.errors import printable
from thespis.runs.directory import how_to_resume

Counted = list[dict[str, tuple]] | None  # counts and edges of the histograms of every member


@runtime_checkable
class Reporter(Protocol):
    """Somebody who watches; nothing depends on what it does."""

    def compiling(self) -> None: ...
    def advance(self, step: int, total: int, elapsed: float, compiling: float) -> None: ...
    def row(self, step: int, rows: list[dict[str, float]], counted: Counted) -> None: ...
    def note(self, text: str) -> None: ...
    def media(self, step: int, member: int, name: str, image: Any, counted: Any) -> None:
        """Shows an image [height, width, channels], or counts and edges of a histogram."""
        ...


class Silent:
    """Says only what must be known: notes, and how to go on."""

    @contextmanager
    def watching(self, config, folder: Path | str, step: int = 0) -> Iterator[None]:
        """Surrounds a run that goes on from `step`, however it ends."""
        self.begin(config, folder, step)
        try:
            yield
        finally:
            self.end()

    def begin(self, config, folder: Path | str, step: int) -> None: ...
    def compiling(self) -> None: ...
    def advance(self, step: int, total: int, elapsed: float, compiling: float) -> None: ...
    def row(self, step: int, rows: list[dict[str, Any]], counted: Counted = None) -> None: ...
    def media(self, step: int, member: int, name: str, image: Any, counted: Any) -> None: ...
    def end(self) -> None: ...

    def note(self, text: str) -> None:
        print(f"note: {printable(text)}", file=sys.stderr)

    def done(self, run, state: str, curve: Path | None) -> None:
        if state == "stopped":
            self.note(stopped(run))


class Mute(Silent):
    """Says nothing: another process does."""

    def note(self, text: str) -> None: ...
    def done(self, run, state: str, curve: Path | None) -> None: ...


def stopped(run) -> str:
    return f"stopped at step {run.status['step']:,}; to go on: {how_to_resume(run.path)}"
