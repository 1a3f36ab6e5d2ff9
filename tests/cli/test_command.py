"""The command line: every command, its one line of JSON, and one line for whatever is wrong."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import thespis
from tests.small import arguments, arrays, differences, stop_at, wait_for, words
from thespis.cli.command import COMMANDS, main
from thespis.cli.help_pages import PAGE
from thespis.runs import checkpoint, directory, metrics

pytestmark = pytest.mark.usefixtures("kept")

undrawn = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return thespis.train("sac", out=tmp_path_factory.mktemp("cli"), **arguments())


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return thespis.train("sac", out=tmp_path_factory.mktemp("pair"), **arguments(seeds=(0, 7)))


@pytest.fixture(scope="module")
def population(tmp_path_factory):
    """Three members that exchange at 200 and 300."""
    given = arguments(members=3, pbt={"interval": 100})
    return thespis.train("sac", out=tmp_path_factory.mktemp("population"), **given)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Relative paths lead into a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def say(capsys):
    """Run a command that works -> its lines on stdout."""

    def run(*argv: str) -> list[str]:
        code = main([str(word) for word in argv])
        told = capsys.readouterr()
        assert code == 0, told.err
        return told.out.splitlines()

    return run


@pytest.fixture
def complain(capsys, tmp_path):
    """Run a command that must fail -> its one line on stderr. No run is left behind."""

    def run(*argv: str) -> str:
        code = main([str(word) for word in argv])
        told = capsys.readouterr()
        lines = told.err.splitlines()
        assert code == 2, told
        assert told.out == ""
        assert len(lines) == 1, lines
        assert lines[0].startswith("thespis: ")
        assert " object at 0x" not in lines[0]
        assert not list(tmp_path.glob("runs/*/*"))
        return lines[0]

    return run


# --- commands ----------------------------------------------------------------------------------


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
def test_train_takes_seeds_prefixes_presets_and_other_names(say):
    argv = words(steps=None, hidden=None, seeds="0-1", total_timesteps="4e2", preset="qdax")
    argv += ["--algo.hidden=8,8", "--hp.gamma", "0.9", "--learning_rate", "1e-3", "--json"]
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


@undrawn
def test_stop_and_resume(trained, say, monkeypatch, capsys):
    stop_at(monkeypatch, 200, signal.SIGTERM)
    assert main(["train", "sac", *words(), "--json"]) == 143
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "stopped"
    told = json.loads(say("resume", told["run"], "--json")[0])
    assert (told["state"], told["step"]) == ("done", 400)
    assert differences(trained.path, told["run"]) == []
    told = json.loads(say("resume", told["run"], "--steps", "500", "--json")[0])
    assert (told["state"], told["step"]) == ("done", 500)


@undrawn
def test_resume_one_of_several(pair, say):
    told = json.loads(say("resume", pair.path, "--member", "1", "--steps", "500", "--json")[0])
    assert told["seeds"] == [7]
    assert told["run"] == "runs/sac/jax-pendulum_1"
    assert pair.status["step"] == 400


def test_eval(trained, pair, say):
    told = json.loads(say("eval", trained.path, "--episodes", "3", "--json")[0])
    assert list(told) == ["run", "mean_reward", "std_reward", "returns", "lengths"]
    assert told["mean_reward"] == pytest.approx(np.mean(told["returns"]))
    assert len(told["returns"]) == 3
    both = json.loads(say("eval", pair.path, "--episodes", "3", "--json")[0])
    assert both["returns"][0] == told["returns"]
    one = json.loads(say("eval", pair.path, "--episodes", "3", "--member", "1", "--json")[0])
    assert one["returns"] == both["returns"][1]
    text = "\n".join(say("eval", pair.path, "--episodes", "3", "--best"))
    assert "best policy" in text
    assert f"{np.mean(told['returns']):,.1f}" in "\n".join(
        say("eval", trained.path, "--episodes", "3")
    )


def test_play(trained, say):
    lines = say("play", trained.path, "-o", "video.gif")
    assert lines[1].split() == ["video", "video.gif"]
    assert os.path.getsize("video.gif") > 10_000


def test_plot(trained, pair, say):
    (line,) = say("plot", trained.path, pair.path, "-o", "curves.svg", "--json")
    assert json.loads(line) == {"plot": "curves.svg"}
    assert b"<svg" in Path("curves.svg").read_bytes()
    assert say("plot", pair.path, "--statistic", "mean") == ["plot  curves.png"]


@pytest.mark.parametrize("kind", ["efficiency", "scores", "profile"])
def test_plot_compares_over_environments(kind, trained, pair, say):
    both = trained.path, pair.path  # which repeat a seed, so that each is a curve
    (line,) = say("plot", *both, "--kind", kind, "--json")
    assert json.loads(line) == {"plot": f"{kind}.png"}
    assert Path(f"{kind}.png").stat().st_size > 5000


@pytest.mark.slow
def test_plot_draws_a_population_into_its_folder(population, say):
    told = json.loads(say("plot", population.path, "--kind", "population", "--json")[0])
    assert all(Path(p).parent == population.path / "plots" for p in told["plots"])


def test_report(trained, pair, say):
    assert (trained.path / "report.html").exists()  # training leaves one
    (line,) = say("report", trained.path, "-o", "one.html", "--json")
    assert json.loads(line) == {"report": "one.html"}
    assert "<title>SAC on jax:pendulum</title>" in Path("one.html").read_text()
    assert say("report", trained.path, pair.path, "--watch") == ["report  report.html"]
    assert Path("report.html").exists()
    assert pair.report("pair.html") == Path("pair.html")


def test_report_takes_the_old_name_of_video_mb_with_a_note(trained, tmp_path, capsys):
    copy = shutil.copytree(trained.path, tmp_path / "run")
    (copy / "videos").mkdir()
    (copy / "videos" / "one.mp4").write_bytes(b"\0" * 2**20)
    pages = []
    for i, option in enumerate([["--video-mb", "0.5"], ["--films", "0.5"], ["--films=0.5"], []]):
        assert main(["report", str(copy), "-o", f"{i}.html", *option]) == 0
        note = "note: --films is now called --video-mb\n" if "--films" in str(option) else ""
        assert capsys.readouterr().err == note
        pages.append(Path(f"{i}.html").stat().st_size)
    assert max(pages[:3]) < 2**20 < pages[3]


def test_runs(trained, pair, say):
    (line,) = say("runs", "--out", trained.path.parent, "--json")
    (told,) = json.loads(line)["runs"]
    assert (told["run"], told["state"], told["step"]) == (str(trained.path), "done", 400)
    lines = say("runs", "--out", pair.path.parents[2])
    assert any(str(pair.path) in line and " done " in line for line in lines)
    assert say("runs", "--out", trained.path.parent, "--state", "failed") == ["no runs"]


def test_damaged_runs_are_listed(tmp_path, say):
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "status.json").write_text("{}")
    lines = say("runs", "--out", tmp_path, "--state", "damaged")
    assert any(str(tmp_path) in line and " damaged " in line for line in lines)


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


@pytest.mark.slow
def test_eval_and_play_take_one_member_the_best_or_all(population, say):
    three = ["eval", population.path, "--episodes", "2", "--json"]
    all_of = json.loads(say(*three)[0])["returns"]
    assert json.loads(say(*three, "--member", "all")[0])["returns"] == all_of
    best = json.loads(say(*three, "--member", "best")[0])["returns"]
    assert best == all_of[population.member("best")]
    lines = "\n".join(say("eval", population.path, "--episodes", "2", "--member", "best"))
    assert str(population.member("best")) in lines.splitlines()[-2].split()[0]

    told = json.loads(say("play", population.path, "--member", "all", "-o", "x.gif", "--json")[0])
    assert told["video"] == "x.gif"  # one video of all, side by side
    with Image.open("x.gif") as gif:
        assert gif.size == (2 * 480, 2 * 360)
    assert [one["member"] for one in told["members"]] == [0, 1, 2]
    assert len({one["returns"][0] for one in told["members"]}) == 3


@undrawn
def test_rerun_trains_the_winner_again(population, say):
    told = json.loads(say("rerun", population.path, "--member", "best", "--json")[0])
    best = population.member("best")
    assert (told["state"], told["seeds"]) == ("done", [best])
    assert told["metrics"]["hparams/gamma"] == pytest.approx(population.hypers().gamma[best])


def test_plot_draws_how_a_population_went(population, say):
    told = json.loads(say("plot", population.path, "--json")[0])
    assert told["plot"] == "curves.png"
    assert {Path(p).name for p in told["population"]} >= {"members.png", "family_tree.png"}
    assert len(say("plot", population.path)) == 1 + len(told["population"])


def test_list(say):
    told = json.loads(say("list", "--json")[0])
    assert told["algorithms"] == list(thespis.ALGORITHMS)
    assert "qdax" in told["presets"]["sac"]
    assert "jax:pendulum" in told["environments"]["jax"]
    text = "\n".join(say("list"))
    assert "jax:pendulum" in text
    assert "--preset sparse          small tasks with a goal that is seldom reached" in text
    assert "--preset sparse          small" in "\n".join(say("train", "taac", "--help-all"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_in_its_help(command, say):
    text = "\n".join(say(command, "--help"))
    assert text.startswith(f"usage: thespis {command}")
    assert f"example: thespis {command}" in text
    assert "--json" in text


def test_the_help_of_an_algorithm_tells_all_of_its_options(say):
    text = "\n".join(say("train", "td3", "--help-all"))
    options = "--algo.delay N", "--hp.noise X", "--seeds", "--eval-env", "--pbt.best X", "--members"
    for option in options:
        assert option in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("command", ["train", "plan"])
@pytest.mark.parametrize("algo", ["ALGO", *thespis.ALGORITHMS])
def test_help_opens_with_a_page_of_what_most_people_set(command, algo, say):
    lines = say(command, *([] if algo == "ALGO" else [algo]), "--help")
    text = "\n".join(lines)
    assert lines[0] == f"usage: thespis {command} {algo} --env ENV [options]"
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    options = ["--env", "--steps", "--seeds", "--eval-freq", "--members", "--pbt", "--json"]
    options += ["--out"] if command == "train" else ["--probe"]
    options += [] if algo == "ALGO" else ["--learning-rate", "--gamma", "--hidden", "--batch-size"]
    for option in options:
        assert f"  {option}" in text
    assert ("--demos" in text) == (algo == "sqil")
    assert f"`thespis {command} {algo} --help-all` lists every option." in text


def test_the_first_page_names_only_options_that_there_are_and_says_what_they_do(say):
    options = {line.split()[0] for line in say("train", "sac", "--help") if line[:4] == "  --"}
    words = [word for line in say("train", "sac", "--help-all") for word in line.split()]
    short = {f"--{word.rpartition('.')[2]}" for word in words if word[:5] in ("--alg", "--hp.")}
    assert options - {*words} - short == {"--learning-rate"}  # which is Stable-Baselines3's
    lines = [line for group in PAGE.values() for _, line in group.values()]
    assert all(line[0].isupper() and line.endswith(".") for line in lines)
    shown = say("train", "sac", "--help")
    assert "  --preset NAME" in "\n".join(shown)
    assert "example: thespis train sac --env jax:pendulum --steps 20000 --seeds 0-4" in shown


def test_help_is_there_without_asking_and_at_once():
    code = (
        "import sys; from thespis.cli.command import main; main(['--help'])\n"
        "names = {'jax', 'numpy', 'rich', 'gymnasium', 'matplotlib', 'importlib.metadata'}\n"
        "heavy = names & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1
    assert all(command in done.stdout for command in COMMANDS)
    assert main([]) == 0


# --- what is wrong with a command -----------------------------------------------------------

SMALL = words()


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
        (
            ["train", "sac", *SMALL, "--preset", "sb3"],
            "preset = sb3: sac has none of this name; there is",
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
        (["rerun"], "name the run: thespis rerun RUN"),
        (["rerun", "nowhere"], "no run at nowhere"),
        (
            ["train", "sac", *SMALL, "--learning-starts", "300"],
            "learning_starts = 300 is more than buffer_size = 200 holds",
        ),
        (
            ["train", "sac", *SMALL, "--batch-size", "150"],
            "batch_size = 150 is more than the 100 steps stored when learning starts",
        ),
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
        (["resume", "RUN", "--env", "x"], "unknown option --env; there is steps, member, "),
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
    "no object": ("config.json", lambda path: path.write_text("[]")),
    "a damaged list": ("config.json", lambda path: edit(path, seeds=["x"])),
    "another type": ("config.json", lambda path: edit(path, frame_stack=None)),
    "no choice": ("config.json", lambda path: edit(path, options={"hidden": [[]]})),
    "far too many": ("config.json", lambda path: edit(path, options={"hidden": [10**30]})),
    "no number": ("config.json", lambda path: edit(path, hp={"gamma": "x"})),
    "a link": ("config.json", link_to_nowhere),
    "a pipe": ("config.json", pipe),
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
    "text", ["", "time,member\n1,0\n", "step,member,eval/mean_reward\n\u00b2,0,=1\n3,8,1\n"]
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


# --- what goes wrong on the way -------------------------------------------------------------


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
    _, err = child.communicate(timeout=60)
    assert child.returncode == 143, err
    assert "SIGTERM: saving after this step" in err
    assert "to go on: thespis resume runs/sac/Mine-v0_1" in err
    assert "Traceback" not in err
    status = directory.read_json(folder / "status.json")
    assert status["state"] == "stopped"
    assert int(checkpoint.latest(folder / "checkpoints")[0].name) == status["step"] >= 100
    assert metrics.read(table)["step"].max() <= status["step"]


def test_ctrl_c_before_training_is_no_traceback(capsys, monkeypatch):
    def interrupt(argv):
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "list", interrupt)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "thespis: interrupted\n"


def test_a_reader_that_goes_away_is_no_traceback():
    command = f"{sys.executable} -m thespis list | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout == "algorithms\n"
    assert done.stderr == ""
