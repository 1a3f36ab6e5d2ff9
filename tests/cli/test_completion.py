"""Shells complete commands, options, names and runs by a script that needs no Python."""

import shutil
import subprocess

import pytest

ASK = {
    "bash": """
        source ./script
        COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$' \\t\\n:='
        _thespis
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        compdef() { : }
        compadd() { print -rl -- ${(M)found:#${words[CURRENT]}*} }
        _files() { : }
        source ./script
        words=(${(z)1}); [[ $1 == *' ' ]] && words+=('')
        CURRENT=$#words
        _thespis
    """,
    "fish": "source ./script; complete -C $argv[1] | string split -f 1 \\t",
}
FLAGS = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}


@pytest.fixture(scope="module", params=list(ASK))
def shell(request, tmp_path_factory):
    """Asks a shell what it would complete a line by."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    from thespis.cli.completion import SHELLS, Words

    folder = tmp_path_factory.mktemp("shell")
    (folder / "script").write_text(SHELLS[request.param](Words()))
    for name in ("jax-pendulum_1", "$(touch harm)_1"):
        (folder / "runs" / "sac" / name).mkdir(parents=True)
        (folder / "runs" / "sac" / name / "config.json").touch()
    (folder / "runs" / "sac" / "no-run").mkdir()

    def ask(line: str) -> list[str]:
        asked = ["-c", ASK[request.param], *(["x"] if request.param != "fish" else []), line]
        command = [request.param, *FLAGS[request.param], *asked]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
        assert done.stderr == "", done.stderr
        assert not (folder / "harm").exists()
        return [word for word in done.stdout.splitlines() if word]

    ask.name = request.param
    return ask


def test_commands_algorithms_and_names_are_completed(shell):
    assert {"train", "runs", "help", "completion"} <= {*shell("thespis ")}
    assert shell("thespis tra") == ["train"]
    assert {"sac", "td3", "dads"} <= {*shell("thespis train ")}
    assert "crossq" in shell("thespis train sac --preset ")
    assert "crossq" not in shell("thespis train td3 --preset ")
    assert shell("thespis skills sc") == ["score"]
    assert shell("thespis help ex") == ["export"]
    assert {"bash", "zsh", "fish"} <= {*shell("thespis completion ")}


def test_environments_are_completed_across_the_colon(shell):
    found = shell("thespis train sac --env jax:pend")
    assert found == ["pendulum" if shell.name == "bash" else "jax:pendulum"]
    assert "Pendulum-v1" in shell("thespis train sac --env Pend")
    assert "Pendulum-v1" in shell("thespis check-env Pend")


def test_options_of_the_command_and_the_algorithm_are_completed(shell):
    assert shell("thespis train td3 --target-noi") == ["--target-noise"]
    assert shell("thespis train sac --target-noi") == []
    assert "--critic.norm" in shell("thespis train sac --steps 100 --critic.n")
    assert "--episodes" in shell("thespis eval runs/x --ep")
    assert shell("thespis runs --state dam") == ["damaged"]
    assert {"layer", "rms"} <= {*shell("thespis train sac --critic.norm ")}


def test_runs_are_completed_and_no_name_of_one_is_run_as_code(shell):
    found = shell("thespis eval runs/sac/")
    assert "runs/sac/jax-pendulum_1" in found
    assert any("touch" in name for name in found)
    assert "runs/sac/jax-pendulum_1" in shell("thespis skills plot runs/s")
    assert "runs/sac/jax-pendulum_1" in shell("thespis train sac --init-from runs/s")


def test_policies_of_the_zoo_are_completed_by_name_and_where_runs_are(shell):
    assert shell("thespis zoo jax-pend") == ["jax-pendulum"]
    found = "jax-pendulum" if shell.name == "bash" else "zoo:jax-pendulum"
    assert shell("thespis eval zoo:jax-pend") == [found]
    assert shell("thespis train sac --init-from zoo:jax-pend") == [found]


def test_an_unknown_shell_is_refused(complain):
    assert "unknown shell 'bsh'; did you mean bash" in complain("completion", "bsh")
