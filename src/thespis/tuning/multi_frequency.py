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
    """Sub-populations that exchange at different intervals, lest the greedy take over.

    In each the worst copy the best. Those just above the worst give way to better members of
    other sub-populations, whose hyper-parameters they take only if these were tried for longer.
    """

    frequencies: tuple[int, ...] = (1, 5)
    """Number of intervals between exchanges, for each of the equal sub-populations."""

    def check(self, Hyper, members, episodes) -> None:
        priors(Hyper, self.tuned)
        if self.exploit != "truncation":
            raise ThespisError("exploit = t-test does not fit sub-populations: choose truncation")
        self.counts(members)

    def counts(self, members) -> tuple[int, int]:
        """Returns how many are copied and replaced in each sub-population; as many may migrate."""
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
        k_own, k_sick, k_explore = random.split(key, 3)
        best, worst = self.counts(members)
        size, number = members // len(self.frequencies), jnp.arange(members)
        every = jnp.repeat(jnp.array(self.frequencies), size)
        memory = Memory(memory.tuned, memory.round + 1)

        overall, finite = ranked(scores)
        kin = number[:, None] // size == number[None] // size
        above = overall[None] < overall[:, None]  # [i, j]: j is better than i
        rank = (above & kin).sum(1)
        due = (memory.round % every == 0) & (age >= self.min_age) & finite

        # The worst copy one of the best of their own sub-population.
        elite = kin & ((rank < best) & finite)[None]
        out = due & (rank >= size - worst)
        parents = jnp.where(out, draw(k_own, elite), number)

        # The k-th of those above them gives way to the k-th of all strangers, if that is better.
        place = rank - (size - 2 * worst)
        strange = ~kin & finite[None]
        among = (strange[:, None] & above[None]).sum(-1)  # [i, j]: the rank of j among strangers
        chosen = strange & (among == place[:, None])
        stranger = jnp.argmax(chosen, 1)
        give_way = due & (place >= 0) & (place < worst) & chosen.any(1)
        give_way = give_way & (overall[stranger] < overall)
        leader = jnp.argmax(kin & (rank == 0)[None], 1)
        steadier, hastier = every[stranger] > every, every[stranger] < every
        hypers = jnp.where(steadier, stranger, jnp.where(hastier, leader, number))

        parents = jnp.where(give_way, stranger, parents)
        parents = jnp.where(finite, parents, copies(k_sick, ~finite, finite)).astype(jnp.int32)
        copied = from_parents(jnp.where(give_way, hypers, parents), hps)
        new = self.vary(k_explore, copied)
        return (
            memory,
            parents,
            where(replaced(parents) & ~give_way, memory.tuned, new, copied),
        )
