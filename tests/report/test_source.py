"""What a page shows of a run is read as far as it has been written."""

import math

import numpy as np
import pytest

from tests.report.pages import run
from thespis.report.source import Source


def test_members_are_named_after_their_seeds_unless_they_were_tuned(tmp_path):
    plain = Source(run(tmp_path / "a", seeds=(3, 8)))
    assert [plain.name(m) for m in range(3)] == ["seed 3", "seed 8", "member 2"]
    tuned = Source(run(tmp_path / "b", seeds=(3, 8), tuner="pbt"))
    assert [tuned.name(m) for m in range(2)] == ["member 0", "member 1"]


def test_the_newest_value_is_the_last_that_is_finite(tmp_path):
    values = [[1.0], [2.0], [math.nan]]
    source = Source(run(tmp_path / "a", evaluations=3, values=values))
    assert source.last("eval/mean_reward") == 2.0
    assert math.isnan(source.last("eval/none"))
    assert source.status["state"] == "done"
    assert source.programs == {"epoch": 2.2, "init": 0.3}


def test_a_run_that_has_said_nothing_yet_has_no_story_and_no_histograms(tmp_path):
    source = Source(run(tmp_path / "a", evaluations=0, state=None))
    assert source.story is None
    assert source.histograms == {}


def test_a_population_has_a_story_unless_its_lineage_is_damaged(tmp_path):
    folder = run(tmp_path / "a", seeds=(0, 1, 2), tuner="pbt", evaluations=4)
    assert Source(folder).story is not None
    (folder / "lineage.csv").write_text("step,member\n1,0\n")
    assert Source(folder).story is None


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ("x:0:1,x:1:2", {"x"}),
        ("x:0:1,x:2:3", set()),  # with a gap
        ("x:1:0,x:0:2", set()),  # backwards
        ("x:0:1,x:1:inf,y:0:1", {"y"}),
        ("x:0:1,note", {"x"}),
    ],
)
def test_histograms_are_sums_over_members_and_whole_or_left_out(tmp_path, columns, names):
    folder = run(tmp_path / "a", seeds=(0, 1))
    ones = ",".join(["1"] * len(columns.split(",")))
    rows = "".join(f"{step},{member},{ones}\n" for step in (10, 20) for member in (0, 1))
    (folder / "histograms.csv").write_text(f"step,member,{columns}\n{rows}")
    found = Source(folder).histograms
    assert found.keys() == names
    for x in found.values():
        assert x.steps.tolist() == [10, 20]
        np.testing.assert_array_equal(x.counts, 2)
