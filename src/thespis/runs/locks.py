"""Locks that end with the process that has them: by `flock`, on Windows by `msvcrt`.

Windows opens no folder, and neither renames nor deletes what is open. There, the lock of a folder
is on a file among this user's temporary ones, and files that are to be renamed are not locked.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

POSIX = fcntl is not None  # whether what is open may be a folder, be renamed and be deleted
TAKEN = (errno.EACCES, errno.EDEADLK)  # how msvcrt says that another has the lock


def open_folder(folder: Path) -> int:
    """Opens what is locked in the name of a folder; who closes it gives the lock back."""
    if POSIX:
        return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    import hashlib
    import tempfile

    name = hashlib.sha256(os.fsencode(folder.resolve(strict=True))).hexdigest()[:32]
    return os.open(Path(tempfile.gettempdir(), f"thespis-{name}.lock"), os.O_RDWR | os.O_CREAT)


def take(handle: int, shared: bool = False, wait: bool = False) -> None:
    """Locks what is open, or raises a `BlockingIOError` if another has it.

    Another `OSError` means that there are no locks here. Windows knows neither shared locks nor
    patience: there, both arguments do nothing.
    """
    if fcntl is not None:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
        return
    import msvcrt

    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore  # the first byte, if there or not
    except OSError as error:
        if error.errno in TAKEN:
            raise BlockingIOError(errno.EAGAIN, "another process has the lock") from error
        raise
