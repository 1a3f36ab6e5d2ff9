"""Options and steps that several commands share."""

from __future__ import annotations

import importlib
import json
import math
import re
from types import SimpleNamespace
from typing import Any

from thespis import plugins
from thespis.cli.options import describe, parse
from thespis.errors import ThespisError, printable
from thespis.values import Option

HELP = ("--help", "-h", "--help-all")  # the last differs for commands with a short help page
JSON = Option("json", bool, "Print the result as one line of JSON.", False)
BEST = Option("best", bool, "Use the policy of the best evaluation instead of the last one.", False)
SEED = Option("seed", int, "Seed of the start states.", 0)
IMPORT = "Import the code that the run names, even if you did not train it on this machine"
TRUST = Option("trust", bool, f"{IMPORT}; this time only.", False)
TRUST_AND_REMEMBER = Option("trust", bool, f"{IMPORT}, and remember to trust it.", False)
OUT = Option("out", str, "Folder of the runs; by default $THESPIS_RUNS, or else runs.")


NOUNS = {"check-env": "environment", "pull": "model on the hub", "completion": "shell"}


class HelpPrinted(Exception):
    """Raised when the help of a command has been printed."""


def read_arguments(
    usage: str, argv: list[str], options: list[Option], example: str, words: int | None = 1
) -> tuple[list[str], SimpleNamespace]:
    """Returns the plain words, and the options with their defaults; or prints the help.

    A usage such as "eval RUN" makes the first word mandatory, "zoo [NAME]" does not. `words` is the
    largest number of plain words; None means any number.
    """
    if {*HELP} & {*argv}:
        text = f"usage: thespis {usage} [options]\n\n{about(usage)}\n\n{describe(options)}\n\n"
        print(f"{text}example: thespis {example}")
        raise HelpPrinted
    plain, chosen = parse(argv, options, math.inf if words is None else words)
    if not plain and words != 0 and "[" not in usage:
        noun = NOUNS.get(usage.split()[0], "run")
        one = f"the {noun}" if words else f"at least one {noun}"
        raise ThespisError(f"name {one}: thespis {usage}")
    return plain, SimpleNamespace(**{o.name: o.default for o in options} | chosen)


def about(usage: str) -> str:
    """Returns what a command does, as a sentence made of its line in the list of commands."""
    from thespis.cli import command, skills

    *_, name = usage.split()[: 2 if usage.startswith("skills ") else 1]
    text = skills.HELP if usage.startswith("skills ") else command.HELP
    lines = (line for line in text.splitlines() if line.split()[:1] == [name])
    (line,) = lines
    sentence = re.split(r"\s{2,}", line.strip())[-1]
    return f"{sentence[0].upper()}{sentence[1:]}."


def print_result(result: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    """Prints the result as one line of JSON, or as lines of text."""
    print("\n".join([json.dumps(result)] if as_json else map(printable, lines)), flush=True)


def imported(name: str) -> Any:
    """Imports a module that takes long to load, and delays Ctrl-C until then."""
    from thespis.runs.process import held

    with held():
        return importlib.import_module(name)


def overshadowed(*names: Any) -> list[str]:
    """Returns a note for each name that a package registers although it is already taken."""
    import gymnasium

    from thespis.algos import ALGORITHMS

    taken = [(plugins.ALGORITHMS, n, "Thespis") for n in names if n in ALGORITHMS]
    taken += [(plugins.ENVIRONMENTS, n, "Gymnasium") for n in names if n in gymnasium.registry]
    return [note for one in taken if (note := plugins.overshadowed(*one))]


def open_run(path: str, args: SimpleNamespace) -> tuple[Any, str]:
    """Opens a run with XLA's threads as in its training; returns it, and "best" or "last"."""
    api = imported("thespis.api")
    run = api.load(path, trust=args.trust)
    api.set_threads(run.config)
    return run, "best" if getattr(args, "best", False) else "last"
