"""Skills act with NumPy alone as they were trained to."""

import numpy as np

from thespis.core import Box
from thespis.skills import standalone


def test_exported_skills_rescale_actions_exactly_as_boxes_do(tmp_path):
    rng, box = np.random.default_rng(0), Box((-3.0, 0.1), (1.0, 7.0), (2,))
    weight = rng.normal(size=(3, 4)).astype(np.float32)
    low, high = box.bounds
    parts = {"actor.weight0": weight, "actor.bias0": np.zeros(4, np.float32), "low": low}
    np.savez(tmp_path / "skills.npz", high=high, policy_sees=np.arange(2), **parts)
    obs, skill = rng.normal(size=(50, 2)).astype(np.float32), np.ones((50, 1), np.float32)
    unit = np.tanh((np.concatenate([obs, skill], 1) @ weight)[:, :2])
    acted = standalone.Skills(tmp_path / "skills.npz").act(obs, skill)
    np.testing.assert_array_equal(acted, box.to_env(unit))
