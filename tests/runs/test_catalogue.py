import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.report.pages import run
from thespis.errors import ThespisError
from thespis.runs import locks
from thespis.runs.catalogue import ago, catalogue
from thespis.runs.directory import status_of
from thespis.runs.process import alone

HOLD = """
import sys, time
from pathlib import Path
from thespis.runs.process import alone
with alone(Path(sys.argv[1])):
    print("there", flush=True)
    time.sleep(600)
"""


def test_runs_are_listed_newest_first_with_what_they_reached(tmp_path):
    for age, name in enumerate(["new", "old"]):
        folder = run(
            tmp_path / "sac" / name, seeds=(0, 1), values=[[1, 2], [5, 3], [4, 1]], evaluations=3
        )
        for file in folder.iterdir():
            os.utime(file, (1e9 - age, 1e9 - age))
    (tmp_path / "sac" / "old" / "checkpoints").mkdir()
    (tmp_path / "elsewhere").mkdir()
    found = catalogue(tmp_path)
    assert [run["run"] for run in found] == [str(tmp_path / "sac" / n) for n in ("new", "old")]
    assert {
        k: found[0][k] for k in ("state", "algo", "env", "members", "step", "steps", "last", "best")
    } == {
        "state": "done",
        "algo": "sac",
        "env": "jax:pendulum",
        "members": 2,
        "step": 3000,
        "steps": 3000,
        "last": 2.5,
        "best": 5.0,
    }


def test_a_population_is_as_good_as_its_best_member(tmp_path):
    run(tmp_path / "run", seeds=(0, 1), values=[[1, 2], [5, 3]], evaluations=2, tuner="pbt")
    assert catalogue(tmp_path)[0]["last"] == 5.0


def test_a_run_without_evaluations_is_listed(tmp_path):
    folder = run(tmp_path / "run", evaluations=0)
    (folder / "metrics.csv").unlink()
    (found,) = catalogue(tmp_path)
    assert (found["last"], found["best"], found["step"]) == (None, None, 0)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", '{"algo": "s'),
        ("config.json", "{}"),
        ("config.json", None),
        ("config.json", '{"algo": "sac", "env": "x", "seeds": 3}'),
        ("status.json", ""),
        ("status.json", '{"state": "done"}'),
        ("status.json", "[]"),
        ("status.json", f'{{"state": "done", "step": {10**400}}}'),
        ("metrics.csv", "step,member,eval/mean_reward\n0,0,x\n"),
        ("metrics.csv", "step,member,eval/mean_reward\n\u00b2,0,1\n"),
        ("metrics.csv", "step,member,eval/mean_reward\n0,8,1\n"),
    ],
)
def test_a_damaged_run_is_listed_as_such(tmp_path, file, text):
    folder = run(tmp_path / "run")
    (folder / file).unlink()
    if text is not None:
        (folder / file).write_text(text)
    whole = run(tmp_path / "whole")
    found = {entry["run"]: entry for entry in catalogue(tmp_path)}
    assert found[str(folder)]["state"] == "damaged"
    assert found[str(whole)]["state"] == "done"
    assert found[str(folder)].keys() == found[str(whole)].keys()


def test_a_run_without_a_column_of_returns_is_listed(tmp_path):
    (run(tmp_path / "run") / "metrics.csv").write_text("step,member,train/loss\n5,0,1\n")
    (found,) = catalogue(tmp_path)
    assert (found["state"], found["last"], found["best"]) == ("done", None, None)


@pytest.mark.posix
@pytest.mark.parametrize("file", ["config.json", "status.json", "metrics.csv"])
def test_nobody_waits_for_a_pipe(tmp_path, file):
    folder = run(tmp_path / "run")
    (folder / file).unlink()
    os.mkfifo(folder / file)
    assert [entry["state"] for entry in catalogue(tmp_path)] == ["damaged"]


def test_other_json_files_are_not_runs(tmp_path):
    for name, text in {"a": "{}", "b": "[1]", "c": "no json"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    assert catalogue(tmp_path) == []
    with pytest.raises(ThespisError, match="--out"):
        catalogue(tmp_path / "nowhere")


@pytest.mark.posix
def test_who_is_killed_is_stopped_and_not_running(tmp_path):
    folder = run(tmp_path / "run", state="running")
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "there\n"
        assert status_of(folder)["state"] == "running"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert status_of(folder)["state"] == "stopped"
    assert json.loads((folder / "status.json").read_text())["state"] == "running"


def test_a_run_that_was_started_and_has_said_nothing_yet_is_running(tmp_path):
    folder = run(tmp_path / "run", state=None)
    with alone(folder):
        assert status_of(folder) == {"state": "running", "step": 0}
    assert status_of(folder)["state"] == "stopped"


@pytest.mark.posix
def test_looking_hinders_nobody_from_starting(tmp_path):
    """Whoever looks holds the folder for a moment."""
    folder = run(tmp_path / "run", state="running")
    look = os.open(folder, os.O_RDONLY)
    locks.take(look, shared=True)
    threading.Timer(0.02, os.close, [look]).start()
    with alone(folder):
        assert status_of(folder)["state"] == "running"


def test_ages_are_told_in_words():
    assert [ago(x) for x in (0, 59, 60, 7300, 86400, 200_000)] == [
        "0 s",
        "59 s",
        "1 min",
        "2 h",
        "1 day",
        "2 days",
    ]
