"""Algorithms by name: built-in ones, those of installed packages, and MODULE:CLASS of users."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Any

from thespis import plugins
from thespis.algos.dads import DADS
from thespis.algos.discrete_sac import DiscreteSAC
from thespis.algos.masac import MASAC
from thespis.algos.sac import SAC
from thespis.algos.sqil import SQIL
from thespis.algos.taac import TAAC
from thespis.algos.td3 import TD3
from thespis.algos.td7 import TD7
from thespis.algos.trajectories import TAACL, TAACQ
from thespis.errors import ThespisError, or_all, shown

ALGORITHMS = {
    "sac": SAC,
    "discrete-sac": DiscreteSAC,
    "td3": TD3,
    "td7": TD7,
    "sqil": SQIL,
    "taac": TAAC,
    "taac-l": TAACL,
    "taac-q": TAACQ,
    "dads": DADS,
    "masac": MASAC,
}
FIELDS = ("spec", "hidden", "batch_size", "n_step")  # from which runs estimate sizes
METHODS = ("init", "memory", "act", "observe", "sample", "update")


def find(name: Any) -> type:
    """Returns the class of an algorithm; unless it is built in, its module is imported."""
    if isinstance(name, str) and name in ALGORITHMS:
        return ALGORITHMS[name]
    if plugins.is_reference(name):
        algorithm = plugins.find(name)
    elif isinstance(name, str) and name in (others := plugins.announced(plugins.ALGORITHMS)):
        algorithm = others[name].load()
    else:
        text = shown(name)
        raise ThespisError(f"unknown algorithm {text!r}{or_all(text, names())}")
    if why := objection(algorithm):
        raise ThespisError(f"{name} is not an algorithm: {why} (docs/add-an-algorithm.md)")
    return algorithm


def names() -> list[str]:
    """Returns the names of all algorithms, built-in ones first. Nothing is imported."""
    others = plugins.announced(plugins.ALGORITHMS)
    return [*ALGORITHMS, *(name for name in others if name not in ALGORITHMS)]


def name_of(algo: Any) -> Any:
    """Returns the name by which a run finds a class again; names stay as they are."""
    if not isinstance(algo, type):
        return algo
    for name, known in ALGORITHMS.items():
        if known is algo:
            return name
    name = plugins.reference_to(algo)
    for other in plugins.announced(plugins.ALGORITHMS).values():
        if other.reference == name and other.name not in ALGORITHMS:
            return other.name
    if name is None:
        short = algo.__name__
        raise ThespisError(
            f"algo = {algo.__qualname__}: a run must find it again by its name; define it in a "
            f"module, outside of functions and notebooks, or use it in this process alone: "
            f'thespis.ALGORITHMS["{short}"] = {short}'
        )
    return name


def module_of(name: str) -> str | None:
    """Returns the module that the name of an algorithm refers to, if any."""
    return None if name in ALGORITHMS or ":" not in name else name.partition(":")[0]


@cache
def objection(thing: Any) -> str:
    """Returns why something is not an algorithm; empty if it is one."""
    if not isinstance(thing, type):
        return f"it is not a class but {plugins.described(thing)}"
    if not dataclasses.is_dataclass(thing) or not thing.__dataclass_params__.frozen:  # type: ignore
        return "it is not a frozen dataclass; put @dataclass(frozen=True) above it"
    fields = {field.name: field for field in dataclasses.fields(thing)}
    lacking = [name for name in FIELDS if name not in fields]
    lacking += [name for name in (*METHODS, "Hyper", "presets") if not hasattr(thing, name)]
    if lacking:
        return f"it lacks {', '.join(lacking)}"
    for name, kind in typing.get_type_hints(thing).items():
        if name not in fields and typing.get_origin(kind) is not typing.ClassVar:
            return f"its field {name} needs @dataclass(frozen=True) above the class"
    missing = dataclasses.MISSING
    bare = [name for name, f in fields.items() if name != "spec" and f.default is missing]
    return f"its field {bare[0]} has no default" if bare else ""
