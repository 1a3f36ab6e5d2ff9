"""The results of a sweep: its table, the best setting, heat maps, what the page is told."""

import pytest

from tests.report import pages
from thespis.errors import ThespisError
from thespis.report import sweep_results
from thespis.report.report import report

RETURN = "eval/mean_reward"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two environments, on the second of which returns are the same."""
    made = tmp_path_factory.mktemp("sweep") / "rates_1"
    return pages.sweep(made, envs=("jax:pendulum", "Pendulum-v1"))


def test_what_is_written_is_read(folder):
    rows = sweep_results.read(folder)
    assert len(rows) == 24
    failed = rows[1]
    assert (failed["state"], failed["iqm"], failed["error"]) == ("failed", None, "the curtain fell")
    assert rows[0]["iqm"] == pytest.approx(-301)  # seeds at -300, -301 and -302
    assert -302 <= rows[0]["low"] < rows[0]["high"] <= -300
    assert sweep_results.choices_of(rows) == ["critic_lr", "batch_size"]


def test_the_best_on_several_environments_is_that_of_normalised_scores(folder):
    best = sweep_results.best(folder, sweep_results.read(folder), RETURN)
    assert (best["algo"], best["choices"]) == ("td3", {"critic_lr": "0.0003", "batch_size": "256"})
    assert best["normalised"]
    assert 0.99 < best["low"] <= best["iqm"] <= best["high"] <= 1
    assert list(best["commands"]) == ["jax:pendulum", "Pendulum-v1"]


def test_only_settings_that_are_done_everywhere_are_compared(folder):
    rows = sweep_results.read(folder)
    unfinished = [
        row | {"state": "stopped"} if row["env"] == "Pendulum-v1" and row["algo"] == "td3" else row
        for row in rows
    ]
    assert sweep_results.best(folder, unfinished, RETURN)["algo"] == "sac"
    assert sweep_results.best(folder, [row | {"state": "pruned"} for row in rows], RETURN) is None


def test_heat_maps_are_means_over_the_other_choices(folder):
    maps = sweep_results.heat_maps(sweep_results.read(folder))
    assert {(m["y"], m["x"]) for m in maps} == {
        ("critic_lr", "batch_size"),
        ("critic_lr", "algo"),
        ("batch_size", "algo"),
    }
    heat = maps[0]
    assert (heat["lines"], heat["columns"]) == (["0.0001", "0.0003", "0.001"], ["64", "256"])
    assert heat["jobs"] == [[2, 1], [2, 2], [2, 2]]  # one of SAC's has failed
    assert heat["iqm"][1] == pytest.approx([(-241 - 211) / 2, (-231 - 201) / 2])


def test_many_numbers_are_put_into_bins():
    labels, place = sweep_results.bins([str(x / 10) for x in range(60)])
    assert len(labels) == sweep_results.BINS
    assert [place.count(i) for i in range(sweep_results.BINS)] == [10] * 6
    assert place == sorted(place)
    assert sweep_results.bins(["relu", "gelu", "relu"]) == (["relu", "gelu"], [0, 1, 0])


def test_the_page_of_a_sweep_has_it_on_top_and_that_of_other_folders_does_not(folder, tmp_path):
    told = pages.data(report([folder], tmp_path / "page.html"))["sweep"]
    iqms = [row["iqm"] for row in told["rows"][:11]]
    assert iqms == sorted(iqms, reverse=True)  # the best of the first environment first
    assert told["rows"][11]["state"] == "failed"
    assert told["best"]["algo"] == "td3"
    runs = pages.run(tmp_path / "runs" / "sac" / "x_1").parent
    assert pages.data(report([runs]))["sweep"] is None


def test_a_damaged_table_is_told(tmp_path):
    (tmp_path / "results.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ThespisError, match=r"results.csv is damaged"):
        sweep_results.read(tmp_path)


@pytest.mark.parametrize("job", ["../../elsewhere", "/elsewhere", "", "a/b"])
def test_a_table_cannot_name_runs_elsewhere(job, tmp_path):
    (tmp_path / "results.csv").write_text(f"job,algo,env,state\n{job},sac,jax:pendulum,done\n")
    with pytest.raises(ThespisError, match="no names of jobs"):
        sweep_results.read(tmp_path)


def test_maps_are_few_and_small_whatever_a_table_has():
    row = {"job": "0", "algo": "sac", "env": "jax:pendulum", "state": "done", "iqm": 1.0}
    wide = [row | {f"c{i}": text for i in range(300)} for text in "ab"]
    assert len(sweep_results.heat_maps(wide)) == 190  # pairs of the first 20
    long = [row | {"x": f"x{i}", "y": f"y{i}"} for i in range(5000)]
    assert sweep_results.heat_maps(long) == []
    tasks = [row | {"env": str(i // 4), "x": str(i % 2), "y": str(i)} for i in range(4000)]
    assert len(sweep_results.heat_maps(tasks)) == sweep_results.MAPS
