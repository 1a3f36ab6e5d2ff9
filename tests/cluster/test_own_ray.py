"""Tests of a Ray of our own: what it leaves behind, and signals that reach all of its processes."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.common import ROOT
from tests.small import wait_for
from thespis.cluster import own_ray
from thespis.runs.directory import status_of

pytestmark = pytest.mark.posix


@pytest.fixture
def temporary(monkeypatch, tmp_path_factory):
    """An empty folder with a short path in which temporary files are."""
    tmp_path_factory.getbasetemp()  # pytest's own is elsewhere
    place = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setattr(tempfile, "tempdir", place)
    monkeypatch.setenv("TMPDIR", place)
    yield Path(place)
    shutil.rmtree(place)


def test_folders_of_processes_that_were_killed_are_removed_and_no_others(temporary):
    foreign = temporary / "ray-of-somebody-else"
    foreign.mkdir()
    killed, lock = own_ray.make(temporary)
    (killed / "session").mkdir()
    (killed / "session" / "log").write_text("...")
    with own_ray.folder() as first:
        assert killed.exists()  # its process lives
        os.close(lock)  # as when it is killed
        with own_ray.folder() as second:
            assert {str(path) for path in temporary.iterdir()} == {str(foreign), first, second}
        assert not Path(second).exists()
    assert list(temporary.iterdir()) == [foreign]


def test_a_folder_elsewhere_with_our_mark_that_is_a_link_is_left_alone(temporary):
    other = temporary / "mine"
    other.mkdir()
    (other / own_ray.MARK).write_text("")
    (temporary / "ray-link").symlink_to(other)
    with own_ray.folder():
        assert (other / own_ray.MARK).exists()


def test_processes_that_are_started_meanwhile_do_not_hear_sigterm():
    told = lambda *words: subprocess.run(
        [sys.executable, "-c", *words], capture_output=True, text=True, check=False
    )
    code = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('lives')"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with own_ray.sigterm_blocked():
        assert told(code).stdout == "lives\n"
        heard = told(f"from thespis.cluster import own_ray; own_ray.unblock_sigterm(); {code}")
        assert (heard.returncode, heard.stdout) == (-signal.SIGTERM, "")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@contextmanager
def command(*words):
    """The command `thespis` and all it starts, as one process group."""
    argv = [sys.executable, "-m", "thespis", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(argv, cwd=ROOT, start_new_session=True, **pipes)
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


POPULATION = ["--members", 2, "--pbt", "--pbt.interval", 1000, "--ray"]
COLLECTORS = ["--envs", 2, "--collectors", 2]


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("env", "more"), [("jax:pendulum", POPULATION), ("Pendulum-v1", COLLECTORS)]
)
def test_a_signal_to_all_processes_saves_and_leaves_nothing(temporary, tmp_path, env, more, number):
    pytest.importorskip("ray")
    small = ["--hidden", 8, 8, "--steps", 10**7, "--learning_starts", 100, "--buffer_size", 10**4]
    small += ["--checkpoint_freq", 1000, "--eval_freq", 1000]
    words = ["train", "sac", "--env", env, *small, *more, "--out", tmp_path]
    with command(*words) as child:
        running = lambda: any(
            status_of(path.parent)["step"] > 0 for path in tmp_path.glob("*/*/status.json")
        )
        wait_for(lambda: time.sleep(0.2) or running() or child.poll() is not None)
        os.killpg(child.pid, number)
        _, said = child.communicate(timeout=600)
    assert child.returncode == 128 + number
    assert f"{number.name}: saving after this step" in said
    assert "GCS" not in said
    (run,) = tmp_path.glob("*/*")
    assert status_of(run)["state"] == "stopped"
    assert list(temporary.iterdir()) == []
