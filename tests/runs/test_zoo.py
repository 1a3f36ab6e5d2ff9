"""The trained policies that come with the package: small, harmless, and as good as they say."""

import math
from pathlib import Path

import numpy as np
import pytest

import thespis
from benchmarks import zoo as remaking
from thespis.cli.command import main
from thespis.envs.registry import TASKS
from thespis.errors import ThespisError
from thespis.runs import checkpoint, trust, zoo
from thespis.runs.build import build, state_shapes
from thespis.runs.config_names import parse_init_from
from thespis.runs.directory import read_config
from thespis.runs.transplant import arrays, transplant

GYMNASIUM = ["Acrobot-v1", "CartPole-v1", "MountainCarContinuous-v0", "Pendulum-v1"]
SIZES = {"--env", "--steps", "--hidden", "--batch-size", "--preset"}


def files() -> dict[str, float]:
    return {str(x): x.stat().st_mtime for x in zoo.HOME.rglob("*") if x.is_file()}


# --- what there is --------------------------------------------------------------------------


def test_every_task_of_ours_and_four_of_gymnasium_are_there():
    assert sorted(one.env for one in thespis.zoo()) == sorted([*TASKS, *GYMNASIUM])


def test_all_of_them_are_less_than_a_megabyte():
    assert sum(one.bytes for one in thespis.zoo()) < 1e6


def test_nothing_in_them_can_run_or_names_code():
    assert {file.rpartition(".")[2] for file in files()} == {"json", "csv", "safetensors"}
    for name in zoo.names():
        assert trust.places(read_config(zoo.HOME / name)) == {}


def test_they_were_trained_by_the_commands_of_the_script_with_defaults_presets_and_sizes():
    commands = {remaking.name_of(x): f"thespis train {x}" for x in remaking.COMMANDS}
    assert {one.name: one.command for one in thespis.zoo()} == commands
    for command in commands.values():
        words = {word for word in command.split() if word.startswith("--")}
        assert words <= SIZES


def test_the_page_on_them_has_their_figures():
    text = Path(remaking.__file__).parents[1].joinpath("docs", "zoo.md").read_text("utf-8")
    for one in thespis.zoo():
        figures = f"{one.mean_reward:,.2f} | {one.std_reward:,.2f} | {one.steps:,} steps"
        assert f"| `{one.name}` | {one.algo} | {figures} |" in text


def test_they_are_listed_in_80_columns(capsys):
    assert main(["zoo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for one, line in zip(thespis.zoo(), lines[1:], strict=False):
        reward = f"{one.mean_reward:.2f}"
        assert line.split() == [one.name, one.algo, one.env, reward, f"{one.bytes / 1000:.0f}"]


# --- what they do ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("jax-grid", "Pendulum-v1") else pytest.mark.slow)
        for name in zoo.names()
    ],
)
def test_a_policy_is_as_good_as_it_says(name):
    """Other episodes than those of the record; four standard errors below it would be a fault."""
    one, episodes = zoo.entry(name), 10
    reward = thespis.load(f"zoo:{name}").evaluate(episodes, seed=1)["mean_reward"]
    assert reward >= one.mean_reward - 4 * one.std_reward / math.sqrt(episodes) - 1e-3


def test_a_policy_is_exported_and_nothing_is_written_into_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, run = files(), thespis.load("zoo:jax-pointmass")
    exported = run.export()["files"]
    assert all(x.startswith("runs/zoo/jax-pointmass/export/") for x in exported)
    page = run.report()
    assert (tmp_path / page).is_file()
    assert str(page) == "runs/zoo/jax-pointmass/report.html"
    assert files() == before
    assert main(["runs"]) == 0  # what lies there is no run


def test_others_start_from_one():
    assert parse_init_from("zoo:jax-pendulum") == ("zoo:jax-pendulum", [])
    assert parse_init_from("zoo:jax-pendulum:actor,critic") == (
        "zoo:jax-pendulum",
        ["actor", "critic"],
    )
    run = thespis.load("zoo:jax-pendulum")
    blank = state_shapes(run.config, build(run.config)[0])
    state = transplant(blank, "zoo:jax-pendulum:actor", print)
    theirs = arrays(run.path, print)["actor.params.weights.0"]
    assert np.array_equal(state.actor.params.weights[0], theirs)
    assert np.abs(theirs).max() > 0
    assert state.critic.params == blank.critic.params


def test_the_moments_of_its_optimisers_are_none_and_what_else_is_missing_is_noticed(tmp_path):
    run = thespis.load("zoo:jax-pendulum")
    state, _ = run.state()
    assert not np.any(state.actor.opt_state.mu.weights[0])
    assert np.any(state.target.networks[0].weights[0])
    (path,) = checkpoint.latest(run.path / "checkpoints")
    shapes = checkpoint.shapes(path, checkpoint.manifest(path), "state")
    parts = checkpoint.load(path, {"state": shapes})["state"]
    parts.pop("target.networks.0.weights.0")
    broken = checkpoint.save(tmp_path, 1, {"state": parts}, {})
    template = {"state": state_shapes(run.config, run.parts[0])}
    with pytest.raises(ThespisError, match="target.networks.0.weights.0 is absent"):
        checkpoint.load(broken, template, checkpoint.moments("state", template["state"]))


def test_one_is_not_resumed_and_another_name_is_told():
    with pytest.raises(ThespisError, match="no replay.*--init-from zoo:jax-pendulum"):
        thespis.resume("zoo:jax-pendulum", progress=False)
    with pytest.raises(ThespisError, match="unknown policy 'zoo:jax-pendulm'.*jax-pendulum"):
        thespis.load("zoo:jax-pendulm")
    with pytest.raises(
        ThespisError, match="^zoo:.* has no best policy.*only the last.*without --best"
    ):
        thespis.load("zoo:jax-pendulum").policy(which="best")
