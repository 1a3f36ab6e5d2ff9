"""Algorithms and environments of one's own, by MODULE:NAME or announced by a package."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import thespis
from tests import small
from tests.own_code import OWN
from thespis import plugins
from thespis.cli import main
from thespis.runs import directory

SMALL = {"steps": 150, "updates_per_step": 0, "eval_freq": 150, "checkpoint_freq": 150}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The user's folder, with a module of theirs; it is the current one."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "own.py").write_text(OWN)
    (folder / "broken.py").write_text("raise RuntimeError('the curtain\\nfell')\n")
    (folder / "needy.py").write_text("import no_such_library\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setattr(plugins, "also", [])
        patch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **_: path.touch())
        yield folder
    sys.modules.pop("own", None)


def train(*argv: str) -> Path:
    """Train by the command -> the run."""
    before = set(Path("runs").rglob("config.json")) if Path("runs").exists() else set()
    assert main(["train", *argv]) == 0
    (new,) = set(Path("runs").rglob("config.json")) - before
    return new.parent


@pytest.fixture(scope="module")
def trained(home):
    return train("own:MySAC", *small.words(env="own:Walk", **SMALL), "--bold", "2")


@pytest.fixture
def say(home, capsys):
    """Run a command that works -> what it prints."""

    def run(*argv: object) -> str:
        code = main([str(word) for word in argv])
        told = capsys.readouterr()
        assert code == 0, told.err
        return told.out

    return run


@pytest.fixture
def complain(home, capsys):
    """Run a command that must fail -> its one line on stderr."""

    def run(*argv: object) -> str:
        code = main([str(word) for word in argv])
        told = capsys.readouterr()
        assert code == 2, told
        assert told.out == ""
        assert told.err.count("\n") == 1, told.err
        return told.err.rstrip("\n")

    return run


# --- MODULE:NAME ----------------------------------------------------------------------------


def test_the_run_says_how_its_code_is_found_again(trained):
    assert trained == Path("runs/own-MySAC/Walk_1")
    saved = directory.read_json(trained / "config.json")
    assert (saved["algo"], saved["env"]) == ("own:MySAC", "own:Walk")
    assert saved["options"]["bold"] == 2


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "RUN", "--episodes", "1"],
        ["play", "RUN", "-o", "video.gif"],
        ["demos", "RUN", "-o", "demos.npz", "--episodes", "1"],
        ["export", "RUN"],
        ["report", "RUN"],
        ["plot", "RUN", "-o", "curve.png"],
        ["runs"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_knows_such_a_run(trained, say, command):
    say(*(trained if word == "RUN" else word for word in command))


def test_it_goes_on_and_is_run_again(home, trained, say):
    copy = shutil.copytree(trained, home / "copy")
    told = json.loads(say("resume", copy, "--steps", "170", "--json"))
    assert (told["state"], told["step"]) == ("done", 170)
    told = json.loads(say("rerun", trained, "--json"))
    assert told["run"].startswith("runs/own-MySAC/Walk_")
    assert thespis.load(told["run"]).config.options["bold"] == 2


def test_a_plan_and_the_help_know_its_own_options(home, say):
    argv = small.words(env="own:Walk", **SMALL)
    assert "own:MySAC on own:Walk" in say("plan", "own:MySAC", *argv, "--no-probe", "--bold", "2")
    text = say("train", "own:MySAC", "--help-all")
    assert "SAC that may be told to be bold." in text
    assert "--algo.bold N" in text
    assert "How bold it is. (default 1)" in text


def test_a_class_of_gymnasium_and_a_function_are_named_alike(home, say):
    run = train("sac", *small.words(env="own:Room", **SMALL))
    assert run == Path("runs/sac/Room_1")
    assert json.loads(say("eval", run, "--episodes", "1", "--json"))["lengths"] == [15]
    for env in ("own:make_room", "own:Mine-v0"):  # and a registered id, as ever
        assert thespis.make(env).name in ("Room", "Mine-v0")
    assert "ok" in say("check-env", "own:Room")


def test_check_env_takes_a_task_by_its_class(home, capsys):
    assert main(["check-env", "own:Walk", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["env"] == "Walk"


def test_a_class_of_a_task_is_made_without_arguments_from_python(home):
    plugins.also[:] = [str(home)]
    walk = plugins.load("own").Walk
    assert thespis.make(walk) == thespis.make(walk()) == thespis.make("own:Walk")


WRONG = {
    "nowhere:MySAC": "there is no module nowhere, neither in this folder nor installed",
    "own:MySac": "own has no MySac; did you mean MySAC",
    "own:NUMBER": "own:NUMBER is not an algorithm: it is not a class but the int 3",
    "own:make_room": "own:make_room is not an algorithm: it is not a class but a function",
    "own:Half": "own:Half is not an algorithm: it is not a frozen dataclass",
    "own:Walk": "own:Walk is not an algorithm: it lacks spec, hidden, batch_size, n_step, init",
    "own:Undecorated": "own:Undecorated is not an algorithm: its field bold needs @dataclass",
    "broken:MySAC": "importing broken raised RuntimeError: the curtain fell",
    "needy:MySAC": "importing needy raised ModuleNotFoundError: No module named 'no_such_library'",
}


@pytest.mark.parametrize(("algo", "message"), WRONG.items(), ids=WRONG)
def test_one_line_says_why_it_is_no_algorithm(complain, algo, message):
    assert message in complain("train", algo, *small.words())


WRONG_ENV = {
    "nowhere:Walk": "unknown environment 'nowhere:Walk'",
    "own:Wakl": "own has no Wakl, and registers no environment of that name; did you mean Walk?",
    "own:NUMBER": "own:NUMBER is not an environment: it is not a class but the int 3",
    "own:Half": "own:Half is not an environment: it is not a gymnasium.Env, and for a JAX task it "
    "lacks obs, action, limit, observe, step",
    "own:MySAC": "own:MySAC is not an environment",
    "own:Sized": "own:Sized cannot be created without arguments",
    "broken:Walk": "importing broken raised RuntimeError: the curtain fell",
}


@pytest.mark.parametrize(("env", "message"), WRONG_ENV.items(), ids=WRONG_ENV)
def test_one_line_says_why_it_is_no_environment(complain, env, message):
    assert message in complain("train", "sac", *small.words(env=env))


# --- classes from Python --------------------------------------------------------------------


def test_a_class_may_be_given_and_is_stored_by_its_name(home):
    plugins.also[:] = [str(home)]
    own = plugins.load("own")
    given = small.arguments(env=own.Walk(), **SMALL) | {"out": home / "python"}
    run = thespis.train(own.MySAC, **given)
    assert run.config.algo == "own:MySAC"
    assert run.path.parent == home / "python" / "own-MySAC"
    assert thespis.load(run.path, env=own.Walk()).evaluate(1)["lengths"] == [20]
    assert thespis.plan(thespis.TD3, "jax:pendulum", probe=False).config.algo == "td3"


def test_a_class_that_no_run_could_find_again_is_refused():
    class Local(thespis.SAC):
        pass

    message = r'algo = .*Local: a run must find it again by its name; .*ALGORITHMS\["Local"\]'
    with pytest.raises(thespis.ThespisError, match=message):
        thespis.train(Local, env="jax:pendulum")


def test_a_class_of_the_running_script_is_named_after_its_file(home, monkeypatch):
    """As `python own.py` has it."""
    from thespis.algos import registry

    plugins.also[:] = [str(home)]
    main_module = type(sys)("__main__")
    main_module.__file__ = str(home / "own.py")
    MySAC = type("MySAC", (thespis.SAC,), {"__module__": "__main__"})
    main_module.MySAC = MySAC
    monkeypatch.setitem(sys.modules, "__main__", main_module)
    assert registry.name_of(MySAC) == "own:MySAC"
    assert registry.find("own:MySAC") is MySAC
    del main_module.__file__  # a notebook
    with pytest.raises(thespis.ThespisError, match="a run must find it again"):
        registry.name_of(MySAC)


# --- the rule of trust ----------------------------------------------------------------------


@pytest.fixture
def theirs(trained, tmp_path, monkeypatch):
    """The same run as a stranger sent it, with the module beside it; nothing is imported yet."""
    run = shutil.copytree(trained, tmp_path / "theirs")
    saved = json.loads((run / "config.json").read_text())
    saved.pop("identity")
    (run / "config.json").write_text(json.dumps(saved))
    shutil.copy("own.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in plugins.also])
    monkeypatch.delitem(sys.modules, "own", raising=False)
    monkeypatch.setattr(plugins, "also", [str(tmp_path)])
    return run


COMMANDS = [
    ["eval"],
    ["resume", "--steps", "900"],
    ["rerun"],
    ["export"],
    ["play", "-o", "video.gif"],
    ["demos", "-o", "demos.npz"],
    ["plot", "--kind", "repeats"],
]


def test_an_algorithm_that_a_run_names_is_not_imported(theirs, complain):
    for command, *rest in COMMANDS:
        line = complain(command, theirs, *rest)
        assert f"algo = own:MySAC imports own from {theirs.parent / 'own.py'}" in line
        assert "--trust" in line
    with pytest.raises(thespis.ThespisError, match="imports own"):
        thespis.load(theirs)
    assert not (theirs.parent / "imported").exists()
    assert "own" not in sys.modules


def test_commands_that_need_no_code_import_none(theirs, say):
    assert "MySAC" in Path(say("report", theirs).split()[-1]).read_text()
    say("plot", theirs, "-o", "curve.png")
    told = json.loads(say("runs", "--out", theirs.parent, "--json"))
    assert told["runs"][0]["algo"] == "own:MySAC"
    assert "imported" not in {p.name for p in theirs.parent.iterdir()}


@pytest.mark.usefixtures("undrawn")
def test_networks_of_such_a_run_are_taken_without_its_code(theirs, say):
    actor = f"{theirs}:actor"
    argv = small.words(env="jax:pendulum", **SMALL)
    code = main(["train", "sac", *argv, "--init-from", actor])  # whose shapes do not fit
    assert code == 2
    assert not (theirs.parent / "imported").exists()


def test_who_trusts_it_may_use_it(theirs, say, complain):
    told = say("eval", theirs, "--episodes", "1", "--trust", "--json")
    assert json.loads(told)["lengths"] == [20]
    assert (theirs.parent / "imported").exists()
    assert "names code" in complain("eval", theirs)
    assert thespis.load(theirs, trust=True).config.algo == "own:MySAC"


@pytest.mark.posix
def test_ones_own_run_is_known_where_records_cannot_be_kept(home, monkeypatch, capsys):
    """Nobody is told to trust what has just been trained."""
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    plugins.also[:] = [str(home)]
    given = small.arguments(env="own:Walk", **SMALL) | {"out": home / "unknown"}
    run = thespis.train("own:MySAC", **given)
    assert run.evaluate(1)["lengths"] == [20]


# --- announced by packages ------------------------------------------------------------------

ENTRIES = """
[thespis.algorithms]
redq = troupe:MySAC
sac = troupe:MySAC
lost = no_such_module:MySAC
half = troupe:Half

[thespis.environments]
stroll = troupe:Walk
Toy-v3 = troupe:Room
Pendulum-v1 = troupe:Room
own:Walk = troupe:Walk
"""
METADATA = "Metadata-Version: 2.1\nName: troupe-rl\nVersion: 1.0\n"


def package(folder: Path) -> Path:
    """An installed package that announces what is in its module."""
    about = folder / "troupe_rl-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "troupe.py").write_text(OWN)
    (about / "entry_points.txt").write_text(ENTRIES)
    (about / "METADATA").write_text(METADATA)
    return folder


@pytest.fixture
def installed(home, tmp_path, monkeypatch):
    """The package, on Python's path."""
    monkeypatch.syspath_prepend(package(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "troupe", raising=False)
    yield tmp_path / "site"
    sys.modules.pop("troupe", None)


def test_what_packages_announce_is_listed_and_not_imported(installed, say):
    told = json.loads(say("list", "--json"))
    assert told["algorithms"] == [*thespis.ALGORITHMS, "redq", "lost", "half"]
    assert told["environments"]["packages"] == ["stroll", "Toy-v3"]
    text = say("list")
    assert "redq          registered by troupe-rl: troupe:MySAC" in text
    assert "sac is Thespis's own; that of troupe-rl is troupe:MySAC" in text
    assert "Pendulum-v1 is Gymnasium's own; that of troupe-rl is troupe:Room" in text
    assert "troupe" not in sys.modules
    assert "redq" in say("train", "--help")
    assert "troupe" not in sys.modules


@pytest.mark.usefixtures("undrawn")
def test_announced_names_are_plain_names_and_need_no_trust(installed, say):
    argv = small.words(env="stroll", **SMALL)
    told = json.loads(say("train", "redq", *argv, "--bold", "3", "--json"))
    assert told["run"] == "runs/redq/Walk_1"
    saved = directory.read_json(Path(told["run"]) / "config.json")
    assert (saved["algo"], saved["env"]) == ("redq", "stroll")
    assert "identity" not in saved
    sys.modules.pop("troupe")  # as in another process
    assert json.loads(say("eval", told["run"], "--episodes", "1", "--json"))["lengths"] == [20]
    troupe = sys.modules["troupe"]
    assert thespis.plan(troupe.MySAC, "Toy-v3", probe=False).config.algo == "redq"


def test_hints_know_announced_names(installed, complain):
    assert "did you mean redq?" in complain("train", "redqq", *small.words())
    assert "did you mean stroll?" in complain("train", "td3", *small.words(env="strol"))
    assert "or is it: thespis train redq ...?" in complain("redq", *small.words())


def test_built_in_names_win_with_a_note(installed, capsys):
    argv = ["sac", *small.words(env="Pendulum-v1"), "--no-probe"]
    assert main(["plan", *argv]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert [note.partition(" is ")[0] for note in notes] == ["note: sac", "note: Pendulum-v1"]
    assert "troupe" not in sys.modules


def test_a_broken_announcement_breaks_only_itself(installed, say, complain):
    assert "there is no module no_such_module" in complain("train", "lost", *small.words())
    assert "is not an algorithm: it is not a frozen dataclass" in complain(
        "train", "half", *small.words()
    )
    assert "jax:pendulum" in say("list")


def test_a_damaged_package_hides_no_other(tmp_path):
    """JAX itself does not start beside such a one, but help and lists do."""
    for name in ("a_damaged-1.0", "z_damaged-1.0"):
        damaged = tmp_path / "site" / f"{name}.dist-info"
        damaged.mkdir(parents=True)
        (damaged / "entry_points.txt").write_text("[thespis.algorithms]\nno equals sign\n")
    found = plugins.scan((str(package(tmp_path / "site")),))
    assert found[plugins.ALGORITHMS]["redq"] == ("redq", "troupe:MySAC", "troupe-rl")


def test_a_folder_beside_a_run_announces_nothing(home, tmp_path, monkeypatch, complain):
    """It may have come with the run."""
    package(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])  # a module there was named before
    assert "unknown algorithm 'redq'" in complain("train", "redq", *small.words())
    assert "unknown environment 'stroll'" in complain("train", "sac", *small.words(env="stroll"))


def test_pip_installs_what_is_announced(tmp_path):
    """Really: a wheel, a folder of its own, and the command in a process of its own."""
    wheel, place = tmp_path / "troupe_rl-1.0-py3-none-any.whl", tmp_path / "site"
    files = {
        "troupe.py": OWN,
        "troupe_rl-1.0.dist-info/METADATA": METADATA,
        "troupe_rl-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        "troupe_rl-1.0.dist-info/entry_points.txt": "[thespis.algorithms]\nredq = troupe:MySAC\n",
    }
    files["troupe_rl-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--target", place, wheel], check=True)
    path = os.pathsep.join([str(place), *filter(None, sys.path)])
    command = [sys.executable, "-m", "thespis", "train", "redq", "--help"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.stdout.startswith("usage: thespis train redq --env ENV")
    assert "SAC that may be told to be bold." in done.stdout
