"""The folder of a sweep: which one is meant, and in what states its jobs are."""

import json

import pytest

from tests.report import pages
from tests.sweeps.inline import TINY
from thespis.errors import ThespisError
from thespis.sweeps import folder as folders
from thespis.sweeps import plan as plans


def test_the_same_question_has_the_same_folder(tmp_path):
    asked = {"algo": "sac", "env": "jax:pendulum", **TINY}
    plan, other = plans.make(asked), plans.make(asked | {"seeds": "1-2"})
    with pytest.raises(ThespisError, match="there is no sweep in"):
        folders.place(plan, None, tmp_path, False)
    first = folders.place(plan, None, tmp_path, True)
    folders.write(first, plan, {"executor": "ray", "jobs": 3, "slurm": {"timeout_min": 5}})
    assert folders.plan_of(first) == plan
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
