"""The process that trains: alone in its folder, and interruptible."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No second process trains in this folder; the lock ends with its owner, however it ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # perhaps by `busy`, which looks for a moment only
            time.sleep(0.1)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ThespisError(
            f"{folder} is being trained by another process: wait for it, or stop it first"
        ) from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(handle)


def busy(folder: Path) -> bool:
    """Whether a process, of this machine, trains in this folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: believe what is written
        return True
    finally:
        os.close(handle)


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are noted in the list, once; a second one has its usual effect."""
    caught: list[int] = []
    before: dict[int, Any] = {}

    def back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number, frame):
        caught.append(number)
        back()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    except ValueError:  # not in the main thread: signals are somebody else's
        before.clear()
    try:
        yield caught
    finally:
        back()
