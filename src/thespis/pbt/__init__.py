"""Populations that tune themselves.

A tuner is a frozen dataclass of static choices. It says with which hyper-parameters the members
begin, and after every round of training who takes over whose state and with which new ones.
"""

from __future__ import annotations

from typing import Any

from thespis.errors import ThespisError, or_all
from thespis.options import fields, one_of
from thespis.pbt.base import Inherit, Tuner, clean, exchange, priors, replaced, varying
from thespis.pbt.controls import NoTuning, RandomSearch
from thespis.pbt.multi_frequency import MultiFrequencyPBT
from thespis.pbt.pb2 import PB2
from thespis.pbt.pbt import PBT, better

__all__ = [
    "PB2",
    "PBT",
    "TUNERS",
    "Inherit",
    "MultiFrequencyPBT",
    "NoTuning",
    "RandomSearch",
    "Tuner",
    "better",
    "exchange",
    "preset_hp",
    "priors",
    "replaced",
    "tuner",
    "varying",
]

TUNERS: dict[str, type] = {
    "pbt": PBT,
    "pb2": PB2,
    "multi-frequency": MultiFrequencyPBT,
    "random": RandomSearch,
    "none": NoTuning,
}


def tuner(name: str, **options: Any) -> Any:
    """A tuner by its name, from options as people write them."""
    kind = TUNERS[one_of("tuner", tuple(TUNERS), name)]
    known = {option.name: option for option in fields(kind)}
    for option in options:
        if option not in known:
            raise ThespisError(f"unknown option {option!r} of {name}{or_all(str(option), known)}")
    return kind(**{name: clean(known[name], value) for name, value in options.items()})


def preset_hp(preset: dict[str, Any]) -> dict[str, Any]:
    """What a preset fixes in a population that is tuned: all but those that it tunes itself."""
    tuned = {text.partition("=")[0] for text in preset.get("pbt", {}).get("tuned", ())}
    return {name: x for name, x in preset.get("hp", {}).items() if name not in tuned}
