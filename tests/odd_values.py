"""Values that people pass by mistake, or that are nearly right, and configurations with some."""

import collections
import dataclasses
import datetime
import decimal
import fractions
import pathlib
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.algos import ALGORITHMS
from thespis.runs import config as configs
from thespis.runs import config_names
from thespis.tuning import PBT, TUNERS

SMALL = {"steps": 2000, "hidden": (8,), "batch_size": 16, "buffer_size": 500}
ENVS = {"discrete-sac": "jax:cartpole", "masac": "jax:meet"}


class Unequal:
    """Cannot be compared, nor be a key."""

    __hash__ = None  # type: ignore

    def __eq__(self, other):
        raise RuntimeError("not comparable")


def values() -> list[Any]:
    """New ones each time: some can be read only once."""
    numbers = [0, -1, 1, 8, 0.5, 1.5, 1e-320, 2**31, 2**63, 10**30, -(10**400), True, False]
    numbers += [float("nan"), float("inf"), 3 + 4j, fractions.Fraction(1, 3), decimal.Decimal(2)]
    of_numpy = [np.float32(0.5), np.float64(3), np.int64(4), np.bool_(True), np.str_("relu")]
    of_numpy += [np.array(x) for x in (3, 0.1, [8, 8], [0.1, 0.2], [[1, 2], [3, 4]], [], ["a"])]
    of_numpy += [np.array([None, 1], object), np.datetime64("2020"), np.ma.masked, np.void(b"ab")]
    of_jax = [jnp.float32(0.5), jnp.array(2), jnp.arange(3), jax.random.key(0)]
    lists = [[], (), [None], ["x", 1], [[8], [8, 8]], range(3), iter([8, 8]), {1, 2}, frozenset()]
    lists += [(i for i in range(3)), collections.deque([1, 2]), [float("nan"), 1.0]]
    dicts = [{}, {"a": 1}, {1: 2}, {"gamma": None}, {"gamma": (0.9, 0.99)}]
    texts = ["", " ", "\0", "\n", "none", "nan", "1e400", "²", "--x", "a" * 5000, "0-3", "0:99"]
    texts += ["0-2000000000", "gamma=uniform:0:nan", b"x", bytearray(b"12"), memoryview(b"12")]
    others = [None, Unequal(), Unequal, len, lambda x: x, pathlib.Path("x"), slice(3), Ellipsis]
    others += [datetime.date(2020, 1, 1), PBT(), Exception("x")]
    return numbers + of_numpy + of_jax + lists + dicts + texts + others


def configuration(seed: int) -> tuple[str, dict[str, Any]]:
    """An algorithm and arguments of `train`, all well but one or two."""
    dice = random.Random(seed)
    algo = dice.choice(list(ALGORITHMS))
    given: dict[str, Any] = {"env": ENVS.get(algo, "jax:pendulum")} | SMALL
    if algo == "sqil":
        given["demos"] = "x.npz"
    if dice.random() < 0.5:
        given |= {"members": 4, "pbt": True}
    for _ in range(dice.randint(1, 2)):
        given[dice.choice(names(algo))] = dice.choice(values())
    return algo, given


def names(algo: str) -> list[str]:
    """Of everything that may be given."""
    fields = [name for group in configs.groups(ALGORITHMS[algo]).values() for name in group]
    tuners = [f"pbt.{f.name}" for kind in TUNERS.values() for f in dataclasses.fields(kind)]
    special = ["seed", "seeds", "members", "pbt", "tuner", "preset", "env", "nothing"]
    return [*fields, *tuners, *config_names.ALIASES, *config_names.COMPUTED, *special * 3]
