"""Locks that end with the process that holds them: `flock`, and `msvcrt` on Windows.

Windows cannot open folders, nor rename or delete open files. There, a folder is locked by a file
among the user's temporary files, and files that will be renamed are not locked.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

POSIX = fcntl is not None  # whether folders can be opened, and open files renamed and deleted
TAKEN = (errno.EACCES, errno.EDEADLK)  # errors of msvcrt if another process holds the lock


def open_folder(folder: Path) -> int:
    """Opens a handle on which to lock a folder; closing the handle releases the lock."""
    if POSIX:
        return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    import hashlib
    import tempfile

    name = hashlib.sha256(os.fsencode(folder.resolve(strict=True))).hexdigest()[:32]
    return os.open(Path(tempfile.gettempdir(), f"thespis-{name}.lock"), os.O_RDWR | os.O_CREAT)


def take(handle: int, shared: bool = False, wait: bool = False) -> None:
    """Locks an open handle, or raises a `BlockingIOError` if another process holds the lock.

    Any other `OSError` means that the file system has no locks. Windows has neither shared locks
    nor waiting: there, both arguments are ignored.
    """
    if fcntl is not None:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
        return
    import msvcrt

    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore  # the first byte, even if empty
    except OSError as error:
        if error.errno in TAKEN:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock") from error
        raise
