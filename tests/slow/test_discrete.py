"""Discrete SAC to a threshold: fixed budgets, several seeds, the last policy, greedy episodes."""

import numpy as np
import pytest

from tests.slow.typed import train

pytestmark = pytest.mark.slow

SMALL = {"seeds": range(5), "hidden": (64, 64), "batch_size": 64}


@pytest.mark.parametrize(
    ("env", "steps", "threshold"),
    [
        ("CartPole-v1", 50_000, 475),
        ("jax:cartpole", 50_000, 475),
        ("Acrobot-v1", 40_000, -130),
        ("jax:grid", 20_000, 0.8),
        ("jax:catch", 15_000, 0.9),
    ],
)
def test_every_seed_learns(tmp_path, env, steps, threshold):
    run = train("discrete-sac", env=env, steps=steps, **SMALL, out=tmp_path)
    mean = np.array(run.evaluate(episodes=100)["returns"]).mean(1)
    assert (mean >= threshold).all(), mean
    alpha = run.metrics["train/ent_coef"]
    assert (alpha[np.isfinite(alpha)][-5:] < 20).all()  # it did not run away
