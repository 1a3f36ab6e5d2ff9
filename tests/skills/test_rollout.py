"""Skills rolled out from start to end."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests import small
from thespis.algos import DADS
from thespis.core import ThespisError
from thespis.runs.skill_actions import over_skills
from thespis.runs.skilled import Skilled
from thespis.skills.rollout import rollout

pytestmark = pytest.mark.usefixtures("kept")


def test_a_roll_out_follows_each_skill_from_start_to_end(skilled):
    skills = np.array([[1, 1], [-1, 0.5], [0, 0]], np.float32)
    played = rollout(skilled, skills, episodes=2, seed=3)
    assert played.descriptors.shape == (3, 2, 101, 2)
    assert (played.ends == 100).all()
    np.testing.assert_array_equal(played.end_points, played.descriptors[:, :, -1])
    # The policy is blind to where it is, so a skill always moves alike.
    moved = np.diff(played.descriptors, axis=2)
    np.testing.assert_allclose(moved, np.broadcast_to(moved[:, :1, :1], moved.shape), atol=1e-5)
    np.testing.assert_allclose(
        played.returns[0, 0],
        -np.linalg.norm(played.descriptors[0, 0, 1:] - 1.0, axis=-1).sum(),
        rtol=1e-4,
    )
    again = rollout(skilled, skills, episodes=2, seed=3, steps=10)
    assert again.descriptors.shape == (3, 2, 11, 2)
    np.testing.assert_array_equal(again.descriptors, played.descriptors[:, :, :11])


def test_skills_act_at_the_training_clock(skilled, monkeypatch):
    def act(self, state, hp, memory, obs, key, step, mode):
        return jnp.full((len(memory.skill), 2), step), memory, None

    monkeypatch.setattr(DADS, "act", act)
    step = skilled.run.status["step"]
    assert step > 0
    action, _ = Skilled(skilled.run).act(jnp.zeros((3, 2)), jnp.zeros((3, 2)))
    np.testing.assert_array_equal(action, step)


@pytest.mark.slow
def test_skills_of_gymnasium_environments(tmp_path):
    """Toy observes its episode, time and start: time is a descriptor, the episode is constant."""
    given = {"alternatives": 5, "steps": 200, "eval_freq": 100, "out": tmp_path}
    given = small.arguments(**given) | {"env": small.Toy}
    run = thespis.train("dads", **given, descriptor=(1,))
    diversity = run.metrics["eval/diversity_reward"]
    assert np.isfinite(diversity).all()
    assert (diversity <= 15 * math.log(6)).all()
    worth = run.metrics["eval/skill_dependence"]
    assert np.isfinite(worth).all()
    assert (worth <= 15 * math.log(6)).all()
    it = Skilled(thespis.load(run.path, env=small.Toy))
    played = rollout(it, it.skills(2), 1)
    np.testing.assert_array_equal(played.descriptors[:, :, :, 0], [[range(16)]] * 2)
    top = over_skills(thespis.make(small.Toy), it.run, hold=4).instance()
    obs, _ = top.reset(seed=0)
    ends = [top.step(np.zeros(2))[3] for _ in range(4)]
    assert (obs[1], ends) == (0, [False, False, False, True])  # after 4, 8, 12 and 15 steps
    with pytest.raises(ThespisError, match="descriptor = 0 never changes"):
        thespis.train("dads", **given, descriptor="0")
