"""Population based training. Jaderberg et al. 2017, https://arxiv.org/abs/1711.09846."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Bool, Float, Int

from thespis.errors import ThespisError
from thespis.tuning.base import (
    Inherit,
    copies,
    draw,
    drawn,
    explored,
    from_parents,
    mask,
    pick,
    priors,
    ranked,
    replaced,
    where,
)
from thespis.tuning.hyper import Uniform


@dataclass(frozen=True)
class PBT(Inherit):
    """Replaces the worst members by copies of the best, with changed hyper-parameters."""

    exploit: Literal["truncation", "t-test"] = "truncation"
    """Exploitation: the worst members copy the best (truncation), or a member copies a random one
    that is significantly better (t-test)."""
    best: float = 0.25
    """Members that are copied, as a number or a fraction below 1."""
    replaced: float = 0.25
    """Members that are replaced, as a number or a fraction below 1; 0 for none."""
    significance: float = 0.05
    """Significance level of the t-test."""
    min_age: int = 0
    """Environment steps for which a new copy is not replaced again."""
    explore: Literal["perturb", "resample", "both"] = "both"
    """Exploration: perturb a copy's hyper-parameters, resample them, or choose one of both at
    random."""
    resample: float = 0.25
    """Probability that a hyper-parameter is resampled, with explore = both."""
    factors: tuple[float, ...] = (0.8, 1.25)
    """Factors that perturb a hyper-parameter: one of these, to a random power around 1."""
    tuned: tuple[str, ...] | Mapping[str, Uniform | None] | None = None
    """Hyper-parameters to tune, as NAME or NAME=KIND:LOW:HIGH, such as gamma=uniform:0.9:1 (kinds:
    uniform, log, one-minus-log); by default all that are not set."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("best", "replaced"):
            x = getattr(self, name)
            if x < 0 or (x >= 1 and x != int(x)):
                raise ThespisError(f"{name} = {x:g}: give a whole number, or a fraction below 1")
        for name in ("significance", "resample"):
            if not 0 <= getattr(self, name) <= 1:
                raise ThespisError(f"{name} = {getattr(self, name):g}: give between 0 and 1")
        if self.min_age < 0:
            raise ThespisError(f"min_age = {self.min_age}: give 0 or more")
        if not self.factors or not all(x > 0 for x in self.factors):
            raise ThespisError(f"factors = {self.factors}: give numbers above 0, such as 0.8 1.25")

    # --- before the start -------------------------------------------------------------------

    def counts(self, members: int) -> tuple[int, int]:
        """Returns how many members are copied, and how many are replaced."""
        # A fraction is rounded down, but to at least 1; 0.29 x 100 is 28.999999.
        whole = lambda x: int(x) if x >= 1 or x == 0 else max(1, int(x * members + 1e-6))
        best, replaced = whole(self.best), whole(self.replaced)
        if best + replaced > members:
            raise ThespisError(
                f"best = {self.best:g} and replaced = {self.replaced:g} are {best} + {replaced} of "
                f"{members} members: give fewer of them, or more members"
            )
        if replaced and not best:
            raise ThespisError("best = 0 leaves nobody to copy: give 1 or more, or replaced = 0")
        return best, replaced

    def check(self, Hyper, members: int, episodes: int) -> None:
        priors(Hyper, self.tuned)
        if self.exploit == "truncation":
            self.counts(members)
        elif members < 2 or episodes < 2:
            raise ThespisError(
                f"exploit = t-test needs 2 or more members and scores of each, not {members} and "
                f"{episodes}: raise members or eval_episodes, or choose truncation"
            )

    def tunes(self, Hyper, fixed) -> list[str]:
        return [name for name in explored(Hyper, self.tuned) if name not in fixed]

    def begin(self, key, Hyper, fixed, members) -> tuple[Any, Any]:
        """Returns hps, and as the memory a mask of the hyper-parameters that may change."""
        hps = drawn(key, Hyper, self.tuned, fixed, members)
        return hps, mask(Hyper, self.tunes(Hyper, fixed))

    # --- one round --------------------------------------------------------------------------

    def exchange(self, memory, key, hps, scores, age):
        self.check(type(hps), *scores.shape)
        k_exploit, k_explore = random.split(key)
        parents = self.select(k_exploit, scores, age)
        copied = from_parents(parents, hps)
        new = self.vary(k_explore, copied)
        return memory, parents, where(replaced(parents), memory, new, copied)

    def select(self, key, scores, age) -> Int[Array, "members"]:
        """Returns the parent of every member."""
        exploit = self.truncation if self.exploit == "truncation" else self.t_test
        return exploit(key, scores, age)

    def truncation(self, key, scores, age) -> Int[Array, "members"]:
        """Returns a random one of the best as the parent of each of the worst."""
        best, replaced = self.counts(scores.shape[0])
        rank, finite = ranked(scores)
        out = (rank >= rank.size - replaced) & (age >= self.min_age)
        return copies(key, out | ~finite, (rank < max(best, 1)) & finite)

    def t_test(self, key, scores, age) -> Int[Array, "members"]:
        """Returns a random other member as the parent, if it is significantly better."""
        number, finite = jnp.arange(scores.shape[0]), jnp.isfinite(scores.mean(1))
        others = finite[None] & (number[None] != number[:, None])
        rival = jnp.where(others.any(1), draw(key, others), number)
        worse = better(scores[rival], scores, self.significance) & (age >= self.min_age)
        return jnp.where(worse | ~finite, rival, number)

    def vary(self, key, hps):
        """Perturbs or resamples every hyper-parameter, independently for every member."""
        known = priors(type(hps), self.tuned)
        members = jax.tree.leaves(hps)[0].size
        # One draw of two dimensions: more draws or dimensions take seconds to compile.
        drawn = random.uniform(key, (4 * len(known), members))
        which, power, chance, share = jnp.split(drawn, 4)
        factors = jnp.log(jnp.array(self.factors))
        # With a random power, so that two copies of one parent never have the same value.
        by = factors[pick(which, factors.size)] * (0.5 + power)
        resample = chance < {"perturb": 0.0, "resample": 1.0, "both": self.resample}[self.explore]
        new = {
            name: jnp.where(resample[i], p.at(share[i]), p.move(getattr(hps, name), by[i]))
            for i, (name, p) in enumerate(known.items())
        }
        return replace(hps, **new)


def better(
    a: Float[Array, "members n"], b: Float[Array, "members n"], significance: float
) -> Bool[Array, "members"]:
    """Tells whether the mean of a is significantly above that of b (Welch's t-test, two-sided)."""
    n = a.shape[1]
    gain = a.mean(1) - b.mean(1)
    u, v = a.var(1, ddof=1), b.var(1, ddof=1)
    tiny = jnp.finfo(u.dtype).tiny
    t2 = n * gain**2 / jnp.maximum(u + v, tiny)
    freedom = (n - 1) * jnp.maximum((u + v) ** 2, tiny) / jnp.maximum(u**2 + v**2, tiny)
    p = jax.scipy.special.betainc(freedom / 2, 0.5, freedom / (freedom + t2))
    return (gain > 0) & (p < significance)
