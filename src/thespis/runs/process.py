"""The process that trains: alone in its folder, and interruptible."""

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
    """Keeps other processes from training in this folder; the lock ends with its owner."""
    handle = locks.open_folder(folder)
    try:
        try:
            locks.take(handle)
        except BlockingIOError:  # perhaps by `busy`, which looks for a moment only
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
    """Tells whether a process of this machine trains in this folder."""
    handle = locks.open_folder(folder)
    try:
        locks.take(handle, shared=True)
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: believe what is written
        return True
    finally:
        os.close(handle)


# --- signals --------------------------------------------------------------------------------


@contextmanager
def held() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM wait for the end of the block.

    A library that is interrupted while it is imported or starts may crash, or swallow it.
    """
    caught: list[int] = []
    say = lambda number: print("thespis: ends when all is loaded", file=sys.stderr, flush=True)
    with handled(lambda number, frame: caught.append(number)), heard(say):
        yield
    if caught:
        signal.raise_signal(caught[0])


@contextmanager
def stoppable(note: Callable[[str], None]) -> Iterator[list[int]]:
    """Puts Ctrl-C or SIGTERM into the list, once, and answers at once by a note.

    A second one ends the command, even while XLA compiles; in Python it has its usual effect.
    """
    caught: list[int] = []
    times = itertools.count(1)

    def answer(number: int) -> None:
        if next(times) == 1:
            note(f"{signal.Signals(number).name}: saving after this step; again to end at once")
        elif compile_cache.keeping:
            os._exit(128 + number)

    # Python's own handlers would end the command by another code, if they were back by then.
    once = not compile_cache.keeping
    with handled(lambda number, frame: caught.append(number), once), heard(answer):
        yield caught


@contextmanager
def handled(note: Callable[[int, Any], Any], once: bool = False) -> Iterator[None]:
    """Calls `note` on a signal, between two instructions of Python; `once`, or every time."""
    before: dict[int, Any] = {}

    def back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def call(number, frame) -> None:
        note(number, frame)
        if once:
            back()

    try:
        for number in ENDING:
            before[number] = signal.signal(number, call)
    except ValueError:  # not in the main thread: signals are somebody else's
        before.clear()
    try:
        yield
    finally:
        back()


@contextmanager
def heard(answer: Callable[[int], None]) -> Iterator[None]:
    """Calls `answer` in a thread on every signal, even while a library keeps Python waiting."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, tell = os.pipe()
    if hasattr(os, "set_blocking"):  # not on Windows before Python 3.12
        os.set_blocking(tell, False)
    other = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)

    def listen() -> None:
        while number := os.read(reader, 1):
            if other >= 0:  # an event loop wants to know, too
                os.write(other, number)
            if number[0] in ENDING:
                answer(number[0])

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(other)
        os.close(tell)
        thread.join()
        os.close(reader)
