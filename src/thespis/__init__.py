"""Thespis: off-policy actor-critic learning in JAX, alone, over many seeds, or as a population.

The names below are imported when first used, so that the command line can answer at once and
choose the number of threads before JAX starts.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thespis.algos import ALGORITHMS as ALGORITHMS
    from thespis.algos import DADS as DADS
    from thespis.algos import MASAC as MASAC
    from thespis.algos import SAC as SAC
    from thespis.algos import SQIL as SQIL
    from thespis.algos import TAAC as TAAC
    from thespis.algos import TAACL as TAACL
    from thespis.algos import TAACQ as TAACQ
    from thespis.algos import TD3 as TD3
    from thespis.algos import TD7 as TD7
    from thespis.algos import DiscreteSAC as DiscreteSAC
    from thespis.api import Run as Run
    from thespis.api import compare as compare
    from thespis.api import load as load
    from thespis.api import plan as plan
    from thespis.api import pull as pull
    from thespis.api import push as push
    from thespis.api import rerun as rerun
    from thespis.api import resume as resume
    from thespis.api import train as train
    from thespis.core import Box as Box
    from thespis.core import Discrete as Discrete
    from thespis.core import Row as Row
    from thespis.core import Spec as Spec
    from thespis.core import Step as Step
    from thespis.core import Transition as Transition
    from thespis.envs import make as make
    from thespis.envs.check import check_env as check_env
    from thespis.errors import ThespisError as ThespisError
    from thespis.runs.callbacks import Callback as Callback
    from thespis.runs.callbacks import Training as Training
    from thespis.runs.dump import reproduce as reproduce
    from thespis.runs.run import Policy as Policy
    from thespis.runs.zoo import zoo as zoo
    from thespis.sweeps.sweep import Sweep as Sweep
    from thespis.sweeps.sweep import sweep as sweep
    from thespis.tuning import PB2 as PB2
    from thespis.tuning import PBT as PBT
    from thespis.tuning import MultiFrequencyPBT as MultiFrequencyPBT
    from thespis.tuning import NoTuning as NoTuning
    from thespis.tuning import RandomSearch as RandomSearch

    __version__: str

_HOMES = {
    "thespis.algos": (
        "ALGORITHMS",
        "DADS",
        "MASAC",
        "SAC",
        "SQIL",
        "TAAC",
        "TAACL",
        "TAACQ",
        "TD3",
        "TD7",
        "DiscreteSAC",
    ),
    "thespis.api": ("Run", "compare", "load", "plan", "pull", "push", "rerun", "resume", "train"),
    "thespis.core": ("Box", "Discrete", "Row", "Spec", "Step", "Transition"),
    "thespis.envs": ("make",),
    "thespis.envs.check": ("check_env",),
    "thespis.errors": ("ThespisError",),
    "thespis.tuning": ("PB2", "PBT", "MultiFrequencyPBT", "NoTuning", "RandomSearch"),
    "thespis.runs.callbacks": ("Callback", "Training"),
    "thespis.runs.dump": ("reproduce",),
    "thespis.runs.run": ("Policy",),
    "thespis.runs.zoo": ("zoo",),
    "thespis.sweeps.sweep": ("Sweep", "sweep"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME)


def __getattr__(name: str):
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module 'thespis' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def _version() -> str:
    """Returns the version of the installed package, which pyproject.toml sets."""
    from importlib import metadata

    try:
        return metadata.version("thespis")
    except metadata.PackageNotFoundError:  # the source alone, on the path
        return "0+unknown"


def __dir__() -> list[str]:
    return [*globals(), "__version__", *_HOME]
