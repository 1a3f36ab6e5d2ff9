"""Tests of the actor of a group: settings before JAX starts, and errors as answers."""

import os
import sys
from pathlib import Path

import pytest

from thespis.cluster import actor, connect
from thespis.errors import ThespisError


def test_a_group_has_the_settings_of_the_head_and_no_others(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", {"XLA_FLAGS": "--old", "JAX_OLD": "1", "HOME": "here"})
    monkeypatch.setattr(sys, "path", ["library"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    actor.Actor({"JAX_PLATFORMS": "cpu"}, str(tmp_path / "work"), ["mine"], {}, b"")
    assert os.environ == {"JAX_PLATFORMS": "cpu", "HOME": "here"}
    assert actor.settings() == {"JAX_PLATFORMS": "cpu"}
    assert Path.cwd() == tmp_path / "work"
    actor.Actor({}, str(tmp_path / "gone"), ["mine"], {}, b"")  # this node has no such folder
    assert Path.cwd() == tmp_path / "work"
    assert sys.path == ["library", "mine"]  # modules of users come after libraries


def test_a_node_that_joined_later_with_other_versions_is_refused():
    other = connect.versions() | {"jax": "0.0"}
    told = actor.Actor({}, "", [], other, b"of another version").begin()
    assert "has jax" in told["error"]
    assert "not 0.0 as here; install the same on all nodes" in told["error"]


def test_what_users_can_fix_is_an_answer_and_faults_are_not():
    def refuse():
        raise ThespisError("give more")

    assert actor.answer(refuse) == {"error": "give more"}
    assert actor.answer(lambda: {"step": 1}) == {"step": 1}
    with pytest.raises(KeyError):
        actor.answer(lambda: {}["step"])
