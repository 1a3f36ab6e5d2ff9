import numpy as np
import pytest

from tests.report.pages import HYPERS, data, histograms, run
from thespis.report import statistics
from thespis.report.charts import COLUMNS, thin
from thespis.report.report import report


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


def test_metrics_that_change_have_a_chart_and_constants_none(tmp_path):
    told = data(report([run(tmp_path / "run", seeds=(0, 1))]))
    sections = {chart["id"]: chart["section"] for chart in told["panels"]}
    assert sections["train/critic_loss"] == "Learning"
    assert sections["time/fps"] == "Speed"
    assert not any(name.startswith("hparams/") for name in sections)
    (speed,) = [chart for chart in told["panels"] if chart["id"] == "time/fps"]
    assert len(speed["series"]) == 1  # all members have the same


def test_long_lines_keep_their_ends():
    for n, most in ((5, 10), (10, 5), (1, 10), (100_000, 1000)):
        some = thin(n, most)
        assert len(some) == min(n, most)
        assert (some[0], some[-1]) == (0, n - 1)


def test_one_seed_has_no_band_and_neither_has_a_population(tmp_path):
    """Members of a population copy each other: their spread says nothing of another population."""
    folders = [run(tmp_path / "a"), run(tmp_path / "b", range(4), algo="td3", tuner="pbt")]
    (chart,) = data(report(folders, tmp_path / "page.html"))["returns"]
    assert not any("low" in by for line in chart["series"] for by in line["by"].values())
    assert chart["note"] == ""
    bold = [line for line in chart["series"] if "bold" in line]
    assert [(line["members"], line["tuned"]) for line in bold] == [(1, False), (4, True)]


@pytest.fixture
def three(tmp_path):
    """Three runs, of which the first two are one group of three seeds."""
    given = {"a": {"seeds": (0, 1)}, "b": {"seeds": (2,)}, "c": {"algo": "td3"}}
    return [run(tmp_path / name, **more) for name, more in given.items()]


def test_lines_know_their_runs_so_that_each_can_be_hidden(tmp_path, three):
    (chart,) = data(report(three, tmp_path / "page.html"))["returns"]
    assert [line["runs"] for line in chart["series"]] == [[0], [0], [1], [0, 1], [2]]


def test_every_axis_has_a_title(tmp_path):
    folder = run(tmp_path / "run", range(4), tuner="pbt")
    histograms(folder, 6)
    told = data(report([folder]))
    people = told["population"]
    charts = [*told["panels"], *told["histograms"], *people["schedules"], people["members"]]
    titles = {chart["id"]: chart["y"] for chart in [*charts, people["tree"]]}
    assert all(titles.values())
    assert titles["time/fps"] == "steps per second"
    assert titles["train/critic_loss"] == "critic loss"
    assert titles["members"] == "evaluation return"


def test_a_histogram_is_the_sum_over_members_and_runs_of_a_group(tmp_path, three):
    histograms(three[0], 4, members=2)
    histograms(three[1], 2)
    told = data(report(three, tmp_path / "page.html"))
    (chart,) = told["histograms"]
    assert (chart["title"], chart["note"], chart["runs"]) == ("actions/0", "SAC", [0, 1])
    spread = chart["histogram"]
    assert spread["edges"] == [-1, 0, 0.5, 1]
    np.testing.assert_array_equal(told["array"](spread["steps"]), [0, 500, 1000, 1500, 2000])
    counts = told["array"](spread["counts"]).reshape(4, 3)
    np.testing.assert_array_equal(counts, [[30, 0, 0], [20, 0, 10], [0, 0, 20], [0, 0, 20]])


def test_a_long_histogram_loses_columns_but_no_values(tmp_path):
    folder = run(tmp_path / "run")
    histograms(folder, 1000)
    told = data(report([folder]))
    spread = told["histograms"][0]["histogram"]
    counts = told["array"](spread["counts"]).reshape(-1, 3)
    assert len(counts) == COLUMNS
    np.testing.assert_array_equal(counts.sum(0), [5000, 0, 5000])
    assert told["array"](spread["steps"])[-1] == 500_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "step,member,x:0:1\n5,0,=3\n",
        "step,member,x:0:1,x:2:3\n5,0,1,1\n",
        "step,member,x:0:nan\n5,0,1\n",
        "step,member,x\n5,0,1\n",
        "step,member,x:1:0\n5,0,1\n",
    ],
)
def test_a_damaged_histogram_is_left_out(tmp_path, text):
    folder = run(tmp_path / "run")
    (folder / "histograms.csv").write_text(text)
    assert data(report([folder]))["histograms"] == []
