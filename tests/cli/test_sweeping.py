"""`thespis sweep`: what it prints, its exit codes, and what it refuses."""

import json
import sys
from pathlib import Path

import pytest

from tests.sweeps.inline import TINY, inline  # noqa: F401
from thespis.cli.command import main

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


def words(**changes):
    text = lambda x: " ".join(map(str, x)) if isinstance(x, tuple) else str(x)
    given = {**TINY, **changes}
    return [w for k, v in given.items() for w in (f"--{k.replace('_', '-')}", *text(v).split())]


def test_a_sweep_ends_with_a_table_and_a_command_and_tells_its_status(inline, say, tmp_path):  # noqa: F811
    command = ["sweep", "sac", "--env", "jax:pendulum", *words(), "--set", "critic_lr=3e-4,1e-3"]
    lines = say(*command)
    text = "\n".join(lines)
    assert "2 jobs, 0 of them finished" in lines[0]
    assert "jobs    2 done" in text
    (best,) = (line.strip() for line in lines if line.strip().startswith("thespis train"))
    assert "--critic-lr" in best
    assert "report  runs/sweeps/sac-jax-pendulum_1/report.html" in text
    told = json.loads(say("sweep", "runs/sweeps/sac-jax-pendulum_1", "--status", "--json")[0])
    assert told["counts"] == {"done": 2}
    assert list(told["best"]["commands"].values()) == [best]
    assert json.loads(say(*command, "--status", "--json")[0]) == told
    assert inline[0].started
    assert len(inline) == 1  # a status runs nothing


def test_a_failed_job_is_told_and_the_code_is_1(inline, capsys):  # noqa: F811
    toy = "tests.small:ToyRaise-v0"
    code = main(["sweep", "sac", "--env", toy, *words(learning_starts=50, name="toy")])
    out = capsys.readouterr().out
    assert code == 1
    assert "1/1     failed" in out
    assert "the curtain fell" in out
    assert main(["sweep", "runs/sweeps/toy_1"]) == 2  # it names code, and who wrote it?
    assert "names code" in capsys.readouterr().err
    assert main(["sweep", "runs/sweeps/toy_1", "--trust", "--status"]) == 0


def test_the_algorithm_of_a_file_is_not_imported_if_trust_is_false(complain, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "stranger.py").write_text("import pathlib; pathlib.Path('imported').touch()")
    Path("some.toml").write_text('algo = "stranger:Mine"\nenv = "jax:pendulum"')
    assert "names code" in complain("sweep", "some.toml", "--trust", "false")
    assert not Path("imported").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["sacc", "--env", "jax:pendulum"], "unknown algorithm 'sacc'; did you mean sac"),
        (["sac"], "env is missing"),
        (["x" * 400, "--env", "jax:pendulum"], "unknown algorithm"),
        (["sac", "--env", "jax:pendulum", "--set", "critic_lr=fast"], "critic_lr = fast"),
        (["sac", "--env", "jax:pendulum", "--critc-lr", "1"], "did you mean critic-lr"),
        (["sac", "--env", "jax:pendulum", "--executor", "cloud"], "give one of local, ray, slurm"),
        (["sac", "--env", "jax:pendulum", "--jobs", "0"], "jobs = 0: give at least 1"),
        (["sac", "--env", "jax:pendulum", "--slurm", "gpu"], "give NAME=VALUE"),
        (["--env", "jax:pendulum"], "name algorithms, a file or a folder first"),
        (["none.toml"], "cannot read none.toml"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(argv, message, complain):
    assert message in complain("sweep", *argv)
