"""Stop and continue equals never stopped; one of several equals one alone; nothing is lost."""

import dataclasses
import errno
import os
import random
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

import thespis
from tests.algos import reference
from tests.small import RUN, Toy, arguments, arrays, differences, stop_at, words
from thespis.core import ThespisError
from thespis.runs import checkpoint, directory, metrics, process, trainer, transplant
from thespis.runs import config as configs
from thespis.runs.build import build
from thespis.runs.reporter import Silent

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


def same(a, b) -> None:
    """Two runs went the same way."""
    assert differences(a, b) == []
    assert metrics.differences(a / "metrics.csv", b / "metrics.csv") == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One run that was never disturbed."""
    return thespis.train("sac", out=tmp_path_factory.mktemp("whole"), **arguments())


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    out = tmp_path_factory.mktemp("three")
    return thespis.train("sac", out=out, **arguments(seeds=(0, 1, 2)))


@pytest.fixture
def copy(whole, tmp_path):
    """The same run in another place, to be spoilt."""
    return shutil.copytree(whole.path, tmp_path / whole.path.name)


def stopped(monkeypatch, tmp_path, step, **changes):
    stop_at(monkeypatch, step)
    run = thespis.train("sac", out=tmp_path, **arguments(**changes))
    assert run.status == {"state": "stopped", "step": step}
    return run


# --- what a run leaves ----------------------------------------------------------------------


def test_a_run_leaves_a_row_per_evaluation_and_two_checkpoints(whole):
    table = whole.metrics
    assert table["step"].tolist() == [100, 200, 300, 400]
    assert np.isfinite(table["eval/mean_reward"]).all()
    assert table["train/n_updates"].tolist() == [0, 100, 200, 300]
    assert table["replay/size"].tolist() == [100, 200, 200, 200]
    assert (np.diff(table["time/elapsed_s"]) > 0).all()
    assert table["time/compile_s"][-1] <= table["time/elapsed_s"][-1]
    assert [p.name for p in checkpoint.latest(whole.path / "checkpoints")] == [
        "000000000400",
        "000000000300",
    ]
    assert whole.status == {"state": "done", "step": 400}
    assert len(list((whole.path / "tensorboard").glob("events*"))) == 1


def test_the_best_policy_is_the_one_of_the_best_evaluation(three):
    (best,) = checkpoint.latest(three.path / "best")
    info = checkpoint.manifest(best)["info"]
    table = three.metrics
    for m in range(3):
        rewards = table["eval/mean_reward"][table["member"] == m]
        assert info["reward"][m] == pytest.approx(rewards.max())
        assert info["step"][m] == 100 * (1 + rewards.argmax())
    held, _ = three.state("best")
    last, _ = three.state("last")
    new = [step == 400 for step in info["step"]]
    for x, y in zip(jax.tree.leaves(held), jax.tree.leaves(last), strict=True):
        for m in range(3):
            assert not new[m] or np.array_equal(x[m], y[m])


@pytest.mark.thorough
def test_histograms_are_written_with_the_metrics_and_cut_with_them(whole, tmp_path):
    """Of TAAC: every action since the row before is counted, also where a run goes on."""
    small = {"steps": 200, "buffer_size": 300, "hidden": (4,), "critics": 1, "n_step": 1}
    run = thespis.train("taac", out=tmp_path, **arguments(**small, embed=False))
    table = metrics.read(run.path / "histograms.csv")
    assert table["step"].tolist() == run.metrics["step"].tolist() == [100, 200]
    of = lambda name: sum(x for k, x in table.items() if k.startswith(name))
    assert of("rollout/actions/0:").tolist() == [100, 100]
    chances = of("train/switch_probabilities:")
    assert chances[0] == 0
    assert chances[1] > 100 * 16
    first = (run.path / "histograms.csv").read_bytes()
    thespis.resume(run.path, steps=300, progress=False)
    again = (run.path / "histograms.csv").read_bytes()
    assert again.startswith(first)
    assert metrics.read(run.path / "histograms.csv")["step"].tolist() == [100, 200, 300]
    assert not (whole.path / "histograms.csv").exists()  # SAC has none


def test_several_members_have_a_tensorboard_folder_each(three):
    found = {p.parent.name for p in (three.path / "tensorboard").rglob("events*")}
    assert found == {"member_0", "member_1", "member_2"}


# --- stop and continue ----------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 150])
def test_stop_and_continue_equals_never_stopped(whole, tmp_path, monkeypatch, step, capsys):
    run = stopped(monkeypatch, tmp_path, step)
    assert f"thespis resume {run.path}" in capsys.readouterr().err
    again = thespis.resume(run.path, progress=False)
    assert again.path == run.path
    assert again.status == {"state": "done", "step": 400}
    same(whole.path, run.path)


def test_several_members_continue_as_exactly(three, tmp_path, monkeypatch):
    run = stopped(monkeypatch, tmp_path, 210, seeds=(0, 1, 2))
    thespis.resume(run.path, progress=False)
    same(three.path, run.path)


SEEDS = pytest.param({"seeds": (0, 1)}, marks=pytest.mark.slow)


@pytest.mark.posix
@pytest.mark.parametrize("more", [SEEDS, {"members": 3, "pbt.interval": 100}])
def test_killed_at_a_random_moment_and_continued_equals_never_stopped(tmp_path, more):
    """A child process that trains members, tuned or not, is really killed."""
    setting = {"steps": 600, "devices": 1} | more
    whole = thespis.train(
        "sac", out=tmp_path / "whole", **arguments(**setting, checkpoint_freq=600)
    )
    folder = tmp_path / "killed" / "sac" / "jax-pendulum_1"
    begin = ["train", "sac", "--out", str(tmp_path / "killed")]
    killed(folder, *begin, *words(**setting, checkpoint_freq=40))
    assert thespis.resume(folder, progress=False).status["state"] == "done"
    same(whole.path, folder)
    if "members" in more:
        assert len(whole.lineage["step"]) == 3 * 4  # at 200, 300, 400, 500
        assert (whole.path / "lineage.csv").read_bytes() == (folder / "lineage.csv").read_bytes()


DYING = """
import os, random, signal, sys, threading, time
from thespis import cli
from thespis.runs import checkpoint
enough, save = int(sys.argv[1]), checkpoint.save

def save_and_die(folder, step, *rest):
    if step >= 600:
        time.sleep(600)  # however fast it is, death comes first
    if step >= enough:
        die = threading.Timer(random.uniform(0, 0.1), os.kill, (os.getpid(), signal.SIGKILL))
        die.start()
    return save(folder, step, *rest)

checkpoint.save, sys.argv[1:] = save_and_die, sys.argv[2:]
sys.exit(cli.main())
"""


def killed(folder, *command: str) -> None:
    """Run a command that is killed at some moment after it had something new to save."""
    before = newest(folder)
    enough = str(before + random.randint(1, 400))
    child = [sys.executable, "-c", DYING, enough, *command]
    done = subprocess.run(child, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    print("killed after step", newest(folder))
    assert before <= newest(folder) < 600


def newest(folder) -> int:
    return max((int(p.name) for p in (folder / "checkpoints").glob("0*[0-9]")), default=-1)


def test_killed_before_anything_was_saved_starts_again(whole, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(whole.path / "config.json", folder)
    thespis.resume(folder, progress=False)
    same(whole.path, folder)


@pytest.mark.parametrize("steps", [pytest.param(200, marks=pytest.mark.slow), 250])
def test_a_longer_run_equals_one_that_was_meant_to_be_long(whole, tmp_path, steps):
    """Also if the shorter one closed with an evaluation that the longer one does not have."""
    run = thespis.train("sac", out=tmp_path, **arguments(steps=steps))
    assert run.metrics["step"][-1] == steps
    longer = thespis.resume(run.path, steps=400, progress=False)
    assert longer.config.steps == 400
    assert directory.read_json(run.path / "config.json")["steps"] == 400
    same(whole.path, run.path)


@pytest.mark.slow
def test_a_longer_run_may_outgrow_its_replay(tmp_path):
    roomy = arguments(buffer_size=10_000)
    whole = thespis.train("sac", out=tmp_path, **roomy)
    run = thespis.train("sac", out=tmp_path, **(roomy | {"steps": 200}))
    assert run.parts[0].capacity == 200
    thespis.resume(run.path, steps=400, progress=False)
    same(whole.path, run.path)
    assert arrays(run.path)["replay.size"] == 400


def test_what_a_kill_left_behind_is_cleared_from_a_finished_run_too(copy):
    """It may have come after the run was known to be done."""
    left = copy / ".tmp-0123456789abcdef.json"
    left.write_text("half")
    thespis.resume(copy, progress=False)
    assert not left.exists()


def test_a_finished_run_is_left_alone(copy, capsys):
    before = {p: p.stat().st_mtime_ns for p in copy.rglob("*")}
    run = thespis.resume(copy, progress=False)
    assert run.status["state"] == "done"
    assert "is done at step 400; to train on" in capsys.readouterr().err
    assert {p: p.stat().st_mtime_ns for p in copy.rglob("*")} == before
    with pytest.raises(ThespisError, match=r"steps = 300: .* has 400 already"):
        thespis.resume(copy, steps=300, progress=False)


def test_a_best_policy_from_a_lost_future_is_forgotten(whole, copy):
    """A crash may come between a new best policy and the checkpoint that knows of it."""
    (best,) = checkpoint.latest(copy / "best")
    info = checkpoint.manifest(best)["info"]
    state = {"state": transplant.arrays(copy, print)}
    checkpoint.save(copy / "best", 399, state, {"reward": [1e9], "step": [399]})
    shutil.rmtree(checkpoint.latest(copy / "checkpoints")[0])
    directory.write_json(copy / "status.json", {"state": "running", "step": 300})
    thespis.resume(copy, progress=False)
    (again,) = checkpoint.latest(copy / "best")
    assert checkpoint.manifest(again)["info"] == info
    same(whole.path, copy)


# --- members --------------------------------------------------------------------------------


def test_a_member_equals_the_run_of_its_seed_alone(three, whole):
    assert differences(three.path, whole.path, member=0) == []


def test_a_member_may_leave_and_go_on_alone(three, tmp_path, monkeypatch):
    alone = thespis.train("sac", out=tmp_path, **arguments(seed=1))
    assert differences(three.path, alone.path, member=1) == []

    run = stopped(monkeypatch, tmp_path, 210, seeds=(0, 1, 2))
    before = arrays(run.path)
    left = thespis.resume(run.path, member=1, out=tmp_path, progress=False)
    assert left.path not in (run.path, alone.path)
    assert left.config.seeds == (1,)
    same(alone.path, left.path)
    assert before.keys() == arrays(run.path).keys()
    assert run.status["state"] == "stopped"


# --- beginnings and ends --------------------------------------------------------------------


def test_training_ends_when_the_wanted_reward_is_reached(tmp_path):
    run = thespis.train("sac", out=tmp_path, **arguments(stop_reward=-1e6))
    assert run.status == {"state": "done", "step": 100}
    assert newest(run.path) == 100
    assert thespis.resume(run.path, progress=False).status["step"] == 100
    assert thespis.resume(run.path, steps=400, progress=False).status["step"] == 200


@pytest.mark.parametrize("warm_up", ["random", "policy"])
def test_warm_up_acts_at_random_or_by_the_untrained_policy(tmp_path, warm_up):
    """TD3's, which is a function of what it observes, and noise."""
    config = configs.make("td3", RUN | {"warm_up": warm_up, "noise": 0.1})
    stop, watch = [], Silent()
    watch.advance = lambda step, *_: stop.extend([step] * (step >= 20))
    x = trainer.Trainer(config, build(config), tmp_path, watch)
    x.start()
    untrained = reference.plain(reference.member(x.learner.state.actor.params, 0))
    x.run(stop)
    x.close()
    assert x.learner.clock.updates == 0
    rows = x.learner.replay.rows
    obs, action = (np.asarray(part)[:20, 0, 0] for part in (rows.obs, rows.action))
    noise = (action - np.tanh(reference.forward(untrained, obs))).std()
    assert 0.05 < noise < 0.15 if warm_up == "policy" else noise > 0.4


def test_only_one_process_trains_in_a_folder(copy):
    status = directory.read_json(copy / "status.json")
    with (
        process.alone(copy),
        pytest.raises(ThespisError, match="is being trained by another process"),
    ):
        thespis.resume(copy, steps=500, progress=False)
    assert directory.read_json(copy / "status.json") == status


# --- what goes wrong ------------------------------------------------------------------------


def refuse(code):
    def call(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        pytest.param(errno.EROFS, "choose a folder", marks=pytest.mark.slow),
    ],
)
def test_a_full_or_read_only_disk_loses_nothing(whole, tmp_path, monkeypatch, code, advice, capsys):
    run = stopped(monkeypatch, tmp_path, 150)
    at, before = run.status["step"], arrays(run.path)
    with monkeypatch.context() as m:
        m.setattr(os, "fsync", refuse(code))
        with pytest.raises(ThespisError, match=rf"cannot write .*{os.strerror(code)}; {advice}"):
            thespis.resume(run.path, progress=False)
    assert newest(run.path) == at
    after = arrays(run.path)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    thespis.resume(run.path, progress=False)
    same(whole.path, run.path)


def test_a_damaged_checkpoint_falls_back_and_says_so(whole, copy, capsys):
    newest_one = checkpoint.latest(copy / "checkpoints")[0] / "replay.safetensors"
    data = bytearray(newest_one.read_bytes())
    data[-1] ^= 1
    newest_one.write_bytes(data)
    directory.write_json(copy / "status.json", {"state": "running", "step": 400})
    thespis.resume(copy, progress=False)
    said = capsys.readouterr().err
    assert "replay.safetensors is damaged" in said
    assert "trying the checkpoint before it" in said
    same(whole.path, copy)


def lose_newest(folder) -> None:
    """As if it had stopped at 300, and its logs had gone on."""
    shutil.rmtree(checkpoint.latest(folder / "checkpoints")[0])


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "harm",
    [
        {"metrics.csv": lambda x: x[:-20] + b"=" + x[-19:], "status.json": lambda x: b"[1, 2]"},
        {
            "metrics.csv": lambda x: x[:-9] + b"\xff" + x[-8:],
            "status.json": lambda x: b'{"step": 1}',
        },
        {
            "metrics.csv": lambda x: x + "\u00b2,0\n400,8,\n".encode(),
            "status.json": lambda x: b"\xff{",
        },
        {
            "status.json": lambda x: b'{"state": "done", "step": "x"}',
            "compiled.json": lambda x: b"[]",
        },
        {"status.json": lambda x: b"[" * 100_000, "compiled.json": lambda x: b"\0" * 9},
    ],
)
def test_damaged_logs_never_stop_a_resume(whole, copy, capsys, harm):
    lose_newest(copy)
    for name, spoil in harm.items():
        (copy / name).write_bytes(spoil((copy / name).read_bytes()))
    for file in (copy / "tensorboard").iterdir():
        file.write_bytes(b"\xff" + file.read_bytes())
    kept = {f"{name}.damaged-1": (copy / name).read_bytes() for name in harm}
    run = thespis.resume(copy, progress=False)
    assert run.status == {"state": "done", "step": 400}
    notes = capsys.readouterr().err
    assert all(str(copy / name) in notes for name in kept)
    assert {x.name: x.read_bytes() for x in copy.glob("*.damaged-*")} == kept
    same(whole.path, copy)


@pytest.mark.posix
def test_logs_that_are_no_files_never_stop_a_resume(whole, copy, tmp_path):
    lose_newest(copy)
    (tmp_path / "secret").write_text("mine")
    for name, make in {
        "metrics.csv": os.mkfifo,
        "status.json": os.mkdir,
        "compiled.json": os.mkfifo,
        "report.html": lambda x: os.symlink(tmp_path / "secret", x),
    }.items():
        (copy / name).unlink()
        make(copy / name)
    shutil.rmtree(copy / "tensorboard")
    (copy / "tensorboard").symlink_to(tmp_path)
    run = thespis.resume(copy, progress=False)
    assert run.status == {"state": "done", "step": 400}
    assert differences(whole.path, copy) == []
    assert run.metrics["step"].tolist() == [400]
    assert (tmp_path / "secret").read_text() == "mine"
    assert sorted(x.name for x in tmp_path.iterdir()) == sorted([copy.name, "secret"])


@pytest.mark.posix
@pytest.mark.parametrize("name", ["checkpoints", "best", "checkpoints/{newest}"])
def test_links_to_checkpoints_elsewhere_are_not_followed(copy, tmp_path, name):
    path = copy / name.format(newest=f"{400:012d}")
    theirs = path.rename(tmp_path / "theirs")
    path.symlink_to(theirs)
    before = {x: x.stat().st_mtime_ns for x in theirs.rglob("*")}
    if "newest" in name:  # one of those that are there is enough
        assert thespis.resume(copy, progress=False, steps=500).status["step"] == 500
    else:
        with pytest.raises(
            ThespisError, match=f"{name} is a symbolic link, and links inside a run"
        ):
            thespis.resume(copy, progress=False, steps=500)
    assert {x: x.stat().st_mtime_ns for x in theirs.rglob("*")} == before


def test_what_a_killed_process_left_is_gone_after_the_next_start(copy):
    left = [copy / ".tmp-1.json", copy / "best" / ".tmp-2", copy / "plots" / ".tmp-3.png"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    thespis.resume(copy, steps=500, progress=False)
    assert not list(copy.rglob(".tmp-*"))


def test_another_environment_is_refused_by_name(copy, whole):
    before = arrays(copy)
    with pytest.raises(
        ThespisError, match=r"env = jax-mountain-car: .* was trained on jax-pendulum"
    ):
        thespis.resume(copy, steps=500, env="jax:mountain-car", progress=False)
    with pytest.raises(ThespisError, match=r"env = Pendulum-v1: .* was trained on jax-pendulum"):
        thespis.resume(copy, steps=500, env="Pendulum-v1", progress=False)
    config = directory.read_json(copy / "config.json")
    directory.write_json(copy / "config.json", config | {"env": "jax:mountain-car"})
    with pytest.raises(ThespisError, match="does not fit: state.actor"):
        thespis.resume(copy, steps=500, progress=False)
    directory.write_json(copy / "config.json", config)
    assert all(np.array_equal(x, y) for x, y in zip(before.values(), arrays(copy).values()))
    assert directory.read_json(copy / "status.json") == whole.status


def test_what_is_not_finite_is_never_saved(tmp_path):
    config = configs.make("sac", dict(RUN))
    x = trainer.Trainer(config, build(config), tmp_path, Silent())
    x.start()
    spoilt = jax.tree.map(lambda v: v * np.nan if v.dtype == np.float32 else v, x.learner.state)
    x.learner = dataclasses.replace(x.learner, state=spoilt)
    with pytest.raises(ThespisError, match=r"sac, step 0: actor.* is not finite, so it"):
        x.save()
    x.close()
    assert newest(tmp_path) == 0
    assert np.isfinite(arrays(tmp_path)["state.temperature.params"]).all()


class Endless(Toy):
    def step(self, action):
        return *super().step(action)[:2], False, False, {}


def test_a_run_says_once_that_episodes_of_evaluations_are_cut(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("thespis.core.LIMIT", 6)
    run = thespis.train("sac", out=tmp_path, **arguments(env=Endless, updates_per_step=0))
    assert (run.metrics["eval/mean_ep_length"] == 6).all()
    assert len(run.metrics["step"]) > 1
    said = "Endless names no time limit: its episodes are cut after 6 steps in evaluations"
    assert capsys.readouterr().err.count(said) == 1
    assert run.evaluate(2)["lengths"] == [e.length for e in run.record(2)] == [6, 6]
    assert capsys.readouterr().err.count(said) == 2  # one each
