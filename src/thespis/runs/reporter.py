"""The protocol of reporters, which show a run's progress, and those that show little or none."""

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
    """Shows the progress of a run; results do not depend on it."""

    def compiling(self) -> None: ...
    def advance(self, step: int, total: int, elapsed: float, compiling: float) -> None: ...
    def row(self, step: int, rows: list[dict[str, float]], counted: Counted) -> None: ...
    def note(self, text: str) -> None: ...
    def media(self, step: int, member: int, name: str, image: Any, counted: Any) -> None:
        """Shows an image [height, width, channels], or a histogram's counts and edges."""
        ...


class Silent:
    """Prints only notes, and how to resume a run that was stopped."""

    @contextmanager
    def watching(self, config, folder: Path | str, step: int = 0) -> Iterator[None]:
        """Calls `begin` before a run that starts at `step`, and `end` however it ends."""
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
    """Prints nothing, because another process does."""

    def note(self, text: str) -> None: ...
    def done(self, run, state: str, curve: Path | None) -> None: ...


def stopped(run) -> str:
    return f"stopped at step {run.status['step']:,}; to go on: {how_to_resume(run.path)}"
