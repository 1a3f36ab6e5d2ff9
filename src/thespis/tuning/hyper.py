"""Hyper-parameters as data: each is declared once, with its default, legal range and prior.

    class Hyper(eqx.Module):
        gamma: float = prior(0.99, OneMinusLogUniform(1e-3, 1e-1), "discount factor", low=0, high=1)

The command line uses the default and the help, populations and sweeps the prior. Values are leaves
of a pytree, so a change never recompiles, and members may differ.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array

from thespis.core import Key
from thespis.errors import ThespisError, or_all, shown

LARGEST = float(np.finfo(np.float32).max)  # that devices can represent


@dataclass(frozen=True)
class Uniform:
    """Uniform on [low, high]. Exploration acts on the coordinate of a prior: here the value."""

    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float]:
        """Returns the coordinates between which it is uniform."""
        return self.low, self.high

    @property
    def limits(self) -> tuple[float, float]:
        """Returns the smallest and the largest value."""
        return self.low, self.high

    @property
    def unit(self) -> float:
        """Returns how far `move` by 1 changes the coordinate: here by half of the range."""
        return (self.high - self.low) / 2

    def coordinate(self, x: Array) -> Array:
        return x

    def value(self, coordinate: Array) -> Array:
        return coordinate

    def at(self, share: Array) -> Array:
        """Returns the value at a share, in [0, 1], of the way from one end to the other."""
        low, high = self.ends
        return jnp.clip(self.value(low + share * (high - low)), *self.limits)

    def share(self, x: Array) -> Array:
        """Inverts `at`."""
        low, high = self.ends
        return jnp.clip((self.coordinate(x) - low) / (high - low), 0, 1)

    def move(self, x: Array, by: Array) -> Array:
        """Moves x by `by` units of its coordinate, reflected at the ends of the range."""
        low, high = self.ends
        width = high - low
        offset = (self.coordinate(x) + self.unit * by - low) % (2 * width)
        return jnp.clip(self.value(low + jnp.minimum(offset, 2 * width - offset)), *self.limits)


class LogUniform(Uniform):
    """Uniform in log(x): for rates and scales."""

    @property
    def ends(self):
        return math.log(self.low), math.log(self.high)

    @property
    def unit(self):
        return 1.0

    def coordinate(self, x):
        return jnp.log(x)

    def value(self, coordinate):
        return jnp.exp(coordinate)


class OneMinusLogUniform(LogUniform):
    """Uniform in log(1 - x), with 1 - x in [low, high]: for discounts."""

    @property
    def limits(self):
        return 1 - self.high, 1 - self.low

    def coordinate(self, x):
        return jnp.log1p(-x)

    def value(self, coordinate):
        return -jnp.expm1(coordinate)


KINDS = {"uniform": Uniform, "log": LogUniform, "one-minus-log": OneMinusLogUniform}


def parse(name: str, text: str) -> Uniform:
    """Reads a prior from KIND:LOW:HIGH, such as log:3e-5:3e-3."""
    try:
        kind, low, high = text.split(":")
        prior = KINDS[kind](float(low), float(high))
        legal = math.isfinite(prior.low) and prior.low < prior.high < math.inf
        if not legal or (kind != "uniform" and prior.low <= 0):
            raise ValueError
    except (KeyError, ValueError):
        raise ThespisError(
            f"prior {name} = {text}: give KIND:LOW:HIGH such as log:3e-5:3e-3, with KIND one of "
            f"{', '.join(KINDS)} and LOW below HIGH"
        ) from None
    return prior


@dataclass(frozen=True)
class Declared:
    """One hyper-parameter as it was declared."""

    name: str
    default: float
    prior: Uniform
    help: str
    low: float
    high: float
    initial: bool
    special: bool


def prior(
    default: float,
    distribution: Uniform,
    help: str,
    low=-math.inf,
    high=math.inf,
    initial: bool = False,
    special: bool = False,
) -> Any:
    """Declares a field of `Hyper`; `low` and `high` are bounds of legal values, not of the prior.

    An `initial` one matters only when a member is made: it is drawn, but not changed later. A
    `special` one matters only to some runs: it is not tuned unless it is named.
    """
    about = {"prior": distribution, "help": help, "low": low, "high": high}
    return eqx.field(default=default, metadata=about | {"initial": initial, "special": special})


special_prior = partial(prior, special=True)


def declared(Hyper) -> dict[str, Declared]:
    """Returns all hyper-parameters by name."""
    fields = dataclasses.fields(Hyper)
    return {f.name: Declared(f.name, f.default, **f.metadata) for f in fields}  # type: ignore


def defaults(Hyper) -> dict[str, float]:
    """Returns the default of every hyper-parameter."""
    return {name: about.default for name, about in declared(Hyper).items()}


def check(Hyper, values: dict[str, Any], members: int = 1) -> None:
    """Refuses unknown names, illegal numbers and lists that are not one number per member."""
    known = declared(Hyper)
    for name, value in values.items():
        if name not in known:
            raise ThespisError(f"unknown hyper-parameter {name!r}{or_all(name, known)}")
        legal, listed = known[name], numbers(name, value)
        for x in listed:
            if not (abs(x) <= LARGEST and legal.low <= x <= legal.high):
                raise ThespisError(
                    f"hyper-parameter {name} = {x:g} is out of range: give {legal_range(legal)}"
                )
        if len(listed) not in (1, members):
            raise ThespisError(
                f"hyper-parameter {name} has {len(listed)} values for {members} members"
            )


def legal_range(hyper: Declared) -> str:
    """Returns the range of legal values, in words."""
    if math.isinf(hyper.low) and math.isinf(hyper.high):
        return "a finite number"
    if math.isinf(hyper.high):
        return f"at least {hyper.low:g}"
    if math.isinf(hyper.low):
        return f"at most {hyper.high:g}"
    return f"between {hyper.low:g} and {hyper.high:g}"


def numbers(name: str, value: Any) -> list[float]:
    """Returns a number, or several, as a list of Python numbers."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # ragged lists, or not an array at all
        array = np.asarray(None)
    if array.dtype.kind not in "iuf" or array.ndim > 1:
        raise ThespisError(
            f"hyper-parameter {name} = {shown(value)}: give a number, or a list of one per member"
        )
    return array.reshape(-1).tolist()


def fill(Hyper, values: dict[str, Any], members: int = 1):
    """Returns `Hyper`, leaves [members], from defaults and `values`: a number or one per member."""
    check(Hyper, values, members)

    def leaf(name, default):
        value = np.asarray(values.get(name, default), np.float32)
        return jax.device_put(np.broadcast_to(value, members))

    return Hyper(**{name: leaf(name, d.default) for name, d in declared(Hyper).items()})


def sample(Hyper, key: Key, members: int, priors: dict[str, Uniform] | None = None):
    """Draws all hyper-parameters but special ones from their priors, or only those of `priors`."""
    if priors is None:
        priors = {name: d.prior for name, d in declared(Hyper).items() if not d.special}
    shares = random.uniform(key, (len(priors), members))
    drawn = {name: p.at(share) for share, (name, p) in zip(shares, priors.items(), strict=True)}
    return dataclasses.replace(fill(Hyper, {}, members), **drawn)
