"""Every algorithm, by the name the command line knows it."""

from thespis.algos.dads import DADS
from thespis.algos.discrete_sac import DiscreteSAC
from thespis.algos.masac import MASAC
from thespis.algos.sac import SAC
from thespis.algos.sqil import SQIL
from thespis.algos.taac import TAAC
from thespis.algos.td3 import TD3
from thespis.algos.trajectories import TAACL, TAACQ

ALGORITHMS = {
    "sac": SAC,
    "discrete-sac": DiscreteSAC,
    "td3": TD3,
    "sqil": SQIL,
    "taac": TAAC,
    "taac-l": TAACL,
    "taac-q": TAACQ,
    "dads": DADS,
    "masac": MASAC,
}
