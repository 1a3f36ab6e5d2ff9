"""Programs that the command keeps: fetched when all is as it was, made anew when not."""

import dataclasses
import pickle
import stat
import sys
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests.own_code import OWN
from thespis.core import Box
from thespis.engine.evaluation import Evaluator
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import DeviceDriver
from thespis.envs import brax as adapter
from thespis.runs import config as configs
from thespis.runs import session
from thespis.runs.build import build
from thespis.runs.metrics import read
from thespis.xla import compile_cache, private_files, program_cache

ONE = Box((-1.0,), (1.0,), (1,))  # any object of ours


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A process that keeps its programs here."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    monkeypatch.setattr(compile_cache, "keeping", True)
    compile_cache.believed.cache_clear()
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def traced():
    """A function that notes each tracing of it."""

    def double(x):
        double.times += 1
        return {"twice": 2 * x}

    double.times = 0
    return double


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("thespis-*"))


def test_a_program_is_fetched_without_tracing(folder, traced):
    x = jnp.arange(3.0)
    for _ in range(3):  # as in three processes
        result = program_cache.compiled(traced, ONE)(x)
        np.testing.assert_array_equal(result["twice"], [0, 2, 4])
    assert traced.times == 1
    assert len(kept(folder)) == 1


@pytest.mark.parametrize("change", ["made_of", "type", "option", "source", "settings"])
def test_whatever_changes_makes_another_program(folder, traced, monkeypatch, change):
    program_cache.compiled(traced, ONE)(jnp.arange(3.0))
    if change in ("source", "settings"):
        monkeypatch.setattr(program_cache, change, lambda: b"another")
    made_of = Box((-2.0,), (1.0,), (1,)) if change == "made_of" else ONE
    options = {"donate_argnums": 0} if change == "option" else {}
    x = jnp.arange(3) if change == "type" else jnp.arange(3.0)
    program_cache.compiled(traced, made_of, **options)(x)
    assert traced.times == 2
    assert len(kept(folder)) == 2


def test_a_damaged_program_is_made_anew(folder, traced):
    program_cache.compiled(traced, ONE)(jnp.arange(3.0))
    (file,) = kept(folder)
    file.write_bytes(file.read_bytes()[:100])
    result = program_cache.compiled(traced, ONE)(jnp.arange(3.0))
    np.testing.assert_array_equal(result["twice"], [0, 2, 4])
    assert file.stat().st_size > 100


class Planted:
    """A file of somebody else, that runs when it is unpickled."""

    ran: ClassVar[list[str]] = []

    def __reduce__(self):
        return Planted.ran.append, ("code",)


@pytest.mark.posix
@pytest.mark.parametrize("where", ["file", "folder"])
def test_a_program_that_others_may_have_written_is_not_run(folder, traced, capsys, where):
    folder.chmod(0o700)
    program_cache.compiled(traced, ONE)(jnp.arange(3.0))
    (file,) = kept(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(pickle.dumps(Planted()))
    (file if where == "file" else folder).chmod(0o777)
    compile_cache.believed.cache_clear()  # as in another process
    private_files.say.cache_clear()
    for _ in range(2):
        result = program_cache.compiled(traced, ONE)(jnp.arange(3.0))
    np.testing.assert_array_equal(result["twice"], [0, 2, 4])
    assert not Planted.ran
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "others" in told[0]
    assert str(folder) in told[0]


def test_what_was_given_away_is_used_up_by_a_fetched_program_too(folder):
    def count(x, by):
        return x + by

    for _ in range(2):
        x = jnp.arange(3.0)
        result = program_cache.compiled(count, ONE, donate_argnums=0)(x, jnp.asarray(1.0))
        np.testing.assert_array_equal(result, [1, 2, 3])
        assert x.is_deleted()
    assert len(kept(folder)) == 1


def test_each_type_of_arguments_has_its_program(folder, traced):
    program = program_cache.compiled(traced, ONE)
    for _ in range(2):
        np.testing.assert_array_equal(program(jnp.arange(3.0))["twice"], [0, 2, 4])
        np.testing.assert_array_equal(program(jnp.arange(4))["twice"], [0, 2, 4, 6])
    assert traced.times == 2
    assert len(kept(folder)) == 2


class Mine:
    """A class that Thespis does not know."""


def user(x):
    return x


@pytest.mark.parametrize("made_of", [Mine(), (ONE, Mine), (lambda x: x,), jax.jit(user)])
def test_code_of_users_is_never_kept(folder, traced, made_of):
    program_cache.compiled(traced, made_of)(jnp.arange(3.0))
    assert not kept(folder)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_descriptor_that_is_written_anew_is_learned_from_anew(folder, tmp_path, monkeypatch):
    """Its name stays the same, and says nothing of its code."""
    for name, its_own in {"DeviceDriver": DeviceDriver, "Evaluator": Evaluator}.items():
        monkeypatch.setattr(session, name, its_own)  # other tests share their programs
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    given = {"hidden": (4,), "batch_size": 8, "learning_starts": 20, "log_freq": 20, "steps": 40}
    given |= {"eval_episodes": 1, "progress": False, "out": tmp_path / "runs", "alternatives": 2}
    seen = []
    for scale in (1, 100):
        code = f"def where(obs):\n    return {scale}.0 * obs[..., :2]\n"
        (tmp_path / "rewritten.py").write_text(code)
        sys.modules.pop("rewritten", None)  # as in another process
        run = thespis.train("dads", "jax:pointmass", descriptor="rewritten:where", **given)
        seen.append(run.metrics["train/change"][-1])
    assert seen[1] == pytest.approx(100 * seen[0], rel=0.5)
    assert {file.name.split("-")[1] for file in kept(folder)} == {"healthy"}


def test_descriptors_of_users_are_never_kept(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "rewritten.py").write_text("def where(obs):\n    return 2.0 * obs[..., :2]\n")
    loop_of = lambda **given: build(configs.make("dads", {"env": "jax:pointmass"} | given))[0]
    assert program_cache.recipe_of(loop_of(descriptor="rewritten:where")) is None
    assert program_cache.recipe_of(loop_of(descriptor="0"))
    sys.modules.pop("rewritten")


@pytest.mark.parametrize(
    ("algo", "changes"),
    [
        ("own:MySAC", {"env": "jax:pendulum"}),
        ("own:MySAC", {"env": "jax:pendulum", "frame_stack": 2}),
        ("sac", {"env": "own:Walk"}),
    ],
)
def test_plug_ins_are_never_kept(tmp_path, monkeypatch, algo, changes):
    """What an algorithm or a task of users compiles to may change without its name."""
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    config = configs.make(algo, changes)
    loop, _ = build(config)
    assert program_cache.recipe_of(loop) is None
    ours = dataclasses.replace(config, algo="sac", env="jax:pendulum")
    ours.options.pop("bold", None)
    assert program_cache.recipe_of(build(ours)[0])
    sys.modules.pop("own")


@pytest.mark.usefixtures("undrawn")
def test_a_run_of_plug_ins_leaves_no_program_of_theirs(folder, tmp_path, monkeypatch):
    for name, its_own in {"DeviceDriver": DeviceDriver, "Evaluator": Evaluator}.items():
        monkeypatch.setattr(session, name, its_own)  # other tests share their programs
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    given = {"hidden": (4,), "batch_size": 8, "learning_starts": 20, "log_freq": 20, "steps": 40}
    given |= {"eval_episodes": 1, "progress": False, "out": tmp_path / "runs"}
    thespis.train("own:MySAC", "jax:pendulum", **given)
    assert {file.name.split("-")[1] for file in kept(folder)} <= {"healthy"}
    sys.modules.pop("own")


class Ant:
    """An environment of Brax that a user has registered."""


def test_a_task_of_a_simulator_is_kept_by_what_its_name_stands_for(monkeypatch):
    task = lambda: program_cache.recipe_of(adapter.Brax("ant"))
    monkeypatch.setattr(adapter, "load", lambda environment, backend: ONE)  # of a known module
    assert task()
    monkeypatch.setattr(adapter, "load", lambda environment, backend: Ant())
    assert task() is None


def test_python_keeps_no_programs(folder, traced, monkeypatch):
    """Who imports Thespis may have changed any of it."""
    monkeypatch.setattr(compile_cache, "keeping", False)
    program_cache.compiled(traced, ONE)(jnp.arange(3.0))
    assert not kept(folder)


@pytest.mark.posix
def test_a_folder_that_cannot_be_written_costs_nothing_but_time(folder, traced):
    jax.config.update("jax_compilation_cache_dir", "/proc/thespis")
    result = program_cache.compiled(traced, ONE)(jnp.arange(3.0))
    np.testing.assert_array_equal(result["twice"], [0, 2, 4])


@pytest.mark.usefixtures("undrawn")
def test_training_with_fetched_programs_is_the_same_training(folder, tmp_path, monkeypatch):
    for name, its_own in {"DeviceDriver": DeviceDriver, "HostDriver": HostDriver}.items():
        monkeypatch.setattr(session, name, its_own)  # other tests share their programs
    monkeypatch.setattr(session, "Evaluator", Evaluator)
    given = {"hidden": (8,), "batch_size": 8, "learning_starts": 20, "log_freq": 20}
    given |= {"eval_freq": 60, "eval_episodes": 1, "progress": False, "out": tmp_path / "runs"}
    for env in ("jax:pendulum", "Pendulum-v1"):
        made, fetched = (thespis.train("td3", env, steps=60, **given) for _ in range(2))
        first, second = (read(run.path / "metrics.csv") for run in (made, fetched))
        for name in (name for name in first if not name.startswith("time/")):
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    names = {file.name.split("-")[1] for file in kept(folder)}
    programs = {"act", "act_in_evaluation", "epoch", "healthy", "init", "play", "store_and_learn"}
    assert names == programs
