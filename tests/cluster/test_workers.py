"""Tests of groups on a real cluster: two raylets on loopback, and a worker that is killed."""

import os
import signal
import warnings

import pytest

import thespis
from tests import small
from tests.cluster.same import differences
from thespis.cluster import head
from thespis.runs import lineage

pytestmark = pytest.mark.posix
RUN = {"steps": 300, "hidden": (8, 8), "learning_starts": 50, "members": 4, "devices": 1}
RUN |= {"pbt": True, "pbt.interval": 100}


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
