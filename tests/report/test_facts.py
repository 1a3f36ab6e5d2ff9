import json

import numpy as np
import pytest

from tests.report.pages import data, run
from thespis.report.report import report
from thespis.runs import lineage


def test_a_page_tells_the_configuration_the_command_and_why_a_run_failed(tmp_path):
    given = {"seeds": (0, 1), "schedule": [[500, {"tau": 0.1}]], "tags": []}
    folder = run(tmp_path / "run", state="failed", identity="secret", **given)
    (facts,) = data(report([folder]))["runs"]
    assert facts["error"] == "it fell"
    assert "identity" not in facts["config"]["Run"]  # which stays with this user
    assert facts["commands"] == ["thespis train sac --env jax:pendulum"]
    assert facts["config"]["Run"]["seeds"] == "0 1"
    assert facts["config"]["Run"]["preset"] == "–"
    assert facts["config"]["Run"]["tags"] == "–"
    assert facts["config"]["Algorithm"]["hidden"] == "64 64"
    assert facts["config"]["Hyper-parameters"] == {"gamma": "0.99", "tau": "0.005"}
    assert facts["config"]["Schedule"] == {"from step 500": "tau 0.1"}
    assert (facts["elapsed"], facts["compiled"]) == (13.0, 2.5)
    assert facts["programs"] == {"epoch": 2.2, "init": 0.3}
    assert facts["fps"] == pytest.approx(6000 / 10.5)


def test_a_page_tells_why_a_callback_ended_a_run(tmp_path):
    folder = run(tmp_path / "run")
    (facts,) = data(report([folder]))["runs"]
    assert facts["reason"] is None
    told = json.loads((folder / "status.json").read_text()) | {"reason": "EarlyStop: good enough"}
    (folder / "status.json").write_text(json.dumps(told))
    (facts,) = data(report([folder]))["runs"]
    assert (facts["state"], facts["reason"]) == ("done", "EarlyStop: good enough")


def test_a_page_tells_what_the_user_said_of_a_run_and_how_it_went_on(tmp_path):
    said = {"name": "first try", "tags": ["paper", 3], "notes": "warm"}
    kernel = "/usr/lib/ipykernel_launcher.py -f kernel.json"  # of a notebook: nobody typed it
    folder = run(tmp_path / "run", **said, resumes=["thespis resume x", kernel])
    (facts,) = data(report([folder]))["runs"]
    assert (facts["name"], facts["tags"], facts["notes"]) == ("first try", ["paper", "3"], "warm")
    assert facts["commands"] == ["thespis train sac --env jax:pendulum", "thespis resume x"]
    (facts,) = data(report([run(tmp_path / "pendulum-3e-4_1", name="{env}-{critic_lr}")]))["runs"]
    assert facts["name"] == "pendulum-3e-4_1"


def test_one_seed_has_no_interval_and_neither_has_a_population(tmp_path):
    folders = [run(tmp_path / "a"), run(tmp_path / "b", range(4), tuner="pbt")]
    for facts in data(report(folders, tmp_path / "page.html"))["runs"]:
        assert facts["interval"] is None
    (facts,) = data(report([run(tmp_path / "c", (0, 1))]))["runs"]
    assert facts["interval"][0] < facts["interval"][1]


def test_a_page_tells_what_died_and_lineage_leaves_it_out(tmp_path):
    folder = run(tmp_path / "run", range(4))
    assert data(report([folder]))["runs"][0]["processes"] is None
    log, four = lineage.LineageLog(folder, (), events=True), np.arange(4)
    log.append(500, range(2), four, None, four, {}, {}, event=1)  # a process with two members
    log.append(500, range(2), four, None, four, {}, {}, event=2)
    log.append(500, range(2), four, None, four, {}, {}, event=1)
    log.append(500, range(4), four, np.ones(4), four, {}, {})
    log.append(900, range(2, 4), four, None, four, {}, {}, event=3)
    (facts,) = data(report([folder]))["runs"]
    assert facts["processes"] == "processes: 2 died, 1 started again, 1 moved"
    assert lineage.read(folder)["member"].tolist() == [0, 1, 2, 3]
