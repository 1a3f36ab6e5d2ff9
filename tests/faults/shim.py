"""Builds shim.c, and lets the n-th thing that is done to files fail, or kill who does it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
NO_COMPILER = "no C compiler (cc or gcc) to build tests/faults/shim.c with, or not on Linux"


@cache
def library() -> Path | None:
    """The shared library, built where it is missing or old; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not Path("/proc/self/fd").exists():
        return None
    built = SOURCE.parents[2] / ".cache" / "shim.so"
    if not built.exists() or built.stat().st_mtime < SOURCE.stat().st_mtime:
        built.parent.mkdir(exist_ok=True)
        aside = built.with_name(f"shim.{os.getpid()}.so")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", aside, SOURCE, "-ldl"]
        subprocess.run(command, check=True)
        aside.replace(built)
    return built


def loaded() -> dict[str, str]:
    """Environment variables of a process that has the library."""
    return {"LD_PRELOAD": str(library())}


def killing(folder: Path, match: str, at: int, told: Path | None = None) -> dict[str, str]:
    """Of a process that dies at the `at`-th thing it does to files there; 0 counts alone."""
    numbers = {"FAULT_AT": str(at), "FAULT_ERRNO": "0"}
    names = {"FAULT_FOLDER": str(folder), "FAULT_MATCH": match}
    count = {} if told is None else {"FAULT_COUNT": str(told)}
    return loaded() | names | numbers | count


@contextmanager
def failing(folder: Path, at: int, error: int, stays: bool):
    """In this process, which has the library, the `at`-th thing fails; -> a count so far."""
    here = ctypes.CDLL(None)
    here.fault_count.restype = ctypes.c_long
    name = str(folder).encode()
    here.fault_arm(name, b"", ctypes.c_long(at), error, int(stays))
    try:
        yield lambda: int(here.fault_count())
    finally:
        here.fault_arm(b"", b"", ctypes.c_long(0), 0, 0)
