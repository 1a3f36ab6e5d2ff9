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


def make(arguments: Any) -> tuple[tuple[str, ...], list[Callback]]:
    """Returns the names of callbacks for config.json, and the callbacks.

    Each argument is MODULE:CLASS, a class or an object; an object is named by its class.
    """
    items = list(arguments) if isinstance(arguments, list | tuple) else [arguments]
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
            f"callback {name} cannot be created without arguments: {text}; give its arguments "
            "defaults, or pass an object from Python"
        ) from error


def untraced(folder: Path) -> list[str]:
    """Returns the hyper-parameters that callbacks changed without an entry in lineage.csv."""
    for path in checkpoint.latest(folder / "checkpoints")[:1]:
        saved = checkpoint.manifest(path)["info"].get("callbacks")
        return Memory.read(saved).untraced if saved is not None else []
    return []


def check_found(folder: Path, names: Iterable[str]) -> None:
    """Refuses to resume a run without the callbacks that were passed as objects."""
    objects = [name for name in names if not plugins.is_reference(name)]
    if objects:
        raise ThespisError(
            f"{folder} has callbacks = {', '.join(objects)}, which were given as objects: pass "
            "callbacks, from Python, or none to resume without (callbacks=[], --callback none)"
        )
