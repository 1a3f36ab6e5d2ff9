"""TAAC learns where persistence matters: fixed budgets, several seeds, greedy episodes."""

import itertools

import numpy as np
import pytest

import thespis
from thespis.show import repeats

pytestmark = pytest.mark.slow

# Temperatures cool slowly: until then both choices are almost free, which finds the flag.
CAR = {
    "env": "jax:mountain-car",
    "steps": 50_000,
    "seeds": range(5),
    "hidden": (64, 64),
    "batch_size": 64,
    "hp.alpha_lr": 3e-4,
    "reward_scale": 0.05,
    "learning_starts": 10_000,
    "buffer_size": 100_000,
    "eval_freq": 2500,
    "progress": False,
}
PENDULUM = {
    "env": "jax:pendulum",
    "steps": 20_000,
    "seeds": range(3),
    "hidden": (64, 64),
    "batch_size": 64,
    "eval_freq": 10_000,
    "progress": False,
}


def evaluations(run) -> list[np.ndarray]:
    reward, member = run.metrics["eval/mean_reward"], run.metrics["member"]
    return [reward[member == m] for m in range(len(run.config.seeds))]


def test_every_seed_drives_out_of_the_valley_and_repeats_most_actions(tmp_path):
    run = thespis.train("taac", **CAR, out=tmp_path)
    for m, returns in enumerate(evaluations(run)):
        assert any(min(pair) >= 90 for pair in itertools.pairwise(returns)), returns
        rate = np.mean([e.repeat_rate for e in repeats.play(run, m, episodes=20)])
        assert 0.65 <= rate <= 0.95, rate


def test_sac_does_not(tmp_path):
    run = thespis.train("sac", **CAR, out=tmp_path)
    assert max(returns[-1] for returns in evaluations(run)) < 10


@pytest.mark.parametrize("algo", ["taac", "taac-l", "taac-q"])
def test_pendulum_is_solved_by_every_kind_of_trajectory(tmp_path, algo):
    run = thespis.train(algo, **PENDULUM, out=tmp_path)
    returns = np.array(run.evaluate(episodes=100)["returns"]).mean(1)
    assert (returns >= -200).all(), returns
