"""What the folder of a sweep holds is found again, and tells the state of every job."""

import pytest

from thespis.errors import ThespisError
from thespis.sweeps import folder as folders
from thespis.sweeps import plan as plans

ASKED = {"algo": "sac", "env": "jax:pendulum", "seeds": "0-1", "set": ["gamma=0.9,0.99"]}


@pytest.fixture
def plan():
    return plans.make(ASKED)


def test_the_same_question_finds_its_folder_and_another_gets_a_new_one(plan, tmp_path):
    first = folders.place(plan, None, tmp_path, new=True)
    assert folders.place(plan, None, tmp_path, new=False) == first
    other = plans.make(ASKED | {"seeds": "0-2"})
    assert folders.place(other, None, tmp_path, new=True) != first
    assert folders.plan_of(first) == plan


def test_a_sweep_that_must_be_there_and_is_not_is_refused(plan, tmp_path):
    with pytest.raises(ThespisError, match="there is no sweep in"):
        folders.place(plan, None, tmp_path, new=False)
    with pytest.raises(ThespisError, match="is no job of a sweep any more"):
        folders.of_job(tmp_path / "jobs" / "000")


def test_jobs_are_read_as_they_were_written_and_wait_until_they_fail(plan, tmp_path):
    folder = folders.place(plan, None, tmp_path, new=True)
    job = plan.job(0, "sac", "jax:pendulum", {"gamma": 0.9})
    folders.write_job(folder, job)
    assert folders.written_jobs(folder, plan) == [job]
    assert folders.status_of(folder, job.name) == {"state": "waiting", "step": 0}
    folders.note_failure(folder, job.name, "out of\nmemory\x1b[31m")
    status = folders.status_of(folder, job.name)
    assert (status["state"], status["error"].split()[:2]) == ("failed", ["out", "of"])
    assert "\x1b" not in status["error"]
