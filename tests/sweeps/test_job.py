"""The process of a job: it ends when it is told to, or when its sweep is gone."""

import json
import signal
from types import SimpleNamespace

import pytest

from tests.small import wait_for
from tests.sweeps.inline import TINY
from thespis import api
from thespis.errors import ThespisError
from thespis.sweeps import folder as folders
from thespis.sweeps import job
from thespis.sweeps import plan as plans


@pytest.fixture
def alone(tmp_path):
    """A sweep of one long job -> its folder, and the name of the job."""
    given = TINY | {"steps": 10**7, "checkpoint_freq": 10**6, "eval_freq": 10**5}
    plan = plans.make(given | {"algo": "sac", "env": "jax:pendulum"})
    folder = folders.place(plan, "alone", tmp_path, True)
    only = plan.job(0, "sac", "jax:pendulum", {})
    folders.write_job(folder, only)
    return folder, only.name


def test_a_job_elsewhere_needs_a_folder_that_it_can_read(tmp_path):
    with pytest.raises(ThespisError, match="put it where all machines see it"):
        job.supervise(str(tmp_path), "000-sac", False, str(tmp_path))


def test_a_job_that_is_begun_after_a_stop_does_nothing(alone):
    folder, name = alone
    (folder / folders.STOP).touch()
    assert job.supervise(str(folder), name, False, str(folder)) == 130
    assert not folders.run_of(folder, name).exists()


@pytest.mark.parametrize(
    ("changes", "trusted"),
    [
        ({}, True),
        ({"callbacks": ["thespis.sweeps.pruning:Pruning"]}, True),  # a job of Optuna's
        ({"callbacks": ["thespis.cli.command:main"]}, False),
        ({"callbacks": ["os:Thing"]}, False),
        ({"eval_env": "os:Thing-v0"}, False),
        ({"options": {"descriptor": "tests.small:where"}}, False),
        ({"skills_from": "a run of others"}, False),
    ],
)
def test_a_job_resumes_anywhere_with_the_code_that_its_sweep_names(
    tmp_path, monkeypatch, changes, trusted
):
    """Though this machine has no record of it; a run in a folder of others may name anything."""
    given = TINY | {"algo": "sac", "env": "tests.small:ToyRaise-v0"}
    plan = plans.make(given)
    folder = folders.place(plan, "alone", tmp_path, True)
    only = plan.job(0, "sac", "tests.small:ToyRaise-v0", {})
    folders.write_job(folder, only)
    saved = {"algo": "sac", "env": only.env, "options": {}, "seeds": [0], "hp": {}}
    run = folders.run_of(folder, only.name)
    run.mkdir()
    (run / "config.json").write_text(json.dumps(saved | changes))
    resumed = []

    def resume(path, progress, trust):
        resumed.append(trust)
        return SimpleNamespace(signal=None)

    monkeypatch.setattr(api, "resume", resume)
    assert job.run(folder, only.name) == 0
    assert resumed == [trusted]


@pytest.mark.slow
@pytest.mark.posix
def test_jobs_end_with_the_sweep_that_started_them(alone):
    folder, name = alone
    process = job.start(folder, name)
    wait_for(lambda: (folders.run_of(folder, name) / "status.json").exists())
    process.stdin.close()  # as it is when the sweep is killed
    assert process.wait(600) == 128 + signal.SIGTERM
    assert folders.status_of(folder, name)["state"] == "stopped"
