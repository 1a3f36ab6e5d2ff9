"""Two processes that train one population, of which each is killed in turn."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from tests.faults.common import Result, plain
from tests.faults.kinds import differences, folder_of, start, words

LONGEST = 900
KIND = "a population"


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


def campaign(count: int, seed: int, only: int | None, folder: Path) -> Result:
    from tests.small import wait_for

    result = Result()
    given = words(KIND, steps=2000, threads=1, **{"checkpoint-freq": 100})
    alone = folder / "alone"
    child = start("train", *given, "--out", alone)
    said = child.communicate(timeout=LONGEST)
    assert child.returncode == 0, said
    reference = folder_of(alone)
    assert reference is not None
    for i in range(count) if only is None else [only]:
        out, victim = folder / f"pair{i}", i % 2
        at = ["--coordinator", free_port(), "--processes", 2]
        pair = [start("train", *given, "--out", out, *at, "--process", p) for p in range(2)]
        saved = lambda out=out: len(list(out.glob("*/*_1/checkpoints/0*[0-9]")))
        over = lambda pair=pair: any(child.poll() is not None for child in pair)
        wait_for(lambda saved=saved, over=over: saved() >= 2 or over(), LONGEST)
        os.kill(pair[victim].pid, signal.SIGKILL)
        _, err = pair[1 - victim].communicate(timeout=LONGEST)
        pair[victim].communicate(timeout=LONGEST)
        code = pair[1 - victim].returncode
        faults = plain(err) if code == 2 else [f"the other ended with {code}: {err[-500:]}"]
        run = folder_of(out)
        child = start("resume", run, "--json")
        _, err = child.communicate(timeout=LONGEST)
        if child.returncode:
            faults.append(f"it does not go on: {err[-500:]}")
        else:
            assert run is not None
            faults += differences(reference, run, exact=True)
        how = "survivors ended with one line, resumed runs identical"
        result.add(how if not faults else "fault", faults, f"pairs {i}, process {victim} killed")
    return result
