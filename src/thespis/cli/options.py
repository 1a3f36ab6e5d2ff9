"""Parses options on the command line, and formats their help."""

from __future__ import annotations

import math
import textwrap
import typing
from collections.abc import Iterable
from typing import Any, Literal

from thespis.errors import ThespisError, did_you_mean, or_all
from thespis.values import UNSET, Option, convert, needed, show


def parse(
    argv: list[str], options: list[Option], positional: float = math.inf
) -> tuple[list[str], dict[str, Any]]:
    """Returns at most `positional` plain words, and {name: value} of the options in `argv`.

    An option is `--some-name 1` or `--some_name=1`; a boolean one is `--name` or `--no-name`, or
    is followed by true or false.
    """
    words, chosen = split(argv, options, positional)
    return words, {name: read(option, texts) for name, (option, texts) in chosen.items()}


def split(
    argv: list[str], options: list[Option], positional: float = math.inf
) -> tuple[list[str], dict[str, tuple[Option, list[str]]]]:
    """Returns plain words, and each option in `argv` with the words that follow it.

    It refuses unknown names, but does not look at values.
    """
    known = {o.name.replace("-", "_"): o for o in options}
    words: list[str] = []
    chosen: dict[str, tuple[Option, list[str]]] = {}
    queue = list(argv)
    while queue:
        word = queue.pop(0)
        if not flag(word):
            words.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        negated = name.removeprefix("no_")
        if name not in known and negated in known and known[negated].kind is bool:
            chosen[negated] = known[negated], ["false"]
            continue
        if name not in known or not word.startswith("--"):
            raise ThespisError(f"unknown option {word.partition('=')[0]}{suggestion(name, known)}")
        option = known[name]
        values = [value] if equals else []
        if option.kind is bool and queue and not equals and queue[0].lower() in ("true", "false"):
            values = [queue.pop(0).lower()]
        while queue and not equals and len(values) < most_words(option.kind) and not flag(queue[0]):
            values.append(queue.pop(0))
        if option.repeated and name in chosen:
            values = [*chosen[name][1], *values]
        chosen[name] = option, values
    if len(words) > positional:
        raise ThespisError(unexpected(words[int(positional)], argv))
    return words, chosen


def read_one(argv: list[str], option: Option) -> Any:
    """Returns the value of one option in `argv`, None without it, while others are unknown."""
    words, ours = [], False
    for word in argv:
        if flag(word):
            name = word.lstrip("-").partition("=")[0].replace("-", "_")
            ours = name in (option.name, f"no_{option.name}")
        words += [word] if ours else []
    return parse(words, [option])[1].get(option.name)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the options nearest to an unknown one; the shorter name of those that have two."""
    known, short = [*known], lambda n: n.removeprefix("algo.").removeprefix("hp.")
    if "." not in name:
        known = [n for n in known if n == short(n) or short(n) not in known]
    names = [n.replace("_", "-") for n in known]
    nearest = or_all if len(names) <= 12 else did_you_mean
    return nearest(name.replace("_", "-"), names) or "; --help-all lists them all"


def unexpected(word: str, argv: list[str]) -> str:
    """Returns a message about a plain word that has no meaning where it is."""
    at = argv.index(word)
    option, value = argv[at - 2 : at] if at >= 2 else ("", "")
    hint = "options start with --"
    if flag(option) and "=" not in option and not flag(value):
        hint += f", and {option} takes one value"
        hint += "; --seeds takes several" if option == "--seed" else ""
    return f"unexpected {word!r}: {hint}"


def read(option: Option, words: list[str]) -> Any:
    """Returns the value of an option from the words that followed it."""
    text = " ".join(words).strip()
    if option.kind is bool:
        return convert(option.name, bool, text or True)
    if not text and option.bare is not None:
        return option.bare
    if not text:
        example = "" if option.default in UNSET else f", such as {show(option.default)}"
        raise ThespisError(f"--{option.name.replace('_', '-')} needs a value{example}")
    return convert(option.name, option.kind, text)


def most_words(kind: Any) -> float:
    """Returns how many words an option of this type may take."""
    if typing.get_origin(needed(kind)) is tuple:
        return math.inf
    return 0 if kind is bool else 1


def flag(word: str) -> bool:
    """Returns whether a word is an option, and not a negative number."""
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word.partition(",")[0])  # or several numbers
    except ValueError:
        return True
    return False


# --- help -----------------------------------------------------------------------------------


def describe(options: list[Option]) -> str:
    """Returns the help of options, one paragraph per option."""
    lines = []
    for o in options:
        missing = o.default in UNSET or o.kind is bool
        default = "" if missing else f" (default\xa0{show(o.default)})"  # not to be wrapped
        short = "-o, " if o.name == "output" else ""
        value = o.metavar or placeholder(o.kind)
        head = f"  {short}--{o.name.replace('_', '-')} {value}".rstrip()
        text = f"{o.help[:1].upper()}{o.help[1:].removesuffix('.')}." if o.help else ""
        body = textwrap.wrap(f"{text}{default}".strip(), 66)
        body = [line.replace("\xa0", " ") for line in body]
        if body and len(head) < 30:
            lines.append(f"{head:<30}{body.pop(0)}")
        else:
            lines.append(head)
        lines += [" " * 30 + line for line in body]
    return "\n".join(lines)


def placeholder(kind: Any) -> str:
    """Returns the placeholder for a value of this type in the help."""
    kind = needed(kind)
    if typing.get_origin(kind) is Literal:
        return "{" + ",".join(typing.get_args(kind)) + "}"
    if typing.get_origin(kind) is tuple:
        return f"{placeholder(typing.get_args(kind)[0])} ..."
    return {bool: "", int: "N", float: "X"}.get(kind, "TEXT")
