"""The process of a collector is set up before JAX starts in it, and answers instead of raising."""

import os
import sys

import pytest

from thespis.cluster import collector, connect
from thespis.cluster.collector import Collector


@pytest.fixture
def process(monkeypatch):
    """What a collector changes of its process is undone."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_settings_of_jax_are_shared_and_it_has_one_thread(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--flag")
    monkeypatch.setenv("SECRET", "no")
    found = collector.settings()
    assert (found["XLA_FLAGS"], found["NPROC"], found["JAX_PLATFORMS"]) == ("--flag", "1", "cpu")
    assert "SECRET" not in found


def test_folders_of_users_modules_are_added_and_not_twice(process, tmp_path):
    before = list(sys.path)
    Collector({"NPROC": "1"}, "", [before[0], str(tmp_path)], {}, b"")
    assert sys.path == [*before, str(tmp_path)]
    assert os.environ["NPROC"] == "1"


def test_what_was_wrong_at_the_beginning_is_the_answer_ever_after(process):
    one = Collector({}, "", [], {}, b"")
    one.wrong = (2, 0, "RuntimeError: no licence")
    assert one.collect([], 0, 5, "explore") == one.wrong
    one.close()


def test_a_node_that_joined_later_with_other_versions_is_refused(process):
    one = Collector({}, "", [], connect.versions() | {"thespis": "0.0"}, b"of another version")
    assert "not 0.0 as here; install the same on all nodes" in one.begin()
    assert one.collect([], 0, 5, "explore") == one.wrong
