"""Multi-frequency PBT. Doulazmi et al. 2025, https://arxiv.org/abs/2506.03225."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Bool, Int

from thespis.errors import ThespisError
from thespis.tuning.base import copies, draw, from_parents, priors, ranked, replaced, where
from thespis.tuning.pbt import PBT
from thespis.values import show


class Memory(eqx.Module):
    tuned: Bool[Array, "hypers"]  # may change
    round: Int[Array, ""]


@dataclass(frozen=True)
class MultiFrequencyPBT(PBT):
    """PBT in sub-populations that exchange at different intervals, so that it is less greedy.

    In each, the worst copy the best. Those just above the worst are replaced by better members of
    other sub-populations, and take over their hyper-parameters only from less frequent ones.
    """

    frequencies: tuple[int, ...] = (1, 5)
    """Number of intervals between exchanges, for each of the equal sub-populations."""

    def check(self, Hyper, members, episodes) -> None:
        priors(Hyper, self.tuned)
        if self.exploit != "truncation":
            raise ThespisError("exploit = t-test does not fit sub-populations: choose truncation")
        self.counts(members)

    def counts(self, members) -> tuple[int, int]:
        """Returns how many are copied, and how many replaced (and may migrate), in each group."""
        groups = len(self.frequencies)
        if min(self.frequencies, default=0) < 1 or members % groups:
            raise ThespisError(
                f"frequencies = {show(self.frequencies)}: give numbers from 1 on, by whose count "
                f"the {members} members can be divided"
            )
        if not self.replaced:
            return members // groups, 0
        best, worst = super().counts(members // groups)
        if best + 2 * worst > members // groups:
            raise ThespisError(
                f"{members} members in {groups} sub-populations are too few for {best} best, "
                f"{worst} replaced and {worst} that migrate in each: give more members"
            )
        return best, worst

    def begin(self, key, Hyper, fixed, members):
        hps, tuned = super().begin(key, Hyper, fixed, members)
        return hps, Memory(tuned, jnp.zeros((), jnp.int32))

    def exchange(self, memory: Memory, key, hps, scores, age):
        members = scores.shape[0]
        self.check(type(hps), members, scores.shape[1])
        k_group, k_diverged, k_explore = random.split(key, 3)
        best, worst = self.counts(members)
        size, number = members // len(self.frequencies), jnp.arange(members)
        period = jnp.repeat(jnp.array(self.frequencies), size)
        memory = Memory(memory.tuned, memory.round + 1)

        overall, finite = ranked(scores)
        same_group = number[:, None] // size == number[None] // size
        above = overall[None] < overall[:, None]  # [i, j]: j is better than i
        rank = (above & same_group).sum(1)
        due = (memory.round % period == 0) & (age >= self.min_age) & finite

        # The worst copy one of the best of their own sub-population.
        elite = same_group & ((rank < best) & finite)[None]
        out = due & (rank >= size - worst)
        parents = jnp.where(out, draw(k_group, elite), number)

        # The k-th of those above them is replaced by the k-th of all others, if that is better.
        place = rank - (size - 2 * worst)
        others = ~same_group & finite[None]
        other_rank = (others[:, None] & above[None]).sum(-1)  # [i, j]: rank of j among i's others
        chosen = others & (other_rank == place[:, None])
        migrant = jnp.argmax(chosen, 1)
        migrates = due & (place >= 0) & (place < worst) & chosen.any(1)
        migrates = migrates & (overall[migrant] < overall)
        leader = jnp.argmax(same_group & (rank == 0)[None], 1)
        slower, faster = period[migrant] > period, period[migrant] < period
        hypers = jnp.where(slower, migrant, jnp.where(faster, leader, number))

        parents = jnp.where(migrates, migrant, parents)
        parents = jnp.where(finite, parents, copies(k_diverged, ~finite, finite)).astype(jnp.int32)
        copied = from_parents(jnp.where(migrates, hypers, parents), hps)
        new = self.vary(k_explore, copied)
        return (
            memory,
            parents,
            where(replaced(parents) & ~migrates, memory.tuned, new, copied),
        )
