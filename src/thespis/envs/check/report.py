"""The result of checking an environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, NoReturn

from thespis.errors import ThespisError, one_line

Verdict = Literal["ok", "wrong", "cannot say"]


class Check(NamedTuple):
    """The verdict on one property, with a message and, if it is wrong, how to fix it."""

    name: str
    verdict: Verdict
    message: str
    fix: str = ""


@dataclass
class Report:
    """All checks of an environment; it is `ok` if nothing is wrong."""

    env: str
    checks: list[Check] = field(default_factory=list)
    steps_per_second: float | None = None

    @property
    def ok(self) -> bool:
        return all(check.verdict != "wrong" for check in self.checks)

    def __str__(self) -> str:
        lines = [self.env]
        for name, verdict, message, fix in self.checks:
            lines.append(f"  {name:<18}{verdict:<12}{message}")
            lines += [f"  {'':<18}{'':<12}→ {fix}"] if fix else []
        wrong = sum(check.verdict == "wrong" for check in self.checks)
        lines.append(f"{wrong} of {len(self.checks)} checks wrong" if wrong else "nothing is wrong")
        return "\n".join(lines)

    def add(self, name: str, verdict: Verdict, message: str, fix: str = "") -> None:
        self.checks.append(Check(name, verdict, message, fix))

    def stop(self, name: str, message: str, fix: str = "") -> NoReturn:
        """Adds a failed check, and ends the checks."""
        self.add(name, "wrong", message, fix)
        raise Stop

    @contextmanager
    def blame(self, name: str, fix: str) -> Iterator[None]:
        """Reports an exception in the block as a failure of this check."""
        try:
            yield
        except Exception as error:
            kind = "" if isinstance(error, ThespisError) else f"{type(error).__name__}: "
            text = f"{kind}{one_line(error)}"
            self.add(name, "wrong", text[:300], fix)
            raise Stop from error


class Stop(Exception):
    """Raised when a failure makes further checks meaningless."""
