"""What every tuner shares: what is asked of it, what copies inherit, and how members compare."""

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

    `inherit` in engine/population.py obeys its other fields.
    """

    interval: int | None
    fitness: str | None

    def check(self, Hyper, members: int, episodes: int) -> None:
        """Refuses what cannot work, before anything starts."""
        ...

    def tunes(self, Hyper, fixed: dict[str, Any]) -> list[str]:
        """Returns the hyper-parameters it may change: those of lineage.csv."""
        ...

    def begin(self, key: Key, Hyper, fixed: dict[str, Any], members: int) -> tuple[Any, Any]:
        """-> hps, leaves [members], and the tuner's memory, a pytree of arrays.

        What is `fixed` (a number, or one per member) is not tuned.
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
        """One round -> memory, parents, hps. parents[i] == i where member i stays as it is.

        A member whose scores are not finite is always replaced and never a parent. `age` counts
        the environment steps since a member was last replaced. Whatever becomes of what was given
        here, it stays with its member's number (see `decide` below).
        """
        ...


@dataclass(frozen=True)
class Inherit:
    """When members exchange, and what a replaced one takes over from its parent."""

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


def clean(option: Option, value: Any) -> Any:
    """Converts a choice to the type of its field; {"gamma": Uniform(0.9, 1)} to text."""
    if isinstance(value, Mapping):
        value = tuple(written(name, prior) for name, prior in value.items())
    return convert(option.name, option.kind, value)


# --- hyper-parameters -----------------------------------------------------------------------


def priors(Hyper, tuned: Any) -> dict[str, Uniform]:
    """Returns the priors of what is tuned: NAME and NAME=KIND:LOW:HIGH, or all but special ones."""
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
    """Returns what is tuned, without what would have no effect later unless it is named."""
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
    """Draws what is tuned and not given from its prior; all else is as given, or the default."""
    chosen = {n: p for n, p in priors(Hyper, tuned).items() if n not in fixed}
    hps = hyper.sample(Hyper, key, members, chosen)
    filled = hyper.fill(Hyper, fixed, members)
    return replace(hps, **{name: getattr(filled, name) for name in fixed})


def varying(tuner: Tuner, Hyper, fixed: dict[str, Any]) -> list[str]:
    """Returns in what members may differ: what is tuned, or was given one per member."""
    each = [name for name, value in fixed.items() if len(hyper.numbers(name, value)) > 1]
    return [*tuner.tunes(Hyper, fixed), *each]


def mask(Hyper, names: list[str]) -> Bool[Array, "hypers"]:
    """Tells which of all hyper-parameters have these names."""
    return jnp.array([name in names for name in hyper.declared(Hyper)], bool)


def where(who: Bool[Array, "members"], which: Bool[Array, "hypers"], a, b):
    """Takes some hyper-parameters of some members from `a`, all others from `b`."""
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

    Hyper-parameters that are `placed` belong to a member's place: whoever takes that, they stay.
    Only a member that broke gets its parent's: its own may be what broke it, and would again.
    """
    memory, parents, new = tuner.exchange(memory, key, hps, scores, age)
    broken = ~jnp.isfinite(scores.mean(1))
    kept = {name: jnp.where(broken, getattr(new, name), getattr(hps, name)) for name in placed}
    return memory, parents, replace(new, **kept)


# --- members --------------------------------------------------------------------------------


def from_parents(parents: Int[Array, "members"], hps):
    """Returns the hyper-parameters of everybody's parent."""
    return jax.tree.map(lambda x: x[parents], hps)


def replaced(parents: Int[Array, "members"]) -> Bool[Array, "members"]:
    return parents != jnp.arange(parents.size)


def ranked(
    scores: Float[Array, "members n"],
) -> tuple[Int[Array, "members"], Bool[Array, "members"]]:
    """Returns the rank of every member by its mean score, 0 the best; and if that is finite."""
    mean, number = scores.mean(1), jnp.arange(scores.shape[0])
    finite = jnp.isfinite(mean)
    mean = jnp.where(finite, mean, -jnp.inf)
    tie = (mean[None] == mean[:, None]) & (number[None] < number[:, None])
    return ((mean[None] > mean[:, None]) | tie).sum(1), finite


def copies(
    key: Key, out: Bool[Array, "members"], pool: Bool[Array, "members"]
) -> Int[Array, "members"]:
    """Returns parents: for those who are `out` a random one of the pool, for others themselves."""
    chosen = draw(key, jnp.broadcast_to(pool[None], (out.size, pool.size)))
    return jnp.where(out & pool.any(), chosen, jnp.arange(out.size))


def draw(key: Key, pools: Bool[Array, "members members"]) -> Int[Array, "members"]:
    """Returns for everybody a random one of its pool; the first of all if that is empty."""
    place = pick(random.uniform(key, pools.shape[:1]), pools.sum(1))
    return jnp.argmax(jnp.cumsum(pools, 1) > place[:, None], 1).astype(jnp.int32)


def pick(share: Float[Array, "..."], n) -> Int[Array, "..."]:
    """Returns one of 0 .. n-1 by a number in [0, 1)."""
    return jnp.floor(share * jnp.asarray(n, jnp.float32)).astype(jnp.int32)
