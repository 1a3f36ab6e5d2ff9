"""Tests of what groups are told: places of parents that are here, and where to get others."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from thespis.cluster import handover
from thespis.cluster.group import Donor
from thespis.cluster.workers import Worker, Workers
from thespis.runs.config import make
from thespis.runs.tuning_rounds import Decision
from thespis.tuning import Inherit


class Asked(Workers):
    """Groups that tell what they were asked for."""

    def give(self, worker, members, replay):
        return worker.number, members, replay


@pytest.fixture
def workers():
    """Three groups of two members each."""
    config = make("sac", {"env": "jax:pendulum", "members": 2, "steps": 1000, "devices": 1})
    parts = [range(i, i + 2) for i in (0, 2, 4)]
    made = [Worker(i, part, config, Path(str(i)), object()) for i, part in enumerate(parts)]
    return Asked(None, made, lambda worker: None)


def decided(parents, sick=()):
    """A decision by which each member copies one of these."""
    scores = np.array([[np.nan if m in sick else 0.0] for m in range(6)])
    hps = SimpleNamespace(gamma=np.arange(6.0))
    return Decision(hps, np.array(parents), scores, Inherit())


def test_parents_that_are_copied_elsewhere_are_asked_for_once(workers):
    made = handover.ask_parents(workers, decided([0, 0, 0, 5, 5, 1]), replay=True)
    assert made.donors == {0: (0, [0, 1], True), 2: (2, [1], True)}
    workers.workers[2].actor = None  # it is gone: its checkpoint is there
    assert handover.ask_parents(workers, made.decision, replay=False).donors.keys() == {0}


def test_parents_that_are_copied_in_their_own_group_alone_are_not_asked_for(workers):
    made = handover.ask_parents(workers, decided([0, 0, 2, 2, 5, 5]), replay=True)
    assert made.donors == {}


def test_a_group_is_told_of_its_own_members_alone(workers):
    made = handover.ask_parents(workers, decided([0, 0, 0, 2, 5, 5], sick=[3]), replay=False)
    told = handover.orders_for(workers, workers.workers[1], made)
    donor, own = told["parents"]
    assert own == 0  # member 2 is the first here
    assert isinstance(donor, Donor)
    assert (donor.ref, donor.place, donor.folder.name) == (made.donors[0], 0, "0")
    assert told["sick"] == [False, True]
    assert told["hps"]["gamma"].tolist() == [2.0, 3.0]
    assert handover.orders_for(workers, workers.workers[2], made)["parents"] == [1, 1]
