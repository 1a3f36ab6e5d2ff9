"""Tuners by name, made from options as users write them."""

from __future__ import annotations

from typing import Any

from thespis.errors import ThespisError, or_all
from thespis.tuning.base import clean
from thespis.tuning.controls import NoTuning, RandomSearch
from thespis.tuning.multi_frequency import MultiFrequencyPBT
from thespis.tuning.pb2 import PB2
from thespis.tuning.pbt import PBT
from thespis.values import fields, one_of

TUNERS: dict[str, type] = {
    "pbt": PBT,
    "pb2": PB2,
    "multi-frequency": MultiFrequencyPBT,
    "random": RandomSearch,
    "none": NoTuning,
}


def tuner(name: str, **options: Any) -> Any:
    """Returns a tuner, by its name and options as users write them."""
    kind = TUNERS[one_of("tuner", tuple(TUNERS), name)]
    known = {option.name: option for option in fields(kind)}
    for option in options:
        if option not in known:
            raise ThespisError(f"unknown option {option!r} of {name}{or_all(str(option), known)}")
    return kind(**{name: clean(known[name], value) for name, value in options.items()})


def preset_hp(preset: dict[str, Any]) -> dict[str, Any]:
    """Returns the hyper-parameters of a preset without those that it tunes."""
    tuned = {text.partition("=")[0] for text in preset.get("pbt", {}).get("tuned", ())}
    return {name: x for name, x in preset.get("hp", {}).items() if name not in tuned}
