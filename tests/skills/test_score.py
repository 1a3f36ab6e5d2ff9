"""What skills are worth."""

import math

import numpy as np
import pytest

from thespis.skills.rollout import rollout
from thespis.skills.score import cells, hull_area, judged

pytestmark = pytest.mark.usefixtures("kept")


def test_diversity_returns_are_bounded_by_the_log_of_the_skills_compared(skilled, counted):
    for it, many in ((skilled, 6), (counted, 3)):
        played = rollout(it, it.skills(4), 1)
        assert (played.diversity <= math.log(many) + 1e-5).all()
        assert played.diversity_returns.shape == (len(played.skills), 1)


def test_scores_are_what_the_trajectories_say(skilled):
    played = rollout(skilled, skilled.skills(20), 2)
    found = judged(skilled, played)
    ends = played.end_points.mean(1)
    assert found["skills"] == 20
    assert found["hull_area"] == pytest.approx(hull_area(ends))
    assert found["true_return"] == pytest.approx(played.returns.mean(), rel=1e-5)
    assert found["spread_within_a_skill"] < 0.1  # starts are within 0.05 of the origin
    assert found["predictability"] <= 1


def test_the_area_of_a_hull():
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2], [1, 1], [1, 0]], float)
    assert hull_area(square) == 4
    assert hull_area(square[:2]) == 0
    assert hull_area(square[[0, 4, 2]]) == 0
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    assert hull_area(circle) == pytest.approx(np.pi, rel=1e-3)


def test_cells_count_places_and_leave_out_what_follows_an_end():
    line = np.stack([np.linspace(0, 1, 20), np.zeros(20)], 1)
    assert cells(line) == 20
    assert cells(np.concatenate([line, np.full((5, 2), np.nan)])) == 20
