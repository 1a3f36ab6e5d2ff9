"""The process of a job: it starts nothing where it must not, and keeps why it failed."""

import pytest

from thespis.errors import ThespisError
from thespis.sweeps import folder as folders
from thespis.sweeps import job as jobs
from thespis.sweeps import plan as plans


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "start", None)  # no process may be started
    plan = plans.make({"algo": "sac", "env": "jax:pendulum", "set": ["gamma=0.9,0.99"]})
    return folders.place(plan, None, tmp_path, new=True)


def test_a_folder_that_this_machine_does_not_see_is_refused(folder, tmp_path):
    with pytest.raises(ThespisError, match="cannot be read on .*: put it where all machines see"):
        jobs.supervise(str(tmp_path / "elsewhere"), "000", False, "")


def test_nothing_is_started_once_the_sweep_is_stopped(folder):
    (folder / folders.STOP).touch()
    assert jobs.supervise(str(folder), "000", False, "") == jobs.STOPPED


def test_a_job_that_cannot_be_read_is_one_line_and_kept_as_its_failure(folder, capsys, monkeypatch):
    monkeypatch.setattr(jobs, "end_with_parent", lambda: None)
    monkeypatch.setattr(jobs.signal, "signal", lambda *given: None)
    folders.jobs_in(folder).mkdir()
    folders.file_of(folder, "000-damaged", "toml").write_text("algo = [")
    assert jobs.main([str(folder), "000-damaged"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert folders.file_of(folder, "000-damaged", "failed").read_text().count("\n") == 1
