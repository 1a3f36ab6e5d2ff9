"""Runs that are killed (SIGKILL) again and again, and go on: they end like one that was not."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults import shim
from tests.faults.common import Result, chance, plain
from tests.faults.kinds import KINDS, differences, folder_of, left_over, start, words

TEMPORARY = "tmp"  # is part of every temporary name
LONGEST = 900


@dataclass(frozen=True)
class Reference:
    """A run that nobody disturbed, and how often it did something to temporary files."""

    folder: Path
    operations: int


def reference(kind: str, folder: Path) -> Reference:
    out, told = folder / "reference" / kind, folder / "operations"
    counting = shim.killing(out, TEMPORARY, 0, told) if shim.library() else {}
    child = start("train", *words(kind), "--out", out, **counting)
    said = child.communicate(timeout=LONGEST)
    assert child.returncode == 0, said
    run = folder_of(out)
    assert run is not None
    return Reference(run, int(told.read_text()) if counting else 0)


def moment(r, run: Path | None, out: Path):
    """Something that will have happened in a run's folder: one of its files is new or longer."""

    def seen() -> tuple:
        where = run or folder_of(out)
        if where is None:
            return ()
        saved = max([0, *(int(p.name) for p in where.glob("checkpoints/0*[0-9]"))])
        log = where / "metrics.csv"
        return saved, log.stat().st_size if log.exists() else 0

    before = seen()
    which = r.randrange(2)
    value = lambda found: found[which] if found else 0
    later = r.randint(1, 2) if which == 0 else r.randint(1, 3)

    def happened() -> bool:
        nonlocal before, later
        now = seen()
        if value(now) > value(before):
            before, later = now, later - 1
        return later <= 0

    return happened


def command(kind: str, out: Path) -> list:
    """What begins the run in there, or goes on with it."""
    run = folder_of(out)
    begun = run is not None and (run / "config.json").exists()
    return ["resume", run, "--json"] if begun else ["train", *words(kind), "--out", out]


def ended(child) -> list[str]:
    """What is wrong with how a process ended that was left alone."""
    _, err = child.communicate(timeout=LONGEST)
    return [] if child.returncode == 0 else [f"code {child.returncode}: {err[-300:]}", *plain(err)]


def leg(r, kind: str, out: Path, known: Reference, aimed: bool) -> tuple[bool, list[str]]:
    """One process, from its start to its death or its end -> whether it was killed, and faults."""
    run, argv = folder_of(out), command(kind, out)
    if aimed and known.operations:
        share = 1.0 if run is None else 0.5  # a run that goes on has less left to do
        at = r.randint(1, max(1, int(share * known.operations)))
        child = start(*argv, **shim.killing(out, TEMPORARY, at))
    else:
        happened = moment(r, run, out)
        child = start(*argv)
        while child.poll() is None and not happened():
            time.sleep(0.001)
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
    faults = ended(child)
    return (True, []) if child.returncode == -signal.SIGKILL else (False, faults)


def disturbed(
    r, kind: str, out: Path, known: Reference, most: int, first: int
) -> tuple[int, list[str]]:
    """A run that is killed up to `most` times, every other time aimed, and then goes on to its end.

    -> how often it was, and what is wrong with what came of it.
    """
    kills, died, faults = 0, True, []
    while kills < most and died and not faults:
        died, faults = leg(r, kind, out, known, aimed=(first + kills) % 2 == 0)
        kills += died
    if died and not faults:
        faults = ended(start(*command(kind, out)))
    run = folder_of(out)
    if not faults and run is None:
        faults = ["there is no run"]
    if not faults and run is not None:
        faults = differences(known.folder, run, KINDS[kind][2]) + left_over(run)
    return kills, faults


def campaign(count: int, seed: int, only: int | None, folder: Path) -> Result:
    """`count` kills in all, the kinds in turn."""
    result, kinds = Result(), list(KINDS)
    kinds = kinds[: max(1, min(len(kinds), count // 2))]
    known = {kind: reference(kind, folder) for kind in kinds}
    killed, numbers = 0, range(only or 0, 10 * count) if only is None else [only]
    for number in numbers:
        kind, r = kinds[number % len(kinds)], chance("kill", seed, number)
        with tempfile.TemporaryDirectory(dir=folder) as out:
            most = min(r.randint(2, 6), count - killed)
            kills, faults = disturbed(r, kind, Path(out), known[kind], most, killed)
        aimed = len([i for i in range(killed, killed + kills) if i % 2 == 0])
        result.ended["killed during a file operation"] += aimed
        killed += kills
        exact = KINDS[kind][2]
        how = "runs identical to an undisturbed one" if exact else "runs continued to their end"
        result.add(how if not faults else "fault", faults, f"kills {number}, {kind}")
        if killed >= count:
            break
    result.cases = killed
    return result
