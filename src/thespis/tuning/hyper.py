"""Hyper-parameters as data: each is declared once, with its default, legal range and prior.

    class Hyper(eqx.Module):
        gamma: float = prior(0.99, OneMinusLogUniform(1e-3, 1e-1), "discount factor", low=0, high=1)

The command line reads the default and the help, populations and sweeps read the prior. The
values are leaves of a pytree: a change never recompiles, and members may differ.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array

from thespis.core import Key
from thespis.errors import ThespisError, or_all, shown

LARGEST = float(np.finfo(np.float32).max)  # that a device can hold


@dataclass(frozen=True)
class Uniform:
    """Uniform on [low, high]. Exploration acts in a prior's own coordinate: here the value."""

    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float]:
        """The coordinates between which it is uniform."""
        return self.low, self.high

    @property
    def limits(self) -> tuple[float, float]:
        """The values between which it lies."""
        return self.low, self.high

    @property
    def unit(self) -> float:
        """How far the coordinate moves when a value grows e-fold: here by half of the range."""
        return (self.high - self.low) / 2

    def coordinate(self, x: Array) -> Array:
        return x

    def value(self, coordinate: Array) -> Array:
        return coordinate

    def at(self, share: Array) -> Array:
        """Returns the value that far, in [0, 1], from the one end of the range to the other."""
        low, high = self.ends
        return jnp.clip(self.value(low + share * (high - low)), *self.limits)

    def share(self, x: Array) -> Array:
        """Inverts `at`: returns how far a value lies from the one end to the other."""
        low, high = self.ends
        return jnp.clip((self.coordinate(x) - low) / (high - low), 0, 1)

    def move(self, x: Array, by: Array) -> Array:
        """Scales x by exp(by) in its own coordinate, thrown back where it would leave the range."""
        low, high = self.ends
        width = high - low
        off = (self.coordinate(x) + self.unit * by - low) % (2 * width)
        return jnp.clip(self.value(low + jnp.minimum(off, 2 * width - off)), *self.limits)


class LogUniform(Uniform):
    """Uniform in the logarithm: for rates and scales."""

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
    """What was said of one hyper-parameter where it was declared."""

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
    """Declares a field of `Hyper`; `low` and `high` bound what is legal, not what is likely.

    What is `initial` has its effect when a member is made: it is drawn, but not changed later.
    What is `special` matters only to runs that ask for it: nobody tunes it unless it is named.
    """
    about = {"prior": distribution, "help": help, "low": low, "high": high}
    return eqx.field(default=default, metadata=about | {"initial": initial, "special": special})


def declared(Hyper) -> dict[str, Declared]:
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
                    f"hyper-parameter {name} = {x:g} is out of range: give {span(legal)}"
                )
        if len(listed) not in (1, members):
            raise ThespisError(
                f"hyper-parameter {name} has {len(listed)} values for {members} members"
            )


def span(legal: Declared) -> str:
    """Says which numbers may be given."""
    if math.isinf(legal.low) and math.isinf(legal.high):
        return "a finite number"
    if math.isinf(legal.high):
        return f"at least {legal.low:g}"
    if math.isinf(legal.low):
        return f"at most {legal.high:g}"
    return f"between {legal.low:g} and {legal.high:g}"


def numbers(name: str, value: Any) -> list[float]:
    """Returns a number or a list of them, as plain Python numbers."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # lists of several lengths, or what is no array at all
        array = np.asarray(None)
    if array.dtype.kind not in "iuf" or array.ndim > 1:
        raise ThespisError(
            f"hyper-parameter {name} = {shown(value)}: give a number, or a list of one per member"
        )
    return array.reshape(-1).tolist()


def fill(Hyper, values: dict[str, Any], members: int = 1):
    """Returns `Hyper`, leaves [members], of defaults and `values`: a number or one per member."""
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
