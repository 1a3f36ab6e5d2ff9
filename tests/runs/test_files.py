"""Nothing in a run leads out of it, nobody waits for a pipe, and writers never meet."""

import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from thespis.errors import ThespisError
from thespis.runs import files, locks

pytestmark = pytest.mark.posix


@pytest.fixture
def outside(tmp_path):
    """A folder with a file that nobody may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("mine")
    yield folder
    assert {x.name: x.read_text() for x in folder.iterdir()} == {"secret": "mine"}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


# --- links ----------------------------------------------------------------------------------


def test_no_link_in_a_run_is_followed_wherever_it_stands(run, outside):
    (run / "plots").symlink_to(outside)
    (run / "report.html").symlink_to(outside / "secret")
    for names in (("plots",), ("plots", "curve.png"), ("report.html",), ("plots/deeper/x",)):
        with pytest.raises(ThespisError, match="is a symbolic link, and links inside a run"):
            files.inside(run, *names)
    assert files.inside(run, "videos", "swing.gif") == run / "videos" / "swing.gif"


def test_a_run_may_itself_be_reached_through_links(run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    path = files.inside(tmp_path / "link", "status.json")
    files.write(path, b"{}")
    assert (run / "status.json").read_bytes() == files.read(path) == b"{}"


def test_what_users_name_is_theirs_unless_it_is_in_the_run(run, outside, tmp_path):
    (run / "plots").symlink_to(outside)
    assert files.output(run, None, "curve.png") == run / "curve.png"
    assert files.output(run, tmp_path / "mine.png", "curve.png") == tmp_path / "mine.png"
    for given in (run / "plots" / "curve.png", None):
        with pytest.raises(ThespisError, match="symbolic link"):
            files.output(run, given, "plots", "curve.png")


def test_writing_replaces_a_link_and_adding_refuses_it(run, outside):
    for name in ("replaced", "added"):
        (run / name).symlink_to(outside / "secret")
    files.write(run / "replaced", b"new")
    assert not (run / "replaced").is_symlink()
    with pytest.raises(ThespisError, match="cannot write .*added: it is a symbolic link"):
        files.append(run / "added", b"more")


def test_another_name_of_a_file_keeps_what_it_had_when_the_file_is_replaced(run, tmp_path):
    (run / "status.json").write_bytes(b"old")
    os.link(run / "status.json", tmp_path / "other")
    files.write(run / "status.json", b"new")
    assert (tmp_path / "other").read_bytes() == b"old"


def test_a_planted_link_under_a_temporary_name_is_not_written_through(run, outside):
    """As the name was when it could be foretold."""
    for name in (".report.html.tmp", ".tmp-report.html"):
        (run / name).symlink_to(outside / "secret")
    files.write(run / "report.html", b"page")
    assert (run / "report.html").read_bytes() == b"page"


# --- what is no file ------------------------------------------------------------------------


def test_pipes_devices_and_folders_are_neither_read_nor_waited_for(run):
    os.mkfifo(run / "pipe")
    (run / "folder").mkdir()
    (run / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "zero"):
        with pytest.raises(OSError, match=r"it is (not a regular file|a symbolic link)"):
            files.read(run / name)
        with pytest.raises(ThespisError, match="cannot write"):
            files.append(run / name, b"x")
        assert not files.regular(run / name)


def test_a_file_larger_than_wanted_is_not_read(run):
    (run / "big").touch()
    os.truncate(run / "big", 2**40)  # it takes no space
    with pytest.raises(OSError, match=r"it has 1,099,511,627,776 bytes, more than 2,147,483,648"):
        files.read(run / "big")


# --- several writers ------------------------------------------------------------------------


def test_many_who_write_one_file_at_once_never_meet(run):
    path, faults, contents = run / "report.html", [], [bytes([i]) * 10_000 for i in range(4)]

    def write(content):
        try:
            for _ in range(25):
                files.write(path, content)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=write, args=[content]) for content in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert not path.exists() or files.read(path) in contents
    assert faults == []
    assert [x.name for x in run.iterdir()] == ["report.html"]


def test_a_block_that_fails_leaves_what_was_there(run):
    files.write(run / "curve.png", b"old")
    with suppress(ZeroDivisionError), files.replacing(run / "curve.png") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert [x.name for x in run.iterdir()] == ["curve.png"]
    assert files.read(run / "curve.png") == b"old"


def test_new_files_have_the_permissions_that_users_ask_for(run):
    before = os.umask(0o027)
    try:
        files.write(run / "config.json", b"{}")
    finally:
        os.umask(before)
    assert (run / "config.json").stat().st_mode & 0o777 == 0o640


# --- what is left over ----------------------------------------------------------------------

KILLED = """
import sys, time
from pathlib import Path
from thespis.runs import files
run = Path(sys.argv[1])
with files.replacing(run / "status.json"), files.new_folder(run / "checkpoints") as folder:
    (folder / "replay").touch()
    print("there", flush=True)
    time.sleep(600)
"""


def test_what_killed_processes_left_is_cleared_and_what_living_ones_write_stays(run, outside):
    (run / "checkpoints").mkdir()
    (run / ".tmp-link").symlink_to(outside)
    left = lambda: sorted(x.name[:5] for x in (*run.iterdir(), *(run / "checkpoints").iterdir()))
    command = [sys.executable, "-c", KILLED, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "there\n"
        files.clear(run)
        assert left() == [".tmp-", ".tmp-", "check"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    with files.replacing(run / "metrics.csv") as file:
        file.write(b"step")
        files.clear(run)
    assert left() == ["check", "metri"]
    assert files.read(run / "metrics.csv") == b"step"


def test_where_there_are_no_locks_only_what_is_old_is_cleared(run, monkeypatch):
    def no_locks(*given):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    for name in (".tmp-old", ".tmp-new"):
        (run / name).touch()
    os.utime(run / ".tmp-old", (1e9, 1e9))
    monkeypatch.setattr(locks.fcntl, "flock", no_locks)
    files.clear(run)
    assert [x.name for x in run.iterdir()] == [".tmp-new"]
    files.write(run / "status.json", b"{}")
    assert files.read(run / "status.json") == b"{}"


def test_what_is_not_understood_is_kept_under_names_of_its_own(run, outside):
    (run / "metrics.csv").symlink_to(outside / "secret")
    assert files.set_aside(run / "metrics.csv").name == "metrics.csv.damaged-1"
    assert files.set_aside(run / "metrics.csv", b"torn").name == "metrics.csv.damaged-2"
    assert (run / "metrics.csv.damaged-1").is_symlink()
    assert (run / "metrics.csv.damaged-2").read_bytes() == b"torn"


# --- no room --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "inodes", "advice"),
    [
        (errno.ENOSPC, 5, "No space left on device; free some space"),
        (errno.ENOSPC, 0, "No space left on device; the disk has space but no free inodes"),
        (errno.EDQUOT, 5, "Disk quota exceeded; your quota of space or files is used up"),
    ],
)
def test_it_is_said_of_what_there_is_too_little(run, monkeypatch, code, inodes, advice):
    def full(*given):
        raise OSError(code, os.strerror(code))

    there = SimpleNamespace(f_files=1000, f_favail=inodes, f_bavail=10**6)
    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(os, "statvfs", lambda path: there)
    with pytest.raises(ThespisError, match=advice):
        files.write(run / "config.json", b"{}")
    assert list(run.iterdir()) == []
