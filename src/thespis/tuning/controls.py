"""Controls: populations that are not tuned, as baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jax import random

from thespis.tuning import hyper
from thespis.tuning.base import Inherit, copies, drawn, mask, priors, ranked, replaced, where
from thespis.tuning.hyper import Uniform


@dataclass(frozen=True)
class RandomSearch(Inherit):
    """Random search: every member keeps what it drew; one that diverges is replaced and redrawn."""

    tuned: tuple[str, ...] | Mapping[str, Uniform | None] | None = None
    """Hyper-parameters to sample, as NAME or NAME=KIND:LOW:HIGH; by default all that are not
    set."""

    def check(self, Hyper, members, episodes) -> None:
        priors(Hyper, self.tuned)

    def tunes(self, Hyper, fixed) -> list[str]:
        return [name for name in priors(Hyper, self.tuned) if name not in fixed]

    def begin(self, key, Hyper, fixed, members):
        hps = drawn(key, Hyper, self.tuned, fixed, members)
        return hps, mask(Hyper, self.tunes(Hyper, fixed))

    def exchange(self, memory, key, hps, scores, age):
        k_parents, k_draw = random.split(key)
        _, finite = ranked(scores)
        parents = copies(k_parents, ~finite, finite)
        new = drawn(k_draw, type(hps), self.tuned, {}, parents.size)
        return memory, parents, where(replaced(parents), memory, new, hps)


@dataclass(frozen=True)
class NoTuning(Inherit):
    """No tuning: all members have the same hyper-parameters; one that diverges is replaced."""

    def check(self, Hyper, members, episodes) -> None:
        pass

    def tunes(self, Hyper, fixed) -> list[str]:
        return []

    def begin(self, key, Hyper, fixed, members):
        return hyper.fill(Hyper, fixed, members), None

    def exchange(self, memory, key, hps, scores, age):
        _, finite = ranked(scores)
        return memory, copies(key, ~finite, finite), hps
