"""The policy that users get takes observations as the environment gives them, and remembers."""

import gymnasium
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from tests.export.test_writer import exported, runner
from thespis.algos import SAC, TAAC
from thespis.envs.gymnasium import Gymnasium
from thespis.runs.run import reader

pytestmark = pytest.mark.usefixtures("kept")


class Mixed(gymnasium.Env):
    """A dict of a number, a choice counted from 2, and a small picture."""

    observation_space = gymnasium.spaces.Dict(
        {
            "speed": gymnasium.spaces.Box(-1, 1, (), np.float64),
            "gear": gymnasium.spaces.Discrete(3, start=2),
            "eye": gymnasium.spaces.Box(0, 255, (2, 2), np.uint8),
        }
    )
    action_space = gymnasium.spaces.Box(-2.0, 4.0, (1, 2), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.0, False, False, {}


def test_observations_are_taken_as_the_environment_gives_them(tmp_path):
    env = Gymnasium(Mixed)
    algo = SAC(env.spec, hidden=(6,))
    it = exported(algo, env)
    policy = runner(it, tmp_path)
    plain, read = Mixed(), reader(env)
    raw, _ = plain.reset(seed=0)
    for _ in range(5):
        action = policy(raw)
        assert (action.shape, action.dtype) == ((1, 2), np.float32)
        obs, _ = read(raw)
        wanted = it.policy.act(algo, None, obs, random.key(0), "greedy")[0]
        np.testing.assert_allclose(action, np.asarray(3 * wanted + 1).reshape(1, 2), atol=1e-5)
        raw, *_ = plain.step(action)
    with pytest.raises(ValueError, match="eye has shape"):
        policy(raw | {"eye": np.zeros(3)})


def test_memory_goes_on_and_is_reset(tmp_path):
    algo = TAAC(reference.spec(3), hidden=(6,), max_repeat_steps=2)
    it = exported(algo)
    policy = runner(it, tmp_path)
    obs = it.observations(8)
    wanted = it.play(obs)["action"][:, 0]
    for _ in range(2):
        policy.reset()
        np.testing.assert_allclose([policy(x[0]) for x in obs], wanted, atol=1e-6)
    assert {"memory.trajectory", "memory.repeats"} <= policy.memory.keys()
    held = np.asarray([0.25, -0.5])
    policy.reset(trajectory=held, repeats=1)
    np.testing.assert_array_equal(policy.memory["memory.trajectory"], [held])
    with pytest.raises(
        ValueError, match="unknown memory 'skill': the policy has trajectory, repeats"
    ):
        policy.reset(skill=1)
