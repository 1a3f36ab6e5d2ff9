"""Commands that train: train, resume, rerun, and what goes wrong on the way."""

import json
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import thespis
from tests.small import RUN, arrays, differences, stop_at, wait_for, words
from thespis.cli.command import main
from thespis.runs import checkpoint, directory, metrics

pytestmark = pytest.mark.usefixtures("kept")

undrawn = pytest.mark.usefixtures("undrawn")


@undrawn
def test_train_tells_one_line_of_json(trained, say):
    (line,) = say("train", "sac", *words(), "--seed", "0", "--json", "--out", "here")
    told = json.loads(line)
    assert list(told) == ["run", "state", "step", "seeds", "rewards", "metrics"]
    assert told["run"] == "here/sac/jax-pendulum_1"
    assert (told["state"], told["step"], told["seeds"]) == ("done", 400, [0])
    assert told["metrics"]["eval/mean_reward"] == told["rewards"][0]
    assert told["metrics"]["train/n_updates"] == 300
    assert differences(trained.path, told["run"]) == []
    saved = [directory.read_json(Path(p) / "config.json") for p in (trained.path, told["run"])]
    assert {**saved[0], "command": ""} == {**saved[1], "command": ""}


@undrawn
def test_train_takes_a_file_a_name_and_the_folder_of_the_environment(trained, say, monkeypatch):
    options = {name: list(x) if isinstance(x, tuple) else x for name, x in RUN.items()}
    lines = [f"{name} = {json.dumps(x)}" for name, x in list(options.items())[2:]]
    lines += ['algo = "sac"', "steps = 300", 'tags = "a b"']
    Path("run.toml").write_text("\n".join(lines))
    monkeypatch.setenv("THESPIS_RUNS", "elsewhere")
    argv = ["--config", "run.toml", "--env", RUN["env"], "--steps=400", "--notes", "a note"]
    told = json.loads(say("train", *argv, "--name", "{env}, {hidden}", "--json")[0])
    assert told["run"] == "elsewhere/sac/jax-pendulum-8_1"
    assert differences(trained.path, told["run"]) == []
    (listed,) = json.loads(say("runs", "--json")[0])["runs"]
    assert (listed["tags"], listed["notes"]) == (["a", "b"], "a note")


def test_a_dry_run_tells_what_would_be_run_and_leaves_nothing(say, complain, tmp_path):
    argv = ["train", "sac", *words(name="{env}-{hidden}"), "--members", "2", "--pbt", "--dry-run"]
    lines = say(*argv)
    assert lines[0] == "sac on jax:pendulum: 400 steps, 2 members"
    assert any(line.startswith("placement ") and "1 thread" in line for line in lines)
    assert not any("(s)" in line for line in lines)
    assert any(line.startswith("memory ") for line in lines)
    assert "folder     runs/sac/jax-pendulum-8_N" in lines
    settings = dict(line.split(maxsplit=1) for line in lines[lines.index("") + 1 :])
    assert (settings["batch_size"], settings["seeds"], settings["pbt.interval"]) == (
        "16",
        "0 1",
        "20",
    )
    told = json.loads(say(*argv, "--json")[0])
    assert told["config"]["batch_size"] == 16
    assert told["fits"] is True
    assert "callbacks                thespis:Callback" in say(
        *argv, "--callback", "thespis:Callback"
    )
    short = say("train", "sac", "--env", "jax:pendulum", "--steps", "400", "--dry-run")
    assert "eval_freq                20" in short
    told = complain(*argv, "--callback", "thespis:Calback")
    assert "thespis:Calback: thespis has no Calback; did you mean Callback" in told
    told = complain(*argv, "--pbt.fitness", "eval/reward")
    assert "pbt.fitness = eval/reward is not a metric; did you mean eval" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "imports"),
    [
        (["--trust", "false"], False),
        (["--no-trust"], False),
        (["--trust", "--trust=false"], False),
        (["--trust=true"], True),
        (["--no-trust", "--trust"], True),
    ],
)
def test_the_algorithm_of_a_file_is_imported_only_if_trust_is_true(
    words, imports, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "path", list(sys.path))
    own = "import pathlib, thespis; pathlib.Path('imported').touch(); Mine = thespis.SAC"
    (tmp_path / "stranger.py").write_text(own)
    Path("run.toml").write_text('algo = "stranger:Mine"\nenv = "jax:pendulum"')
    try:
        assert main(["config", "--config", "run.toml", *words]) == (0 if imports else 2)
    finally:
        sys.modules.pop("stranger", None)
    assert Path("imported").exists() == imports


def test_callbacks_on_the_command_line_replace_those_of_the_file(
    say, complain, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "stranger.py").write_text("import pathlib; pathlib.Path('imported').touch()")
    Path("run.toml").write_text('env = "jax:pendulum"\ncallbacks = ["stranger:Watch"]')
    words = ["sac", "--config", "run.toml", "--steps", "400"]
    assert "names code" in complain("train", *words, "--dry-run")
    words += ["--callback", "thespis:Callback"]
    settings = say("train", *words, "--dry-run")
    assert "callbacks                thespis:Callback" in settings
    assert say("plan", *words, "--no-probe")
    text = say("config", *words, "--out", "elsewhere")
    assert 'callbacks = ["thespis:Callback"]' in text
    assert 'out = "elsewhere"' in text
    assert not Path("imported").exists()


@pytest.mark.parametrize("command", ["train", "config", "plan"])
def test_without_an_algorithm_the_help_names_them(say, command):
    assert "discrete-sac" in "\n".join(say(command))


@undrawn
def test_what_config_prints_is_what_train_reads(say):
    text = say("config", "td3", "--preset", "qdax", "--env", "jax:pendulum", "--name", "x")
    Path("run.toml").write_text("\n".join(text))
    again = say("config", "--config", "run.toml")
    assert again == text
    Path("run.json").write_text(say("config", "--config", "run.toml", "--json")[0])
    assert say("config", "--config", "run.json") == text
    only_train = ["--out", "x", "--callback", "a:B", "--dry-run"]  # of which a plan needs nothing
    planned = say("plan", "--config=run.toml", "--no-probe", *only_train)
    assert planned[0].startswith("td3 on jax:pendulum")
    named = say("config", "sac", "--callback", "my_module:Mine")
    assert 'callbacks = ["my_module:Mine"]' in named


@undrawn
def test_train_takes_seeds_prefixes_presets_and_other_names(say):
    argv = words(steps=None, hidden=None, seeds="0-1", total_timesteps="4e2", preset="qdax")
    argv += ["--algo.hidden=8,8", "--hp.gamma", "0.9", "--learning_rate", "1e-3", "--json"]
    argv += ["--updates-per-step", "0"]
    told = json.loads(say("train", "sac", *argv)[0])
    assert told["seeds"] == [0, 1]
    assert len(told["rewards"]) == 2
    assert told["metrics"]["eval/mean_reward"] == pytest.approx(np.mean(told["rewards"]))
    saved = directory.read_json(thespis.load(told["run"]).path / "config.json")
    assert saved["steps"] == 400
    assert saved["options"]["hidden"] == [8, 8]
    assert saved["options"]["std"] == "softplus"
    assert saved["hp"]["gamma"] == 0.9
    assert saved["hp"]["alpha_lr"] == 1e-3


@undrawn
def test_train_shows_its_rows_and_a_table(say, capsys):
    assert main(["train", "sac", *words()]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert lines[0] == "sac on jax:pendulum: 400 steps, seed 0, 1 thread"
    assert lines[1] == "runs/sac/jax-pendulum_1"
    assert [line.split()[0] for line in lines[2:6]] == ["100", "200", "300", "400"]
    assert any("compiling" in line for line in lines)
    assert lines[-1] == "run    runs/sac/jax-pendulum_1"


@pytest.mark.posix
@undrawn
def test_stop_and_resume(trained, say, monkeypatch, capsys):
    stop_at(monkeypatch, 200, signal.SIGTERM)
    monkeypatch.setattr(sys, "argv", ["/bin/thespis", "train", "sac"])
    assert main(["train", "sac", *words(), "--json"]) == 143
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "stopped"
    told = json.loads(say("resume", told["run"], "--json")[0])
    assert (told["state"], told["step"]) == ("done", 400)
    assert differences(trained.path, told["run"]) == []
    monkeypatch.setattr(sys, "argv", ["/bin/thespis", "resume", "a run"])
    told = json.loads(say("resume", told["run"], "--steps", "500", "--json")[0])
    assert (told["state"], told["step"]) == ("done", 500)
    saved = directory.read_json(Path(told["run"]) / "config.json")
    assert saved["command"] == "thespis train sac"
    assert saved["resumes"] == ["thespis train sac", "thespis resume 'a run'"]


@undrawn
def test_resume_one_of_several(pair, say):
    told = json.loads(say("resume", pair.path, "--member", "1", "--steps", "500", "--json")[0])
    assert told["seeds"] == [7]
    assert told["run"] == "runs/sac/jax-pendulum_1"
    assert pair.status["step"] == 400


@undrawn
def test_train_a_population(population, say):
    tuner = ["--members", "3", "--pbt", "--pbt.interval", "100"]
    told = json.loads(say("train", "sac", *words(), *tuner, "--json")[0])
    assert told["seeds"] == [0, 1, 2]
    assert told["best"] == population.member("best") == np.argmax(told["rewards"])
    assert told["parents"] == population.parents
    assert len(told["hparams"]["gamma"]) == 3
    assert differences(population.path, told["run"]) == []
    plots = {p.name for p in (Path(told["run"]) / "plots").iterdir()}
    assert {"learning_curve.png", "family_tree.png", "schedules.png"} <= plots


@undrawn
def test_rerun_trains_the_winner_again(population, say):
    told = json.loads(say("rerun", population.path, "--member", "best", "--json")[0])
    best = population.member("best")
    assert (told["state"], told["seeds"]) == ("done", [best])
    assert told["metrics"]["hparams/gamma"] == pytest.approx(population.hypers().gamma[best])


@undrawn
def test_a_run_that_stopped_before_its_first_evaluation(say, monkeypatch, complain, capsys):
    stop_at(monkeypatch, 1)
    assert main(["train", "sac", *words(), "--json", "--out", "early"]) == 130
    run = json.loads(capsys.readouterr().out)
    assert run["rewards"] == [None]
    assert len(json.loads(say("eval", run["run"], "--episodes", "2", "--json")[0])["returns"]) == 2
    assert "has no data yet" in complain("plot", run["run"])
    assert "was never evaluated" in complain("eval", run["run"], "--best")
    assert json.loads(say("resume", run["run"], "--json")[0])["state"] == "done"


def spoiled(capsys, *argv: str) -> str:
    """A run that fails after it began: one line, and what was saved stays good."""
    assert main([str(word) for word in argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("Raise", "environment 0, step 21, seed 0: RuntimeError: the curtain fell"),
        ("Obs", "environment 0, step 21, seed 0: obs is nan at index 1"),
        ("Reward", "environment 0, step 21, seed 0: the reward is nan"),
    ],
)
def test_an_environment_that_fails_is_named_with_the_step(fault, message, capsys):
    env = f"tests.small:Toy{fault}-v0"
    line = spoiled(capsys, "train", "sac", *words(env=env, checkpoint_freq=5), "--json")
    folder = f"runs/sac/Toy{fault}-v0_1"
    step = int(checkpoint.latest(thespis.load(folder).path / "checkpoints")[0].name)
    assert f"thespis: Toy{fault}-v0, {message}" in line
    assert line.endswith(f"saved up to step {step}: thespis resume {folder}")
    assert 0 < step <= 20
    assert main(["eval", folder, "--episodes", "1"]) in (0, 2)  # it may fail again by itself


@pytest.mark.thorough
@undrawn
def test_a_really_full_disk_loses_nothing(trained, tmp_path):
    """The system lets the child write no file larger than its first checkpoints."""
    copy = shutil.copytree(trained.path, tmp_path / "run")
    before = arrays(copy)
    code = (
        "import resource, signal, sys\n"
        "sys.dont_write_bytecode = True  # it would be cut off, and spoil later processes\n"
        "from thespis.cli.command import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        f"sys.exit(main(['resume', {str(copy)!r}, '--steps', '500', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("thespis: ")]
    assert len(lines) == 1
    assert "cannot write" in lines[0]
    assert "File too large" in lines[0]
    assert "Traceback" not in done.stderr
    after = arrays(copy)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert main(["resume", str(copy), "--steps", "500", "--json"]) == 0
    assert int(checkpoint.latest(copy / "checkpoints")[0].name) == 500


@pytest.mark.posix
def test_a_child_that_is_asked_to_end_saves_and_says_how_to_go_on(trained, tmp_path):
    """SIGTERM, on a run from a user's own module in the working directory."""
    (tmp_path / "stage.py").write_text(
        textwrap.dedent(
            """
            import gymnasium
            from gymnasium.envs.classic_control import PendulumEnv
            gymnasium.register("Mine-v0", PendulumEnv, max_episode_steps=50)
            """
        )
    )
    argv = words(env="stage:Mine-v0", steps=100_000, checkpoint_freq=100_000, buffer_size=200)
    command = [sys.executable, "-P", "-m", "thespis", "train", "sac", *argv]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "runs" / "sac" / "Mine-v0_1"
    table = folder / "metrics.csv"
    wait_for(
        lambda: child.poll() is not None or (table.exists() and b"\n100," in table.read_bytes())
    )
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=600)
    assert child.returncode == 143, err
    assert "SIGTERM: saving after this step" in err
    assert "to go on: thespis resume runs/sac/Mine-v0_1" in err
    assert "Traceback" not in err
    status = directory.read_json(folder / "status.json")
    assert status["state"] == "stopped"
    assert int(checkpoint.latest(folder / "checkpoints")[0].name) == status["step"] >= 100
    assert metrics.read(table)["step"].max() <= status["step"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--ray", "--coordinator", "here:1"],
            "coordinator and ray are two ways to train together",
        ),
        (["--ray", "127.0.0.1:x"], "give HOST:PORT of a cluster, or auto"),
        (["--ray", "--members", "2", "--deadline", "3"], "deadline is for exchanges"),
        (["--group", "2"], "group and deadline are for groups on ray"),
    ],
)
def test_what_ray_cannot_do_is_refused_before_it_starts(argv, message, complain):
    assert message in complain("train", "sac", *words(), *argv)
