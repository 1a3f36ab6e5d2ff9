"""Runs of every format that there ever was: they load, act as they did, go on and are exported."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import thespis
from tests.recorded.__main__ import does, observation
from thespis.core import ThespisError
from thespis.runs import checkpoint, formats
from thespis.runs.reporter import Silent
from thespis.runs.trainer import Trainer

RECORDED = Path(__file__).parents[1] / "recorded"
FOLDERS = sorted(path.parent for path in RECORDED.glob("format-*/*/does.json"))


OFTEN = ("td3-jax-population",)  # the others in `make test-slow`
slow = lambda path: [] if path.name in OFTEN else [pytest.mark.slow]
named = lambda path: f"{path.parent.name} {path.name}"


@pytest.mark.cases(2)
@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_old_runs_are_read_as_a_whole_and_act_as_they_did(folder, monkeypatch):
    monkeypatch.chdir(folder)  # demonstrations lie beside the run
    run = thespis.load(folder)
    told = json.loads((folder / "does.json").read_text())["actions"][0][0]
    acts = run.policy(0)(observation(run))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-3, 1e-3), acts, told)
    trainer = Trainer(run.config, run.parts, folder, Silent())
    try:
        trainer.load(folder, run.config.members)
    finally:
        trainer.close()
    assert trainer.step == 80
    assert trainer.learner.clock.updates == 60


@pytest.mark.parametrize(
    "folder", [pytest.param(path, marks=slow(path), id=named(path)) for path in FOLDERS]
)
def test_old_runs_go_on_and_are_exported(folder, tmp_path):
    old = Path(shutil.copytree(folder, tmp_path / "run"))
    demos = {"demos": str(old / "demos.npz")} if (old / "demos.npz").exists() else {}
    told = json.loads((old / "does.json").read_text())
    run = thespis.load(old)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-3, 1e-3), does(run), told)
    saved = run.export(old / "exported", member=0)
    assert max(saved["largest_difference"].values()) < 1e-4
    run = thespis.resume(old, steps=100, progress=False, **demos)
    assert run.status == {"state": "done", "step": 100}
    newest = checkpoint.manifest(checkpoint.latest(old / "checkpoints")[0])
    assert newest["format"] == formats.FORMAT
    assert (run.metrics["step"] == 100).any()


def test_there_are_runs_of_every_older_format():
    numbers = {int(path.parent.name.removeprefix("format-")) for path in FOLDERS}
    assert set(range(1, formats.FORMAT)) <= numbers


@pytest.mark.parametrize("number", [formats.FORMAT + 1, 0, "2", None, True])
def test_runs_of_an_unknown_format_are_refused_in_one_line(tmp_path, number):
    config = json.loads((FOLDERS[0] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"format": number}))
    with pytest.raises(ThespisError, match=r"has format .*this version of thespis reads 1 to"):
        thespis.load(tmp_path)


def test_moments_of_format_1_have_their_names_of_today():
    old = ["actor.params.w", "actor.first.w", "actor.second.w", "actor.count", "stats.count"]
    names = formats.renamed(1, old)
    assert list(names.values()) == old
    assert list(names) == [
        "actor.params.w",
        "actor.opt_state.mu.w",
        "actor.opt_state.nu.w",
        "actor.opt_state.count",
        "stats.count",
    ]
    assert formats.renamed(formats.FORMAT, old) == dict(zip(old, old))


def test_a_hyper_parameter_that_was_not_there_has_its_default(tmp_path):
    parts = {"hyper": {"gamma": np.float32([0.9, 0.8])}}
    path = checkpoint.save(tmp_path, 5, parts, {})
    wanted = {"hyper": {"gamma": np.zeros(2, np.float32), "tau": np.zeros(2, np.float32)}}
    found = checkpoint.load(path, wanted, {"gamma": 0.99, "tau": 0.005})
    np.testing.assert_array_equal(found["hyper"]["gamma"], np.float32([0.9, 0.8]))
    np.testing.assert_array_equal(found["hyper"]["tau"], np.float32([0.005, 0.005]))
    with pytest.raises(ThespisError, match=r"hyper.tau is absent"):
        checkpoint.load(path, wanted)
