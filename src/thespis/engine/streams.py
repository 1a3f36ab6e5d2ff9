"""The randomness of a run: every key is a function of a seed, a stream and the time.

So there is no generator whose state must be saved, and a resumed run draws the same numbers.
"""

from __future__ import annotations

from enum import IntEnum

import jax
import numpy as np
from jax import random
from jaxtyping import Array, Int

from thespis.core import Key


class Stream(IntEnum):
    """What randomness is for. Keys of different streams are independent."""

    INIT = 0  # of a member: its networks, its first episodes
    TRAIN = 1  # of a member, at every iteration: see `Use`
    EVALUATE = 2  # of a member, at every evaluation
    BEGIN = 3  # of a population: the first hyper-parameters
    EXCHANGE = 4  # of a population, at every exchange
    HEAL = 5  # of a population: who replaces diverged members; 6 and 7 at later attempts
    DEMOS = 6  # of recorded episodes, which belong to no member or population
    RESET = 8  # of a member, at every reset of its networks
    COLLECT = 9  # of a member, at every iteration, for each remote collector


class Use(IntEnum):
    """What the key of a member's iteration is folded with, by use."""

    ACT = 0
    SAMPLE = 1
    UPDATE = 2
    STEP = 3  # of the environments
    RESTART = 4  # of the environments, after an exchange


def member_keys(seeds: Int[Array, "members"], stream: int, time) -> Array:
    """Returns one key per member, which depends on its seed and the time only."""
    key = lambda seed: random.fold_in(random.fold_in(random.key(seed), int(stream)), time)
    return jax.vmap(key)(seeds)


def population_key(seeds: Int[Array, "members"], stream: int, time=0) -> Key:
    """Returns a key for what concerns all members."""
    return random.fold_in(random.fold_in(random.key(seeds[0]), int(stream)), time)


def environment_seeds(seeds, stream: int, time, n: int) -> list[int]:
    """Returns seeds of n host environments of every member."""
    state = lambda s: np.random.SeedSequence([int(s), int(stream), int(time)]).generate_state(n)
    return [int(x) >> 1 for s in seeds for x in state(s)]
