"""A folder has one owner at a time, by flock, or by what Windows has in its place."""

import errno
import os
import shutil
import sys
import tempfile
from types import SimpleNamespace

import pytest

from thespis.errors import ThespisError
from thespis.runs import files, locks
from thespis.runs.process import alone, busy


class Msvcrt(SimpleNamespace):
    """A stand-in for Windows' module: one lock for each file, which ends when it is closed."""

    LK_NBLCK = 2

    def locking(self, handle: int, mode: int, size: int) -> None:
        assert (mode, size) == (self.LK_NBLCK, 1)
        file = os.fstat(handle).st_ino
        if self.owners.get(file, handle) != handle:
            raise PermissionError(errno.EACCES, "Permission denied")
        self.owners[file] = handle

    def close(self, handle: int) -> None:
        self.owners = {file: owner for file, owner in self.owners.items() if owner != handle}
        self.really_close(handle)


@pytest.fixture
def windows(tmp_path, monkeypatch):
    """Locks as on Windows, where a folder cannot be opened."""
    (tmp_path / "temporary").mkdir()
    really_open = os.open

    def no_folders(path, *how, **more):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really_open(path, *how, **more)

    module = Msvcrt(owners={}, really_close=os.close)
    monkeypatch.setitem(sys.modules, "msvcrt", module)
    monkeypatch.setattr(os, "open", no_folders)
    monkeypatch.setattr(shutil, "_use_fd_functions", False)  # rmtree opens them on POSIX
    monkeypatch.setattr(os, "close", module.close)
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "POSIX", False)
    monkeypatch.setattr(files, "CAREFUL", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return module


def check_one_owner(folder):
    folder.mkdir(exist_ok=True)
    assert not busy(folder)
    with alone(folder):
        assert busy(folder)
        with (
            pytest.raises(ThespisError, match="is being trained by another process"),
            alone(folder),
        ):
            pass
        assert busy(folder)
    assert not busy(folder)
    with alone(folder):
        pass


@pytest.mark.posix
def test_a_folder_has_one_owner(tmp_path):
    check_one_owner(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_folder_has_one_owner_on_windows(tmp_path, windows):
    check_one_owner(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []  # and nothing of it is in the way
    with alone(tmp_path / "run"):
        assert not busy(tmp_path)  # another folder
        (tmp_path / "run").rmdir()
    assert windows.owners == {}


def test_another_fault_of_windows_is_not_taken_for_an_owner(tmp_path, windows, monkeypatch):
    def refuse(*given):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(windows, "locking", refuse)
    with alone(tmp_path), alone(tmp_path):  # as on a file system without locks
        assert busy(tmp_path)


def test_files_are_replaced_and_old_ones_cleared_on_windows(tmp_path, windows, monkeypatch):
    replace, run = os.replace, tmp_path / "run"
    run.mkdir()

    def replace_closed(file, path):
        opened = {os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")}
        assert str(file) not in opened
        replace(file, path)

    if os.path.isdir("/proc/self/fd"):
        monkeypatch.setattr(os, "replace", replace_closed)
    files.write(run / "status.json", b"{}")
    assert files.read(run / "status.json") == b"{}"
    with files.new_folder(run) as folder:
        (folder / "new").mkdir()
        os.rename(folder / "new", run / "kept")
        files.clear(run)
        assert folder.is_dir()  # though nobody has it locked
    for name in (".tmp-old", ".tmp-new"):
        (run / name).mkdir()
    os.utime(run / ".tmp-old", (1e9, 1e9))
    files.clear(run)
    assert sorted(x.name for x in run.iterdir()) == [".tmp-new", "kept", "status.json"]


@pytest.mark.posix
def test_links_are_refused_also_where_opening_does_not_refuse_them(tmp_path, windows):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="it is a symbolic link"):
        files.read(tmp_path / "link")
