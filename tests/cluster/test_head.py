"""Tests of populations in groups: whoever dies on the way, they end as in one process.

Groups are objects of this process here, which die when a test says so; tests/slow/test_cluster.py
kills real processes.
"""

import random
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

import thespis
from tests import small
from tests.cluster.same import differences
from thespis import api
from thespis.cluster import group, head
from thespis.cluster.group import Group
from thespis.cluster.workers import Workers

RUN = {"steps": 300, "learning_starts": 50, "pbt": True, "pbt.interval": 100, "members": 4}


class Killed(BaseException):
    """The head is gone."""


class Here(Workers):
    """Groups that answer at once; `fate` tells who dies before or after it did as it was told."""

    fate = staticmethod(lambda worker: "")

    def start(self, worker, node=None):
        worker.actor, worker.beginning, worker.paused = Group(self.assignment(worker)), True, None
        worker.ref = lambda: worker.actor.begin() | {"node": "here"}

    def ask(self, worker, order):
        worker.paused, actor = None, worker.actor
        worker.ref = lambda: actor.advance(order)

    def give(self, worker, members, replay):
        return None  # lost on the way: it is read from the disk

    def end(self, worker):
        if worker.actor is not None:
            worker.actor.stack.close()
        worker.actor = worker.ref = None

    def answers(self, timeout):
        worker = next(worker for worker in self.workers if worker.ref is not None)
        fate = self.fate(worker)
        if fate == "head":
            raise Killed
        found = worker.ref() if fate != "before" else None
        if fate:
            return [(worker, None)]
        worker.ref = None
        return [(worker, found)]

    def waiting(self):
        return ""

    def uneven(self):
        return None


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Trains with `ray` in this process, in groups of two."""
    monkeypatch.setattr(head, "Workers", Here)
    monkeypatch.setattr(Here, "fate", staticmethod(lambda worker: ""))
    copy = group.GroupTuning.copy.func
    kept = lambda self: small.keep(("group copy", small.key_of(self.loop)), lambda: copy(self))
    monkeypatch.setattr(group.GroupTuning, "copy", property(kept))

    def trainer_for(config, callbacks, ray, size, deadline):
        head.slices.refuse(config, callbacks)
        made = partial(head.Head, ray=None, size=size or 2, deadline=deadline)
        return nullcontext(made if ray else api.Trainer)

    monkeypatch.setattr(api, "trainer_for", trainer_for)


def train(out, ray=True, **changes):
    given = small.arguments(**RUN | {"devices": 1} | changes)
    return thespis.train("sac", out=out, ray=ray, **given)


def through_deaths(monkeypatch, out: Path, fate, **changes) -> Path:
    """A run that is disturbed, and goes on as often as its head dies."""
    monkeypatch.setattr(Here, "fate", staticmethod(fate))
    while True:
        run = next(out.glob("*/*_1"), None)
        try:
            go_on = run and partial(thespis.resume, run, ray=True, progress=False)
            return (go_on or partial(train, out, **changes))().path
        except Killed:
            pass


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same population in one process."""
    return train(tmp_path_factory.mktemp("alone"), ray=False).path


def test_groups_end_as_one_process(alone, tmp_path):
    run = train(tmp_path)
    assert differences(alone, run.path) == []
    assert (run.path / "lineage.csv").read_text().count("\n") == 9  # two rounds, no events
    assert run.status == {"state": "done", "step": 300}
    assert run.evaluate(2, member=3) == thespis.load(alone).evaluate(2, member=3)


@pytest.mark.parametrize("seed", range(3))
def test_whoever_dies_it_ends_the_same(alone, tmp_path, monkeypatch, seed):
    r = random.Random(seed)
    deaths = lambda worker: r.choices(["", "before", "after", "head"], [6, 2, 2, 2])[0]
    run = through_deaths(monkeypatch, tmp_path, deaths)
    assert differences(alone, run) == []
    assert thespis.load(run).status["state"] == "done"
