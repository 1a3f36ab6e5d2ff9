"""Environments by name, by class and by object."""

import subprocess
import sys

import gymnasium
import pytest

from tests.envs.toys import GymTally, Tally
from thespis.core import ThespisError
from thespis.envs import brax, check_name, label, make, names
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import CartPole, Pendulum, PointMass
from thespis.envs.gymnasium import Gymnasium


def test_every_jax_name_is_made():
    known = {"jax:pendulum", "jax:mountain-car", "jax:cartpole", "jax:pointmass", "jax:catch"}
    assert known <= set(names()["jax"])
    for name in names()["jax"]:
        assert isinstance(make(name), Autoreset)
    assert make("jax:cartpole") == Autoreset(CartPole())


def test_a_name_without_a_prefix_is_a_gymnasium_id():
    env = make("Pendulum-v1")
    assert isinstance(env, Gymnasium)
    assert "Pendulum-v1" in names()["gymnasium"]


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("ALE/Pong-v5", "ale_py"),
        ("PongNoFrameskip-v4", "ale_py"),
        ("FetchReach-v4", "gymnasium_robotics"),
        ("MiniGrid-Empty-5x5-v0", "minigrid"),
    ],
)
def test_an_id_of_a_known_package_says_what_to_install(name, package, monkeypatch):
    there = dict.fromkeys(("ale_py", "gymnasium_robotics", "minigrid"))
    monkeypatch.setattr("importlib.util.find_spec", lambda module, *_: there.get(module))
    pip = package.replace("_", "-")
    message = f"an id of the package {pip}: pip install {pip}, then give {package}:{name}$"
    with pytest.raises(ThespisError, match=message):
        make(name)
    with pytest.raises(ThespisError, match=f"needs a missing library: pip install {pip}$"):
        make(f"{package}:{name}")
    there[package] = package
    with pytest.raises(ThespisError, match=f"an id of the package {pip}: give {package}:{name}$"):
        make(name)


def test_a_version_that_has_moved_away_names_the_newest():
    with pytest.raises(ThespisError, match="HalfCheetah-v3: ImportError: .*; use HalfCheetah-v5$"):
        make("HalfCheetah-v3")


def test_a_name_of_brax_that_is_misspelt_is_suggested_with_its_prefix(monkeypatch):
    with pytest.raises(ThespisError, match=r"brax:antt.*; did you mean brax:ant\?$"):
        make("brax:antt")
    monkeypatch.setattr(brax, "installed", lambda: False)
    check_name("brax:ant@mjx")  # before any number, and without the library
    with pytest.raises(ThespisError, match=r"; did you mean brax:ant\?$"):
        check_name("brax:antt")
    with pytest.raises(ThespisError, match=r"brax:ant needs a missing library: pip .*\[brax\]'$"):
        brax.load.__wrapped__("ant", "spring")


def test_a_built_in_task_without_its_prefix_is_suggested():
    with pytest.raises(ThespisError, match=r"'pendulum'; did you mean jax:pendulum or Pendulum-v1"):
        make("pendulum")
    with pytest.raises(ThespisError, match=r"unknown environment 'grid'; did you mean jax:grid\?$"):
        check_name("grid")


def test_a_module_may_be_named_that_registers_the_id():
    assert make("gymnasium:CartPole-v1").name == "CartPole-v1"


def test_objects_are_taken_as_they_are():
    assert make(PointMass(goal=(0.0, 1.0))) == Autoreset(PointMass(goal=(0.0, 1.0)))
    assert isinstance(make(GymTally), Gymnasium)
    assert isinstance(make(lambda: GymTally(end=2)), Gymnasium)
    for env in (make("jax:pendulum"), make("CartPole-v1")):
        assert make(env) is env


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("jax:pendulm", "jax:pendulum"),
        ("jax:cart-pole", "jax:cartpole"),
        ("jxa:pendulum", "jax:pendulum"),
        ("Pendulum-v7", "Pendulum-v1"),
        ("cartpole", "CartPole-v1"),
    ],
)
def test_a_name_nearly_right_is_told_its_neighbours(wrong, meant):
    with pytest.raises(ThespisError) as caught:
        make(wrong)
    assert meant in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("library", "name"), [("playground", "CheetahRun"), ("envpool", "Ant-v4")])
def test_a_missing_library_is_named(library, name, monkeypatch):
    monkeypatch.setattr(f"thespis.envs.{library}.installed", lambda: False)
    with pytest.raises(ThespisError, match=rf"pip install 'thespis\[{library}\]'"):
        make(f"{library}:{name}")


def test_what_is_no_environment_is_refused():
    with pytest.raises(ThespisError):
        make(3)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("Pendulum-v1", "Pendulum-v1"),
        ("jax:mountain-car", "jax-mountain-car"),
        (Pendulum(), "jax-pendulum"),
        (Tally(), "Tally"),
        (GymTally, "GymTally"),
    ],
)
def test_labels_are_fit_for_files(env, name):
    assert label(env) == name


def test_a_label_has_no_slash_of_an_id():
    gymnasium.register("shelf/Tally-v0", entry_point=GymTally)
    assert label("shelf/Tally-v0") == "shelf-Tally-v0"


def test_optional_libraries_are_not_imported():
    code = "import thespis.envs, sys; sys.exit(any(m in sys.modules for m in ('brax', 'mujoco')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
