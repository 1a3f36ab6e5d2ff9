"""TAAC learns where persistence matters: fixed budgets, several seeds, greedy episodes."""

import itertools

import numpy as np
import pytest

from tests.slow.typed import train
from thespis.report import repeats

pytestmark = pytest.mark.slow

CAR = {"steps": 50_000, "seeds": range(5), "hidden": (64, 64), "eval_freq": 2500}
PENDULUM = {
    "env": "jax:pendulum",
    "steps": 20_000,
    "seeds": range(3),
    "hidden": (64, 64),
    "batch_size": 64,
    "eval_freq": 10_000,
}


def evaluations(run) -> list[np.ndarray]:
    reward, member = run.metrics["eval/mean_reward"], run.metrics["member"]
    return [reward[member == m] for m in range(len(run.config.seeds))]


@pytest.mark.parametrize("algo", ["taac", "taac-l", "taac-q"])
def test_every_seed_drives_out_of_the_valley_and_repeats_most_actions(tmp_path, algo):
    run = train(algo, env="MountainCarContinuous-v0", preset="sparse", **CAR, out=tmp_path)
    for m, returns in enumerate(evaluations(run)):
        assert any(min(pair) >= 90 for pair in itertools.pairwise(returns)), returns
        rate = np.mean([e.repeat_rate for e in repeats.play(run, m, episodes=20)])
        assert 0.4 <= rate < 0.99, rate


def test_sac_does_not(tmp_path):
    run = train("sac", env="jax:mountain-car", **CAR, batch_size=64, out=tmp_path)
    assert max(returns[-1] for returns in evaluations(run)) < 10


@pytest.mark.parametrize("algo", ["taac", "taac-l", "taac-q"])
def test_pendulum_is_solved_by_every_kind_of_trajectory(tmp_path, algo):
    run = train(algo, **PENDULUM, out=tmp_path)
    returns = np.array(run.evaluate(episodes=100)["returns"]).mean(1)
    assert (returns >= -200).all(), returns
