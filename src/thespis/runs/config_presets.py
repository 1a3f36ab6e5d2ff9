"""The options of a run that come from a preset, and those of its tuner."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis import tuning
from thespis.errors import ThespisError, or_all, require, shown
from thespis.values import convert, one_of


def preset_of(algo: str, algorithm: Any, preset: Any) -> dict[str, Any]:
    """Returns {group: {name: value}} of a preset; nothing without one."""
    if preset is None:
        return {}
    if not isinstance(preset, str) or preset not in algorithm.presets:
        name = shown(preset)
        hint = or_all(name, algorithm.presets)
        raise ThespisError(f"preset = {name}: {algo} has no preset of this name{hint}")
    return algorithm.presets[preset]


def pop_tuner(values: dict[str, Any], preset: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Removes the tuner from the values and returns its name and fields, or (None, {}).

    `pbt` may be true, a dict of fields or a tuner; `tuner` a name; `pbt.FIELD` a single field.
    The preset's fields are used where the tuner has them.
    """
    fields = {name: values.pop(name) for name in list(values) if name.startswith("pbt.")}
    fields = {name.removeprefix("pbt."): value for name, value in fields.items()}
    whole, name = values.pop("pbt", None), values.pop("tuner", None)
    name = None if name is None else one_of("tuner", tuple(tuning.TUNERS), name)
    if dataclasses.is_dataclass(whole):
        named = [n for n, kind in tuning.TUNERS.items() if type(whole) is kind]
        require(named, f"pbt = {whole}: add its class to thespis.tuning.TUNERS first")
        require(name in (None, *named), f"both pbt = {named[0]} and tuner = {name} are given")
        name, fields = named[0], vars(whole) | fields
    elif isinstance(whole, dict):
        name, fields = name or "pbt", {str(k): x for k, x in whole.items()} | fields
    elif whole is not None and convert("pbt", bool, whole):
        require(name in (None, "pbt"), f"both pbt and tuner = {name} are given: leave one out")
        name = "pbt"
    elif whole is not None:  # false
        require(name is None and not fields, "pbt is false, but a tuner is given: leave one out")
    if name is None and not fields:
        return None, {}
    name = name or "pbt"
    known = {f.name for f in dataclasses.fields(tuning.TUNERS[name])}
    return name, {n: value for n, value in preset.items() if n in known} | fields
