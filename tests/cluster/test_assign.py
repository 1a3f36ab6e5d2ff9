"""Tests of how members come into groups, and that groups stay the same when a run goes on."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from thespis.cluster import assign
from thespis.errors import ThespisError
from thespis.runs.config import make
from thespis.runs.directory import GROUPS

CONFIG = make(
    "sac", {"env": "jax:pendulum", "members": 5, "steps": 1000, "devices": 1, "threads": 1}
)


def made(folder, cpus, size=None, fixed=False, **changes):
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": cpus})
    first = {"gamma": np.arange(5.0)}
    config = dataclasses.replace(CONFIG, **changes)
    return assign.make_workers(ray, config, folder, ["gamma"], first, size, fixed)


def test_groups_fill_the_cluster_and_stay_when_it_grows(tmp_path):
    members = lambda workers: [list(worker.members) for worker in workers.workers]
    before = made(tmp_path, 2)
    assert members(before) == [[0, 1], [2, 3, 4]]
    assert members(made(tmp_path, 5)) == members(before)
    assert members(made(tmp_path / "other", 2, size=1)) == [[0], [1], [2], [3], [4]]


def test_a_group_is_told_of_its_members_and_proves_that_it_sees_the_folder(tmp_path):
    workers = made(tmp_path, 2)
    told = workers.assignment(workers.workers[1])
    assert (told.start, told.config.seeds, told.folder.name) == (2, (2, 3, 4), "001")
    assert told.first["gamma"].tolist() == [2, 3, 4]
    assert (tmp_path / GROUPS / "proof").read_text() == told.proof
    again = made(tmp_path, 2)
    assert again.assignment(again.workers[1]).proof != told.proof


def test_more_groups_than_a_machine_can_hold_are_refused(tmp_path):
    with pytest.raises(ThespisError, match="5 groups need more than .* room for 2: give a larger"):
        made(tmp_path, 2, size=1, fixed=True)
    with pytest.raises(ThespisError, match="room for 2: give the address"):  # they stay as they are
        made(tmp_path, 2, fixed=True)


def test_threads_that_a_machine_does_not_have_are_refused(tmp_path):
    """They would be waited for without end; a cluster may grow."""
    with pytest.raises(ThespisError, match="threads = 3, .* a single group; give fewer threads"):
        made(tmp_path / "new", 2, fixed=True, threads=3)
    assert len(made(tmp_path, 2, threads=3).workers) == 1
    with pytest.raises(ThespisError, match="a single group; give the address of a cluster"):
        made(tmp_path, 2, fixed=True, threads=3)
