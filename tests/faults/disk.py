"""A disk that fails: every single thing that a short run does to its files fails once.

The command then ends with a one-line error, or succeeds if only a plot or the like failed; and the
run goes on, once the disk works again, to what it would have been.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from tests.faults import shim
from tests.faults.common import Result, Said, each, say, undrawn
from tests.faults.kinds import differences, folder_of, left_over, words

KIND, SHORT = "a population", {"steps": 150, "checkpoint-freq": 75}
ERRORS = {"ENOSPC": (errno.ENOSPC, True), "EIO": (errno.EIO, False)}


def train(out: Path) -> Said:
    return say("train", *words(KIND, **SHORT), "--out", out)


def stopped(folder: Path) -> Path:
    """A run with more to do, made of one that was meant to be shorter."""
    assert say("train", *words(KIND, **SHORT | {"steps": 100}), "--out", folder).code == 0
    run = folder_of(folder)
    assert run is not None
    return run


def resume(run: Path) -> Said:
    return say("resume", run, "--json", "--steps", SHORT["steps"])


def campaign(count: int, seed: int, only: int | None, folder: Path) -> Result:
    """All operations, or about `count` of them in even steps, with each error in turn."""
    from tests import small  # noqa: F401 (keeps programs between runs)

    undrawn()
    result, reference = Result(), folder / "reference"
    with shim.failing(reference, 0, 0, False) as done:
        assert train(reference).code == 0
        of_training = done()
    whole = folder_of(reference)
    half = stopped(folder / "half")
    again = folder / "counted"
    shutil.copytree(half, again)
    with shim.failing(again, 0, 0, False) as done:
        assert resume(again).code == 0
        of_resuming = done()
    assert whole is not None
    cases = [(n, True) for n in range(1, of_training + 1)]
    cases += [(n, False) for n in range(1, of_resuming + 1)]
    cases = [(n, fresh, name) for n, fresh in cases for name in ERRORS]
    if count:
        apart = max(1, len(cases) // count) | 1  # odd: with each error in turn
        cases = cases[apart // 2 :: apart]

    def try_one(i: int) -> None:
        n, fresh, name = cases[i]
        error, stays = ERRORS[name]
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        run = None
        if not fresh:
            run = out / "half"
            shutil.copytree(half, run)
        with shim.failing(out, n, error, stays):
            said = train(out) if fresh else resume(run)  # pyright: ignore
        faults = said.faults(0, 2)
        how = "one-line errors" if said.code == 2 else "succeeded"
        run = run or folder_of(out)
        begun = run is not None and (run / "checkpoints").is_dir()
        after = resume(run) if begun else train(out)
        faults += [f"afterwards {fault}" for fault in after.faults(0)]
        last = run if begun else sorted(out.glob("*/*"))[-1]
        if not faults:
            faults += differences(whole, last, exact=True) + left_over(last)
        verb = "train" if fresh else "resume"
        result.add(how if not faults else "fault", faults, f"disk {i}, {name} at {n} of {verb}")

    each(len(cases), only, try_one)
    return result
