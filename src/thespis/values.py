"""Turns what users write, on the command line or in Python, into typed values."""

from __future__ import annotations

import ast
import dataclasses
import functools
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

from thespis import selection
from thespis.errors import ThespisError, shown

Reference = NewType("Reference", str)  # coordinates or a function, by name (see selection.py)
Word = NewType("Word", str)  # text of which "none" is one, and not the absence of any
MOST = 2**20  # values of one field, and members
UNSET = (None, (), dataclasses.MISSING)  # defaults that say nothing


@dataclass(frozen=True)
class Option:
    """An option that users may set; `kind` is its Python type."""

    name: str
    kind: Any
    help: str = ""
    default: Any = None
    metavar: str = ""  # placeholder of the value in help; by default it follows from the type
    repeated: bool = False  # it may be given several times, and has the values of all
    bare: Any = None  # its value if no word follows; without one, there must be a word


# --- values ---------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Returns plain Python: numbers and arrays of NumPy or JAX, and any sequence as a list."""
    if isinstance(value, list | tuple | range | deque | Iterator):
        return [plain(item) for item in itertools.islice(value, MOST + 1)]
    if isinstance(value, type) or not callable(getattr(value, "tolist", None)):
        return value
    return value.tolist()


def convert(name: str, kind: Any, value: Any) -> Any:
    """Converts text or a Python object to the type of its field."""
    if kind is Any:
        return value
    value = plain(value)
    if optional(kind):
        kind = needed(kind)
        if value is None or (isinstance(value, str) and value == "none" and kind is not Word):
            return None
    if typing.get_origin(kind) is tuple:
        items = value.strip("[()]").replace(",", " ").split() if isinstance(value, str) else value
        items = items if isinstance(items, list) else [items]
        return tuple(convert(name, typing.get_args(kind)[0], item) for item in items)
    if typing.get_origin(kind) is Literal:
        return one_of(name, typing.get_args(kind), value)
    if kind is Reference:
        return selection.named(name, value)
    if kind is bool:
        return (
            value if isinstance(value, bool) else one_of(name, ("true", "false"), value) == "true"
        )
    if kind in (int, float):
        return number(name, value, kind is int)
    kind = str if kind is Word else kind
    if kind is str and not isinstance(value, str | os.PathLike):
        raise ThespisError(f"{name} = {shown(value)}: give text")
    return str(value) if kind is str else value


def one_of(name: str, choices: tuple[str, ...], value: Any) -> str:
    """Returns the value if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ThespisError(f"{name} = {shown(value)}: give one of {', '.join(choices)}")
    return value


def number(name: str, value: Any, whole: bool = False) -> float:
    """Returns a finite number; users write 1e6 and 1_000_000 for a million."""
    try:
        x = float(value) if isinstance(value, Real | str) and not isinstance(value, bool) else None
        if x is None or not math.isfinite(x) or (whole and x != int(x)):
            raise ValueError
    except (ValueError, OverflowError):
        noun = "a whole number" if whole else "a number"
        raise ThespisError(f"{name} = {shown(value)}: give {noun}") from None
    return int(x) if whole else x


def counted(name: str, value: Any) -> int:
    """Returns a whole number that is at least one."""
    n = convert(name, int, value)
    if n < 1:
        raise ThespisError(f"{name} = {n}: give at least 1")
    return n


def optional(kind: Any) -> bool:
    """Tells whether None is allowed."""
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def needed(kind: Any) -> Any:
    """Returns the type of a field without None."""
    if not optional(kind):
        return kind
    return next(k for k in typing.get_args(kind) if k is not type(None))


# --- the fields of a dataclass, as options --------------------------------------------------


def fields(cls: type, prefix: str = "", skip: tuple[str, ...] = ()) -> list[Option]:
    """Returns the options of a dataclass: its metadata, or a string below a field, is the help.

    A field that is a dataclass itself and has a `group` in its metadata is one option for each of
    its own fields, such as critic.norm.
    """
    kinds, helps, options = type_hints(cls), docstrings(cls), []
    for f in dataclasses.fields(cls):
        if f.name in skip:
            continue
        if group := f.metadata.get("group"):
            inner = fields(kinds[f.name], f"{prefix}{group}.")
            options += [dataclasses.replace(o, default=getattr(f.default, last(o))) for o in inner]
        else:
            about = f.metadata.get("help", helps.get(f.name, ""))
            options.append(Option(prefix + f.name, kinds[f.name], about, f.default))
    return options


def default_of(cls: type, name: str, otherwise: Any = None) -> Any:
    """Returns the default of a dataclass's field; `otherwise` if it has no such field."""
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}
    return defaults.get(name, otherwise)


@functools.cache  # a sweep makes thousands of configs
def type_hints(cls: type) -> dict[str, Any]:
    """Returns the types of a class's fields, by name."""
    return typing.get_type_hints(cls)


def last(option: Option) -> str:
    """Returns the name of an option without the groups it is in."""
    return option.name.rpartition(".")[2]


def ungrouped(cls: type, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a dataclass, from options such as critic.norm."""
    arguments = {name: value for name, value in options.items() if "." not in name}
    for f in dataclasses.fields(cls):
        if group := f.metadata.get("group"):
            prefix = f"{group}."
            inner = {n.removeprefix(prefix): x for n, x in options.items() if n.startswith(prefix)}
            if inner:
                arguments[f.name] = dataclasses.replace(f.default, **inner)  # type: ignore
    return arguments


def grouped(cls: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a dataclass, from arguments in which some are whole groups."""
    groups = {f.name: f for f in dataclasses.fields(cls) if f.metadata.get("group")}
    options = {}
    for name, value in arguments.items():
        f = groups.get(name)
        if f is None:
            options[name] = value
        elif type(value) is type(f.default):
            options |= {f"{f.metadata['group']}.{n}": x for n, x in vars(value).items()}
        else:
            raise ThespisError(
                f"{name} = {shown(value)}: give {type(f.default).__name__}(...); networks of your "
                "own belong into an algorithm of your own, as the default of this field"
            )
    return options


@functools.cache  # reading the source takes longer than all else about a config
def docstrings(cls: type) -> dict[str, str]:
    """Returns the string below each field in the source, inherited ones too."""
    inherited = [docstrings(base) for base in cls.__bases__ if dataclasses.is_dataclass(base)]
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore
    except (OSError, TypeError, SyntaxError):  # a class without a file, as in a notebook
        body = []
    declared = {
        field.target.id: " ".join(text.value.value.split())  # type: ignore
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
    return {name: text for helps in [*inherited, declared] for name, text in helps.items()}


def show(value: Any) -> str:
    """Returns a value as users would write it."""
    if isinstance(value, tuple | list):
        return " ".join(str(v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
