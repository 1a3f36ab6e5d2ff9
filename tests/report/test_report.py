import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.report.pages import data, run
from thespis.errors import ThespisError
from thespis.report import report as pages
from thespis.report.report import report, watch
from thespis.runs.process import alone


def test_runs_are_compared_by_algorithm_and_environment(tmp_path):
    folders = [
        run(tmp_path / "a", seeds=(0, 1)),
        run(tmp_path / "b", seeds=(2,)),
        run(tmp_path / "c", algo="td3"),
        run(tmp_path / "d", algo="td3", env="jax:mountain-car"),
    ]
    told = data(report(folders, tmp_path / "all.html"))
    assert told["title"] == "SAC and TD3 on jax:pendulum and jax:mountain-car"
    assert [chart["title"] for chart in told["returns"]] == ["jax:pendulum", "jax:mountain-car"]
    bold = [line for line in told["returns"][0]["series"] if "bold" in line]
    assert [(line["name"], line["members"]) for line in bold] == [("SAC", 3), ("TD3", 1)]
    assert [facts["colour"] for facts in told["runs"]] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    "given",
    [
        {"evaluations": 0, "state": None},
        {"evaluations": 1},
        {"evaluations": 0, "seeds": range(4), "tuner": "pbt"},
        {"evaluations": 3, "values": np.full((3, 1), np.nan)},
        {"evaluations": 3, "seeds": (0, 1), "values": [[1, np.nan]] * 3},
        {"evaluations": 3, "values": [[np.inf], [1.0], [-np.inf]]},
        {"evaluations": 3, "state": "failed"},
        {"evaluations": 3, "state": "running"},
    ],
    ids=lambda given: " ".join(map(str, given)),
)
def test_whatever_there_is_yet_gives_a_page(tmp_path, given):
    folder = run(tmp_path / "run", **given)
    if given["evaluations"] == 0:
        (folder / "metrics.csv").unlink()
    assert data(report([folder]))["title"].endswith("on jax:pendulum")


@pytest.mark.posix
def test_a_page_that_is_a_link_is_not_written_through(tmp_path):
    folder = run(tmp_path / "run")
    (tmp_path / "mine").write_text("mine")
    for name in ("report.html", ".report.html.tmp"):
        (folder / name).symlink_to(tmp_path / "mine")
    with pytest.raises(ThespisError, match=r"report\.html is a symbolic link"):
        report([folder])
    (folder / "report.html").unlink()
    report([folder])
    assert (tmp_path / "mine").read_text() == "mine"


def test_four_pages_of_one_run_at_once(tmp_path):
    folder, faults = run(tmp_path / "run"), []

    def several():
        try:
            for _ in range(5):
                report([folder])
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=several) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert data(folder / "report.html")["title"] == "SAC on jax:pendulum"
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("metrics.csv", "time,member,eval/mean_reward\n1,0,2\n", "columns step and member"),
        ("metrics.csv", "", "has no header"),
        ("config.json", "[]", "is not the config of a run"),
        ("config.json", '{"algo": 1}', "is not the config of a run: check 'algo'"),
        ("config.json", "[" * 100_000, "is not valid JSON"),
    ],
)
def test_what_a_page_cannot_do_without_is_named(tmp_path, file, content, message):
    folder = run(tmp_path / "run")
    (folder / file).write_text(content)
    with pytest.raises(ThespisError, match=message) as caught:
        report([folder])
    assert str(folder / file) in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("status.json", "[]"),
        ("status.json", '{"state": []}'),
        ("compiled.json", "[]"),
        ("compiled.json", '{"epoch": "long"}'),
        ("metrics.csv", "step,member,eval/mean_reward\n\u00b2,0,2\n5,0,=3\n6,8,4\n"),
        ("lineage.csv", "step,member,parent,score,age\n5,0,7,1,1\n"),
        ("lineage.csv", "step,member\n5,0\n"),
    ],
)
def test_a_page_does_without_what_is_damaged(tmp_path, file, content):
    folder = run(tmp_path / "run", seeds=range(3), tuner="pbt")
    (folder / file).write_text(content)
    assert data(report([folder]))["title"] == "SAC pbt on jax:pendulum"


def test_nothing_in_a_run_is_taken_for_code_and_nothing_comes_from_elsewhere(tmp_path):
    evil = "</script><script>alert(1)</script><!--"
    folder = run(tmp_path / "run", env=evil, more=(evil.replace(",", ""),))
    text = report([folder]).read_text()
    assert evil not in text
    assert data(report([folder]))["title"] == f"SAC on {evil}"
    outside = re.sub(r"http://www\.w3\.org/\d+/svg", "", text)
    assert not re.search(r"https?://|@import|XMLHttpRequest|<link[^>]+stylesheet", outside)
    assert re.findall(r"\bfetch\(([^,]*)", text) == ["location.href"]  # whether it is new
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy[1].split(";")[1]


def test_sixteen_members_with_a_thousand_evaluations_weigh_less_than_10_mb(tmp_path):
    more = [f"metric_{i}" for i in range(20)]
    folder = run(tmp_path / "run", range(16), 500, tuner="pbt", more=more)  # two lines each
    file = report([folder])
    assert file.stat().st_size < 10 * 2**20
    told = data(file)
    chart = next(chart for chart in told["panels"] if chart["id"] == "train/metric_3")
    assert len(told["array"](chart["series"][0]["by"]["steps"]["x"])) == 1000  # none is left out


def test_a_watched_page_is_live_until_the_run_ends(tmp_path):
    folder = run(tmp_path / "run", state="running")
    with alone(folder):
        pages_seen = watch([folder], every=0.01)
        assert data(next(pages_seen))["live"] == 0.01
        (folder / "plots").mkdir()
        assert data(next(pages_seen))["live"] == 0.01  # something is new
    last = list(pages_seen)[-1]
    told = data(last)
    assert told["live"] is None
    assert told["runs"][0]["state"] == "stopped"  # nobody runs it any more


def test_who_stops_watching_leaves_a_page_that_does_not_wait(tmp_path):
    folder = run(tmp_path / "run", state="running")
    with alone(folder):
        pages_seen = watch([folder], every=0.01)
        file = next(pages_seen)
        pages_seen.close()
        assert data(file)["live"] is None


def test_a_page_is_replaced_as_a_whole(tmp_path, monkeypatch):
    folder = run(tmp_path / "run")
    before = report([folder]).read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(ThespisError, match="free some space"):
        report([folder])
    assert (folder / "report.html").read_bytes() == before
    assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == []


def test_a_folder_stands_for_all_runs_in_it(tmp_path):
    run(tmp_path / "runs" / "sac" / "x_1")
    run(tmp_path / "runs" / "td3" / "deep" / "er" / "x_1", algo="td3")
    file = report([tmp_path / "runs"])
    assert file == tmp_path / "runs" / "report.html"
    told = data(file)
    assert told["title"] == "2 runs in runs/"
    assert [facts["title"] for facts in told["runs"]] == [
        f"{x} on jax:pendulum" for x in ("sac", "td3")
    ]
    both = [tmp_path / "runs" / "sac", tmp_path / "runs" / "sac" / "x_1"]
    assert len(data(report(both, tmp_path / "page.html"))["runs"]) == 1


@pytest.mark.posix
def test_a_damaged_run_in_a_folder_is_named_and_left_out(tmp_path):
    run(tmp_path / "fine")
    for name in ("config.json", "metrics.csv"):
        (run(tmp_path / f"no {name}") / name).write_text("[]")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "config.json").symlink_to(tmp_path / "fine" / "config.json")
    told = data(report([tmp_path]))
    assert [facts["path"] for facts in told["runs"]] == [str(tmp_path / "fine")]
    assert len(told["faults"]) == 3
    assert sum("symbolic link" in fault for fault in told["faults"]) == 1
    with pytest.raises(ThespisError, match="is not the config of a run"):
        report([tmp_path / "no config.json"])


def test_a_watched_folder_notices_new_runs_and_ends(tmp_path):
    run(tmp_path / "runs" / "x_1")
    pages_seen = watch([tmp_path / "runs"], every=0.01)
    assert len(data(next(pages_seen))["runs"]) == 1
    run(tmp_path / "runs" / "x_2", algo="td3")
    file = next(pages_seen)
    told = data(file)
    assert (len(told["runs"]), told["live"]) == (2, 0.01)
    pages_seen.close()
    assert data(file)["live"] is None


def test_what_cannot_be_is_said_in_one_line(tmp_path):
    with pytest.raises(ThespisError, match="a report is .html"):
        report([run(tmp_path / "run")], tmp_path / "page.pdf")
    with pytest.raises(ThespisError, match="no run at"):
        report([tmp_path / "nothing"])
    with pytest.raises(ThespisError, match="no runs to report"):
        report([])


def test_reports_and_lists_of_runs_need_no_jax(tmp_path):
    folder = run(tmp_path / "runs" / "sac" / "x_1")
    script = (
        "import sys; from thespis.cli.command import main;"
        f"assert main(['report', {str(folder)!r}]) == 0;"
        f"assert main(['runs', '--out', {str(tmp_path)!r}]) == 0;"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_the_page_is_part_of_the_package():
    needed = {"report.html", "report.css", "notebook.css", "theme.js"}
    needed |= {f"{name}.js" for name in pages.SCRIPTS}
    assert {p.name for p in pages.PAGE.iterdir()} == needed
