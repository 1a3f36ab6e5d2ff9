"""Options and steps that several verbs share."""

from __future__ import annotations

import importlib
from typing import Any

from thespis import plugins
from thespis.cli.options import describe, parse
from thespis.errors import ThespisError
from thespis.values import Option

HELP = ("--help", "-h", "--help-all")  # the last differs where there is a shorter page
JSON = Option("json", bool, "Print one machine-readable line.")
BEST = Option("best", bool, "The policy of the best evaluation instead of the last one.")
SEED = Option("seed", int, "Seed of the start states.", 0)
NAMES = "Import code that the run names, though you did not train it here"
TRUST = Option("trust", bool, f"{NAMES}, this once.")
TRUST_ON = Option("trust", bool, f"{NAMES}, and remember it.")
OUT = Option("out", str, "Folder of the runs.", "runs")


def imported(name: str) -> Any:
    """A module that takes long to import, without an interruption."""
    from thespis.runs.process import held

    with held():
        return importlib.import_module(name)


def overshadowed(*names: Any) -> list[str]:
    """What to say of names that a package announces though they are taken already."""
    import gymnasium

    from thespis.algos import ALGORITHMS

    found = [
        plugins.overshadowed(plugins.ALGORITHMS, n, "Thespis") for n in names if n in ALGORITHMS
    ]
    ids = [n for n in names if n in gymnasium.registry]
    found += [plugins.overshadowed(plugins.ENVIRONMENTS, n, "Gymnasium") for n in ids]
    return [text for text in found if text]


def chosen_policy(given: dict[str, Any]) -> str:
    """That of the best evaluation if `BEST` is given, else the last one."""
    return "best" if given.get("best") else "last"


def wants_help(usage: str, argv: list[str], options: list[Option], example: str) -> bool:
    if not {*HELP} & {*argv}:
        return False
    print(f"usage: thespis {usage} [options]\n\n{describe(options)}\n\nexample: thespis {example}")
    return True


def run_and_options(
    usage: str, argv: list[str], options: list[Option], example: str
) -> tuple[str | None, dict[str, Any]]:
    """The run that a verb is about and its options; no run if help was wanted and given."""
    if wants_help(usage, argv, options, example):
        return None, {}
    words, given = parse(argv, options, 1)
    if not words:
        raise ThespisError(f"name the run: thespis {usage}")
    return words[0], given


def opened(path: str, given: dict[str, Any]):
    """A run, with XLA's threads as it was trained with."""
    api = imported("thespis.api")
    run = api.load(path, trust=bool(given.get("trust")))
    api.set_threads(run.config)
    return run
