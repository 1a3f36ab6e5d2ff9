"""MuJoCo Playground as tasks: installed, missing, misspelt."""

import pytest

from tests.envs.test_contract import keeps_the_contract
from thespis.core import ThespisError
from thespis.envs import make, playground


def test_playground_keeps_the_contract():
    pytest.importorskip("mujoco_playground")
    keeps_the_contract(make("playground:CartpoleBalance"))


def test_unknown_names_are_told_their_neighbours(monkeypatch):
    class Registry:
        ALL_ENVS = playground.NAMES

    monkeypatch.setattr(playground, "registry", Registry)
    with pytest.raises(ThespisError, match="did you mean playground:CheetahRun"):
        make("playground:CheetahRnu")


def test_names_are_listed_without_the_library():
    assert playground.names()[0] == "playground:AcrobotSwingup"
