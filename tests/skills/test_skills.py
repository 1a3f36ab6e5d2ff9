"""Skills elsewhere: agents on top of them, curves, policies, the command line."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests import small
from thespis.cli.command import main
from thespis.core import Discrete, ThespisError
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import PointMass
from thespis.runs.directory import write_json
from thespis.runs.skill_actions import over_skills
from thespis.runs.skilled import Skilled

pytestmark = pytest.mark.usefixtures("kept")


# --- an agent on top ------------------------------------------------------------------------


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


def test_the_learning_curve_is_that_of_diversity(run, tmp_path, monkeypatch):
    drawn = []
    note = lambda curves, path, metric: drawn.append((metric, curves)) or path
    monkeypatch.setattr("thespis.report.plots.learning_curve", note)
    copy = shutil.copytree(run.path, tmp_path / "run")
    write_json(copy / "status.json", {"state": "stopped", "step": 300})
    thespis.resume(copy, progress=False)
    ((metric, (curve,)),) = drawn
    assert metric == "eval/diversity_reward"
    np.testing.assert_array_equal(curve.runs[0][1], run.metrics[metric])


# --- other uses -----------------------------------------------------------------------------


def test_a_policy_may_be_told_its_skill(skilled):
    policy = skilled.run.policy(skill=(1.0, -1.0))
    told = skilled.act(jnp.zeros((1, 2)), jnp.array([[1.0, -1.0]]))[0]
    np.testing.assert_allclose(policy(np.zeros(2, np.float32)), told[0], rtol=1e-5)


# --- the command line -----------------------------------------------------------------------


def told(capsys, *words):
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_command_tells_one_line_of_json(skilled, capsys, tmp_path):
    path = skilled.run.path
    few = ("--skills", 4, "--episodes", 1)
    assert told(capsys, "skills", "score", path, *few)["skills"] == 4
    file = told(capsys, "skills", "plot", path, *few, "-o", tmp_path / "skills.png")["plot"]
    assert (tmp_path / "skills.png").stat().st_size > 10_000
    assert file == str(tmp_path / "skills.png")
    quick = ("--candidates", 4, "--rounds", 2)
    found = told(capsys, "skills", "plan", path, "--goal", "1,0.5", "-1,1", *quick)
    assert len(found["scores"]) == 2
    assert (path / "plots" / "plan.png").exists()
    video = tmp_path / "skill.gif"
    found = told(
        capsys, "skills", "rollout", path, "--skill", "-0.5,1", "--episodes", 1, "-o", video
    )
    assert len(found["descriptors"][0]) == 101
    assert video.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["skills", "dance", "RUN"], "unknown command skills 'dance'"),
        (["skills", "plan", "RUN"], "goal: give 2 numbers each"),
        (["skills", "plan", "RUN", "--goal", "1"], "goal: give 2 numbers each"),
        (["skills", "rollout", "RUN"], "name the skill"),
        (["skills", "rollout", "RUN", "--skill", "2,0"], "give 2 numbers from -1 to 1"),
        (["skills", "plot"], "name the run"),
    ],
)
def test_one_line_says_what_is_wrong(skilled, capsys, words, message):
    words = [str(skilled.run.path) if word == "RUN" else word for word in words]
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_help_names_every_command_and_its_options(capsys):
    assert main(["skills"]) == 0
    overview = capsys.readouterr().out
    for command in ("plot", "score", "rollout", "plan", "export"):
        assert f"  {command}" in overview
        assert main(["skills", command, "--help"]) == 0
        assert f"example: thespis skills {command} " in capsys.readouterr().out
