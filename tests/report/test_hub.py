"""Runs on the Hugging Face hub, for which a server here stands in."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import thespis
from tests.report.hub_server import TOKEN, serving
from tests.small import arguments
from thespis.cli.command import main
from thespis.errors import ThespisError
from thespis.runs import checkpoint

constants = pytest.importorskip("huggingface_hub.constants")
assert constants.ENDPOINT.startswith("http://127.0.0.1:")  # see conftest.py
pytestmark = [
    pytest.mark.usefixtures("kept"),
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),  # of its uploads
]

NAME = "me/sac-pendulum"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    given = arguments(seeds=(0, 7), updates_per_step=0)
    run = thespis.train("sac", out=tmp_path_factory.mktemp("pushed"), **given)
    (run.path / "videos").mkdir()
    (run.path / "videos" / "swing-up.gif").write_bytes(b"GIF89a")
    return run


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The stand-in, to which the library speaks, with a token that it knows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with serving() as hub:
        files = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + files)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        yield hub


def copied(run, folder: Path) -> Path:
    """A run that a test may change."""
    return Path(shutil.copytree(run.path, folder))


def refused(message: str, *words: str, capsys) -> None:
    assert main([*map(str, words)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_a_pushed_run_is_pulled_evaluated_and_acts_the_same(run, hub, capsys):
    assert main(["push", str(run.path), NAME]) == 0
    assert capsys.readouterr().out == f"pushed  {hub.url}/{NAME}\n"
    assert any(path.endswith("state.safetensors") for path in hub.models[NAME])
    assert main(["pull", NAME]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"pulled  {Path('runs/hub') / NAME}"
    pulled = thespis.load(Path("runs/hub") / NAME)
    assert pulled.config == run.config
    assert pulled.status == run.status
    assert (pulled.metrics["eval/mean_reward"] == run.metrics["eval/mean_reward"]).all()
    for which in ("last", "best"):
        a, b = (x.policy("best", which)(np.zeros(3, np.float32)) for x in (run, pulled))
        assert (a == b).all()
    assert {file.name for file in pulled.path.glob("*/*.*")} == {"learning_curve.png", "replay.gif"}


def test_nothing_that_could_run_goes_up_and_the_replay_only_if_asked(run, hub, tmp_path):
    folder = copied(run, tmp_path / "mine")
    (folder / "policy.py").write_text("print('code')")
    (folder / "checkpoints" / "model.pkl").write_bytes(b"\x80\x04")
    newest = checkpoint.latest(folder / "checkpoints")[0]
    (newest / "more.pt").write_bytes(b"\x80\x04")
    thespis.push(folder, NAME)
    files = hub.models[NAME]
    ends = {".json", ".csv", ".safetensors", ".png", ".gif", ".md", ".gitattributes"}
    assert {Path(x).suffix or x for x in files} == ends
    assert f"checkpoints/{newest.name}/replay.safetensors" not in files
    thespis.push(folder, NAME, replay=True)
    assert f"checkpoints/{newest.name}/replay.safetensors" in hub.models[NAME]


def test_a_run_without_its_replay_is_not_resumed_and_says_why(run, hub, capsys):
    thespis.push(run, NAME)
    folder = thespis.pull(NAME).path
    refused("it has no replay", "resume", folder, "--steps", "500", capsys=capsys)


def test_a_run_pushed_again_takes_the_place_of_the_old_one(run, hub):
    hub.models[NAME] = {"checkpoints/000000099999/manifest.json": b"{}"}
    thespis.push(run, NAME)
    assert "checkpoints/000000099999/manifest.json" not in hub.models[NAME]


def test_a_model_that_is_no_run_is_not_overwritten(run, hub, capsys):
    hub.models[NAME] = before = {"README.md": b"mine", "model.bin": b"weights"}
    refused("files that do not belong to a run (model.bin)", "push", run.path, NAME, capsys=capsys)
    assert hub.models[NAME] == before == {"README.md": b"mine", "model.bin": b"weights"}


@pytest.mark.posix
def test_what_is_damaged_or_a_link_is_not_pushed(run, hub, tmp_path):
    folder = copied(run, tmp_path / "mine")
    file = checkpoint.latest(folder / "best")[0] / "state.safetensors"
    content = file.read_bytes()
    file.write_bytes(b"\x80\x04" + content[2:])  # as a pickle begins
    with pytest.raises(ThespisError, match="does not match its checksum"):
        thespis.push(folder, NAME)
    file.unlink()
    (tmp_path / "elsewhere").write_bytes(content)
    os.symlink(tmp_path / "elsewhere", file)
    with pytest.raises(ThespisError, match="symbolic link"):
        thespis.push(folder, NAME)
    assert not hub.models


def test_only_files_of_a_run_are_pulled(run, hub):
    thespis.push(run, NAME)
    odd = ("setup.py", "checkpoints/x.pkl", "best/../../x.json", "best/1/state.safetensors")
    hub.models[NAME] |= dict.fromkeys(odd, b"code")
    pulled = thespis.pull(NAME)
    assert not any(f"/{path}" in asked for asked in hub.asked for path in odd)
    names = {x.name for x in pulled.path.rglob("*")}
    assert not names & {"setup.py", "x.pkl", "x.json", "README.md", ".cache"}


def test_nothing_is_overwritten_by_a_pull(run, hub, capsys):
    thespis.push(run, NAME)
    mine = Path("runs/hub") / NAME
    mine.mkdir(parents=True)
    refused("already exists", "pull", NAME, capsys=capsys)
    assert not any(mine.iterdir())
    assert thespis.pull(NAME, "elsewhere").path == Path("elsewhere/hub") / NAME


def test_weights_that_are_not_what_their_manifest_says_are_refused(run, hub, capsys):
    thespis.push(run, NAME)
    path = next(x for x in hub.models[NAME] if x.endswith("state.safetensors"))
    hub.models[NAME][path] = b"\x80\x04" + hub.models[NAME][path][2:]
    refused("does not match its checksum", "pull", NAME, capsys=capsys)
    assert not any(Path("runs/hub/me").iterdir())


def test_what_is_too_large_is_not_even_asked_for(run, hub, capsys):
    thespis.push(run, NAME)
    refused("GB, more than 1e-06", "pull", NAME, "--max-gb", "1e-6", capsys=capsys)
    hub.sizes["metrics.csv"] = 2**40
    refused("metrics.csv has 1099511627776 bytes", "pull", NAME, capsys=capsys)
    assert not any("/resolve/" in asked for asked in hub.asked)
    hub.sizes["metrics.csv"] = 3
    with pytest.raises(ThespisError):
        thespis.pull(NAME)
    assert not any(Path("runs/hub/me").iterdir())


def test_a_run_that_names_code_is_pulled_only_with_trust(run, hub, capsys, tmp_path):
    thespis.push(run, NAME)
    config = json.loads(hub.models[NAME]["config.json"])
    hub.models[NAME]["config.json"] = json.dumps(config | {"env": "their_env:Task-v0"}).encode()
    (tmp_path / "their_env.py").write_text("raise SystemExit('it ran')")
    refused("env = their_env:Task-v0 imports their_env", "pull", NAME, capsys=capsys)
    assert not any(Path("runs/hub/me").iterdir())
    assert main(["pull", NAME, "--trust"]) == 0
    refused("give --trust", "eval", Path("runs/hub") / NAME, capsys=capsys)


def test_the_secret_of_a_run_stays_here(run, hub, tmp_path):
    folder = copied(run, tmp_path / "mine")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"identity": "secret"}))
    thespis.push(folder, NAME)
    assert not any(b"secret" in content for content in hub.models[NAME].values())


@pytest.mark.parametrize(
    "name", ["sac", "a/b/c", "../x", "me/..", "me/a--b", "/etc/x", "me/x.git", "me/a b"]
)
def test_a_name_is_no_path(name, hub, capsys):
    refused("is not a name on the hub: give OWNER/NAME", "pull", name, capsys=capsys)
    assert not hub.asked


def test_what_goes_wrong_is_said_in_one_line(run, hub, capsys, monkeypatch):
    refused("name the model on the hub: thespis push", "push", run.path, capsys=capsys)
    refused("there is no such model on the hub", "pull", "me/missing", capsys=capsys)
    hub.models["me/other"] = {"config.json": b"{}"}
    refused("me/other on the hub is not a run of Thespis", "pull", "me/other", capsys=capsys)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    refused("check the token (run hf auth login", "push", run.path, NAME, capsys=capsys)
    monkeypatch.delenv("HF_TOKEN")
    refused("push needs a token for the hub", "push", run.path, NAME, capsys=capsys)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    refused("it failed at http://127.0.0.1:9 (", "pull", NAME, capsys=capsys)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused("pull needs a missing library: pip install", "pull", NAME, capsys=capsys)
