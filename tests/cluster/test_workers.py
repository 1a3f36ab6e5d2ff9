"""Tests of groups on a real cluster: two raylets on loopback, and a worker that is killed."""

import os
import signal
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

import thespis
from tests import small
from tests.cluster.same import differences
from thespis.cluster import head, workers
from thespis.cluster.workers import Worker, Workers
from thespis.runs import lineage
from thespis.runs.config import make

pytestmark = pytest.mark.posix
RUN = {"steps": 200, "hidden": (8, 8), "learning_starts": 50, "members": 4, "devices": 1}
RUN |= {"pbt": True, "pbt.interval": 100, "updates_per_step": 0}  # test_head.py is about learning


def groups(count: int, cpus: dict[str, int], **options) -> Workers:
    """Groups of one member each on nodes with so many CPUs, as far as Ray would tell of them."""
    given = {"env": "jax:pendulum", "members": count, "steps": 1000, "devices": 1, "threads": 1}
    config = make("sac", given | options)
    nodes = [{"NodeID": n, "Alive": True, "Resources": {"CPU": x}} for n, x in cpus.items()]
    have = {"CPU": sum(cpus.values())}
    free = {n: {"CPU": x} for n, x in cpus.items()}
    state = SimpleNamespace(available_resources_per_node=lambda: free)
    ray = SimpleNamespace(
        nodes=lambda: nodes,
        cluster_resources=lambda: have,
        available_resources=lambda: have,
        _private=SimpleNamespace(state=state),
    )
    made = [Worker(i, range(i, i + 1), config, Path(str(i))) for i in range(count)]
    return Workers(ray, made, lambda worker: None)


def test_groups_without_a_place_say_once_what_they_wait_for():
    few = groups(5, {"a": 2, "b": 1})
    assert few.waiting() == ""  # nobody has been asked to begin
    for worker in few.workers:
        worker.ref, worker.since = object(), time.monotonic()
    assert "5 groups need 5 CPUs and the cluster has 3: some wait" in few.waiting()
    assert few.waiting() == ""
    enough = groups(2, {"a": 2})
    enough.workers[1].ref, enough.workers[1].since = object(), time.monotonic()
    assert enough.waiting() == ""
    enough.workers[1].since -= workers.LONG + 1
    assert "group(s) 1 have not begun" in enough.waiting()
    assert workers.places(groups(4, {"a": 3, "b": 2}, threads=2).ray, few.workers[0].config) == 5


def placed(nodes: str, free: dict[str, int]) -> Workers:
    """Groups that have begun on these nodes, which have so many CPUs left."""
    made = groups(len(nodes), free)
    for worker, node in zip(made.workers, nodes, strict=True):
        worker.node, worker.beginning = node, False
    return made


def test_groups_move_to_a_node_with_two_fewer():
    some = placed("aaab", {"a": 1, "b": 3})
    found = some.uneven()
    assert found is not None
    assert (found[0].number, found[1]) == (2, "b")
    some.workers[2].node = "b"
    assert some.uneven() is None
    assert placed("aab", {"a": 2, "b": 3}).uneven() is None  # or it would move back


def test_groups_stay_where_they_are_if_others_have_the_cpus_of_a_node():
    assert placed("aaaa", {"a": 0, "b": 0}).uneven() is None  # it would wait there without end
    some = placed("aaaaaa", {"a": 0, "b": 1})
    assert some.uneven() == (some.workers[5], "b")
    some.workers[5].node, some.workers[5].beginning = "b", True
    assert some.uneven() is None  # that CPU is for the one on its way


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes with one CPU each -> their address."""
    pytest.importorskip("ray")
    from thespis.cluster.connect import ray_module

    ray_module()
    from ray.cluster_utils import Cluster

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it forks, of which JAX warns
        node = {"num_cpus": 1, "include_dashboard": False}
        made = Cluster(True, head_node_args=node | {"object_store_memory": 100 * 2**20})
        made.add_node(num_cpus=1, object_store_memory=100 * 2**20)
        yield made.address
        made.shutdown()


def test_a_worker_is_killed_and_nothing_changes(cluster, tmp_path, monkeypatch, capsys):
    go_on, killed = head.Head.go_on, []

    def kill(self):
        go_on(self)
        if not killed:
            killed.append(self.workers.workers[1].pid)
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(head.Head, "go_on", kill)
    given = small.arguments(**RUN)
    alone = thespis.train("sac", out=tmp_path / "alone", **given)
    run = thespis.train("sac", out=tmp_path / "groups", ray=cluster, group=2, **given)
    assert killed
    assert differences(alone.path, run.path) == []
    text = "group 1 (members 2 to 3) died and is started again from step 100"
    assert text in capsys.readouterr().err
    died, started = [(100, 2, 1), (100, 3, 1)], [(100, 2, 2), (100, 3, 2)]
    assert lineage.events(run.path) == died + started
