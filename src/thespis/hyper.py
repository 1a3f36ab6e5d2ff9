"""Hyper-parameters as data: each is declared once, with its default, legal range and prior.

    class Hyper(eqx.Module):
        gamma: float = prior(0.99, OneMinusLogUniform(1e-3, 1e-1), "discount", low=0, high=1)

The command line reads the default and the help, populations and sweeps read the prior. The
values are leaves of a pytree: a change never recompiles, and members may differ.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array

from thespis.core import Key
from thespis.errors import ThespisError, or_all


@dataclass(frozen=True)
class Uniform:
    """Uniform on [low, high]. Exploration acts in a prior's own coordinate: here the value."""

    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float]:
        """The coordinates between which it is uniform."""
        return self.low, self.high

    def coordinate(self, x: Array) -> Array:
        return x

    def value(self, coordinate: Array) -> Array:
        return coordinate


class LogUniform(Uniform):
    """Uniform in the logarithm: for rates and scales."""

    @property
    def ends(self):
        return math.log(self.low), math.log(self.high)

    def coordinate(self, x):
        return jnp.log(x)

    def value(self, coordinate):
        return jnp.exp(coordinate)


class OneMinusLogUniform(LogUniform):
    """Uniform in log(1 - x), with 1 - x in [low, high]: for discounts."""

    def coordinate(self, x):
        return jnp.log1p(-x)

    def value(self, coordinate):
        return -jnp.expm1(coordinate)


@dataclass(frozen=True)
class Declared:
    """What was said of one hyper-parameter where it was declared."""

    name: str
    default: float
    prior: Uniform
    help: str
    low: float
    high: float


def prior(default: float, distribution: Uniform, help: str, low=-math.inf, high=math.inf) -> Any:
    """A field of a `Hyper` class. `low` and `high` bound what is legal, not what is likely."""
    about = {"prior": distribution, "help": help, "low": low, "high": high}
    return eqx.field(default=default, metadata=about)


def declared(Hyper) -> dict[str, Declared]:
    fields = dataclasses.fields(Hyper)
    return {f.name: Declared(f.name, f.default, **f.metadata) for f in fields}  # type: ignore


def check(Hyper, values: dict[str, Any], members: int = 1) -> None:
    """Refuse unknown names, illegal numbers and lists that are not one number per member."""
    known = declared(Hyper)
    for name, value in values.items():
        if name not in known:
            raise ThespisError(f"unknown hyper-parameter {name!r}{or_all(name, known)}")
        legal, given = known[name], numbers(name, value)
        for x in given:
            if not (math.isfinite(x) and legal.low <= x <= legal.high):
                span = f"between {legal.low:g} and {legal.high:g}"
                raise ThespisError(f"hyper-parameter {name} = {x:g} is out of range: give {span}")
        if len(given) not in (1, members):
            raise ThespisError(
                f"hyper-parameter {name} has {len(given)} values for {members} members"
            )


def numbers(name: str, value: Any) -> list[float]:
    """A number or a list of them, as plain Python numbers."""
    try:
        given = np.asarray(value)
    except ValueError:  # lists of several lengths
        given = np.asarray(None)
    if given.dtype.kind not in "iuf" or given.ndim > 1:
        raise ThespisError(
            f"hyper-parameter {name} = {value!r}: give a number, or a list of one per member"
        )
    return given.reshape(-1).tolist()


def fill(Hyper, values: dict[str, Any], members: int = 1):
    """`Hyper` with leaves [members], from defaults and `values`: a number, or one per member."""
    check(Hyper, values, members)

    def leaf(name, default):
        return jnp.broadcast_to(np.asarray(values.get(name, default), np.float32), members)

    return Hyper(**{name: leaf(name, d.default) for name, d in declared(Hyper).items()})


def sample(Hyper, key: Key, members: int):
    """Every hyper-parameter of every member drawn from its prior."""

    def leaf(key, p):
        low, high = p.ends
        return p.value(random.uniform(key, (members,), minval=low, maxval=high))

    known = declared(Hyper)
    keys = random.split(key, len(known))
    return Hyper(**{n: leaf(k, d.prior) for k, (n, d) in zip(keys, known.items(), strict=True)})
