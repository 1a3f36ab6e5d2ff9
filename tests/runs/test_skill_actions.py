"""Any algorithm learns on top of frozen skills, whose steps are sums of theirs."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests import small
from thespis.core import Discrete, ThespisError
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import PointMass
from thespis.runs.skill_actions import over_skills
from thespis.runs.skilled import Skilled

pytestmark = pytest.mark.usefixtures("kept")


def test_a_step_of_skills_is_the_sum_of_their_steps(skilled):
    env = over_skills(Autoreset(PointMass()), skilled.run, hold=7)
    assert (env.limit, env.spec.action.shape) == (15, (2,))
    skill = jnp.array([[0.5, -1.0]])
    state, first = env.reset(random.key(0), 1)
    _, after = jax.jit(env.step)(state, skill, random.key(1))
    inner, now = skilled.env.reset(random.key(0), 1)
    total = 0.0
    step = jax.jit(skilled.env.step)
    for _ in range(7):
        inner, now = step(inner, skilled.act(now.obs, skill)[0], random.key(1))
        total += float(now.reward[0])
    np.testing.assert_allclose(after.obs, now.obs, rtol=1e-5)
    np.testing.assert_allclose(after.reward, [total], rtol=1e-5)
    np.testing.assert_array_equal(first.obs, skilled.env.reset(random.key(0), 1)[1].obs)


@pytest.mark.thorough
def test_any_algorithm_learns_on_top_of_frozen_skills(skilled, counted, tmp_path):
    given = small.arguments(env="jax:pointmass", steps=120, learning_starts=40, out=tmp_path)
    given |= {"skills_from": str(skilled.run.path), "skill_steps": 20}
    top = thespis.train("sac", **given)
    assert top.evaluate(episodes=2)["lengths"] == [5, 5]
    with pytest.raises(ThespisError, match="run of sac, which has no skills"):
        Skilled(top)
    assert over_skills(Autoreset(PointMass()), counted.run, 10).spec.action == Discrete(3)
    with pytest.raises(ThespisError, match="was trained on jax-pointmass, not on jax-pendulum"):
        thespis.train("sac", **(given | {"env": "jax:pendulum"}))


def test_skills_that_stand_on_themselves_are_refused(skilled, tmp_path):
    for name, below in ("a", "b"), ("b", "a"):
        folder = shutil.copytree(skilled.run.path, tmp_path / name)
        config = json.loads((folder / "config.json").read_text())
        config |= {"skills_from": str(tmp_path / below)}
        (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ThespisError, match="skills_from = .* in a circle"):
        thespis.load(tmp_path / "a").evaluate(episodes=1)
