import base64
import json
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from PIL import Image

from tests.report.pages import HYPERS, run
from thespis.errors import ThespisError
from thespis.report import report as pages
from thespis.report import statistics
from thespis.report.report import report, thin, watch
from thespis.runs.process import alone


def data(file):
    """What a page was told."""
    text = file.read_text()
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    told = json.loads(found)
    told["array"] = lambda i: np.frombuffer(
        base64.b64decode(told["numbers"][i][1:]), f"<f{told['numbers'][i][0]}"
    )
    return told


def test_a_page_shows_the_iqm_of_the_seeds_and_its_interval(tmp_path):
    file = report([run(tmp_path / "run", seeds=range(5))])
    assert file == tmp_path / "run" / "report.html"
    told = data(file)
    (chart,) = told["returns"]
    *faint, bold = chart["series"]
    assert [line["name"] for line in faint] == [f"seed {i}" for i in range(5)]
    values = np.stack([told["array"](line["by"]["steps"]["y"]) for line in faint])
    got = {name: told["array"](i) for name, i in bold["by"]["steps"].items()}
    np.testing.assert_array_equal(got["x"], 1000 * np.arange(1, 7))
    np.testing.assert_allclose(got["y"], statistics.iqm(values), rtol=1e-6)
    assert (got["low"] <= got["y"]).all()
    assert (got["y"] <= got["high"]).all()
    assert (got["low"] < got["high"]).any()
    time_axis = told["array"](bold["by"]["time"]["x"])
    np.testing.assert_array_equal(time_axis, 2.0 * np.arange(6) + 3)
    (facts,) = told["runs"]
    assert facts["last"] == pytest.approx(float(got["y"][-1]))
    assert facts["best"] == pytest.approx(values.max())
    assert [row["name"] for row in facts["members"]] == [f"seed {i}" for i in range(5)]


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


def test_a_population_has_its_members_schedules_and_family_tree(tmp_path):
    told = data(report([run(tmp_path / "run", seeds=range(4), tuner="pbt")]))
    people = told["population"]
    assert [chart["title"] for chart in people["schedules"]] == list(HYPERS)
    assert people["schedules"][3]["scale"] == "gamma"
    assert people["members"]["series"][-1]["name"] == "winning line"
    tree = people["tree"]["tree"]
    assert tree["members"] == 4
    assert len(tree["copies"]) == 5
    assert len(told["array"](tree["scores"])) == 4 * (len(tree["edges"]) - 1)
    assert told["returns"] == []


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


def test_a_page_tells_the_configuration_the_command_and_why_a_run_failed(tmp_path):
    folder = run(tmp_path / "run", state="failed", seeds=(0, 1), schedule=[[500, {"tau": 0.1}]])
    (facts,) = data(report([folder]))["runs"]
    assert facts["error"] == "it fell"
    assert facts["command"] == "thespis train sac --env jax:pendulum"
    assert facts["config"]["Run"]["seeds"] == "0 1"
    assert facts["config"]["Run"]["preset"] == "–"
    assert facts["config"]["Algorithm"]["hidden"] == "64 64"
    assert facts["config"]["Hyper-parameters"] == {"gamma": "0.99", "tau": "0.005"}
    assert facts["config"]["Schedule"] == {"from step 500": "tau 0.1"}
    assert (facts["elapsed"], facts["compiled"]) == (13.0, 2.5)
    assert facts["programs"] == {"epoch": 2.2, "init": 0.3}
    assert facts["fps"] == pytest.approx(6000 / 10.5)


def test_metrics_that_change_have_a_chart_and_constants_none(tmp_path):
    told = data(report([run(tmp_path / "run", seeds=(0, 1))]))
    sections = {chart["id"]: chart["section"] for chart in told["panels"]}
    assert sections["train/critic_loss"] == "Learning"
    assert sections["time/fps"] == "Speed"
    assert not any(name.startswith("hparams/") for name in sections)
    (speed,) = [chart for chart in told["panels"] if chart["id"] == "time/fps"]
    assert len(speed["series"]) == 1  # all members have the same


def test_videos_and_pictures_are_in_the_page_while_there_is_room(tmp_path):
    folder = run(tmp_path / "run")
    for name in ("videos/one.mp4", "videos/two.mp4"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(bytes(2**20))
    (folder / "plots").mkdir()
    for name in ("learning_curve", "skills_and more"):
        Image.new("RGB", (4, 4)).save(folder / "plots" / f"{name}.png")
    told = data(report([folder], tmp_path / "page.html", video_mb=1.5))
    one, two = told["videos"]
    assert one["source"].startswith("data:video/mp4;base64,AAAA")
    assert (two["inside"], two["source"]) == (False, "run/videos/two.mp4")
    (picture,) = told["pictures"]  # the page draws the learning curve itself
    assert picture["name"] == "skills and more"
    assert picture["source"].startswith("data:image/png;base64,")
    assert (tmp_path / "page.html").stat().st_size < 1.5 * 2**20


def test_pictures_and_videos_that_lead_elsewhere_are_left_out(tmp_path):
    folder = run(tmp_path / "run")
    (tmp_path / "secrets").mkdir()
    secret = tmp_path / "secrets" / "secret.png"
    secret.write_bytes(b"a secret")
    (folder / "plots").mkdir()
    (folder / "plots" / "x.png").symlink_to(secret)
    (folder / "plots" / "zero.png").symlink_to("/dev/zero")
    (folder / "plots" / "folder.png").mkdir()
    os.mkfifo(folder / "plots" / "pipe.png")
    (folder / "plots" / "theirs").symlink_to(tmp_path / "secrets")
    (folder / "videos").symlink_to(tmp_path / "secrets")
    (tmp_path / "secrets" / "video.mp4").write_bytes(b"a secret")
    Image.new("RGB", (4, 4)).save(folder / "plots" / "fine.png")
    told = data(report([folder]))
    assert [picture["name"] for picture in told["pictures"]] == ["fine"]
    assert told["videos"] == []


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
    assert not re.search(
        r"https?://|@import|\bfetch\(|XMLHttpRequest|<link[^>]+stylesheet", outside
    )


def test_sixteen_members_with_a_thousand_evaluations_weigh_less_than_10_mb(tmp_path):
    more = [f"metric_{i}" for i in range(20)]
    folder = run(tmp_path / "run", range(16), 500, tuner="pbt", more=more)  # two lines each
    file = report([folder])
    assert file.stat().st_size < 10 * 2**20
    told = data(file)
    chart = next(chart for chart in told["panels"] if chart["id"] == "train/metric_3")
    assert len(told["array"](chart["series"][0]["by"]["steps"]["x"])) == 1000  # none is left out


def test_long_lines_keep_their_ends():
    for n, most in ((5, 10), (10, 5), (1, 10), (100_000, 1000)):
        some = thin(n, most)
        assert len(some) == min(n, most)
        assert (some[0], some[-1]) == (0, n - 1)


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
    assert {p.name for p in pages.PAGE.iterdir()} >= {"report.html", "report.css", "report.js"}
