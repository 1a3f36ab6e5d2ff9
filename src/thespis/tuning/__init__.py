"""Populations that tune themselves.

A tuner is a frozen dataclass of static choices. It draws the members' first hyper-parameters, and
decides after every round of training who copies whom, and with which new ones.
"""

from thespis.tuning.base import Inherit, Tuner, decide, inherited, priors, replaced, varying
from thespis.tuning.controls import NoTuning, RandomSearch
from thespis.tuning.multi_frequency import MultiFrequencyPBT
from thespis.tuning.pb2 import PB2
from thespis.tuning.pbt import PBT, better
from thespis.tuning.tuners import TUNERS, preset_hp, tuner

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
    "decide",
    "inherited",
    "preset_hp",
    "priors",
    "replaced",
    "tuner",
    "varying",
]
