"""The folder of a sweep: which one is meant, and in what states its jobs are."""

import json
import shutil
import sys

import pytest

from tests.report import pages
from tests.sweeps.inline import TINY
from thespis.errors import ThespisError
from thespis.sweeps import folder as folders
from thespis.sweeps import job
from thespis.sweeps import plan as plans


def test_the_same_question_has_the_same_folder(tmp_path):
    asked = {"algo": "sac", "env": "jax:pendulum", **TINY}
    plan, other = plans.make(asked), plans.make(asked | {"seeds": "1-2"})
    with pytest.raises(ThespisError, match="there is no sweep in"):
        folders.place(plan, None, tmp_path, False)
    first = folders.place(plan, None, tmp_path, True)
    folders.write(first, plan, {"executor": "ray", "jobs": 3, "slurm": {"timeout_min": 5}})
    assert folders.plan_of(first, False) == plan
    assert folders.place(plan, None, tmp_path, True) == first
    assert folders.place(other, None, tmp_path, True) == first.with_name("sac-jax-pendulum_2")


def test_the_state_of_a_job_follows_from_its_files(tmp_path):
    state = lambda name: folders.status_of(tmp_path, name)["state"]
    assert state("000") == "waiting"
    pages.run(folders.run_of(tmp_path, "001"))
    assert state("001") == "done"
    pages.run(folders.run_of(tmp_path, "002"))
    told = {"state": "done", "step": 100, "reason": f"Pruning: {folders.WHY}"}
    (folders.run_of(tmp_path, "002") / "status.json").write_text(json.dumps(told))
    assert state("002") == "pruned"
    pages.run(folders.run_of(tmp_path, "003"), state="running")
    assert state("003") == "stopped"  # its process is gone
    folders.note_failure(tmp_path, "003", "the curtain\nfell")
    assert folders.status_of(tmp_path, "003")["error"] == "the curtain fell"
    assert state("003") == "failed"
    folders.note_failure(tmp_path, "000", "no disk")
    assert state("000") == "failed"


# --- from a stranger ------------------------------------------------------------------------

IMPORTED = "tests_sweeps_stranger"  # a module that must not be imported


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A sweep from elsewhere, with a module beside it -> its folder."""
    (tmp_path / f"{IMPORTED}.py").write_text("class Mine: pass")
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "sweeps" / "sac-jax-pendulum_1"
    (folder / "jobs").mkdir(parents=True)
    (folder / folders.FILE).write_text('algo = "sac"\nenv = "jax:pendulum"')
    yield folder
    assert IMPORTED not in sys.modules


def test_nothing_of_other_sweeps_is_imported_to_find_ones_own(stranger, tmp_path):
    (stranger / folders.FILE).write_text(f'algo = "{IMPORTED}:Mine"\nenv = "jax:pendulum"')
    plan = plans.make({"algo": "sac", "env": "jax:pendulum", **TINY})
    assert folders.place(plan, None, tmp_path, True) != stranger


def test_nothing_that_a_job_names_is_imported_to_list_it(stranger):
    (stranger / "jobs" / "000-x.toml").write_text(f'algo = "{IMPORTED}:Mine"\nenv = "jax:pendulum"')
    with pytest.raises(ThespisError, match="000-x.toml has algo = .*, unlike the sweep"):
        folders.written_jobs(stranger, folders.plan_of(stranger, False))


@pytest.mark.posix
def test_links_in_a_sweep_are_not_followed(stranger, tmp_path):
    target = tmp_path / "mine"
    target.mkdir()
    for name in ("000.log", "000.toml", "000"):
        (stranger / "jobs" / name).symlink_to(target / name)
    with pytest.raises(ThespisError, match="000 is a symbolic link"):
        folders.run_of(stranger, "000")
    with pytest.raises(ThespisError, match="000.log is a symbolic link"):
        job.start(stranger, "000")
    with pytest.raises(ThespisError, match="000.toml is a symbolic link"):
        folders.job_of(stranger, "000")
    shutil.rmtree(stranger / "jobs")
    (stranger / "jobs").symlink_to(target)
    with pytest.raises(ThespisError, match="jobs is a symbolic link"):
        folders.note_failure(stranger, "000", "no")
    (stranger / folders.FILE).rename(target / folders.FILE)
    (stranger / folders.FILE).symlink_to(target / folders.FILE)
    assert not folders.is_sweep(stranger)
    assert [x.name for x in target.iterdir()] == [folders.FILE]
