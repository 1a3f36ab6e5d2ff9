"""Tests of what happens to groups: rows of lineage.csv that a head which goes on keeps."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from thespis.cluster import events
from thespis.cluster.workers import Worker
from thespis.runs import lineage
from thespis.runs.config import make

CONFIG = make("sac", {"env": "jax:pendulum", "members": 2, "steps": 1000, "devices": 1})
HPS = SimpleNamespace(gamma=np.full(5, 0.9))


def test_events_of_seeds_without_a_tuner(tmp_path):
    worker = Worker(1, range(2, 4), CONFIG, Path("1"), step=100)
    events.write(tmp_path, None, HPS, events.DIED, worker)
    events.write(tmp_path, None, HPS, events.STARTED, worker)
    assert lineage.events(tmp_path) == [(100, 2, 1), (100, 3, 1), (100, 2, 2), (100, 3, 2)]
    assert events.named(worker) == "group 1 (members 2 to 3)"
    assert events.named(Worker(0, range(4, 5), CONFIG, Path("0"))) == "group 0 (members 4)"


def test_events_after_a_decision_are_kept_and_exchanges_are_not(tmp_path):
    past = b"step,member,event\n100,0,\n"
    tail = b"150,1,1\n150,1,2\n200,0,\n200,1,3\n250,"  # the last line was cut off
    (tmp_path / lineage.FILE).write_bytes(past + tail)
    assert events.later(tmp_path, past) == b"150,1,1\n150,1,2\n200,1,3\n"
    assert events.later(tmp_path, b"another file") == b""
    assert events.later(tmp_path, b"") == b"150,1,1\n150,1,2\n200,1,3\n"  # before any decision
    assert events.later(tmp_path / "nowhere", past) == b""
