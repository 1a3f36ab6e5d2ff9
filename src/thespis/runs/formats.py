"""The format of runs on disk: its number, and how runs of older formats are read.

1: runs of version 0.1. Adam's moments are called `first`, `second` and `count`, sums `tally`.
2: they are Optax's, `opt_state.mu`, `opt_state.nu` and `opt_state.count`, and `metric_sums`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from thespis.errors import ThespisError, shown

FORMAT = 2
MOMENTS = {"first": "opt_state.mu", "second": "opt_state.nu", "count": "opt_state.count"}


def check(file: Any, number: Any) -> None:
    """Refuses a run of an unknown format."""
    if type(number) is not int or not 1 <= number <= FORMAT:
        raise ThespisError(
            f"{file} has format {shown(number)}, but this version of thespis reads 1 to {FORMAT}: "
            "update thespis"
        )


def renamed(number: int, names: Iterable[str]) -> dict[str, str]:
    """Returns {current name: name in the file} of the leaves of a checkpoint's part."""
    names = list(names)
    if number >= 2:
        return dict(zip(names, names))
    trained = {before for name in names for before, dot, _ in [name.partition(".first")] if dot}
    return {since_2(name, trained): name for name in names}


def is_moment(leaf: str) -> bool:
    """Tells whether this leaf is what an optimiser remembers of past gradients."""
    return ".opt_state." in leaf


def since_2(name: str, trained: set[str]) -> str:
    """Returns the name of a leaf in format 2; `trained` are the parts with an optimiser state."""
    for owner in trained:
        rest = name.removeprefix(f"{owner}.")
        field, dot, leaf = rest.partition(".")
        if rest != name and field in MOMENTS:
            return f"{owner}.{MOMENTS[field]}{dot}{leaf}"
    return re.sub(r"^tally\b", "metric_sums", name)
