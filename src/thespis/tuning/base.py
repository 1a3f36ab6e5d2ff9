"""What all tuners share: their protocol, what copies inherit, and how members are ranked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Bool, Float, Int

from thespis.core import Key
from thespis.errors import ThespisError, or_all, shown
from thespis.tuning import hyper
from thespis.tuning.hyper import Uniform
from thespis.values import Option, convert, fields


@runtime_checkable
class Tuner(Protocol):
    """What a run asks of PBT and its controls.

    One that is also an `Inherit` says what copies inherit (see engine/population.py).
    """

    interval: int | None
    fitness: str | None

    def check(self, Hyper, members: int, episodes: int) -> None:
        """Refuses settings that cannot work, before anything starts."""
        ...

    def tunes(self, Hyper, fixed: dict[str, Any]) -> list[str]:
        """Returns the names of the hyper-parameters that it may change."""
        ...

    def begin(self, key: Key, Hyper, fixed: dict[str, Any], members: int) -> tuple[Any, Any]:
        """Returns hps, leaves [members], and the tuner's memory, a pytree of arrays.

        Hyper-parameters that are `fixed`, to a number or one per member, are not tuned.
        """
        ...

    def exchange(
        self,
        memory: Any,
        key: Key,
        hps: Any,
        scores: Float[Array, "members n"],
        age: Int[Array, "members"],
    ) -> tuple[Any, Int[Array, "members"], Any]:
        """Does one round -> memory, parents, hps. parents[i] == i if member i is not replaced.

        A member whose scores are not finite is always replaced and never a parent. `age` counts
        the environment steps since a member was last replaced. Fixed hyper-parameters are put
        back afterwards (see `decide` below).
        """
        ...


@dataclass(frozen=True)
class Inherit:
    """When members exchange, and what a replaced member inherits from its parent."""

    interval: int | None = None
    """Environment steps between exchanges; by default a twentieth of the steps."""
    fitness: str | None = None
    """Metric of metrics.csv to maximise; by default the objective of the algorithm: the mean return
    of evaluations, eval/skill_dependence for skills, eval/similarity for imitation."""
    networks: Literal["parent", "own"] = "parent"
    """Networks, targets and temperature of a replaced member: its parent's or its own."""
    optimizer: Literal["parent", "own", "fresh"] = "parent"
    """Adam's moments of a replaced member: its parent's, its own, or zero (fresh)."""
    normalizer: Literal["parent", "own"] = "parent"
    """Running statistics of a replaced member: its parent's or its own."""
    replay: Literal["own", "parent", "shared"] = "own"
    """Replay buffer of a replaced member: its own or its parent's; shared is one buffer from which
    all members learn all the time."""

    def __post_init__(self):
        for option in fields(type(self)):
            object.__setattr__(self, option.name, clean(option, getattr(self, option.name)))


def inherited(tuner: Tuner) -> Inherit:
    """Returns what members take over from their parents in the rounds of a tuner."""
    if not isinstance(tuner, Inherit):
        return Inherit()
    names = "networks", "optimizer", "normalizer", "replay"
    return Inherit(**{name: getattr(tuner, name) for name in names})


def clean(option: Option, value: Any) -> Any:
    """Converts a value to the type of its field, and {"gamma": Uniform(0.9, 1)} to text."""
    if isinstance(value, Mapping):
        value = tuple(written(name, prior) for name, prior in value.items())
    return convert(option.name, option.kind, value)


# --- hyper-parameters -----------------------------------------------------------------------


def priors(Hyper, tuned: Any) -> dict[str, Uniform]:
    """Returns the priors of NAME and NAME=KIND:LOW:HIGH; by default of all but special ones."""
    known = hyper.declared(Hyper)
    if tuned is None:
        return {name: d.prior for name, d in known.items() if not d.special}
    chosen = {}
    for text in tuned:
        name, equals, prior = text.partition("=")
        if name not in known:
            raise ThespisError(f"tuned = {name}: unknown hyper-parameter{or_all(name, known)}")
        chosen[name] = hyper.parse(name, prior) if equals else known[name].prior
        hyper.check(Hyper, {name: list(chosen[name].limits)}, 2)
    return chosen


def explored(Hyper, tuned: Any) -> list[str]:
    """Returns the names that are tuned, by default without those that matter only at the start."""
    known = hyper.declared(Hyper)
    return [n for n in priors(Hyper, tuned) if tuned is not None or not known[n].initial]


def written(name: Any, prior: Any) -> str:
    """Returns the text of one entry of `tuned`."""
    if prior is None:
        return name
    kind = next((k for k, cls in hyper.KINDS.items() if type(prior) is cls), None)
    if kind is None:
        raise ThespisError(f"tuned = {name}: {shown(prior)} is no prior; give Uniform(LOW, HIGH)")
    return f"{name}={kind}:{prior.low!r}:{prior.high!r}"


def drawn(key: Key, Hyper, tuned, fixed: dict[str, Any], members: int):
    """Draws the tuned hyper-parameters from their priors; others are fixed or have defaults."""
    chosen = {n: p for n, p in priors(Hyper, tuned).items() if n not in fixed}
    hps = hyper.sample(Hyper, key, members, chosen)
    filled = hyper.fill(Hyper, fixed, members)
    return replace(hps, **{name: getattr(filled, name) for name in fixed})


def varying(tuner: Tuner, Hyper, fixed: dict[str, Any]) -> list[str]:
    """Returns the names in which members may differ: those tuned, or fixed to several numbers."""
    several = [name for name, value in fixed.items() if len(hyper.numbers(name, value)) > 1]
    return [*tuner.tunes(Hyper, fixed), *several]


def mask(Hyper, names: list[str]) -> Bool[Array, "hypers"]:
    """Tells which of all hyper-parameters have these names."""
    return jnp.array([name in names for name in hyper.declared(Hyper)], bool)


def where(who: Bool[Array, "members"], which: Bool[Array, "hypers"], a, b):
    """Takes some hyper-parameters (`which`) of some members (`who`) from `a`, others from `b`."""
    pick = lambda i, x, y: jnp.where(who & which[i], x, y)
    return type(b)(**{n: pick(i, getattr(a, n), x) for i, (n, x) in enumerate(vars(b).items())})


# --- rounds ---------------------------------------------------------------------------------


def decide(
    tuner: Tuner,
    placed: Iterable[str],
    memory: Any,
    key: Key,
    hps: Any,
    scores: Float[Array, "members n"],
    age: Int[Array, "members"],
) -> tuple[Any, Int[Array, "members"], Any]:
    """Asks a tuner for one round -> memory, parents, hps.

    Hyper-parameters that are `placed` belong to the slot of a member, and stay when it is
    replaced. Only a member that diverged gets those of its parent, since its own may be the cause.
    """
    memory, parents, new = tuner.exchange(memory, key, hps, scores, age)
    diverged = ~jnp.isfinite(scores.mean(1))
    old = {name: jnp.where(diverged, getattr(new, name), getattr(hps, name)) for name in placed}
    return memory, parents, replace(new, **old)


# --- members --------------------------------------------------------------------------------


def from_parents(parents: Int[Array, "members"], hps):
    """Returns the hyper-parameters of every member's parent."""
    return jax.tree.map(lambda x: x[parents], hps)


def replaced(parents: Int[Array, "members"]) -> Bool[Array, "members"]:
    """Tells which members are replaced: those who are not their own parent."""
    return parents != jnp.arange(parents.size)


def ranked(
    scores: Float[Array, "members n"],
) -> tuple[Int[Array, "members"], Bool[Array, "members"]]:
    """Returns the rank of every member by its mean score, from 0, and whether that is finite."""
    mean, number = scores.mean(1), jnp.arange(scores.shape[0])
    finite = jnp.isfinite(mean)
    mean = jnp.where(finite, mean, -jnp.inf)
    tie = (mean[None] == mean[:, None]) & (number[None] < number[:, None])
    return ((mean[None] > mean[:, None]) | tie).sum(1), finite


def copies(
    key: Key, out: Bool[Array, "members"], pool: Bool[Array, "members"]
) -> Int[Array, "members"]:
    """Returns parents: a random member of the pool for those who are `out`, else themselves."""
    chosen = draw(key, jnp.broadcast_to(pool[None], (out.size, pool.size)))
    return jnp.where(out & pool.any(), chosen, jnp.arange(out.size))


def draw(key: Key, pools: Bool[Array, "members members"]) -> Int[Array, "members"]:
    """Returns a random member of each member's pool; member 0 if it is empty."""
    index = pick(random.uniform(key, pools.shape[:1]), pools.sum(1))
    return jnp.argmax(jnp.cumsum(pools, 1) > index[:, None], 1).astype(jnp.int32)


def pick(share: Float[Array, "..."], n) -> Int[Array, "..."]:
    """Returns one of 0 .. n-1, chosen by a number in [0, 1)."""
    return jnp.floor(share * jnp.asarray(n, jnp.float32)).astype(jnp.int32)
