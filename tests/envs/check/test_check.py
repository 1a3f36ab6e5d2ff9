"""What is right is not blamed, and the command tells what is wrong by its exit code."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box as Space

import thespis
from tests.envs.check.test_inside import OldStep
from tests.envs.check.walks import Walk, check_blamed, verdicts
from thespis.cli.command import main
from thespis.envs import names
from thespis.envs.check import check_env


class EndlessActions(Walk):
    action_space = Space(-np.inf, np.inf, (1,), np.float32)


def test_spaces_that_cannot_work_are_told():
    check_blamed(EndlessActions, "spaces", "finite", "TransformAction")


def test_what_is_right_is_not_blamed():
    report = check_env(Walk)
    assert set(verdicts(report).values()) == {"ok"}
    assert report.steps_per_second > 100
    assert str(report).endswith("nothing is wrong")


# --- what there is --------------------------------------------------------------------------


@pytest.mark.cases(5)
@pytest.mark.parametrize("name", [*names()["jax"], "CartPole-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_what_is_built_in_passes(name):
    report = thespis.check_env(name)
    assert report.ok, str(report)


def test_vector_rewards_pass():
    pytest.importorskip("mo_gymnasium")
    assert check_env("mo:mo-mountaincarcontinuous-v0").ok


@pytest.mark.slow
def test_brax_passes():
    pytest.importorskip("brax")
    from thespis.envs.brax import Brax

    assert check_env(Brax("inverted_pendulum", limit=40)).ok


# --- the command ----------------------------------------------------------------------------

gymnasium.register("Walk-v0", Walk)
gymnasium.register("OldStep-v0", OldStep)


def test_the_command_tells_by_its_exit_code(capsys):
    assert main(["check-env", "Walk-v0"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert main(["check-env", "OldStep-v0", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["env"], told["ok"]) == ("OldStep-v0", False)
    assert [c["name"] for c in told["checks"] if c["verdict"] == "wrong"] == ["step"]
    assert main(["check-env", "Wlak-v0"]) == 2
    assert "did you mean Walk-v0" in capsys.readouterr().err
    assert main(["check-env"]) == 2
