"""Learning to a threshold: fixed budgets, several seeds, the last policy, greedy episodes."""

import numpy as np
import pytest

from tests.slow.typed import train

pytestmark = pytest.mark.slow

SMALL = {"hidden": (64, 64)}


@pytest.mark.parametrize("algo", ["sac", "td3"])
@pytest.mark.parametrize("env", ["jax:pendulum", "Pendulum-v1"])
def test_pendulum_is_solved_in_20k_steps_by_every_seed(tmp_path, algo, env):
    given = SMALL | {"steps": 20_000, "seeds": range(5), "eval_freq": 10_000, "out": tmp_path}
    run = train(algo, env=env, **given)
    returns = np.array(run.evaluate(episodes=100)["returns"])
    assert returns.shape == (5, 100)
    assert (returns.mean(1) >= -180).all(), returns.mean(1)


@pytest.mark.parametrize(("algo", "threshold"), [("sac", 3700), ("td3", 2500)])
def test_half_cheetah_runs_after_50k_steps(tmp_path, algo, threshold):
    pytest.importorskip("mujoco")
    given = {"steps": 50_000, "seeds": range(3), "preset": "locomotion", "out": tmp_path}
    run = train(algo, env="HalfCheetah-v5", **given)
    returns = np.array(run.evaluate(episodes=10)["returns"])
    assert returns.mean() >= threshold, returns.mean(1)
