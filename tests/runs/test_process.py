"""Signals are answered at once, wherever the process is, and end it in an orderly way."""

import signal
import subprocess
import sys
import textwrap

import pytest

import thespis
from tests.small import arguments
from thespis.report import progress

pytestmark = pytest.mark.posix

IMPORTING = """
    import sys
    from thespis import cli
    from thespis.cli import command
    from thespis.cli.common import imported
    command.COMMANDS["list"] = lambda argv: imported("slow") and print("went on")
    sys.exit(cli.main(["list"]))
"""
SLOW = """
    from pathlib import Path
    import time
    print("importing", flush=True)
    while not Path("go").exists():
        time.sleep(0.01)
    print("imported", flush=True)
"""
COMPILING = """
    import sys, time
    from pathlib import Path
    import jax, numpy as np
    from thespis.xla import compile_cache
    from thespis.runs.process import stoppable
    compile_cache.keeping = sys.argv[1] == "command"

    def wait(x):
        print("busy", flush=True)
        while not Path("go").exists():
            time.sleep(0.01)
        return x

    program = jax.jit(lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct((), "float32"), x))
    with stoppable(lambda text: print(text, file=sys.stderr, flush=True)) as stop:
        jax.block_until_ready(program(np.float32(0)))  # Python waits for XLA, as in compiling
        print(stop)
"""
WORKING = """
    import sys, time
    from thespis.xla import compile_cache
    from thespis.runs.process import stoppable
    compile_cache.keeping = sys.argv[1] == "command"

    with stoppable(lambda text: None) as stop:
        print("busy", flush=True)
        while not stop:
            time.sleep(0.01)
        print("caught", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def child(tmp_path):
    """Start a program in a folder of its own; whatever happens it ends with the test."""
    children = []

    def start(code: str, *argv: str) -> subprocess.Popen:
        command = [sys.executable, "-c", textwrap.dedent(code), *argv]
        pipe = subprocess.PIPE
        children.append(
            subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
        )
        return children[0]

    yield start
    for process in children:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_signals_wait_until_libraries_are_imported(child, tmp_path, number, code):
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    process = child(IMPORTING)
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    assert process.stderr.readline() == "thespis: stopping after loading\n"
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=600)
    assert (out, process.returncode) == ("imported\n", code)
    assert err == ("thespis: interrupted\n" if number == signal.SIGINT else "")


def test_a_signal_is_answered_while_python_waits_for_xla(child, tmp_path):
    process = child(COMPILING, "command")
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline().startswith("SIGINT: saving after this step; repeat it to end")
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=600)
    assert (out, err, process.returncode) == ("[2]\n", "", 0)


def test_a_second_signal_ends_the_command_even_then(child):
    process = child(COMPILING, "command")
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=600)
    assert (out, err, process.returncode) == ("", "", 143)


@pytest.mark.parametrize(
    ("who", "number", "code"),
    [
        ("command", signal.SIGINT, 130),
        ("command", signal.SIGTERM, 143),
        ("script", signal.SIGTERM, -15),
    ],
)
def test_a_second_signal_ends_by_the_same_code_once_python_has_heard_the_first(
    child, who, number, code
):
    """What somebody's own script does with a second one is Python's affair."""
    process = child(WORKING, who)
    assert process.stdout.readline() == "busy\n"
    process.send_signal(number)
    assert process.stdout.readline() == "caught\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=600)
    assert (err, process.returncode) == ("", code)


def test_an_interruption_that_ends_a_training_at_once_is_no_failure(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.Silent, "row", interrupt)
    with pytest.raises(KeyboardInterrupt):
        thespis.train("sac", out=tmp_path, **arguments())
    run = thespis.load(tmp_path / "sac" / "jax-pendulum_1")
    assert run.status == {"state": "stopped", "step": 0}
