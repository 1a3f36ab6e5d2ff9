"""Command-line options from typed fields: `--name value`, one-line errors, help from docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal

from thespis.errors import ThespisError, did_you_mean


@dataclass(frozen=True)
class Option:
    """One option; `kind` is its Python type, `bool` options take no value."""

    name: str
    kind: Any
    help: str = ""
    default: Any = None

    def parse(self, words: list[str]) -> Any:
        """The value of the words that followed the option."""
        kind, many = self.kind, False
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            if words == ["none"]:
                return None
            kind = next(k for k in typing.get_args(kind) if k is not type(None))
        if typing.get_origin(kind) is tuple:
            kind, many = typing.get_args(kind)[0], True
        if kind is bool:
            if words and words != ["true"] and words != ["false"]:
                raise ThespisError(
                    f"--{self.name} {' '.join(words)}: give true or false, or nothing"
                )
            return words != ["false"]
        if many:
            words = [w for word in words for w in word.replace(",", " ").split()]
        if not words:
            raise ThespisError(f"--{self.name} needs a value{self.such()}")
        if not many and len(words) > 1:
            raise ThespisError(f"--{self.name} takes one value, not {' '.join(words)}")
        values = tuple(self.convert(kind, word) for word in words)
        return values if many else values[0]

    def convert(self, kind, word: str) -> Any:
        if kind is Any or kind is str:
            return word
        if typing.get_origin(kind) is Literal:
            choices = typing.get_args(kind)
            if word not in choices:
                raise ThespisError(f"--{self.name} {word}: give one of {', '.join(choices)}")
            return word
        try:
            if kind is int:
                value = float(word.replace("_", ""))  # 1e6 is how people write a million
                if value != int(value):
                    raise ValueError
                return int(value)
            return float(word)
        except (ValueError, OverflowError):
            noun = "a whole number" if kind is int else "a number"
            raise ThespisError(f"--{self.name} {word}: give {noun}") from None

    def such(self) -> str:
        return "" if self.default in (None, ()) else f", such as {show(self.default)}"


def parse(
    argv: list[str], options: list[Option], positional: int
) -> tuple[list[str], dict[str, Any]]:
    """Positional words and {name: value} of what was given. `positional` of -1 is any number."""
    known = {o.name.replace("-", "_"): o for o in options}
    words: list[str] = []
    given: dict[str, Any] = {}
    queue = list(argv)
    while queue:
        word = queue.pop(0)
        if not word.startswith("--"):
            words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        negated = name.removeprefix("no_")
        if name not in known and negated in known and known[negated].kind is bool:
            given[negated] = False
            continue
        if name not in known:
            raise ThespisError(f"unknown option --{word[2:]}{did_you_mean(name, known)}")
        values = [value] if equals else []
        limit = many(known[name].kind)
        while queue and not equals and len(values) < limit and not flag(queue[0]):
            values.append(queue.pop(0))
        given[name] = known[name].parse(values)
    if 0 <= positional < len(words):
        raise ThespisError(f"unexpected {words[positional]!r}: options start with --")
    return words, given


def many(kind) -> float:
    """How many words an option of this type may take."""
    kinds = [kind, *typing.get_args(kind)]
    if any(typing.get_origin(k) is tuple for k in kinds):
        return float("inf")
    return 0 if kind is bool else 1


def flag(word: str) -> bool:
    """An option, and not a negative number."""
    if not word.startswith("-"):
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def fields(cls: type, prefix: str = "", skip: tuple[str, ...] = ()) -> list[Option]:
    """Options of a dataclass: a string below a field is its help."""
    kinds, helps = typing.get_type_hints(cls), docstrings(cls)
    return [
        Option(
            prefix + f.name, kinds[f.name], f.metadata.get("help", helps.get(f.name, "")), f.default
        )
        for f in dataclasses.fields(cls)
        if f.name not in skip
    ]


def docstrings(cls: type) -> dict[str, str]:
    """The string that stands below each field in the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore
    pairs = zip(body, body[1:], strict=False)
    return {
        field.target.id: " ".join(text.value.value.split())  # type: ignore
        for field, text in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def describe(options: list[Option]) -> str:
    """Help text, one option a paragraph."""
    lines = []
    for o in options:
        kind = choices(o.kind)
        default = (
            "" if o.default in (None, dataclasses.MISSING) else f" (default {show(o.default)})"
        )
        head = f"  --{o.name.replace('_', '-')} {kind}".rstrip()
        body = textwrap.wrap(f"{o.help}{default}".strip(), 66)
        if body and len(head) < 30:
            lines.append(f"{head:<30}{body.pop(0)}")
        else:
            lines.append(head)
        lines += [" " * 30 + line for line in body]
    return "\n".join(lines)


def choices(kind) -> str:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if typing.get_origin(kind) is Literal:
        return "{" + ",".join(typing.get_args(kind)) + "}"
    if typing.get_origin(kind) is tuple:
        return "N ..."
    return {bool: "", int: "N", float: "X"}.get(kind, "TEXT")


def show(value) -> str:
    if isinstance(value, tuple | list):
        return " ".join(str(v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
