"""Rows of metrics.csv hold means over episodes, a row per member."""

import numpy as np
import pytest

from tests.algos import reference
from thespis.algos import DADS, SAC
from thespis.engine.evaluation import Episodes
from thespis.runs.metric_rows import Evaluation, columns

RETURNS = np.array([[1.0, 3.0], [10.0, 10.0]])
LENGTHS = np.array([[5, 7], [9, 9]])


def test_an_evaluation_is_the_mean_and_the_spread_over_episodes():
    found = Evaluation.from_episodes(Episodes(RETURNS, LENGTHS), (), None)
    assert [row["eval/mean_reward"] for row in found.rows] == [2, 10]
    assert [row["eval/std_reward"] for row in found.rows] == [1, 0]
    assert [row["eval/mean_ep_length"] for row in found.rows] == [6, 9]
    assert found.scores.keys() == found.episodes.keys() == {"eval/mean_reward"}
    np.testing.assert_array_equal(found.episodes["eval/mean_reward"], RETURNS)


def test_members_may_be_compared_by_all_that_was_measured():
    parts = np.stack([RETURNS, -RETURNS], -1)
    played = Episodes(RETURNS, LENGTHS, None, 2 * RETURNS, parts, 3 * RETURNS)
    found = Evaluation.from_episodes(played, ("speed", "cost"), np.float32([0.5, 0.25]))
    assert {name: x.tolist() for name, x in found.scores.items()} == {
        "eval/mean_reward": [2, 10],
        "eval/diversity_reward": [4, 20],
        "eval/skill_dependence": [6, 30],
        "eval/similarity": [0.5, 0.25],
    }
    assert found.rows[1]["eval/mean_reward/speed"] == 10
    assert found.rows[1]["eval/mean_reward/cost"] == -10


@pytest.mark.parametrize("imitates", [False, True])
def test_columns_are_of_what_the_algorithm_measures(imitates):
    of = lambda algo, varying: columns(
        algo, ["train/critic_loss"], algo.Hyper(), varying, imitates=imitates
    )
    plain, skilled = of(SAC(reference.spec()), ()), of(DADS(reference.spec(descriptor="0")), "x")
    assert plain[:4] == ["time/transitions", "time/fps", "time/elapsed_s", "time/compile_s"]
    assert {"replay/size", "train/critic_loss", "train/n_updates", "hparams/gamma"} <= {*plain}
    assert ("eval/similarity" in plain) == imitates
    assert "eval/skill_dependence" not in plain
    assert "eval/skill_dependence" in skilled
    assert skilled[-1] == "hparams_asked/x"
    assert len(set(skilled)) == len(skilled)
