"""Skills go everywhere, and reach goals they were never trained on: by plans, or by direction."""

import math

import numpy as np
import pytest

from tests.slow.typed import train
from thespis.runs.skilled import Skilled
from thespis.skills.planner import pursue
from thespis.skills.rollout import rollout
from thespis.skills.score import hull_area

pytestmark = pytest.mark.slow

POINT = {
    "env": "jax:pointmass",
    "seeds": range(3),
    "envs": 4,
    "hidden": (64, 64),
    "batch_size": 128,
    "eval_freq": 3_000,
}
STEPS = {"dads": 15_000, "metra": 6_000}
# Six goals of the paper, at a scale where the farthest are half as far as an episode reaches.
GOALS = np.array([(10, 10), (-10, 10), (-10, -10), (10, -10), (0, -10), (5, 10)]) / 14.14
STRAIGHT = -0.224  # the score of a straight line at full speed


@pytest.fixture(scope="module", params=STEPS)
def skilled(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    chosen = {"objective": request.param, "steps": STEPS[request.param]}
    run = train("dads", **POINT, **chosen, out=out)
    return [Skilled(run, member) for member in range(3)]


def test_skills_of_every_seed_go_everywhere(skilled):
    """End points are at most 2 away from the origin: their hull covers half of that disc."""
    for it in skilled:
        ends = rollout(it, it.skills(100), episodes=3).end_points.mean(1)
        share = hull_area(ends) / (math.pi * 2**2)
        print(f"{it.algo.objective} covered {share:.3f}")
        assert share >= 0.5


def test_goals_are_reached_with_every_seed(skilled):
    for it in skilled:
        score, blind = (pursue(it, GOALS, blind=b).scores.mean() for b in (False, True))
        print(f"{it.algo.objective} scores {score:.3f}, random skills {blind:.3f}")
        assert score >= -0.35
        assert score >= (blind + STRAIGHT) / 2
