"""The files of a run, which may come from a stranger, and writing that survives a crash.

No symbolic link in a run is followed, so that nothing outside it is read, written or deleted; only
regular files are opened, so that nothing waits for a pipe. A file is replaced as a whole, by way of
a temporary one with a name of its own, which is locked while its process lives (not on Windows).
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

TEMPORARY = ".tmp-"  # how the names of unfinished files and folders begin
LARGEST = 2**31  # bytes of a file that is read as a whole
DAY = 86400.0

ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "your quota, of space or of files, is used up: delete some, or ask for more",
    errno.EACCES: "choose a folder you may write to",
    errno.EPERM: "choose a folder you may write to",
    errno.EROFS: "choose a folder you may write to",
}


# --- places ---------------------------------------------------------------------------------


def inside(folder: Path, *names: str | Path) -> Path:
    """Returns a path in a run's folder, which itself may be reached through links."""
    path = folder
    for name in Path(*names).parts:
        path = path / name
        refuse_link(path)
    return path


def refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise ThespisError(
            f"{path} is a symbolic link, and none is followed in a run: put what it leads to in "
            "its place, or link the run's folder as a whole"
        )


def output(folder: Path, wanted: Path | str | None, *names: str) -> Path:
    """Returns where the user wants something written, or its place in the run by default."""
    if not wanted:
        return inside(zoo.outputs(folder), *names)
    path = Path(wanted)
    with suppress(ValueError):  # it is elsewhere
        inside(folder, path.absolute().relative_to(folder.absolute()))
    return path


def regular(path: Path) -> bool:
    """Tells whether this is a file, and neither a link nor a pipe nor a device."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


# --- reading --------------------------------------------------------------------------------


def read(path: Path, most: int = LARGEST) -> bytes:
    """Returns the content of a regular file of at most so many bytes, or raises an OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {most:,}")
        return file.read(size)  # and not `most`: Python reserves what it is asked to read


def open_regular(path: Path, mode: str = "rb") -> Any:
    """Opens a regular file, or raises an OSError: follows no links, waits for no pipes."""

    def careful(name, flags):
        try:
            if not CAREFUL and os.path.islink(name):  # Windows opens what it leads to
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            handle = os.open(name, flags | CAREFUL, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "it is a symbolic link") from error
            if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
                raise OSError(errno.ENXIO, "it is no regular file") from error
            raise
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "it is no regular file")
        return handle

    return open(path, mode, opener=careful)


# --- writing --------------------------------------------------------------------------------


def write(path: Path, data: bytes) -> None:
    """Replaces a file as a whole: whatever happens, the path holds the old or the new content."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yields a new file that takes the place of `path` in the end, if nothing fails.

    Its `name` is a path, for those who write by name; its suffix is that of `path`.
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
    """Adds to a file and hands it to the system; if it is to be `durable`, to the disk."""
    with writing(path), open_regular(path, "ab") as file:
        file.write(data)
        if durable:
            sync(file)


def set_aside(path: Path, content: bytes | None = None) -> Path:
    """Keeps what cannot be understood under another name -> where.

    A copy of the `content` if there is any, else the thing itself, be it a link or a pipe.
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
    """Returns once the content is on the disk and not merely in the system's memory."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Returns once the names in a folder are on the disk: what makes a rename last.

    Windows has no way to ask for it.
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
    """Turns what the operating system refuses into one line that the user can act on."""
    try:
        yield
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "check the path and the disk")
        if error.errno == errno.ENOSPC and _out_of_inodes(path):
            advice = "there is space, but no inode for another file: delete files, many small ones"
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
    """Opens a file that was not there, and locks it."""
    alone = lambda name, flags: os.open(name, flags | CAREFUL, 0o666)
    while True:
        file = open(folder / _name(suffix), "x+b", opener=alone)  # noqa: SIM115
        _lock(file.fileno() if locks.POSIX else None)
        if os.path.lexists(file.name):
            return file
        file.close()  # before it was locked, somebody took it for left over


@contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """Yields a folder on the same file system, gone with all that is in it in the end."""
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
    """Removes what killed processes have left in a folder; what a living one writes stays."""
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
            # Still locked, so that whoever has just made it notices.
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        finally:
            _close(handle)


def _left(path: Path, handle: int | None) -> bool:
    """Tells whether nobody has it locked; where there are no locks, whether it is old."""
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
    """Opens what is to be locked; None on Windows, which could not rename it then."""
    return os.open(path, os.O_RDONLY | CAREFUL) if locks.POSIX else None


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _name(suffix: str = "") -> str:
    return f"{TEMPORARY}{os.urandom(8).hex()}{suffix}"
