"""What all campaigns share: cases that can be repeated, commands in this process, plain lines."""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LONGEST_LINE = 10_100
HANGS = 300  # seconds that no command of these sizes should take


@dataclass
class Result:
    """What came of a campaign: cases, how they ended, and those that ended as none should."""

    cases: int = 0
    ended: Counter = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    skipped: str = ""

    def add(self, how: str, faults: list[str], case: str) -> None:
        self.cases += 1
        self.ended[how] += 1
        self.faults += [f"{case}: {fault}" for fault in faults]
        for fault in faults:
            print(f"FAULT  {case}: {fault}", file=sys.stderr, flush=True)


def chance(*case: Any) -> random.Random:
    """Random numbers of one case, the same whatever was tried before it."""
    return random.Random(" ".join(map(str, case)))


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code or what it raised."""

    code: int | None
    out: str
    err: str
    raised: str = ""

    def faults(self, *legal: int) -> list[str]:
        """What is wrong with how it ended: other codes than these, or no plain line."""
        if self.raised:
            return [self.raised]
        if self.code not in legal:
            return [f"ended with {self.code}: {self.err[-300:]}"]
        return [] if self.code == 0 else plain(self.err)


def plain(err: str) -> list[str]:
    """What is wrong with what a command that failed said: its last line must say it all."""
    lines = err.splitlines()
    last = lines[-1] if lines else ""
    found = []
    if not last.startswith("thespis: "):
        found.append(f"no plain line: {err[-300:]!r}")
    if "Traceback" in err:
        found.append(f"a traceback: {err[-300:]!r}")
    if any(ord(c) < 32 or ord(c) == 127 for c in last) or " object at 0x" in last:
        found.append(f"not for people: {last!r}")
    if len(last) > LONGEST_LINE:
        found.append(f"a line of {len(last)} characters: {last[:200]!r}")
    return found


class Hangs(BaseException):
    """A command takes too long."""


def say(*argv: Any, catch: tuple[type[BaseException], ...] = ()) -> Said:
    """Run a command in this process; what is in `catch` is let through."""
    from thespis.cli.command import main

    out, err = io.StringIO(), io.StringIO()
    result: dict[str, Any] = {"code": None}

    def late(number, frame):
        raise Hangs(f"it took more than {HANGS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANGS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            result["code"] = main([str(word) for word in argv])
    except catch:
        raise
    except SystemExit as error:
        result["code"] = error.code
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        text = " ".join(str(error).split())[:300]
        result["raised"] = f"{type(error).__name__} at {place}: {text}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return Said(out=out.getvalue(), err=err.getvalue(), **result)


def each(count: int, only: int | None, try_one: Callable[[int], None]) -> None:
    """Cases 0 .. count - 1, or one of them; now and then it is told how far they are."""
    for i in range(count) if only is None else [only]:
        try_one(i)
        if count >= 100 and (i + 1) % (count // 20) == 0:
            print(f"{i + 1} of {count}", file=sys.stderr, flush=True)


def prepare(folder: Path) -> None:
    """Caches and records of this process and those it starts, in folders of their own."""
    cache = ROOT / ".cache" / "faults"
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ |= {"JAX_PLATFORMS": "cpu", "NPROC": "1", "MPLBACKEND": "Agg"}
    os.environ |= {"SDL_VIDEODRIVER": "dummy", "COLUMNS": "200"}
    os.environ["XDG_STATE_HOME"] = str(folder / "state")


def undrawn() -> None:
    """Plots are made, but their files hold a single pixel: drawing takes longest."""
    from matplotlib.figure import Figure
    from PIL import Image

    pixel = Image.new("RGB", (1, 1))
    Figure.savefig = lambda self, file, **given: pixel.save(file, "PNG")  # pyright: ignore
