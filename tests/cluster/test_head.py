"""Tests of populations in groups: whoever dies on the way, they end as in one process.

Groups are objects of this process here, which die when a test says so; tests/faults/clusters.py
kills real processes.
"""

import json
import random
import signal
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

import thespis
from tests import small
from tests.cluster.same import differences
from thespis import api
from thespis.cluster import assign, group, head
from thespis.cluster.group import Group
from thespis.cluster.workers import Workers
from thespis.errors import ThespisError
from thespis.runs import lineage

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
    monkeypatch.setattr(assign, "Workers", Here)
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
    monkeypatch.setattr(head, "TRIES", 1000)  # some draws are unlucky many times in a row
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


@pytest.mark.thorough
def test_groups_end_as_one_process(alone, tmp_path):
    run = train(tmp_path)
    assert differences(alone, run.path) == []
    assert (run.path / "lineage.csv").read_text().count("\n") == 9  # two rounds, no events
    assert run.status == {"state": "done", "step": 300}
    assert run.evaluate(2, member=3) == thespis.load(alone).evaluate(2, member=3)


def deaths(r):
    """Who dies, at random: a group before or after it did as it was told, or the head."""
    return lambda worker: r.choices(["", "before", "after", "head"], [6, 2, 2, 2])[0]


SLOW = [pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 10)]


@pytest.mark.parametrize("seed", [0, *SLOW])
def test_whoever_dies_it_ends_the_same(alone, tmp_path, monkeypatch, seed):
    run = through_deaths(monkeypatch, tmp_path, deaths(random.Random(seed)))
    assert differences(alone, run) == []
    assert thespis.load(run).status == {"state": "done", "step": 300}
    assert lineage.events(run)


@pytest.mark.thorough
def test_a_run_may_become_longer(alone, tmp_path):
    short = train(tmp_path, steps=250)
    assert short.status == {"state": "done", "step": 250}
    assert differences(alone, thespis.resume(short.path, 300, ray=True, progress=False).path) == []


@pytest.mark.parametrize("freq", [100, pytest.param(50, marks=pytest.mark.thorough)])
def test_a_run_that_reached_its_reward_trains_on_to_the_next_evaluation(tmp_path, freq):
    """With 100, it ended at an exchange, which nobody had decided on."""
    given = {"stop_reward": -1e9, "eval_freq": freq, "pbt.replay": "parent"}
    runs = [train(tmp_path / name, ray=name == "ray", **given) for name in ("alone", "ray")]
    assert [run.status["step"] for run in runs] == [freq, freq]
    for run, ray in zip(runs, (None, True), strict=True):
        longer = thespis.resume(run.path, 400, ray=ray, progress=False)
        assert longer.status == {"state": "done", "step": 2 * freq}
    assert differences(runs[0].path, runs[1].path) == []


def signal_at(monkeypatch, when, number, fate):
    """Sends this process a signal when groups are asked for the so many-th time."""
    asked = iter(range(100))

    def stop(worker):
        now = next(asked) == when
        if now:
            signal.raise_signal(number)
        return fate if now else ""

    monkeypatch.setattr(Here, "fate", staticmethod(stop))


@pytest.mark.thorough
@pytest.mark.parametrize("fate", ["", "before"])
def test_ctrl_c_ends_it_at_a_meeting(alone, tmp_path, monkeypatch, fate):
    """Also if a group ends by the same signal, which is then nothing to be told of."""
    signal_at(monkeypatch, 3, signal.SIGINT, fate)
    run = train(tmp_path)
    assert run.status["state"] == "stopped"
    assert run.signal == signal.SIGINT
    assert lineage.events(run.path) == []
    assert differences(alone, thespis.resume(run.path, ray=True, progress=False).path) == []


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_ends_a_run_whose_groups_wait_for_a_place(tmp_path, monkeypatch, number, error):
    signal_at(monkeypatch, 0, number, "before")
    with pytest.raises(error) as ended:
        train(tmp_path)
    assert error is KeyboardInterrupt or ended.value.code == 143
    assert not list(tmp_path.glob("*/*"))


def test_a_group_that_dies_again_and_again_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(Here, "fate", staticmethod(lambda worker: "before" * worker.number))
    with pytest.raises(ThespisError, match="group 1 .members 2 to 3. died 6 times after step 0"):
        train(tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_broken_members_are_replaced_as_in_one_process(tmp_path, monkeypatch, seed):
    """Member 2 breaks in its first update, between two exchanges; a group or nobody dies."""
    sick = {"critic_lr": [3e-4, 3e-4, 1e38, 3e-4], "log_freq": 50, "pbt.replay": "parent"}
    alone = train(tmp_path / "alone", ray=False, **sick)
    fate = deaths(random.Random(seed)) if seed else lambda worker: ""
    run = through_deaths(monkeypatch, tmp_path / "groups", fate, **sick)
    assert differences(alone.path, run) == []
    assert [path.name for path in run.glob("faults/*")] == ["member_2"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_broken_members_of_several_groups_get_what_others_have_in_memory(
    tmp_path, monkeypatch, seed
):
    """Every group has one, and none can save before it is replaced: what is lost is given again."""
    ray = pytest.importorskip("ray")

    def give(self, worker, members, replay):
        actor = worker.actor
        found = actor.give(members, replay)

        def arrive():
            if worker.actor is not actor:
                raise ray.exceptions.ActorDiedError
            return found

        return arrive

    monkeypatch.setattr(Here, "give", give)
    monkeypatch.setattr(ray, "get", lambda ref, timeout: ref())
    sick = {"critic_lr": [1e38, 3e-4, 1e38, 3e-4], "log_freq": 50}
    alone = train(tmp_path / "alone", ray=False, **sick)
    fate = deaths(random.Random(seed)) if seed else lambda worker: ""
    run = through_deaths(monkeypatch, tmp_path / "groups", fate, **sick)
    assert differences(alone.path, run) == []


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_priorities_travel_with_replays(tmp_path, monkeypatch, seed):
    given = {"pbt.replay": "parent", "prioritized_replay": True, "group": 1}
    alone = train(tmp_path / "alone", ray=False, **given | {"group": None})
    fate = deaths(random.Random(seed)) if seed else lambda worker: ""
    run = through_deaths(monkeypatch, tmp_path / "groups", fate, **given)
    assert differences(alone.path, run) == []


@pytest.mark.thorough
def test_seeds_without_exchange(tmp_path, monkeypatch):
    given = {"pbt": None, "pbt.interval": None, "members": None, "seeds": (3, 1, 2)}
    given |= {"stop_reward": -1e9, "eval_freq": 150}  # which all reach at once
    given = {name: x for name, x in given.items() if x is not None}
    kept = {name: x for name, x in RUN.items() if name not in ("pbt", "pbt.interval", "members")}
    monkeypatch.setattr(sys.modules[__name__], "RUN", kept)
    alone = train(tmp_path / "alone", ray=False, **given)
    run = through_deaths(monkeypatch, tmp_path / "groups", deaths(random.Random(0)), **given)
    assert differences(alone.path, run) == []
    assert thespis.load(run).status == {"state": "done", "step": 150}


@pytest.mark.thorough
def test_with_a_deadline_others_go_on(tmp_path, monkeypatch, capsys):
    """Group 1 is late at the first exchange: its members keep their places."""
    late = Here.answers

    def answers(self, timeout):
        slow = self.workers[1]
        held = slow.ref is not None and slow.step == 0 and self.workers[0].step < 200
        if not held:
            return late(self, timeout)
        ref, slow.ref = slow.ref, None
        try:
            return late(self, timeout) if self.workers[0].ref is not None else []
        finally:
            slow.ref = ref

    monkeypatch.setattr(Here, "answers", answers)
    run = train(tmp_path, deadline=0.01)
    assert "step 100: an exchange without group(s) 1, which are late" in capsys.readouterr().err
    table = run.lineage
    assert table["member"][table["step"] == 100].tolist() == [0, 1]
    assert set(run.metrics["step"][run.metrics["member"] == 3]) == {100, 200, 300}
    assert run.status == {"state": "done", "step": 300}


@pytest.mark.thorough
def test_no_deadline_counts_before_all_groups_have_begun(tmp_path, monkeypatch, capsys):
    usual, begun = Here.answers, []

    def answers(self, timeout):
        time.sleep(0.02 * (len(begun) == 1))
        begun.append(1)
        return usual(self, timeout)

    monkeypatch.setattr(Here, "answers", answers)
    assert train(tmp_path, deadline=0.01, steps=100).status == {"state": "done", "step": 100}
    assert "step 0" not in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("killed", [False, True])
def test_who_dies_and_is_late_does_what_was_decided_for_it(tmp_path, monkeypatch, killed):
    """Group 1 dies after the first exchange, and does it again when others are at the second.

    The head may be killed as well; who goes on with the run need not repeat the deadline.
    """
    usual, dead = Here.answers, []

    def answers(self, timeout):
        first, late = self.workers
        if late.ref is not None and late.step == 100 and first.step < 200:
            if not dead:
                dead.append(late)
                return [(late, None)]
            if not late.beginning and first.ref is None:
                time.sleep(0.02)
                return []
            held, late.ref = (late.ref, None) if not late.beginning else (None, late.ref)
            try:
                return usual(self, timeout)
            finally:
                late.ref = late.ref if held is None else held
        if killed and len(dead) == 1 and late.step == 100 and first.step == 200:
            if first.ref is None:  # until the deadline of the second exchange
                time.sleep(0.02)
                return []
            dead.append("head")
            raise Killed
        return usual(self, timeout)

    monkeypatch.setattr(Here, "answers", answers)
    given = {"deadline": 0.01, "log_freq": 50, "pbt.best": 1, "pbt.replaced": 3}
    try:
        path = train(tmp_path, **given).path
    except Killed:
        (path,) = tmp_path.glob("*/*_1")
        path = thespis.resume(path, ray=True, progress=False).path
    run = thespis.load(path)
    rows, rounds = run.metrics, run.lineage
    at = lambda table, step: {
        int(m): i for i, (s, m) in enumerate(zip(table["step"], table["member"])) if s == step
    }
    decided, used = at(rounds, 100), at(rows, 150)
    assert any(rounds["parent"][decided[m]] != m for m in (2, 3))
    for m in range(4):
        assert rows["hparams/gamma"][used[m]] == rounds["after/gamma"][decided[m]]


def test_groups_have_the_threads_and_devices_that_were_asked_for(tmp_path, monkeypatch):
    """Whatever this process has, in which JAX has started, and whatever a run had without ray."""
    taken = []

    def trainer_for(config, *rest):
        taken.append((config.threads, config.devices))
        raise ThespisError("enough")

    monkeypatch.setattr(api, "trainer_for", trainer_for)
    monkeypatch.setattr(api, "set_threads", lambda config: 7)
    saved = {"options": {}, "devices": 2, "threads": 3}
    (tmp_path / "config.json").write_text(json.dumps(saved))
    for given in ({"threads": 1}, {}, {"config": tmp_path}):
        with pytest.raises(ThespisError, match="enough"):
            thespis.train("sac", out=tmp_path, ray=True, **small.arguments(**RUN | given))
    assert taken == [(1, 1), (1, 1), (3, 1)]


# --- refusals -------------------------------------------------------------------------------


def test_what_cannot_work_in_groups_is_refused(tmp_path):
    def refused(**given):
        with pytest.raises(ThespisError) as refusal:
            train(tmp_path, **given)
        assert "\n" not in str(refusal.value)
        return str(refusal.value)

    assert "callbacks do not work with ray" in refused(callbacks=[thespis.Callback()])
    assert "pbt.replay = shared does not work with ray" in refused(**{"pbt.replay": "shared"})
    assert "devices = 2 does not work with ray" in refused(devices=2)
    assert "env must be a name with ray" in refused(env=thespis.make("jax:pendulum"))
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.thorough
def test_a_run_in_groups_needs_ray_to_go_on_and_others_do_not_take_it(alone, tmp_path):
    run = train(tmp_path, steps=150)
    with pytest.raises(ThespisError, match=f"thespis resume {run.path} --ray"):
        thespis.resume(run.path, 300, progress=False)
    with pytest.raises(ThespisError, match="was trained without ray"):
        thespis.resume(alone, 400, ray=True, progress=False)


def test_a_folder_that_a_node_does_not_see_is_refused(tmp_path, monkeypatch):
    begin = Group.begin

    def elsewhere(self):
        (self.assignment.folder.parent / "proof").unlink(missing_ok=True)
        return begin(self)

    monkeypatch.setattr(Group, "begin", elsewhere)
    with pytest.raises(ThespisError, match="put the runs into a folder that all nodes share"):
        train(tmp_path)
