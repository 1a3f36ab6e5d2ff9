"""Learning to a threshold: fixed budgets, several seeds, the last policy, greedy episodes."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from tests.slow.typed import train
from thespis.envs.classic import PointMass

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


@dataclass(frozen=True)
class SmallGoal(PointMass):
    """A goal worth 1, eight steps away; every step costs 0.02, so never arriving is worth -2."""

    goal: tuple[float, float] = (0.6, 0.6)
    name: ClassVar[str] = "own:small-goal"

    def step(self, state, action):
        move = 0.1 * action / jnp.maximum(1.0, jnp.linalg.norm(action))
        state = jnp.clip(state + move, -1, 1)
        arrived = jnp.linalg.norm(state - jnp.array(self.goal, jnp.float32)) < 0.15
        return state, jnp.where(arrived, 1.0, 0.0) - 0.02, arrived


def test_a_goal_worth_less_than_entropy_is_reached_by_every_seed(tmp_path):
    given = SMALL | {"batch_size": 64, "steps": 15_000, "seeds": range(5), "preset": "sparse"}
    run = train("sac", env=SmallGoal(), **given, out=tmp_path)
    returns = np.array(run.evaluate(episodes=100)["returns"]).mean(1)
    assert (returns >= 0.8).all(), returns
