"""The algorithms, each a frozen dataclass of static choices with pure methods."""

from thespis.algos.dads import DADS
from thespis.algos.discrete_sac import DiscreteSAC
from thespis.algos.masac import MASAC
from thespis.algos.registry import ALGORITHMS
from thespis.algos.sac import SAC
from thespis.algos.sqil import SQIL
from thespis.algos.taac import TAAC
from thespis.algos.td3 import TD3
from thespis.algos.td7 import TD7
from thespis.algos.trajectories import TAACL, TAACQ

__all__ = [
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
]
