"""Finds code of users: MODULE:NAME, as in `--env my_module:MyTask`, and names that installed
packages announce by entry points.

Names that come from a run folder must have passed runs/trust.py before they get here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from thespis.errors import ThespisError, did_you_mean, one_line, shown

ALGORITHMS, ENVIRONMENTS = "thespis.algorithms", "thespis.environments"  # groups of entry points
REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
also: list[str] = []  # folders that the command searches after sys.path: the current one


def origin(module: str) -> str | None:
    """Returns the file or folder that a module is imported from; None if there is none.

    Nothing is imported for that, so for a.b it is where a lies.
    """
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top) or PathFinder.find_spec(top, also)
    except (ImportError, ValueError):  # no name of a module, or one that was not imported
        known = sys.modules.get(top)
        return known and (getattr(known, "__file__", None) or "this process")
    if spec is None:
        return None
    if spec.origin in ("built-in", "frozen"):
        return "Python itself"
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return ", ".join(os.path.realpath(p) if os.path.exists(p) else p for p in places)


def reach() -> None:
    """Lets Python find modules in the current folder, once a user has named one of them.

    Before that, a file beside a run could stand in for a library that is not installed.
    """
    sys.path += [folder for folder in also if folder not in sys.path]


def load(module: str) -> ModuleType:
    """Imports a module that a user has named, also from the current folder."""
    reach()
    return importlib.import_module(module)


def is_reference(text: Any) -> bool:
    """Tells whether this is MODULE:NAME, and not an id such as Ant-v5 or the coordinates 0:2."""
    return isinstance(text, str) and REFERENCE.fullmatch(text) is not None


def home_of(reference: str, load: Callable[[str], ModuleType] = load) -> ModuleType:
    """Imports the module of MODULE:NAME, or says in one line why that is impossible.

    It may be the running script, which is not imported a second time.
    """
    module, _, name = reference.partition(":")
    main = sys.modules.get("__main__")
    if script_name(main) == module and hasattr(main, name):
        return main  # type: ignore
    try:
        return load(module)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            where = "neither in this folder nor installed"
            raise ThespisError(f"{reference}: there is no module {missing}, {where}") from error
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(f"{reference}: importing {module} raised {text}") from error


def find(reference: str, load: Callable[[str], ModuleType] = load) -> Any:
    """Returns the object MODULE:NAME."""
    home, (module, _, name) = home_of(reference, load), reference.partition(":")
    if not hasattr(home, name):
        raise ThespisError(
            f"{reference}: {module} has no {name}{did_you_mean(name, public_names(home))}"
        )
    return getattr(home, name)


def public_names(home: ModuleType) -> list[str]:
    """Returns the names of classes, functions and objects in a module; not of modules."""
    return [name for name in dir(home) if not isinstance(getattr(home, name), ModuleType)]


def reference_to(thing: Any) -> str | None:
    """Returns MODULE:NAME of a class or function; None if a run could not find it again by that."""
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    if module == "__main__":
        module = script_name(sys.modules["__main__"])
    text = f"{module}:{name}"
    try:
        return text if is_reference(text) and find(text) is thing else None
    except ThespisError:
        return None


def script_name(main: ModuleType | None) -> str:
    """Returns the name by which the running script could be imported; "" for a notebook."""
    return Path(getattr(main, "__file__", None) or "").stem


def described(thing: Any) -> str:
    """Returns what something is that should have been a class."""
    kind = type(thing).__name__
    return f"a {kind}" if callable(thing) else f"the {kind} {shown(thing)}"


# --- announced by packages ------------------------------------------------------------------


class Announced(NamedTuple):
    """An entry point of a package, `redq = "redq_package:REDQ"`, before it is imported."""

    name: str
    reference: str
    package: str

    def load(self) -> Any:
        """Returns what is announced; no file in the current folder stands in for it."""
        try:
            if not is_reference(self.reference):
                raise ThespisError(f"{shown(self.reference)} is not MODULE:NAME")
            return find(self.reference, importlib.import_module)
        except ThespisError as error:
            raise ThespisError(f"{self.name}, announced by {self.package}: {error}") from error


def announced(group: str) -> dict[str, Announced]:
    """Returns what installed packages announce in this group, by name.

    The current folder is not searched: what lies there may have come with somebody's run.
    """
    here = {os.path.realpath(folder) for folder in also}
    places = tuple(p for p in sys.path if os.path.realpath(p or os.curdir) not in here)
    return scan(places).get(group, {})


@cache
def scan(places: tuple[str, ...]) -> dict[str, dict[str, Announced]]:
    """Reads the entry points of all packages in these folders; the first of a name counts."""
    from importlib.metadata import distributions

    groups: dict[str, dict[str, Announced]] = {ALGORITHMS: {}, ENVIRONMENTS: {}}
    for package in distributions(path=list(places)):
        with suppress(Exception):  # a damaged package is passed over
            for entry in package.entry_points:
                if entry.group in groups and re.fullmatch(r"[A-Za-z0-9][\w./+-]*", entry.name):
                    about = Announced(entry.name, entry.value, package.name or "a package")
                    groups[entry.group].setdefault(entry.name, about)
    return groups


def overshadowed(group: str, name: Any, owner: str) -> str:
    """Returns a note that a package announces a name which is taken; "" if none does."""
    entry = announced(group).get(name) if isinstance(name, str) else None
    if entry is None:
        return ""
    return f"{name} is {owner}'s own; that of {entry.package} is {entry.reference}"
