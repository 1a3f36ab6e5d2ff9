"""Modules that users name, as in `--env MODULE:ID` or `--descriptor MODULE:NAME`.

Names that come from a run folder must have passed runs/trust.py before they get here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from types import ModuleType

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
    reach()
    return importlib.import_module(module)
