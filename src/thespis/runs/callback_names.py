"""Callbacks as users give them, and as config.json names them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thespis import plugins
from thespis.errors import ThespisError, one_line, shown
from thespis.runs import checkpoint
from thespis.runs.callback_events import Memory
from thespis.runs.callbacks import Callback


def make(given: Any) -> tuple[tuple[str, ...], list[Callback]]:
    """Returns the callbacks that a user gave, and how config.json names them.

    Each is MODULE:CLASS, a class, or an object; what cannot be found again has the class's name.
    """
    items = list(given) if isinstance(given, list | tuple) else [given]
    names, callbacks = [], []
    for item in items:
        name, kind = "", item
        if isinstance(item, str):
            if not plugins.is_reference(item):
                raise ThespisError(f"callback {shown(item)}: give MODULE:CLASS")
            name, kind = item, plugins.find(item)
        if isinstance(kind, type) and issubclass(kind, Callback):
            names.append(name or plugins.reference_to(kind) or kind.__name__)
            callbacks.append(without_arguments(kind, names[-1]))
        elif isinstance(kind, Callback) and not name:
            names.append(type(kind).__name__)
            callbacks.append(kind)
        else:
            what = plugins.described(kind)
            raise ThespisError(
                f"callback {name or shown(item)} is {what}: derive a class from thespis.Callback"
            )
    return tuple(names), callbacks


def without_arguments(kind: type[Callback], name: str) -> Callback:
    try:
        return kind()
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(
            f"callback {name} cannot be made without arguments: {text}; give defaults, or from "
            "Python an object"
        ) from error


def untraced(folder: Path) -> list[str]:
    """Returns which hyper-parameters callbacks of a run changed beside lineage.csv."""
    for path in checkpoint.latest(folder / "checkpoints")[:1]:
        saved = checkpoint.manifest(path)["info"].get("callbacks")
        return Memory.read(saved).untraced if saved is not None else []
    return []


def check_found(folder: Path, names: Iterable[str]) -> None:
    """Refuses to go on without callbacks that were given as objects."""
    objects = [name for name in names if not plugins.is_reference(name)]
    if objects:
        raise ThespisError(
            f"{folder} has callbacks = {', '.join(objects)}, which were given as objects: pass "
            "callbacks, from Python, or none to go on without (callbacks=[], --callback none)"
        )
