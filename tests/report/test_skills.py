"""Skills are drawn so that each can be told from the others."""

import shutil

import matplotlib.colors
import numpy as np
import pytest

import thespis
from thespis.report.skills import colours, pursuit, trajectories
from thespis.runs.directory import write_json
from thespis.skills.planner import Pursuit
from thespis.skills.rollout import Trajectories

pytestmark = pytest.mark.usefixtures("kept")


def played(skills, size=2) -> Trajectories:
    """Two episodes of four rows of every skill; the second ends a row earlier."""
    rng = np.random.default_rng(0)
    descriptors = rng.normal(size=(len(skills), 2, 4, size)).cumsum(2)
    descriptors[:, 1, 3:] = np.nan
    flat = np.zeros(descriptors.shape[:3])
    return Trajectories(skills, descriptors, flat, flat, np.tile([3, 2], (len(skills), 1)))


@pytest.fixture
def panels(monkeypatch):
    """What was drawn; no file is written."""
    drawn = []
    keep = lambda figure, path, **given: drawn.extend(figure.axes)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", keep)
    return drawn


def test_every_episode_is_a_line_that_ends_where_it_ended(panels, tmp_path):
    shown = played(np.eye(3, dtype=np.float32))
    trajectories(shown, tmp_path / "x.png", "three skills")
    (panel,) = panels
    assert "three skills" in {panel.get_title(loc=loc) for loc in ("left", "center")}
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["0", "1", "2"]
    ends = [line.get_xydata()[-1] for line in panel.lines if line.get_marker() == "o"]
    wanted = [shown.descriptors[i, j, 3 - j] for i in range(3) for j in range(2)]
    np.testing.assert_allclose(ends, wanted)


def test_a_descriptor_of_one_number_is_drawn_over_time(panels, tmp_path):
    trajectories(played(np.float32([[-1], [0.5]]), size=1), tmp_path / "x.png")
    (panel,) = panels
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("step", "descriptor")
    assert panel.get_legend() is None


def test_a_pursuit_shows_goals_and_scores(panels, tmp_path):
    goals, paths = np.float32([[1, 2], [3, -4]]), np.zeros((2, 7, 2))
    pursuit(Pursuit(goals, paths, np.zeros((2, 3, 2)), np.array([-0.5, -1.25])), tmp_path / "x.png")
    (panel,) = panels
    stars = [line.get_xydata()[0].tolist() for line in panel.lines if line.get_marker() == "*"]
    assert stars == goals.tolist()
    assert [x.get_text() for x in panel.get_legend().get_texts()] == ["-0.50", "-1.25"]
    plans = [len(line.get_xydata()) for line in panel.lines if line.get_marker() == "."]
    assert plans == [3, 3]  # where each was made anew


@pytest.mark.parametrize(
    "skills",
    [np.eye(3), np.eye(20), np.linspace(-1, 1, 5)[:, None], np.array([[1, 0], [0, 1], [-1, -1.0]])],
    ids=["few", "many", "a line", "a plane"],
)
def test_skills_have_colours_of_their_own(skills):
    found = {matplotlib.colors.to_hex(x) for x in colours(skills)}
    assert len(found) == len(skills)


def test_the_learning_curve_is_that_of_diversity(skilled, tmp_path, monkeypatch):
    run, drawn = skilled.run, []
    note = lambda curves, path, metric: drawn.append((metric, curves)) or path
    monkeypatch.setattr("thespis.report.plots.learning_curve", note)
    copy = shutil.copytree(run.path, tmp_path / "run")
    write_json(copy / "status.json", {"state": "stopped", "step": 300})
    thespis.resume(copy, progress=False)
    ((metric, (curve,)),) = drawn
    assert metric == "eval/diversity_reward"
    np.testing.assert_array_equal(curve.runs[0][1], run.metrics[metric])
