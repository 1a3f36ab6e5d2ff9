"""A Ray of our own, on this machine alone: the folder it lives in, and how its processes end.

They end with this process. But a process that is killed leaves its folder behind, and a signal to
a whole process group, as of a batch system, would end Ray before the run is saved.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from thespis.runs import locks

PREFIX = "ray-"
MARK = "thespis"  # a file that is locked while the process lives that made the folder


@contextmanager
def folder() -> Iterator[str]:
    """Yields a new folder that is removed afterwards, as are those of processes that were killed.

    Its path is short, since those of sockets may not be long.
    """
    usual = tempfile.gettempdir()
    parent = Path(usual if len(usual) < 30 or not os.path.isdir("/tmp") else "/tmp")
    remove_leftovers(parent)
    place, lock = make(parent)
    try:
        yield str(place)
    finally:
        os.close(lock)
        shutil.rmtree(place, ignore_errors=True)


def make(parent: Path) -> tuple[Path, int]:
    """Makes a folder -> its path, and the handle by which it is locked."""
    place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    new = place / f"{MARK}.new"
    lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    if locks.POSIX:  # others see the file when it is locked already
        with suppress(OSError):
            locks.take(lock)
            new.rename(place / MARK)
    return place, lock


def remove_leftovers(parent: Path) -> None:
    """Removes the folders of our processes that have ended without doing so."""
    if not locks.POSIX:
        return
    for mark in parent.glob(f"{PREFIX}*/{MARK}"):
        with suppress(OSError):  # it is in use, or belongs to somebody else
            if os.lstat(mark.parent).st_uid != os.getuid():
                continue
            handle = os.open(mark, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                locks.take(handle)
                shutil.rmtree(mark.parent, ignore_errors=True)
            finally:
                os.close(handle)


@contextmanager
def sigterm_blocked() -> Iterator[None]:
    """Blocks SIGTERM for this thread, and for good in processes that are started meanwhile."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def no_handlers(ray: Any) -> Iterator[None]:
    """Keeps Ray from handling SIGTERM in this process: it would end Ray first, and then exit."""
    utils = ray._private.utils
    before = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = before


def unblock_sigterm() -> None:
    """Lets a worker of Ray, and so the processes it starts, be ended by SIGTERM as usual."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def end(ray: Any) -> None:
    """Ends Ray here. Its processes do not listen to SIGTERM, so that asking them takes seconds."""
    import psutil  # which comes with Ray  # pyright: ignore[reportMissingModuleSource]

    node, left = ray._private.worker._global_node, []
    if node is not None:
        for process in [info.process for infos in node.all_processes.values() for info in infos]:
            with suppress(psutil.Error):
                left += psutil.Process(process.pid).children()
        kill = node.kill_all_processes
        node.kill_all_processes = lambda **_: kill(check_alive=False)
    ray.shutdown()
    for process in left:
        with suppress(psutil.Error):
            process.kill()
