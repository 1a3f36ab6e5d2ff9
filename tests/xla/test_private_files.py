"""Folders that nobody else may write: believed only as long as that is so."""

import os
import re
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from thespis.xla import private_files

pytestmark = pytest.mark.posix
grp, pwd = (pytest.importorskip(name) for name in ("grp", "pwd"))


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture(autouse=True)
def anew():
    private_files.say.cache_clear()


def test_a_new_folder_and_those_above_it_are_of_this_user_alone(tmp_path):
    before = os.umask(0)
    try:
        assert private_files.complaint(tmp_path / "a" / "b") is None
        private_files.write(tmp_path / "a" / "b" / "file", b"mine")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    assert mode(tmp_path / "a" / "b" / "file") == 0o600
    assert private_files.read(tmp_path / "a" / "b" / "file") == b"mine"
    assert [p.name for p in (tmp_path / "a" / "b").iterdir()] == ["file"]


@pytest.mark.parametrize(("which", "bits"), [("a/b", 0o702), ("a", 0o777), ("a/b", 0o720)])
def test_a_folder_that_others_may_write_is_not_believed(tmp_path, monkeypatch, which, bits):
    monkeypatch.setattr(private_files, "alone_in", lambda gid: False)
    folder = tmp_path / "a" / "b"
    assert private_files.complaint(folder) is None
    os.chmod(tmp_path / which, bits)
    assert private_files.complaint(folder) == f"others may write to {tmp_path / which}"


@pytest.mark.parametrize(
    ("group", "members", "believed"),
    [
        ("ann", [], True),
        ("ann", ["ann"], True),
        ("ann", ["ann", "bob"], False),
        ("staff", [], False),
    ],
)
def test_a_group_is_nobody_else_only_if_it_has_the_users_name_and_no_others(
    tmp_path, monkeypatch, group, members, believed
):
    private_files.alone_in.cache_clear()
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="ann"))
    found = SimpleNamespace(gr_name=group, gr_mem=members)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: found)
    tmp_path.chmod(0o770)
    assert (private_files.complaint(tmp_path) is None) == believed
    private_files.alone_in.cache_clear()


def test_what_belongs_to_another_user_is_not_believed(tmp_path, monkeypatch):
    private_files.complaint(tmp_path / "a")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert private_files.complaint(tmp_path / "a") == f"{tmp_path / 'a'} belongs to another user"


def test_a_file_that_others_reach_and_may_write_is_not_believed(tmp_path):
    """As JAX writes them with a umask of 0, in a folder that others may read."""
    (tmp_path / "planted").write_bytes(b"theirs")
    os.chmod(tmp_path / "planted", 0o666)
    os.chmod(tmp_path, 0o755)
    assert private_files.complaint(tmp_path) == f"others may write to {tmp_path / 'planted'}"
    os.chmod(tmp_path, 0o700)  # nobody else comes as far as the file
    assert private_files.complaint(tmp_path) is None
    os.chmod(tmp_path, 0o755)
    os.chmod(tmp_path / "planted", 0o644)
    (tmp_path / "link").symlink_to(tmp_path / "planted")  # of mode 0777, which says nothing
    assert private_files.complaint(tmp_path) is None


@pytest.mark.skipif("os.geteuid() != 0", reason="only root can give files away")
def test_a_folder_with_a_file_of_another_user_is_not_believed(tmp_path):
    private_files.complaint(tmp_path)
    private_files.write(tmp_path / "planted", b"theirs")
    os.chown(tmp_path / "planted", 12345, 12345)
    assert private_files.complaint(tmp_path) == f"{tmp_path / 'planted'} belongs to another user"


def test_nothing_is_unpickled_but_what_is_kept_here():
    code = {
        file: file.read_text() for file in Path(private_files.__file__).parents[1].rglob("*.py")
    }
    # Workers and actors are sent what their own parent has packed; no file is unpickled there.
    senders = {"env_slice.py", "env_workers.py", "collector.py", "actor.py"}
    imports = re.compile(r"^\s*(import|from) .*pickle", re.M)
    pickling = {file.name for file, text in code.items() if imports.search(text)}
    assert pickling - senders == {"program_cache.py"}
    loads = [line for text in code.values() for line in text.splitlines() if "np.load(" in line]
    assert loads
    assert all("allow_pickle=False" in line for line in loads)


def test_a_file_is_read_only_if_this_user_alone_can_have_written_it(tmp_path, monkeypatch, capsys):
    file = tmp_path / "file"
    private_files.write(file, b"mine")
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="symbolic"):
        private_files.read(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(PermissionError):  # and does not wait for somebody to write
        private_files.read(tmp_path / "pipe")
    file.chmod(0o666)
    for _ in range(2):
        with pytest.raises(PermissionError):
            private_files.read(file)
    file.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError):
        private_files.read(file)
    told = capsys.readouterr().err.splitlines()
    assert sum(f"{file} may have been written by others" in line for line in told) == 1
