"""Callbacks by their names: made before there is a folder, and of strangers not without trust."""

import json
import sys

import numpy as np
import pytest

import thespis
from tests.runs.test_callbacks import JAX, Climber, train
from tests.small import words
from thespis.cli import main
from thespis.core import ThespisError
from thespis.runs.callbacks import Callback

pytestmark = pytest.mark.usefixtures("kept", "undrawn")

OWN = """
import pathlib
import thespis

pathlib.Path(__file__).with_name("imported").touch()

class Counter(thespis.Callback):
    every = 50

    def on_step(self, training):
        training.log("mine/step", training.step)

class Other(thespis.Callback):
    def on_evaluation(self, training):
        training.log("mine/evaluations", 1)
"""
WORDS = [*words(steps=200, hidden=(4,), updates_per_step=0, eval_episodes=1), "--json"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder of the command, with a module that tells when it is imported."""
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("thespis.plugins.also", [])
    yield tmp_path
    sys.modules.pop("mine", None)


def test_the_command_names_callbacks_and_goes_on_with_those_of_its_own_run(here, capsys):
    names = ["--callback", "mine:Counter", "--callback", "mine:Other"]
    assert main(["train", "sac", *WORDS, *names]) == 0
    folder = json.loads(capsys.readouterr().out)["run"]
    saved = json.loads((here / folder / "config.json").read_text())
    assert saved["callbacks"] == ["mine:Counter", "mine:Other"]
    assert main(["resume", folder, "--steps", "300", "--json"]) == 0
    table = thespis.load(folder).metrics
    assert table["mine/step"].tolist() == [100, 200, 300]
    assert table["mine/evaluations"].tolist() == [1, 1, 1]
    assert main(["resume", folder, "--steps", "400", "--callback", "none", "--json"]) == 0
    assert np.isnan(thespis.load(folder).metrics["mine/step"][-1])
    assert json.loads((here / folder / "config.json").read_text())["callbacks"] == []


def test_callbacks_of_a_stranger_are_not_imported_without_trust(here, capsys):
    assert main(["train", "sac", *WORDS]) == 0
    folder = here / json.loads(capsys.readouterr().out)["run"]
    saved = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(saved | {"callbacks": ["mine:Counter"]}))
    assert main(["resume", str(folder), "--steps", "300"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert f"callback = mine:Counter imports mine from {here / 'mine.py'}" in told[0]
    assert main(["eval", str(folder), "--episodes", "1", "--json"]) == 0  # needs none of it
    assert not (here / "imported").exists()
    assert main(["resume", str(folder), "--steps", "300", "--trust", "--json"]) == 0
    assert (here / "imported").exists()
    assert thespis.load(folder).metrics["mine/step"][-1] == 300
    sys.modules.pop("mine", None)
    assert main(["resume", str(folder), "--steps", "400", "--json"]) == 0  # it is one's own now


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (len, "derive a class from thespis.Callback"),
        ("watch", "callback watch: give MODULE:CLASS"),
        ("json:dumps", "callback json:dumps is a function: derive a class"),
        ("nowhere:Watcher", "there is no module nowhere"),
        (Climber(), None),
        (type("Needy", (Callback,), {"__init__": lambda self, n: None}), "without arguments"),
        (type("Never", (Callback,), {"every": 0}), "every of callback Never = 0: give at least 1"),
    ],
)
def test_what_is_no_callback_is_refused_before_there_is_a_folder(given, message, tmp_path):
    if message is None:
        train(tmp_path, JAX, given, steps=110, updates_per_step=0)
        return
    with pytest.raises(ThespisError, match=message):
        train(tmp_path, JAX, given)
    assert not list(tmp_path.rglob("config.json"))
