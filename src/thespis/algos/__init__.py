"""Every algorithm, by the name the command line knows it."""

from thespis.algos.sac import SAC
from thespis.algos.td3 import TD3

ALGORITHMS = {"sac": SAC, "td3": TD3}
