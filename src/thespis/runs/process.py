"""Locks the folder of a training process, and handles its signals."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError
from thespis.runs import locks
from thespis.xla import compile_cache

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def alone(folder: Path, doing: str = "being trained") -> Iterator[None]:
    """Keeps other processes from training in this folder; the lock ends with this process."""
    handle = locks.open_folder(folder)
    try:
        try:
            locks.take(handle)
        except BlockingIOError:  # perhaps `busy` holds it, for a moment only
            time.sleep(0.1)
            locks.take(handle)
    except BlockingIOError:
        os.close(handle)
        raise ThespisError(
            f"{folder} is {doing} by another process: wait for it, or stop it first"
        ) from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(handle)


def busy(folder: Path) -> bool:
    """Returns whether a process of this machine trains in this folder."""
    handle = locks.open_folder(folder)
    try:
        locks.take(handle, shared=True)
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: rely on status.json
        return True
    finally:
        os.close(handle)


# --- signals --------------------------------------------------------------------------------


@contextmanager
def held() -> Iterator[None]:
    """Holds Ctrl-C and SIGTERM back until the end of the block.

    A library that is interrupted during its import or start may crash, or ignore the signal.
    """
    caught: list[int] = []
    answer = lambda number: print("thespis: stopping after loading", file=sys.stderr, flush=True)
    with handled(lambda number, frame: caught.append(number)), answered(answer):
        yield
    if caught:
        signal.raise_signal(caught[0])


@contextmanager
def stoppable(note: Callable[[str], None]) -> Iterator[list[int]]:
    """Yields a list to which the first Ctrl-C or SIGTERM is added, and answers it by a note.

    A second signal ends the command, even while XLA compiles; in Python it has its usual effect.
    """
    caught: list[int] = []
    times = itertools.count(1)

    def answer(number: int) -> None:
        if next(times) == 1:
            note(f"{signal.Signals(number).name}: saving after this step; repeat it to end at once")
        elif compile_cache.keeping:
            os._exit(128 + number)

    # If Python's own handlers were restored, they would end the command with another exit code.
    once = not compile_cache.keeping
    with handled(lambda number, frame: caught.append(number), once), answered(answer):
        yield caught


@contextmanager
def handled(handler: Callable[[int, Any], Any], once: bool = False) -> Iterator[None]:
    """Calls `handler` on a signal, between two Python instructions; `once`, or every time."""
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, earlier in before.items():
            signal.signal(number, earlier)

    def call(number, frame) -> None:
        handler(number, frame)
        if once:
            restore()

    try:
        for number in ENDING:
            before[number] = signal.signal(number, call)
    except ValueError:  # only the main thread may handle signals
        before.clear()
    try:
        yield
    finally:
        restore()


@contextmanager
def answered(answer: Callable[[int], None]) -> Iterator[None]:
    """Calls `answer` in a thread on every signal, even while a library blocks Python."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    if hasattr(os, "set_blocking"):  # not on Windows before Python 3.12
        os.set_blocking(writer, False)
    other = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def listen() -> None:
        while number := os.read(reader, 1):
            if other >= 0:  # pass it on, for instance to an event loop
                os.write(other, number)
            if number[0] in ENDING:
                answer(number[0])

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(other)
        os.close(writer)
        thread.join()
        os.close(reader)
