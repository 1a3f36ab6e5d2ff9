"""Errors that a user can fix, and suggestions for names that are nearly right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

LONGEST = 100  # characters of a value that a message repeats
LINE = 10_000  # characters of a whole message


class ThespisError(Exception):
    """An error that the user can fix: one line that says what, where and what to do.

    It may quote what a stranger wrote, so it is `printable`.
    """

    def __init__(self, message: str = ""):
        long = len(str(message)) > LINE
        super().__init__(printable(f"{str(message)[:LINE]} ..." if long else message))


class Fault(ThespisError):
    """A failure of one of several environments, `step` steps after they were opened."""

    def __init__(self, name: str, environment: int, step: int, what: str):
        super().__init__(f"{name}, environment {environment}, step {step}: {what}")
        self.name, self.environment, self.step, self.what = name, environment, step, what

    def at(self, environment: int, step: object, seed: int) -> ThespisError:
        """Returns the same error, with the environment and step as the run counts them."""
        where = f"{self.name}, environment {environment}, step {step}, seed {seed}"
        return ThespisError(f"{where}: {self.what}")


def printable(text: object) -> str:
    """Returns text that is safe for a terminal: control characters are spelled out."""
    shown = lambda c: c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
    return str(text) if str(text).isprintable() else "".join(map(shown, str(text)))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: the known names nearest to this one, if any is near.

    A prefix `jax:` that they share says nothing of how near they are.
    """
    lower = {key.lower(): key for key in known}
    shared = name[: name.find(":") + 1].lower()
    if not any(key.startswith(shared) for key in lower):
        shared = ""
    lower = {lowered.removeprefix(shared): key for lowered, key in lower.items()}
    near = difflib.get_close_matches(name.lower().removeprefix(shared), lower, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(lower[key] for key in near)}?" if near else ""


def or_all(name: str, known: Iterable[str]) -> str:
    """Returns the same as `did_you_mean`, or a list of all names where none is near."""
    known = list(known)
    return did_you_mean(name, known) or f"; there is {', '.join(known) or 'none'}"


def listed(names: list[str], word: str) -> str:
    """Returns "a, b and c", or with another word."""
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def require(holds: object, message: str) -> None:
    """Raises a `ThespisError` unless something holds."""
    if not holds:
        raise ThespisError(message)


def one_line(error: Exception) -> str:
    """Returns the message of an error on one line."""
    return " ".join(str(error).split())


def shown(value: object) -> str:
    """Returns a value for a message: on one line, without memory addresses, cut if it is long."""
    text = value if isinstance(value, str) else re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
