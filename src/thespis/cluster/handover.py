"""What groups are told of a decision: whom their members copy, and where to get those elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from thespis.cluster import slices
from thespis.cluster.group import Donor
from thespis.cluster.workers import Worker, Workers
from thespis.runs.tuning_rounds import Decision, values


class Handover(NamedTuple):
    """A decision, and what groups have given for it: references by the number of the group.

    What is not there, or lost, is read from checkpoints.
    """

    decision: Decision
    donors: dict[int, Any]


def ask_parents(workers: Workers, decision: Decision, replay: bool) -> Handover:
    """Asks groups for every member that somebody elsewhere copies, with its `replay` or without."""
    wanted: dict[int, set[int]] = {}
    for member, parent in enumerate(np.asarray(decision.parents).tolist()):
        donor = workers.of_member(parent)
        if member not in donor.members and donor.actor is not None:
            wanted.setdefault(donor.number, set()).add(parent - donor.members.start)
    donors = [worker for worker in workers.workers if worker.number in wanted]
    references = {w.number: workers.give(w, sorted(wanted[w.number]), replay) for w in donors}
    return Handover(decision, references)


def orders_for(workers: Workers, worker: Worker, handover: Handover) -> dict[str, Any]:
    """Returns what a group must know of a decision."""
    decision, donors = handover
    parents = [int(parent) for parent in np.asarray(decision.parents)]
    sick = ~np.isfinite(np.asarray(decision.scores).mean(1))
    mine = worker.members

    def source(parent: int) -> int | Donor:
        if parent in mine:
            return parent - mine.start
        other = workers.of_member(parent)
        place = parent - other.members.start
        return Donor(donors.get(other.number), place, other.config, other.folder.absolute())

    return {
        "parents": [source(parents[m]) for m in mine],
        "sick": [bool(sick[m]) for m in mine],
        "hps": slices.cut_hyper(values(decision.hps), mine),
    }
