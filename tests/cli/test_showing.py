"""Commands that show runs: plot, report, runs, list."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import thespis
from tests.report.pages import run
from thespis.cli.command import COMMANDS, main
from thespis.errors import ThespisError
from thespis.runs.process import alone

pytestmark = pytest.mark.usefixtures("kept")

undrawn = pytest.mark.usefixtures("undrawn")


def test_plot(trained, pair, say):
    (line,) = say("plot", trained.path, pair.path, "-o", "curves.svg", "--json")
    assert json.loads(line) == {"plot": "curves.svg"}
    assert b"<svg" in Path("curves.svg").read_bytes()
    assert say("plot", pair.path, "--statistic", "mean") == ["plot  curves.png"]


@pytest.mark.parametrize("kind", ["efficiency", "scores", "profile"])
def test_plot_compares_over_environments(kind, trained, pair, say):
    both = trained.path, pair.path  # which repeat a seed, so that each is a curve
    (line,) = say("plot", *both, "--kind", kind, "--json")
    assert json.loads(line) == {"plot": f"{kind}.png"}
    assert Path(f"{kind}.png").stat().st_size > 5000


@pytest.mark.slow
def test_plot_draws_a_population_into_its_folder(population, say):
    told = json.loads(say("plot", population.path, "--kind", "population", "--json")[0])
    assert all(Path(p).parent == population.path / "plots" for p in told["plots"])


@undrawn
def test_plot_draws_how_a_population_went(population, say):
    told = json.loads(say("plot", population.path, "--json")[0])
    assert told["plot"] == "curves.png"
    assert {Path(p).name for p in told["population"]} >= {"members.png", "family_tree.png"}
    assert len(say("plot", population.path)) == 1 + len(told["population"])


def test_report(trained, pair, say):
    assert (trained.path / "report.html").exists()  # training leaves one
    (line,) = say("report", trained.path, "-o", "one.html", "--json")
    assert json.loads(line) == {"report": "one.html"}
    assert "<title>SAC on jax:pendulum</title>" in Path("one.html").read_text()
    assert say("report", trained.path, pair.path, "--watch") == ["report  report.html"]
    assert Path("report.html").exists()
    assert pair.report("pair.html") == Path("pair.html")


def test_report_of_a_folder_is_that_of_its_runs(trained, say, complain):
    folder = trained.path.parent
    (line,) = say("report", folder, "-o", "all.html", "--json")
    assert json.loads(line) == {"report": "all.html"}
    assert "<title>1 run in " in Path("all.html").read_text()
    assert "leave out -o" in complain("report", folder, "--serve", "-o", "all.html")
    assert "try --port 0" in complain("report", folder, "--serve", "--port", "70000")


def test_report_takes_the_old_name_of_video_mb_with_a_note(trained, tmp_path, capsys):
    copy = shutil.copytree(trained.path, tmp_path / "run")
    (copy / "videos").mkdir()
    (copy / "videos" / "one.mp4").write_bytes(b"\0" * 2**20)
    pages = []
    for i, option in enumerate([["--video-mb", "0.5"], ["--films", "0.5"], ["--films=0.5"], []]):
        assert main(["report", str(copy), "-o", f"{i}.html", *option]) == 0
        note = "note: --films is now called --video-mb\n" if "--films" in str(option) else ""
        assert capsys.readouterr().err == note
        pages.append(Path(f"{i}.html").stat().st_size)
    assert max(pages[:3]) < 2**20 < pages[3]


def test_runs(trained, pair, say):
    (line,) = say("runs", "--out", trained.path.parent, "--json")
    (told,) = json.loads(line)["runs"]
    assert (told["run"], told["state"], told["step"]) == (str(trained.path), "done", 400)
    out = pair.path.parents[2]
    lines = say("runs", "--out", out)
    assert any(
        str(pair.path.parent.relative_to(out)) in line and " done " in line for line in lines
    )
    assert say("runs", "--out", trained.path.parent, "--state", "failed") == ["no runs"]


@pytest.fixture
def several(tmp_path):
    """Three runs: best, a long one, and one with a tag."""
    runs = tmp_path / "runs"
    run(runs / "sac" / "jax-pendulum_1", values=[[5.0]], evaluations=1)
    run(runs / "td3" / "jax-pendulum_1", values=[[3.0]] * 12, evaluations=12, algo="td3")
    run(runs / "sac" / "lr-0.001_1", values=[[4.0]], evaluations=1, tags=["mine"], env="Ant-v5")
    return runs


def listed(say, *argv) -> list[str]:
    told = json.loads(say("runs", *argv, "--json")[0])["runs"]
    return ["/".join(Path(run["run"]).parts[-2:]) for run in told]


def test_runs_fit_a_terminal_of_80_columns(several, say, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = say("runs")
    assert max(map(len, lines)) <= 80
    assert any(
        "runs/sac/lr-0.001_1" in line and "1k/1k" in line and "4.0" in line for line in lines
    )
    run(several / "sac" / f"{'long-' * 30}_1")
    lines = say("runs")
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("in runs") for line in lines)
    monkeypatch.setenv("COLUMNS", "300")
    assert any("12,000" in line and "td3" in line for line in say("runs"))


def test_runs_tell_why_a_callback_ended_one(several, say):
    folder = several / "sac" / "jax-pendulum_1"
    status = json.loads((folder / "status.json").read_text())
    text = "EarlyStop: good\nenough"  # a stranger may have written it
    (folder / "status.json").write_text(json.dumps(status | {"reason": text}))
    assert say("runs")[-1] == "runs/sac/jax-pendulum_1 was ended by EarlyStop: good enough"
    told = json.loads(say("runs", "--json", "--filter", "algo=sac", "pendulum")[0])["runs"]
    assert [run["reason"] for run in told] == ["EarlyStop: good enough"]
    assert "ended by" not in " ".join(say("runs", "--filter", "td3"))


def test_runs_are_sorted_and_filtered(several, say):
    a, b, c = "sac/jax-pendulum_1", "td3/jax-pendulum_1", "sac/lr-0.001_1"
    assert listed(say, "--sort", "best") == [a, c, b]
    assert listed(say, "--sort", "step")[0] == b
    assert listed(say, "--sort", "run") == [a, c, b]
    assert listed(say, "--filter", "sac", "pendulum") == [a]
    assert listed(say, "--filter", "mine") == listed(say, "--filter", "env=Ant") == [c]
    assert say("runs", "--filter", "nothing") == ["no runs"]
    assert "unknown field algos; did you mean algo" in refused(several, "--filter", "algos=x")


def refused(several, *argv) -> str:
    with pytest.raises(ThespisError) as caught:
        COMMANDS["runs"](["--out", str(several), *argv])
    assert len(list(several.glob("*/*/config.json"))) == 3
    return str(caught.value)


@pytest.mark.posix
def test_runs_are_deleted_if_they_are_runs_and_nobody_trains_them(several, say, monkeypatch):
    assert "choose the runs" in refused(several, "--delete", "--yes")
    assert "1 run(s) would be deleted; give --yes" in refused(
        several, "--delete", "--filter", "td3"
    )
    with alone(several / "td3" / "jax-pendulum_1"):
        told = refused(several, "--delete", "--yes", "--filter", "jax")
        assert "td3/jax-pendulum_1 is being trained: stop it first" in told
    (several / "other").mkdir()
    (several / "other" / "keep").write_text("mine")
    (several / "td3" / "jax-pendulum_1" / "link").symlink_to(several / "other")
    (several / "linked").symlink_to(several / "sac" / "lr-0.001_1")
    assert say("runs", "--delete", "--yes", "--filter", "td3") == [
        "deleted  runs/td3/jax-pendulum_1"
    ]
    assert (several / "other" / "keep").read_text() == "mine"
    assert sorted(listed(say)) == ["sac/jax-pendulum_1", "sac/lr-0.001_1"]
    (several / "sac" / "jax-pendulum_1" / "config.json").write_text("{}")
    with pytest.raises(ThespisError, match="cannot be read as a run: check it"):
        COMMANDS["runs"](["--delete", "--yes", "--state", "damaged"])
    for answer, left in (("", 2), ("\n", 2), ("y\n", 1)):
        keyboard = SimpleNamespace(isatty=lambda: True, readline=lambda answer=answer: answer)
        monkeypatch.setattr("sys.stdin", keyboard)
        say("runs", "--delete", "--filter", "mine")
        assert len(list(several.glob("sac/*"))) == left


def test_damaged_runs_are_listed(tmp_path, say):
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "status.json").write_text("{}")
    lines = say("runs", "--out", tmp_path, "--state", "damaged")
    assert any(" damaged " in line for line in lines)


def test_list(say):
    told = json.loads(say("list", "--json")[0])
    assert told["algorithms"] == list(thespis.ALGORITHMS)
    assert "qdax" in told["presets"]["sac"]
    assert "jax:pendulum" in told["environments"]["jax"]
    text = "\n".join(say("list"))
    assert "jax:pendulum" in text
    assert "--preset sparse          small tasks with a goal that is seldom reached" in text
    assert "--preset sparse          small" in "\n".join(say("train", "taac", "--help-all"))
