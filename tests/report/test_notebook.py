"""Runs in a notebook: their cards, comparisons, and a training that is watched there."""

import json
import os
import re
import shutil
import sys
import types
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import thespis
from tests.small import arguments
from thespis.errors import ThespisError
from thespis.launch import reporter_for
from thespis.report import notebook
from thespis.report.notebook import Notebook
from thespis.report.plots import Curve
from thespis.report.progress import Terminal
from thespis.runs.config import make

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    given = arguments(seeds=(0, 7), updates_per_step=0)
    return thespis.train("sac", out=tmp_path_factory.mktemp("two"), **given)


class Tags(HTMLParser):
    """All tags of a page, and its text."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def named(self, name: str) -> list[dict]:
        return [attributes for tag, attributes in self.tags if tag == name]


def changed(run, folder, **changes) -> Path:
    """A copy of a run whose config.json says something else."""
    copy = shutil.copytree(run.path, folder / "copy", dirs_exist_ok=True)
    saved = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(saved | changes))
    return copy


def test_a_run_shows_its_state_returns_curve_and_command(pair, tmp_path):
    said = {"command": "thespis train sac --env jax:pendulum", "tags": ["a", "b"], "notes": "why"}
    run = thespis.load(changed(pair, tmp_path, **said))
    page = Tags(run._repr_html_())
    assert "a, bwhy" in page.text
    rewards = run.metrics["eval/mean_reward"]
    for text in ("sac on jax:pendulum", "done", str(run.path), "thespis train sac --env"):
        assert text in page.text
    assert f"{rewards[-2:].mean():,.1f}" in page.text
    assert f"{rewards.max():,.1f}" in page.text
    lines = [x["points"].split() for x in page.named("polyline")]
    assert [len(points) for points in lines] == [4, 4, 4]  # both seeds, and their mean
    heights = [float(point.split(",")[1]) for point in lines[1]]
    assert np.argsort(heights).tolist() == np.argsort(-rewards[1::2]).tolist()
    assert not page.named("video")
    assert not page.named("script")


def test_a_run_shows_its_video(pair, tmp_path):
    run = thespis.load(changed(pair, tmp_path))
    (run.path / "videos").mkdir()
    (run.path / "videos" / "a.gif").write_bytes(b"GIF89a")
    (image,) = Tags(run._repr_html_()).named("img")
    assert image["src"].startswith("data:image/gif;base64,")
    (run.path / "videos" / "a.gif").rename(run.path / "videos" / "a.mp4")
    (video,) = Tags(run._repr_html_()).named("video")
    assert video["src"].startswith("data:video/mp4;base64,")


def test_what_a_run_says_is_only_text(pair, tmp_path):
    bad = '<img src=x onerror="alert(1)">'
    given = {"env": bad, "command": bad, "tags": [bad], "resumes": [f"</code>{bad}"], "name": bad}
    run = thespis.load(changed(pair, tmp_path, **given))
    status = json.loads((run.path / "status.json").read_text())
    (run.path / "status.json").write_text(json.dumps(status | {"error": bad}))
    (run.path / "videos").mkdir()
    (run.path / "videos" / f'"{bad.replace("/", "")}.gif').write_bytes(b"GIF89a")
    for shown in (run, thespis.compare(run, pair)):
        page = Tags(shown._repr_html_())
        assert bad in page.text
        assert not any("onerror" in attributes for _, attributes in page.tags)
        assert all(x["src"].startswith("data:") for x in page.named("img"))


def test_a_damaged_run_says_so_instead_of_an_error(pair, tmp_path):
    run = thespis.load(changed(pair, tmp_path))
    (run.path / "config.json").write_text("{")
    assert "config.json" in Tags(run._repr_html_()).text
    (run.path / "config.json").unlink()
    (run.path / "config.json").write_bytes((pair.path / "config.json").read_bytes())
    (run.path / "metrics.csv").unlink()
    assert not Tags(run._repr_html_()).named("polyline")


def test_runs_are_compared_by_curves_and_a_table(pair, tmp_path):
    other = changed(pair, tmp_path, algo="td3")
    both = thespis.compare(pair, str(other))
    page = Tags(both._repr_html_())
    assert len(page.named("polyline")) == 6
    assert "SAC" in page.text
    assert "TD3" in page.text
    rewards = pair.metrics["eval/mean_reward"]
    assert both.rows[0] == {
        "run": str(pair.path),
        "what": "sac on jax:pendulum",
        "state": "done",
        "seeds": 2,
        "steps": 400,
        "last return": pytest.approx(rewards[-2:].mean()),
        "best": pytest.approx(rewards.max()),
    }
    assert "td3 on jax:pendulum" in str(both)
    assert [row["run"] for row in thespis.compare(tmp_path).rows] == [str(other)]
    with pytest.raises(ThespisError, match="no runs"):
        thespis.compare()


@pytest.mark.parametrize("values", [[1e308, -1e308], [1e300, 1e300], [0, 0], [1e-320, 2e-320]])
def test_numbers_that_no_axis_has_are_drawn_all_the_same(values):
    steps = np.array([1.0, 1e300])
    drawn = notebook.charts([Curve("SAC", [(steps, np.array(values, float))], "my-env")])
    assert not re.search(r"nan|inf", drawn)
    (line,) = Tags(drawn).named("polyline")
    assert all(0 <= float(x) <= 440 for point in line["points"].split() for x in point.split(","))


def test_a_long_curve_has_no_more_points_than_can_be_seen():
    steps = np.arange(1.0, 10_001)
    drawn = notebook.charts([Curve("SAC", [(steps, steps)], "my-env")])
    (line,) = Tags(drawn).named("polyline")
    assert len(line["points"].split()) == notebook.POINTS


# --- while it trains ------------------------------------------------------------------------


@pytest.fixture
def displays(monkeypatch):
    """Stands for IPython in a notebook: what each display showed, one after another."""
    shown = []

    def display(page, display_id):
        pages = [page]
        shown.append(pages)
        return types.SimpleNamespace(update=pages.append)

    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display, ipython.display.HTML = display, str
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def test_a_training_is_one_display_that_ends_as_the_card_of_the_run(displays, tmp_path, capsys):
    given = arguments(updates_per_step=0) | {"progress": True}
    run = thespis.train("sac", out=tmp_path, **given)
    (pages,) = displays
    assert "0 of 400 steps" in pages[0]
    assert "running" in Tags(pages[0]).text
    assert pages[-1] == run._repr_html_()
    assert capsys.readouterr() == ("", "")


def test_displays_are_drawn_seldom_but_at_once_for_a_note(displays, monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(notebook.time, "monotonic", lambda: now[0])
    watcher = Notebook()
    watcher.note("before there is anything to see")
    assert "before there is" in capsys.readouterr().err
    config = make("sac", {"env": "my<b>env", "steps": 10_000, "seeds": (0, 1)})
    watcher.begin(config, Path("runs/x"), 0)
    (pages,) = displays
    for step in range(1000):
        watcher.advance(step, 10_000, elapsed=step / 100, compiling=0.0)
    assert len(pages) == 2
    now[0] += 1
    rows = [{"eval/mean_reward": -100.0}, {"eval/mean_reward": -300.0}]
    watcher.row(1000, rows)
    watcher.note("mind the <gap>")
    last = Tags(pages[-1])
    assert len(pages) == 4
    assert "my<b>env" in last.text
    assert "note: mind the <gap>" in last.text
    assert "100 steps/s" in last.text
    assert len(last.named("circle")) == 2  # one evaluation of each seed
    assert re.search(r"width: \d+\.\d%", pages[-1])
    watcher.compiling()  # another program
    assert "compiling" in Tags(pages[-1]).text


def test_a_training_that_fails_is_not_shown_as_running(displays):
    config = make("sac", {"env": "jax:pendulum", "steps": 10_000})
    with pytest.raises(ZeroDivisionError), Notebook().watching(config, Path("runs/x")):
        raise ZeroDivisionError
    assert "failed" in Tags(displays[0][-1]).text


def test_elsewhere_it_is_the_terminal(displays):
    assert isinstance(reporter_for(True), Notebook)
    sys.modules["IPython"].get_ipython = lambda: types.SimpleNamespace(config={})  # IPython alone
    assert isinstance(reporter_for(True), Terminal)
    sys.modules["IPython"].get_ipython = lambda: None
    assert isinstance(reporter_for(True), Terminal)


@pytest.mark.slow  # starts a kernel, which compiles for itself
@pytest.mark.filterwarnings("default")
def test_the_quickstart_runs_in_a_kernel(tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    book = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    cells = {cell.id: cell for cell in book.cells}
    cells["settings"].source = cells["settings"].source.replace("8_000", "600")
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    page = lambda name: Tags(cells[name].outputs[-1]["data"]["text/html"])
    assert [output["output_type"] for output in cells["train"].outputs] == ["display_data"]
    assert "done" in page("train").text
    assert page("run").named("video")
    assert page("run").named("polyline")
    assert "td3 on jax:pendulum" in page("compare").text
    assert "±" in cells["evaluate"].outputs[0]["text"]
