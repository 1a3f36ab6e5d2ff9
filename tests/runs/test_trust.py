"""A run from a stranger runs nothing; one's own runs ask nothing."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import thespis
from tests import small
from thespis import plugins
from thespis.cli import main
from thespis.errors import ThespisError
from thespis.runs import checkpoint, trust
from thespis.runs.build import on_skills
from thespis.runs.config import Config
from thespis.runs.expert import expert_of

OWN = """
import gymnasium, pathlib
from tests.small import Toy

pathlib.Path(__file__).with_name("imported").touch()
gymnasium.registry.pop("Mine-v0", None)
gymnasium.register("Mine-v0", Toy)
"""
CODE = {
    "a module's function": {"env": "pettingzoo:os:system@command=touch imported"},
    "an id of Gymnasium": {"env": "strange:Mine-v0"},
    "an id of mo-gymnasium": {"env": "mo:strange:Mine-v0"},
    "an environment of evaluations": {"eval_env": "strange.inner:Mine-v0"},
    "a descriptor": {"algo": "dads", "options": {"descriptor": "strange:where"}},
}
COMMANDS = [
    ["eval"],
    ["resume", "--steps", "900"],
    ["rerun"],
    ["export"],
    ["play", "-o", "video.gif"],
    ["demos", "-o", "demos.npz"],
    ["plot", "--kind", "repeats"],
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    given = small.arguments(steps=200, updates_per_step=0, out=out)
    return thespis.train("sac", **given).path


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder of the command, with a module that tells when it is imported."""
    (tmp_path / "strange.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(plugins, "also", [])
    monkeypatch.delitem(sys.modules, "strange", raising=False)
    yield tmp_path
    sys.modules.pop("strange", None)


def stranger(trained: Path, folder: Path, **changes) -> Path:
    """A copy of a run with other words in its config.json."""
    shutil.copytree(trained, folder)
    file = folder / "config.json"
    saved = json.loads(file.read_text())
    changes["options"] = saved["options"] | changes.get("options", {})
    file.write_text(json.dumps(saved | changes))
    return folder


@pytest.mark.parametrize("changes", CODE.values(), ids=CODE)
def test_code_that_a_run_names_is_not_imported(trained, here, capsys, changes):
    run = stranger(trained, here / "theirs", **changes, trust=True)
    for command, *rest in COMMANDS:
        assert main([command, str(run), *rest]) == 2, command
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 1, command
        assert "names code" in told[0]
        assert "imports os from Python itself" in told[0] or f"from {here}" in told[0]
        assert "--trust" in told[0]
    assert not (here / "imported").exists()
    assert "strange" not in sys.modules


def test_the_error_says_what_would_be_imported_and_from_where(trained, here):
    run = stranger(trained, here / "theirs", env="strange:Mine-v0", eval_env="nowhere:Else-v0")
    plugins.also[:] = [str(here)]
    with pytest.raises(ThespisError) as error:
        thespis.load(run).evaluate(1)
    assert f"env = strange:Mine-v0 imports strange from {here / 'strange.py'}" in str(error.value)
    assert "nowhere" not in str(error.value)
    run = stranger(trained, here / "lost", env="nowhere:Else-v0")
    with pytest.raises(ThespisError, match="unknown environment 'nowhere:Else-v0'"):
        thespis.load(run).evaluate(1)


def test_the_callback_of_sweeps_is_no_code_of_others():
    places = lambda *names: list(trust.places({"callbacks": names}))
    assert places("thespis.sweeps.pruning:Pruning") == []
    for other in ("thespis.sweeps.pruning:library", "thespis.cli.command:main", "os:Pruning"):
        assert places(other) == [f"callback = {other}"]


def test_curves_and_pages_import_nothing(trained, here):
    run = stranger(trained, here / "theirs", env="strange:Mine-v0")
    assert main(["plot", str(run), "-o", "curve.png"]) == 0
    assert main(["report", str(run)]) == 0
    assert main(["runs", "--out", str(here)]) == 0
    assert not (here / "imported").exists()


def test_runs_that_a_command_names_are_runs_too(trained, here):
    run = stranger(trained, here / "theirs", env="strange:Mine-v0")
    config = Config("sac", "jax:pendulum", skills_from=str(run))
    plugins.also[:] = [str(here)]
    with pytest.raises(ThespisError, match="imports strange"):
        on_skills(None, config)
    with pytest.raises(ThespisError, match="imports strange"):
        expert_of(str(run), thespis.load(trained).parts[0], 1, trust=False)
    assert not (here / "imported").exists()


def test_a_file_beside_a_run_stands_in_for_no_library(trained, here, capsys):
    for library in ("envpool", "mo_gymnasium"):
        shutil.copy(here / "strange.py", here / f"{library}.py")
    for env in ("envpool:Mine-v0", "mo:Mine-v0"):
        run = stranger(trained, here / env.partition(":")[0], env=env)
        assert main(["eval", str(run)]) == 2
        assert "pip install" in capsys.readouterr().err
    assert not (here / "imported").exists()


def test_a_fault_that_a_run_kept_is_reproduced_by_no_code_of_others(trained, here):
    """Its manifest holds the run's config."""
    config = json.loads((trained / "config.json").read_text()) | {"env": "strange:Mine-v0"}
    info = {"config": config, "seed": 0, "iteration": 1}
    fault = checkpoint.save(here / "faults", 1, {"state": np.zeros(1)}, info)
    plugins.also[:] = [str(here)]
    with pytest.raises(ThespisError, match="env = strange:Mine-v0 imports strange"):
        thespis.reproduce(fault)
    assert not (here / "imported").exists()


@pytest.mark.usefixtures("undrawn")
def test_ones_own_runs_are_known_wherever_they_go(here, capsys):
    mine = small.words(env="strange:Mine-v0", steps=150, eval_freq=150, updates_per_step=0)
    assert main(["train", "sac", *mine]) == 0
    assert (here / "imported").exists()
    run = here / "moved"
    shutil.move(here / "runs" / "sac" / "Mine-v0_1", run)
    trial = ["eval", str(run), "--episodes", "1"]
    assert main(trial) == 0
    assert main(["resume", str(run), "--steps", "160"]) == 0
    assert main(trial) == 0
    capsys.readouterr()

    saved = json.loads((run / "config.json").read_text())
    for changes in ({"identity": "0" * 32}, {"eval_env": "strange:Other-v0"}, {"env": "sys:x"}):
        (run / "config.json").write_text(json.dumps(saved | changes))
        assert main(trial) == 2, changes
        assert "names code" in capsys.readouterr().err
    (run / "config.json").write_text(json.dumps(saved))
    assert main(trial) == 0


@pytest.mark.posix
def test_the_same_words_about_another_place_are_another_run(trained, here, monkeypatch):
    run = stranger(trained, here / "mine", env="strange:Mine-v0")
    plugins.also[:] = [str(here)]
    trust.remember(run)
    known = lambda: trust.known(json.loads((run / "config.json").read_text()))
    assert known()
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(here / "strange.py", elsewhere)
    plugins.also[:] = [str(elsewhere)]
    assert not known()
    plugins.also[:] = [str(here)]
    assert known()
    trust.records().chmod(0o777)  # anybody may have written the record
    try:
        assert not known()
    finally:
        trust.records().chmod(0o700)


def test_who_trusts_a_run_may_use_it(trained, here):
    run = stranger(trained, here / "theirs", eval_env="strange:Mine-v0")
    plugins.also[:] = [str(here)]
    assert main(["eval", str(run), "--episodes", "1", "--trust"]) == 0
    assert (here / "imported").exists()
    (here / "imported").unlink()
    sys.modules.pop("strange")
    assert thespis.load(run, trust=True).evaluate(1)["lengths"] == [15]
    assert (here / "imported").exists()


def test_looks_are_trusted_once_and_runs_that_are_resumed_for_good(trained, here, capsys):
    """Also if there is nothing left to train, as of a finished run from another machine."""
    run = stranger(trained, here / "theirs", eval_env="strange:Mine-v0")
    trial, before = ["eval", str(run), "--episodes", "1"], (run / "config.json").read_bytes()
    assert main([*trial, "--trust"]) == 0
    assert (run / "config.json").read_bytes() == before
    assert main(trial) == 2
    assert "names code" in capsys.readouterr().err
    assert main(["resume", str(run)]) == 0  # there is nothing to import
    assert main(trial) == 2
    assert main(["resume", str(run), "--trust"]) == 0
    assert main(trial) == 0


@pytest.mark.parametrize("command", ["eval", "play", "demos", "export", "skills plot", "resume"])
def test_help_says_how_long_trust_lasts(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    wanted = ", and remember to trust it" if command == "resume" else "; this time only"
    assert f"even if you did not train it on this machine{wanted}." in said


def test_runs_that_name_no_code_leave_no_trace(trained):
    assert "identity" not in json.loads((trained / "config.json").read_text())
    assert "trust" not in json.loads((trained / "config.json").read_text())


def test_a_terminal_does_not_obey_what_a_run_is_called(trained, here, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # so that `runs` shows every column
    bad = "\x1b]0;mine\x07\x1b[2J$"
    run = stranger(trained, here / "runs" / "theirs", env=f"jax:{bad}", preset=bad)
    shutil.copytree(run, here / "runs" / f"also{bad}")
    for command, *rest in [*COMMANDS, ["plot", "-o", "curve.png"], ["report"]]:
        main([command, str(run), *rest])
    main(["eval", f"{run}{bad}"])
    main(["runs"])
    told = capfd.readouterr()
    assert not {"\x1b", "\x07"} & {*told.out, *told.err}
    assert told.out.count(r"\x1b") >= 4
    assert told.err.count(r"\x1b") >= 5
