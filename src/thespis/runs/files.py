"""Reads files of runs that may be untrusted, and writes files such that they survive a crash.

No symbolic link in a run is followed, so that nothing outside it is read, written or deleted; only
regular files are opened, so that nothing waits for a pipe. A file is replaced as a whole, by
renaming a temporary one, which is locked while its process lives (not on Windows).
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from thespis.errors import ThespisError
from thespis.runs import locks, zoo
from thespis.xla.private_files import CAREFUL

TEMPORARY = ".tmp-"  # prefix of the names of unfinished files and folders
LARGEST = 2**31  # bytes of a file that may be read as a whole
DAY = 86400.0

ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "your quota of space or files is used up: delete some files, or ask for more",
    errno.EACCES: "choose a folder you may write to",
    errno.EPERM: "choose a folder you may write to",
    errno.EROFS: "choose a folder you may write to",
}


# --- places ---------------------------------------------------------------------------------


def inside(folder: Path, *names: str | Path) -> Path:
    """Returns a path in a run's folder, and refuses links below that folder."""
    path = folder
    for name in Path(*names).parts:
        path = path / name
        refuse_link(path)
    return path


def refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise ThespisError(
            f"{path} is a symbolic link, and links inside a run are not followed: replace it by "
            "its target, or link the whole folder of the run"
        )


def output(folder: Path, wanted: Path | str | None, *names: str) -> Path:
    """Returns the path that the user wants to write to, by default one in the run's folder."""
    if not wanted:
        return inside(zoo.outputs(folder), *names)
    path = Path(wanted)
    with suppress(ValueError):  # a path outside the run
        inside(folder, path.absolute().relative_to(folder.absolute()))
    return path


def regular(path: Path) -> bool:
    """Returns whether this is a regular file: no link, pipe, folder or device."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


# --- reading --------------------------------------------------------------------------------


def read(path: Path, most: int = LARGEST) -> bytes:
    """Returns the content of a regular file of at most `most` bytes, or raises an OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {most:,}")
        return file.read(size)  # not `most`, which Python would allocate


def open_regular(path: Path, mode: str = "rb") -> Any:
    """Opens a regular file, or raises an OSError: follows no links, waits for no pipes."""

    def careful(name, flags):
        try:
            if not CAREFUL and os.path.islink(name):  # Windows would open its target
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            handle = os.open(name, flags | CAREFUL, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "it is a symbolic link") from error
            if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
                raise OSError(errno.ENXIO, "it is not a regular file") from error
            raise
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "it is not a regular file")
        return handle

    return open(path, mode, opener=careful)


# --- writing --------------------------------------------------------------------------------


def write(path: Path, data: bytes) -> None:
    """Replaces a file as a whole: whatever happens, the path holds the old or the new content."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yields a new file that replaces `path` at the end, if nothing fails.

    Its `name` is its path, for libraries that write by name; it has the suffix of `path`.
    """
    with writing(path):
        file = _new_file(path.parent, path.suffix)
        try:
            with file:
                yield file
                sync(file)
                if not locks.POSIX:
                    file.close()
                os.replace(file.name, path)
        finally:
            Path(file.name).unlink(missing_ok=True)
        sync_folder(path.parent)


def append(path: Path, data: bytes, durable: bool = False) -> None:
    """Appends to a file and hands the data to the system; if `durable`, waits for the disk."""
    with writing(path), open_regular(path, "ab") as file:
        file.write(data)
        if durable:
            sync(file)


def set_aside(path: Path, content: bytes | None = None) -> Path:
    """Keeps an unreadable file under another name, and returns that name.

    It is a copy of the `content` if that is given, else the file itself, whatever its kind.
    """
    names = (path.with_name(f"{path.name}.damaged-{n}") for n in range(1, 10**9))
    aside = next(name for name in names if not os.path.lexists(name))
    if content is not None:
        write(aside, content)
    else:
        with writing(aside):
            os.rename(path, aside)
    return aside


def sync(file: IO) -> None:
    """Returns once the content is on the disk, not only in the system's cache."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Returns once the names in a folder are on the disk, so that renames survive a crash.

    Windows has no such call.
    """
    if not locks.POSIX:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an error of the operating system into one line that the user can act on."""
    try:
        yield
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "check the path and the disk")
        if error.errno == errno.ENOSPC and _out_of_inodes(path):
            advice = "the disk has space but no free inodes: delete files, best many small ones"
        reason = error.strerror or str(error)
        raise ThespisError(f"cannot write {path}: {reason}; {advice}") from error


def _out_of_inodes(path: Path) -> bool:
    try:
        system = os.statvfs(next(p for p in path.absolute().parents if p.is_dir()))
    except (OSError, AttributeError):  # Windows has no inodes
        return False
    return system.f_files > 0 and system.f_favail == 0 and system.f_bavail > 0


# --- temporary files ------------------------------------------------------------------------


def _new_file(folder: Path, suffix: str) -> BinaryIO:
    """Creates and locks a file with a new name."""
    alone = lambda name, flags: os.open(name, flags | CAREFUL, 0o666)
    while True:
        file = open(folder / _name(suffix), "x+b", opener=alone)  # noqa: SIM115
        _lock(file.fileno() if locks.POSIX else None)
        if os.path.lexists(file.name):
            return file
        file.close()  # another process cleared it before it was locked


@contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """Yields a temporary folder on the same file system, which is deleted at the end."""
    while True:
        folder = parent / _name()
        os.mkdir(folder, 0o700)
        handle = _open(folder)
        _lock(handle)
        if folder.is_dir():
            break
        _close(handle)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _close(handle)


def clear(folder: Path) -> None:
    """Removes temporary files that killed processes have left in a folder."""
    for here, folders, names in os.walk(folder):
        for name in (*folders, *names):
            if name.startswith(TEMPORARY):
                _remove_if_left(Path(here) / name)
        folders[:] = [name for name in folders if not name.startswith(TEMPORARY)]


def _remove_if_left(path: Path) -> None:
    with suppress(OSError):
        if path.is_symlink():
            path.unlink()
            return
        handle = _open(path)
        try:
            if not _left(path, handle):
                return
            # The lock is kept meanwhile, so that a process that has just created it notices.
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        finally:
            _close(handle)


def _left(path: Path, handle: int | None) -> bool:
    """Returns whether no process has it locked; without locks, whether it is old."""
    try:
        if handle is not None:
            locks.take(handle, shared=True)
            return True
    except BlockingIOError:
        return False
    except OSError:
        pass
    return time.time() - path.lstat().st_mtime > DAY


def _lock(handle: int | None) -> None:
    with suppress(OSError):  # a file system without locks
        if handle is not None:
            locks.take(handle, wait=True)


def _open(path: Path) -> int | None:
    """Opens a file or folder to lock it; None on Windows, which could not rename it then."""
    return os.open(path, os.O_RDONLY | CAREFUL) if locks.POSIX else None


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _name(suffix: str = "") -> str:
    return f"{TEMPORARY}{os.urandom(8).hex()}{suffix}"
