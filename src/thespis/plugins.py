"""Code of users: MODULE:NAME as they type it, as in `--env my_module:MyTask`.

Names that come from a run folder must have passed runs/trust.py before they get here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from thespis.errors import ThespisError, did_you_mean, one_line, shown

REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
also: list[str] = []  # folders where the command looks beside Python's own: the current one


def origin(module: str) -> str | None:
    """The file or folder that a module is imported from; None if there is none.

    Nothing is imported for that, so of a.b it is where a lies.
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
    """Let Python find modules in the current folder: not before a user has named one of them.

    Else a file beside a run could stand in for a library that is not installed.
    """
    sys.path += [folder for folder in also if folder not in sys.path]


def load(module: str) -> ModuleType:
    """Imports a module that a user has named, also from the current folder."""
    reach()
    return importlib.import_module(module)


def is_reference(text: Any) -> bool:
    """Tells whether this is MODULE:NAME, and not an id such as Ant-v5 or the coordinates 0:2."""
    return isinstance(text, str) and REFERENCE.fullmatch(text) is not None


def home_of(reference: str) -> ModuleType:
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


def find(reference: str) -> Any:
    """Returns the object MODULE:NAME."""
    home, (module, _, name) = home_of(reference), reference.partition(":")
    if not hasattr(home, name):
        raise ThespisError(f"{reference}: {module} has no {name}{did_you_mean(name, dir(home))}")
    return getattr(home, name)


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
    """The name by which the running script could be imported; none of a notebook."""
    return Path(getattr(main, "__file__", None) or "").stem


def described(thing: Any) -> str:
    """Says what something is that should have been a class."""
    kind = type(thing).__name__
    return f"a {kind}" if callable(thing) else f"the {kind} {shown(thing)}"
