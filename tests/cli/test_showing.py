"""Commands that show runs: plot, report, runs, list."""

import json
import shutil
from pathlib import Path

import pytest

import thespis
from thespis.cli.command import main

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
    lines = say("runs", "--out", pair.path.parents[2])
    assert any(str(pair.path) in line and " done " in line for line in lines)
    assert say("runs", "--out", trained.path.parent, "--state", "failed") == ["no runs"]


def test_damaged_runs_are_listed(tmp_path, say):
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "status.json").write_text("{}")
    lines = say("runs", "--out", tmp_path, "--state", "damaged")
    assert any(str(tmp_path) in line and " damaged " in line for line in lines)


def test_list(say):
    told = json.loads(say("list", "--json")[0])
    assert told["algorithms"] == list(thespis.ALGORITHMS)
    assert "qdax" in told["presets"]["sac"]
    assert "jax:pendulum" in told["environments"]["jax"]
    text = "\n".join(say("list"))
    assert "jax:pendulum" in text
    assert "--preset sparse          small tasks with a goal that is seldom reached" in text
    assert "--preset sparse          small" in "\n".join(say("train", "taac", "--help-all"))
