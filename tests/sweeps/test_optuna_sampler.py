"""Optuna proposes settings one after another, learns of their results, and goes on with them."""

import os

import pytest

from tests.sweeps.inline import TINY
from thespis.errors import ThespisError
from thespis.sweeps import optuna_sampler
from thespis.sweeps import plan as plans
from thespis.sweeps.samplers import sampler_of

optuna = pytest.importorskip("optuna")
CHOICES = {"critic_lr": "log:1e-4:1e-2", "gamma": "one-minus-log:0.01:0.1", "hidden": ["8 8", "4"]}


@pytest.fixture
def plan():
    given = {"algo": "sac,td3", "env": "jax:pendulum", "sampler": "optuna", "trials": 3}
    tiny = {name: x for name, x in TINY.items() if name not in CHOICES}
    return plans.make(given | tiny | {"set": CHOICES})


def test_proposals_are_remembered_and_results_told_once(plan, tmp_path):
    first = sampler_of(plan, tmp_path)
    asked = [first.ask() for _ in range(2)]
    assert [job.algo for job in asked] == ["sac", "td3"]  # in turn
    for job in asked:
        assert 1e-4 <= job.choices["critic_lr"] <= 1e-2
        assert 0.9 <= job.choices["gamma"] <= 0.99
        assert job.choices["hidden"] in ("8 8", "4")
    first.tell(asked[0], "done", -5.0)
    again = sampler_of(plan, tmp_path)  # as in another process, after a stop
    assert again.known() == asked
    again.tell(asked[0], "done", -5.0)
    again.tell(asked[1], "pruned", -9.0)
    trials = {name: study.trials for name, study in again.studies.items()}
    assert [t.value for t in trials["sac"]] == [-5.0]
    assert trials["td3"][0].state == optuna.trial.TrialState.PRUNED
    rest = [again.ask() for _ in range(4)]
    assert None not in rest
    assert again.ask() is None
    assert len({job.name for job in (*asked, *rest)}) == again.total == 6


def test_a_combination_that_cannot_work_costs_one_trial(tmp_path):
    """Its job fails and says why; the sweep goes on, also from its folder."""
    given = {"algo": "sac", "env": "jax:pendulum", "sampler": "optuna", "trials": 12, "steps": 200}
    plan = plans.make(given | {"set": {"batch_size": [16, 150], "buffer_size": [200, 100]}})
    asked = list(iter(sampler_of(plan, tmp_path).ask, None))
    assert len(asked) == 12
    assert sampler_of(plan, tmp_path).known() == asked
    (wrong, *_) = [job for job in asked if job.choices == {"batch_size": 150, "buffer_size": 100}]
    with pytest.raises(ThespisError, match="learning_starts = 150 is more than buffer_size = 100"):
        plan.check(wrong)


def test_a_missing_library_is_told(monkeypatch, plan, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[optuna\]'"):
        optuna_sampler.library()


@pytest.mark.posix
def test_a_journal_of_somebody_else_is_refused_in_one_line(plan, tmp_path):
    mine, journal = tmp_path / "mine", tmp_path / optuna_sampler.JOURNAL
    mine.write_text("kept")
    for make, message in (
        (lambda: journal.symlink_to(mine), "is a symbolic link"),
        (lambda: os.mkfifo(journal), "is not a regular file"),
        (lambda: journal.write_text("{}\n"), "cannot be used: KeyError: 'op_code'; restore it"),
    ):
        make()
        with pytest.raises(ThespisError, match=message):
            optuna_sampler.Optuna(plan, tmp_path)
        journal.unlink()
    assert mine.read_text() == "kept"
    with pytest.raises(ThespisError, match="optuna.journal has hidden = evil, unlike the sweep"):
        optuna_sampler.from_trial("hidden", [[8], [16]], {"hidden": "evil"})
