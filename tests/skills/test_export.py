"""Skills that act and predict with NumPy alone."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.cli.command import main
from thespis.core import ThespisError
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import PointMass
from thespis.runs.skill_actions import over_skills
from thespis.skills.export import export
from thespis.skills.planner import lead, predict

pytestmark = pytest.mark.usefixtures("kept")


GOALS = np.array([[1.0, 0.5], [-0.5, 1.0]])


def alone(folder):
    """Exported skills, read without the library."""
    module = importlib.util.spec_from_file_location("exported", folder / "skills.py")
    exported = importlib.util.module_from_spec(module)
    module.loader.exec_module(exported)
    return exported.Skills(folder / "skills.npz")


def test_an_export_acts_and_predicts_with_numpy_alone(skilled, tmp_path):
    assert main(["skills", "export", str(skilled.run.path), "-o", str(tmp_path)]) == 0
    exported = alone(tmp_path)
    obs, skill = np.ones((3, 2), np.float32), skilled.skills(3)
    np.testing.assert_allclose(exported.act(obs, skill), skilled.act(obs, skill)[0], atol=1e-5)
    x = jnp.zeros((3, 2))
    given = skilled.algo, skilled.state, skilled.hp
    wanted = jax.jit(lambda *x: predict(*given, *x))(x, skill)
    np.testing.assert_allclose(exported.change(skill), wanted, atol=1e-5)


def test_skills_of_metra_are_directions_wherever_they_are_named(far, tmp_path):
    np.testing.assert_allclose(far.skill("0.3,-0.4"), [0.6, -0.8], rtol=1e-6)
    with pytest.raises(ThespisError, match=r"skill = 0,0: give 2 numbers .* not all 0"):
        far.skill("0,0")
    env = over_skills(Autoreset(PointMass()), far.run, hold=3)
    world, _ = env.reset(random.key(0), 1)
    step = jax.jit(lambda world, z: env.step(world, z[None], random.key(1))[1].obs)
    ends = [step(world, np.float32(z)) for z in ([0.3, 0.4], [0.6, 0.8])]
    np.testing.assert_allclose(*ends, rtol=1e-6)
    exported = alone(export(far, tmp_path))
    obs, skill = np.ones((3, 2), np.float32), far.skills(3)
    np.testing.assert_allclose(exported.act(obs, skill), far.act(obs, skill)[0], atol=1e-5)
    here, there = np.zeros((2, 2), np.float32), GOALS.astype(np.float32)
    wanted = lead(far.algo, far.state, jnp.asarray(here), jnp.asarray(there))
    np.testing.assert_allclose(exported.lead(here, there), wanted, atol=1e-5)
