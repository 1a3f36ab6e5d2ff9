"""What is found out about an environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from thespis.errors import ThespisError, one_line

Verdict = Literal["ok", "wrong", "cannot say"]


class Check(NamedTuple):
    """One property: what was seen of it and, where it is wrong, how to mend that."""

    name: str
    verdict: Verdict
    seen: str
    mend: str = ""


@dataclass
class Report:
    """What was found out about an environment; `ok` if nothing is wrong."""

    env: str
    checks: list[Check] = field(default_factory=list)
    steps_per_second: float | None = None

    @property
    def ok(self) -> bool:
        return all(check.verdict != "wrong" for check in self.checks)

    def __str__(self) -> str:
        lines = [self.env]
        for name, verdict, seen, mend in self.checks:
            lines.append(f"  {name:<18}{verdict:<12}{seen}")
            lines += [f"  {'':<18}{'':<12}→ {mend}"] if mend else []
        wrong = sum(check.verdict == "wrong" for check in self.checks)
        lines.append(f"{wrong} of {len(self.checks)} checks wrong" if wrong else "nothing is wrong")
        return "\n".join(lines)

    def add(self, name: str, found: tuple[Any, ...]) -> None:
        self.checks.append(Check(name, *found))

    @contextmanager
    def blame(self, name: str, mend: str) -> Iterator[None]:
        """Whatever is raised inside is this check's fault."""
        try:
            yield
        except Exception as error:
            said = isinstance(error, ThespisError)
            text = one_line(error) if said else f"{type(error).__name__}: {one_line(error)}"
            self.add(name, ("wrong", text[:300], mend))
            raise Spoiled from error


class Spoiled(Exception):
    """What is wrong forbids to look any further."""
