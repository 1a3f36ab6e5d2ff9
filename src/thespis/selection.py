"""Reads which numbers of an observation are meant: coordinates, names and functions, as text.

0,1   2:   observation[0:3]   descriptor   descriptor[2:]   none   my_module:my_function
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from thespis import plugins
from thespis.errors import ThespisError, or_all, shown

DESCRIPTOR = "descriptor"  # key of a dict observation: the numbers that tell where a state is
BASES = ("observation", DESCRIPTOR)


def coordinates(name: str, text: str, size: int) -> tuple[int, ...]:
    """Returns the indices in "0,1", "2:" or "0,3:5", each once; there are `size` numbers."""
    indices: list[int] = []
    for part in text.replace(",", " ").split():
        match = re.fullmatch(r"(\d+)|(\d*):(\d*)", part)
        if not match:
            raise ThespisError(f"{name} = {text}: give coordinates such as 0,1 or 2:")
        if match[1]:
            first, last = int(match[1]), int(match[1]) + 1
        else:
            first, last = int(match[2] or 0), int(match[3] or size)
        if first >= last or last > size:
            raise ThespisError(
                f"{name} = {text}: {part} is not within the {size} coordinates there are, "
                f"0 to {size - 1}"
            )
        indices += [i for i in range(first, last) if i not in indices]
    return tuple(indices)


def choice(name: str, text: str, sizes: dict[str, int]) -> tuple[str, tuple[int, ...]]:
    """Reads BASE, BASE[COORDINATES], none, or coordinates of the observation.

    Returns the base and its coordinates; `sizes` are those of the bases.
    """
    if text == "none":
        return BASES[0], ()
    match = re.fullmatch(r"([a-z]+)(?:\[([\d:, ]+)\])?", text)
    if match and match[1] not in sizes:
        raise ThespisError(f"{name} = {text}{or_all(match[1], ['none', *sizes])}")
    base, inner = (match[1], match[2] or ":") if match else (BASES[0], text)
    return base, coordinates(name, inner, sizes[base])


def is_function(text: str) -> bool:
    """Tells whether this is MODULE:NAME, and not the coordinates 0:2."""
    return plugins.is_reference(text)


def function(name: str, text: str) -> Callable[[Any], Any]:
    """Returns the function MODULE:NAME."""
    try:
        return plugins.find(text)
    except ThespisError as error:
        raise ThespisError(
            f"{name} = {text} cannot be found: {error}; give MODULE:NAME of a function in a module "
            "that Python can import, such as one in this folder"
        ) from error


def name_of(value: Any) -> str:
    """Returns text, or the name of a function, for messages."""
    return value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)


def named(name: str, value: Any) -> str:
    """Returns as text what was passed from Python: text, coordinates, or a function of a module."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | range):
        return ",".join(map(str, value))
    if not callable(value):
        raise ThespisError(f"{name} = {shown(value)}: give text, coordinates or a function")
    text = plugins.reference_to(value)
    if text is None:
        raise ThespisError(
            f"{name} = {name_of(value)}: a run must find it again by its name; define it in a "
            "module, outside of other functions"
        )
    return text
