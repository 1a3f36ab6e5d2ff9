"""Discrete SAC to a threshold: fixed budgets, several seeds, the last policy, greedy episodes."""

import numpy as np
import pytest

import thespis

pytestmark = pytest.mark.slow

SMALL = {"hidden": (64, 64), "steps": 50_000, "eval_freq": 10_000}


def returns(tmp_path, env, seeds, **more):
    """[seeds, 100], and that the temperature has settled: it neither vanished nor ran away."""
    given = SMALL | more | {"seeds": range(seeds), "out": tmp_path}
    run = thespis.train("discrete-sac", env=env, progress=False, **given)
    alpha = run.metrics["train/ent_coef"]
    assert (alpha[np.isfinite(alpha)][-seeds:] < 5).all()
    return np.array(run.evaluate(episodes=100)["returns"])


@pytest.mark.parametrize("env", ["CartPole-v1", "jax:cartpole"])
def test_cartpole_is_balanced_in_50k_steps_by_every_seed(tmp_path, env):
    mean = returns(tmp_path, env, 5).mean(1)
    assert (mean >= 475).all(), mean


def test_catch_is_learned_from_its_image_in_50k_steps_by_every_seed(tmp_path):
    # Random play must have caught balls in the outer columns, or the agent may never try.
    few = {"learning_starts": 5000, "updates_per_step": 0.5, "batch_size": 64}
    enough = {"stop_reward": 0.98, "eval_freq": 5000, "eval_episodes": 100}
    mean = returns(tmp_path, "jax:catch", 3, **few, **enough).mean(1)
    assert (mean >= 0.9).all(), mean
