"""Typed values from what people write: command-line options, or arguments from Python."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
import os
import textwrap
import types
import typing
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NewType

from thespis import describe as described
from thespis.errors import ThespisError, did_you_mean, or_all, shown

Reference = NewType("Reference", str)  # coordinates or a function, by name (see describe.py)
MOST = 2**20  # values of one field, and members
UNSET = (None, (), dataclasses.MISSING)  # defaults that say nothing


@dataclass(frozen=True)
class Option:
    """One option of the command line; `kind` is its Python type."""

    name: str
    kind: Any
    help: str = ""
    default: Any = None


# --- values ---------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Numbers and arrays of NumPy or JAX as Python's own, and all that has an order as a list."""
    if isinstance(value, list | tuple | range | deque | Iterator):
        return [plain(item) for item in itertools.islice(value, MOST + 1)]
    if isinstance(value, type) or not callable(getattr(value, "tolist", None)):
        return value
    return value.tolist()


def convert(name: str, kind: Any, value: Any) -> Any:
    """A value as the type of its field, whether it is text or already a Python object."""
    if kind is Any:
        return value
    value = plain(value)
    if optional(kind):
        if value is None or (isinstance(value, str) and value == "none"):
            return None
        kind = needed(kind)
    if typing.get_origin(kind) is tuple:
        items = value.replace(",", " ").split() if isinstance(value, str) else value
        items = items if isinstance(items, list) else [items]
        return tuple(convert(name, typing.get_args(kind)[0], item) for item in items)
    if typing.get_origin(kind) is Literal:
        return one_of(name, typing.get_args(kind), value)
    if kind is Reference:
        return described.named(name, value)
    if kind is bool:
        return (
            value if isinstance(value, bool) else one_of(name, ("true", "false"), value) == "true"
        )
    if kind in (int, float):
        return number(name, value, kind is int)
    if kind is str and not isinstance(value, str | os.PathLike):
        raise ThespisError(f"{name} = {shown(value)}: give text")
    return str(value) if kind is str else value


def one_of(name: str, choices: tuple[str, ...], value: Any) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ThespisError(f"{name} = {shown(value)}: give one of {', '.join(choices)}")
    return value


def number(name: str, value: Any, whole: bool = False) -> float:
    """A finite number; people write 1e6 and 1_000_000 for a million."""
    try:
        x = float(value) if isinstance(value, Real | str) and not isinstance(value, bool) else None
        if x is None or not math.isfinite(x) or (whole and x != int(x)):
            raise ValueError
    except (ValueError, OverflowError):
        noun = "a whole number" if whole else "a number"
        raise ThespisError(f"{name} = {shown(value)}: give {noun}") from None
    return int(x) if whole else x


def counted(name: str, value: Any) -> int:
    """A whole number of things, at least one."""
    n = convert(name, int, value)
    if n < 1:
        raise ThespisError(f"{name} = {n}: give at least 1")
    return n


def optional(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def needed(kind: Any) -> Any:
    """The type of a field apart from None."""
    if not optional(kind):
        return kind
    return next(k for k in typing.get_args(kind) if k is not type(None))


# --- the command line -----------------------------------------------------------------------


def parse(
    argv: list[str], options: list[Option], positional: float = math.inf
) -> tuple[list[str], dict[str, Any]]:
    """At most `positional` plain words, and {name: value} of the options that were given.

    `--some-name 1`, `--some_name=1` and, for what is true or false, `--name` and `--no-name`.
    """
    known = {o.name.replace("-", "_"): o for o in options}
    words: list[str] = []
    given: dict[str, Any] = {}
    queue = list(argv)
    while queue:
        word = queue.pop(0)
        if not flag(word):
            words.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        denied = name.removeprefix("no_")
        if name not in known and denied in known and known[denied].kind is bool:
            given[denied] = False
            continue
        if name not in known or not word.startswith("--"):
            names = [n.replace("_", "-") for n in known]
            nearest = or_all if len(names) <= 12 else did_you_mean
            hint = nearest(name.replace("_", "-"), names) or "; --help lists them all"
            raise ThespisError(f"unknown option {word.partition('=')[0]}{hint}")
        option = known[name]
        values = [value] if equals else []
        while queue and not equals and len(values) < most_words(option.kind) and not flag(queue[0]):
            values.append(queue.pop(0))
        given[name] = read(option, values)
    if len(words) > positional:
        raise ThespisError(f"unexpected {words[int(positional)]!r}: options start with --")
    return words, given


def read(option: Option, words: list[str]) -> Any:
    """The value of the words that followed an option."""
    text = " ".join(words).strip()
    if option.kind is bool:
        return convert(option.name, bool, text or True)
    if not text:
        such = "" if option.default in UNSET else f", such as {show(option.default)}"
        raise ThespisError(f"--{option.name.replace('_', '-')} needs a value{such}")
    return convert(option.name, option.kind, text)


def most_words(kind: Any) -> float:
    """How many words an option of this type may take."""
    if typing.get_origin(needed(kind)) is tuple:
        return math.inf
    return 0 if kind is bool else 1


def flag(word: str) -> bool:
    """An option, and not a negative number."""
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word.partition(",")[0])  # or several numbers
    except ValueError:
        return True
    return False


# --- options of a dataclass, and their help -------------------------------------------------


def fields(cls: type, prefix: str = "", skip: tuple[str, ...] = ()) -> list[Option]:
    """Options of a dataclass: its metadata, or a string below a field, is the help."""
    kinds, helps = typing.get_type_hints(cls), docstrings(cls)
    about = lambda f: f.metadata.get("help", helps.get(f.name, ""))
    return [
        Option(prefix + f.name, kinds[f.name], about(f), f.default)
        for f in dataclasses.fields(cls)
        if f.name not in skip
    ]


def docstrings(cls: type) -> dict[str, str]:
    """The string that stands below each field in the source, inherited ones too."""
    inherited = [docstrings(base) for base in cls.__bases__ if dataclasses.is_dataclass(base)]
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore
    own = {
        field.target.id: " ".join(text.value.value.split())  # type: ignore
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
    return {name: text for helps in [*inherited, own] for name, text in helps.items()}


def describe(options: list[Option]) -> str:
    """Help text, one option a paragraph."""
    lines = []
    for o in options:
        missing = o.default in UNSET or o.kind is bool
        default = "" if missing else f" (default {show(o.default)})"
        short = "-o, " if o.name == "output" else ""
        head = f"  {short}--{o.name.replace('_', '-')} {placeholder(o.kind)}".rstrip()
        body = textwrap.wrap(f"{o.help}{default}".strip(), 66)
        if body and len(head) < 30:
            lines.append(f"{head:<30}{body.pop(0)}")
        else:
            lines.append(head)
        lines += [" " * 30 + line for line in body]
    return "\n".join(lines)


def placeholder(kind: Any) -> str:
    kind = needed(kind)
    if typing.get_origin(kind) is Literal:
        return "{" + ",".join(typing.get_args(kind)) + "}"
    if typing.get_origin(kind) is tuple:
        return f"{placeholder(typing.get_args(kind)[0])} ..."
    return {bool: "", int: "N", float: "X"}.get(kind, "TEXT")


def show(value: Any) -> str:
    if isinstance(value, tuple | list):
        return " ".join(str(v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
