"""The help of commands, and its first page."""

import subprocess
import sys

import pytest

import thespis
from thespis.cli.command import COMMANDS, main
from thespis.cli.help_pages import PAGE


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_in_its_help(command, say):
    text = "\n".join(say(command, "--help"))
    assert text.startswith(f"usage: thespis {command}")
    assert f"example: thespis {command}" in text
    assert "--json" in text


def test_help_of_a_command_may_be_asked_for_by_its_name(say):
    assert say("help", "eval") == say("eval", "--help")
    assert say("help", "train", "sac") == say("train", "sac", "--help")
    assert say("help") == say("--help")


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
    """Without a library that takes long to import."""
    code = (
        "import sys; from thespis.cli.command import main; main(['--help'])\n"
        "names = {'jax', 'numpy', 'rich', 'gymnasium', 'matplotlib', 'importlib.metadata'}\n"
        "heavy = names & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in COMMANDS)
    assert main([]) == 0
