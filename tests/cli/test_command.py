"""The command line: every command, its one line of JSON, and one line for whatever is wrong."""

import json
import os
import shutil
import subprocess
import sys
import types

import pytest

from tests.small import words
from thespis.cli.command import COMMANDS, main

pytestmark = pytest.mark.usefixtures("kept")

undrawn = pytest.mark.usefixtures("undrawn")


# --- what is wrong with a command -----------------------------------------------------------

SMALL = words()
LONG = "x" * 300  # longer than the name of a file may be


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["sac", *SMALL], "or is it: thespis train sac ...?"),
        (["train", "sac", "jax:pendulum"], "unexpected 'jax:pendulum': is it --env jax:pendulum?"),
        (["train", "sca", *SMALL], "unknown algorithm 'sca'; did you mean sac?"),
        (["train", "--env", "x"], "name the algorithm first: thespis train ALGO --env ..."),
        (["train", "sac"], "env is missing: give --env, for example jax:pendulum"),
        (["train", "sac", "--env"], "--env needs a value"),
        (
            ["train", "sac", *words(env="jax:pendulm")],
            "unknown environment 'jax:pendulm'; did you mean jax:pendulum?",
        ),
        (
            ["train", "sac", *words(env="Pendulm-v1")],
            "unknown environment 'Pendulm-v1'; did you mean Pendulum-v1",
        ),
        (["train", "sac", *words(env="no_module:X-v0")], "unknown environment 'no_module:X-v0'"),
        (["train", "sac", *words(env="tests.small:Nothing-v0")], "Nothing-v0"),
        (
            ["train", "sac", *SMALL, "--hp.gama", "1"],
            "unknown option --hp.gama; did you mean hp.gamma",
        ),
        (
            ["train", "sac", *SMALL, "--bach-size", "1"],
            "unknown option --bach-size; did you mean batch-size",
        ),
        (
            ["train", "sac", *SMALL, "--gamma", "1.5"],
            "gamma = 1.5 is out of range: give between 0 and 1",
        ),
        (["train", "sac", *SMALL, "--gamma", "high"], "gamma = high: give a number"),
        (["train", "sac", *SMALL, "--steps", "many"], "steps = many: give a whole number"),
        (["train", "sac", *SMALL, "--steps"], "--steps needs a value, such as 100000"),
        (["train", "sac", *SMALL, "--critics", "0"], "critics = 0: give at least 1"),
        (["train", "sac", *SMALL, "--n-step", "0"], "n_step = 0: give at least 1"),
        (["train", "td3", *SMALL, "--delay", "0"], "delay = 0: give at least 1"),
        (["train", "sac", *SMALL, "--hidden", "0"], "hidden = 0: give at least 1"),
        (["train", "sac", *SMALL, "--batch-size", "0"], "batch_size = 0: give at least 1"),
        (["train", "sac", *SMALL, "--envs", "0"], "envs = 0: give at least 1"),
        (
            ["train", "sac", *SMALL, "--updates-per-step", "-1"],
            "updates_per_step = -1: give 0 or more",
        ),
        (["train", "td3", *SMALL, "--ent-coef", "auto"], "ent_coef = auto: TD3 has no entropy in"),
        (
            ["train", "td3", *SMALL, "--target-entropy", "-1"],
            "target_entropy = -1: TD3 has no entr",
        ),
        (
            ["train", "sac", *SMALL, "--policy-delay", "2"],
            "unknown option 'policy_delay': this algo",
        ),
        (
            ["train", "sac", *SMALL, "--learning-rate", "lin_3e-4"],
            "is a schedule: give learning_rat",
        ),
        (
            ["train", "sac", *SMALL, "--policy-kwargs", "dict()"],
            "its parts as options: net_arch, n",
        ),
        (
            ["train", "sac", *SMALL, "--verbose"],
            "verbose is an option of another library: leave it",
        ),
        (["enjoy", "runs"], "or is it: thespis play RUN ...?"),
        (
            ["train", "sac", *SMALL, "--preset", "sb3"],
            "preset = sb3: sac has no preset of this name; there is",
        ),
        (
            ["train", "sac", *SMALL, "--seeds", "3-1"],
            "seeds = 3-1 is empty: give a range such as 1-3",
        ),
        (["train", "sac", *SMALL, "--seeds"], "--seeds needs a value, such as 0"),
        (
            ["train", "sac", *SMALL, "--seed", "1", "--seeds", "1-2"],
            "both seed and seeds are given",
        ),
        (["train", "sac", *SMALL, "stray"], "unexpected 'stray': options start with --"),
        (
            ["train", "sac", *SMALL, "--seed", "0", "1"],
            "unexpected '1': options start with --, and --seed takes one value; --seeds takes sev",
        ),
        (["train", "sac", *SMALL, "--pbt"], "tuner = pbt needs a population, not one member"),
        (["train", "sac", *SMALL, "--members", "0", "--pbt"], "members = 0: give at least 1"),
        (
            ["train", "sac", *SMALL, "--members", "3", "--seeds", "0-1"],
            "members = 3, but there are 2 seeds: leave one of them out",
        ),
        (
            ["train", "sac", *SMALL, "--members", "4", "--pbt.best", "3", "--pbt.replaced", "2"],
            "best = 3 and replaced = 2 are 3 + 2 of 4 members",
        ),
        (
            ["train", "sac", *SMALL, "--members", "4", "--pbt.tuned", "gama", "tau"],
            "tuned = gama: unknown hyper-parameter; did you mean gamma?",
        ),
        (
            ["train", "sac", *SMALL, "--members", "4", "--pbt.tuned", "gamma=log:1:2"],
            "gamma = 2 is out of range",
        ),
        (
            ["train", "sac", *SMALL, "--members", "4", "--pbt.intervall", "5"],
            "unknown option --pbt.intervall; did you mean pbt.interval",
        ),
        (
            ["train", "sac", *SMALL, "--members", "4", "--tuner", "bayes"],
            "tuner = bayes: give one of pbt,",
        ),
        (
            ["train", "sac", *words(steps=10**8, buffer_size=10**8), "--members", "100", "--pbt"],
            "member(s) fit, or lower it",
        ),
        (["train", "sac", *SMALL, "--config", LONG], "File name too long; check the path"),
        (["runs", "--out", LONG], "there is no folder xxx"),
        (["sweep", f"{LONG}.toml"], "cannot read xxx"),
        (["rerun"], "name the run: thespis rerun RUN"),
        (["rerun", "nowhere"], "no run at nowhere"),
        (
            ["train", "sac", *SMALL, "--learning-starts", "300"],
            "learning_starts = 300 is more than buffer_size = 200 holds",
        ),
        (
            ["train", "sac", "--steps", "many", "--bach-size", "1"],
            "unknown option --bach-size; did you mean batch-size",
        ),
        (
            ["train", "sac", "--steps", "many", "--preset", "crosq", "--env", "x"],
            "preset = crosq: sac has no preset of this name; did you mean crossq",
        ),
        (
            ["train", "sac", "--steps", "many", "--env", "jax:pendulm"],
            "unknown environment 'jax:pendulm'; did you mean jax:pendulum?",
        ),
        (
            ["plan", "sac", "--gamma", "high", "--eval-env", "Pendulm-v1"],
            "unknown environment 'Pendulm-v1'; did you mean Pendulum-v1",
        ),
        (["help", "trian"], "unknown command 'trian'; did you mean train?"),
        (
            ["train", "sac", *SMALL, "--eval-env", "jax:cartpole"],
            "eval_env = jax-cartpole has observations float32[4] and actions one of 2, but env = "
            "jax-pendulum has observations float32[3] and actions box[1]",
        ),
        (["train", "sac", *words(env="jax:cartpole")], "SAC needs continuous actions"),
        (
            ["train", "sac", *words(env="tests.small:ToyDiscrete-v0")],
            "SAC needs continuous actions",
        ),
        (
            ["train", "sac", *words(env="tests.small:ToyBounds-v0")],
            "ToyBounds-v0: action dimension 0 has the bounds [-2.0, inf], but actions need finite",
        ),
        (
            ["train", "sac", *words(env="tests.small:ToyReset-v0")],
            "ToyReset-v0, environment 0, step 0, seed 0: RuntimeError: the curtain is stuck",
        ),
        (["train", "sac", *SMALL, "--init-from", "nowhere"], "no run at nowhere"),
        (["eval"], "name the run: thespis eval RUN"),
        (
            ["eval", "nowhere"],
            "no run at nowhere: looked for nowhere/config.json; there are no runs",
        ),
        (["play", "nowhere"], "no run at nowhere"),
        (["resume", "nowhere"], "no run at nowhere"),
        (["plot", "nowhere"], "no run at nowhere"),
        (["plot"], "name at least one run: thespis plot RUN ... -o FILE"),
        (["list", "everything"], "unexpected 'everything'"),
    ],
)
def test_one_line_says_what_is_wrong(argv, message, complain):
    assert message in complain(*argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["eval", "RUN", "--episodes", "0"], "episodes = 0: give at least 1"),
        (["eval", "RUN", "--member", "1"], "has one member, 0; or give best"),
        (["eval", "RUN", "--seed", "-1"], "seed = -1: give a number from 0"),
        (["eval", "RUN", "RUN"], "unexpected"),
        (["play", "RUN", "--member", "5"], "member = 5"),
        (["play", "RUN", "--episodes", "0"], "episodes = 0: give at least 1"),
        (["play", "RUN", "-o", "video.avi"], "cannot write video.avi: a video is .gif or .mp4"),
        (["play", "RUN", "--human"], "--human: there is no display; leave it out to write a file"),
        (["resume", "RUN", "--member", "x"], "member = x"),
        (["rerun", "RUN", "--member", "x"], "member = x"),
        (["rerun", "RUN", "--seed", "-1"], "seeds = -1: give"),
        (["resume", "RUN", "--steps", "10"], "steps = 10: "),
        (["resume", "RUN", "--stepps", "9"], "unknown option --stepps; did you mean steps?"),
        (
            ["resume", "RUN", "--learning-rate", "1e-4"],
            "--learning-rate: resume continues a run as it was; to change options, train another: "
            "thespis train --config RUN --learning-rate ..., with --init-from RUN for",
        ),
        (["plot", "RUN", "--metric", "eval/reward"], "has no metric 'eval/reward': try"),
        (["plot", "RUN", "--statistic", "median"], "statistic = median: give one of iqm, mean"),
        (["plot", "RUN", "-o", "curves.gif"], "a plot is .png, .svg or .pdf"),
        (["eval", "RUN/checkpoints"], "no run at"),
    ],
)
def test_one_line_says_what_is_wrong_with_a_run(trained, argv, message, complain):
    before = {p: p.stat().st_mtime_ns for p in trained.path.rglob("*")}
    assert message in complain(*(word.replace("RUN", str(trained.path)) for word in argv))
    assert {p: p.stat().st_mtime_ns for p in trained.path.rglob("*")} == before


def link_to_nowhere(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def pipe(path):
    path.unlink()
    os.mkfifo(path)


HARM = {
    "not an object": ("config.json", lambda path: path.write_text("[]")),
    "a damaged list": ("config.json", lambda path: edit(path, seeds=["x"])),
    "another type": ("config.json", lambda path: edit(path, frame_stack=None)),
    "no choice": ("config.json", lambda path: edit(path, options={"hidden": [[]]})),
    "far too many": ("config.json", lambda path: edit(path, options={"hidden": [10**30]})),
    "no number": ("config.json", lambda path: edit(path, hp={"gamma": "x"})),
    "a link": pytest.param(("config.json", link_to_nowhere), marks=pytest.mark.posix),
    "a pipe": pytest.param(("config.json", pipe), marks=pytest.mark.posix),
}


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_a_damaged_config_is_one_line_for_every_command(trained, tmp_path, complain, say, harm):
    copy = shutil.copytree(trained.path, tmp_path / "damaged" / "run")
    name, spoil = harm
    spoil(copy / name)
    for command in ("eval", "export", "resume", "play", "rerun"):
        assert str(copy / name) in complain(command, copy)
    assert len(say("runs", "--out", copy.parent)) > 1
    for command in ("plot", "report"):
        assert main([command, str(copy)]) in (0, 2)  # they need less of it


@undrawn
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", marks=pytest.mark.thorough),
        pytest.param("time,member\n1,0\n", marks=pytest.mark.thorough),
        "step,member,eval/mean_reward\n\u00b2,0,=1\n3,8,1\n",
    ],
)
def test_a_damaged_log_stops_nobody_who_does_not_need_it(trained, tmp_path, complain, say, text):
    copy = shutil.copytree(trained.path, tmp_path / "damaged" / "run")
    (copy / "metrics.csv").write_text(text)
    (copy / "status.json").write_text("[]")
    assert "damaged" in json.dumps(json.loads(say("runs", "--out", copy.parent, "--json")[0]))
    assert str(copy) in complain("plot", copy)
    say("eval", copy, "--episodes", "1")
    say("resume", copy, "--json")
    say("report", copy)


# --- what goes wrong on the way -------------------------------------------------------------


def test_ctrl_c_before_training_is_no_traceback(capsys, monkeypatch):
    def interrupt(argv):
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "list", interrupt)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "thespis: interrupted\n"


def test_an_interruption_of_the_first_imports_is_one_line(monkeypatch, capsys):
    class Interrupted(types.ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt if name == "HelpPrinted" else AttributeError(name)

    monkeypatch.setitem(sys.modules, "thespis.cli.common", Interrupted("thespis.cli.common"))
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "thespis: interrupted\n"


def test_a_reader_that_goes_away_is_no_traceback():
    command = f"{sys.executable} -m thespis list | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout == "algorithms\n"
    assert done.stderr == ""
