"""Campaigns against Thespis, counted: `make test-faults`, or `python -m tests.faults kills disk`.

Each runs in a process of its own. A case is known by the campaign's seed and its number alone:
`python -m tests.faults folders --only 17` repeats that one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import common, shim

# Those of the Makefile, all of them: with others, programs for several devices round differently.
QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)


@dataclass(frozen=True)
class Campaign:
    """`short` and `long` are how many cases `make test` and `make test-faults` try."""

    module: str
    short: int
    long: int
    about: str
    needs_shim: bool = False


CAMPAIGNS = {
    "kills": Campaign(
        "kills",
        2,
        100,
        "SIGKILLs over six kinds of runs, half of them at an operation on a temporary file; "
        "every run then goes on to its end",
    ),
    "disk": Campaign(
        "disk",
        6,
        0,
        "the n-th creation, write, fsync or rename of a file fails (ENOSPC from then on, or EIO "
        "once), for every n of a short run and of its resumption",
        needs_shim=True,
    ),
    "folders": Campaign(
        "folders",
        8,
        1000,
        "mutations of files in run folders, each through runs, eval, plot, report, export, resume",
    ),
    "lines": Campaign("lines", 200, 10_000, "fuzzed command lines"),
    "configurations": Campaign("configurations", 200, 2000, "fuzzed arguments of Python"),
    "trainings": Campaign(
        "trainings", 1, 200, "tiny trainings of random algorithms, options and environments"
    ),
    "pairs": Campaign("pairs", 0, 2, "two processes that train together, each killed in turn"),
}


def run(name: str, count: int, seed: int = 0, only: int | None = None) -> dict[str, Any]:
    """One campaign in a process of its own -> its `Result`, and the seconds it took."""
    campaign, began = CAMPAIGNS[name], time.monotonic()
    if campaign.needs_shim and shim.library() is None:
        return vars(common.Result(skipped=shim.NO_COMPILER)) | {"seconds": 0.0}
    more = shim.loaded() if campaign.needs_shim else {}
    env = {"XLA_FLAGS": QUICK} | os.environ | more
    with tempfile.TemporaryDirectory(prefix=f"thespis-{name}-") as folder:
        told = Path(folder) / "result.json"
        numbers = ["--count", str(count), "--seed", str(seed)]
        numbers += [] if only is None else ["--only", str(only)]
        command = [sys.executable, "-m", "tests.faults", name, "--inside", folder, *numbers]
        ended = subprocess.run(command, env=env, cwd=common.ROOT, check=False)
        if ended.returncode:
            raise SystemExit(f"the campaign {name} itself ended with {ended.returncode}")
        return json.loads(told.read_text()) | {"seconds": time.monotonic() - began}


def inside(name: str, count: int, seed: int, only: int | None, folder: Path) -> None:
    common.prepare(folder)
    module = importlib.import_module(f"tests.faults.{CAMPAIGNS[name].module}")
    result = module.campaign(count, seed, only, folder)
    (folder / "result.json").write_text(json.dumps(vars(result)))


# --- the page -------------------------------------------------------------------------------

PAGE = """\
# Reliability

What runs survive is tried by campaigns that attack them, with counted results. `make test` runs a
short form of each, `make test-faults` the whole, which also writes this page; every case is known
by its number, so that it can be repeated: `python -m tests.faults folders --only 17`.
Wanted is: nothing lost, nothing different, nothing but clear lines.

- **Nothing lost**: what was saved before a kill or a failing disk is there and goes on.
- **Nothing different**: a run in JAX that goes on after it equals one that was never disturbed, bit
  for bit: all arrays of its last checkpoint, and metrics.csv but for its times.
- **Nothing but clear lines**: a command ends well, or with code 2 and one line `thespis: ...`.

{details}

What `make test-faults` found last:

| campaign | cases | how they ended | faults |
|---|---|---|---|
{rows}
"""


def page(results: dict[str, dict[str, Any]], before: str = "") -> str:
    """The page with these results, and those that it had of other campaigns."""
    rows = {line.split("|")[1].strip(): line for line in before.splitlines() if line[:2] == "| "}
    for name, found in results.items():
        how = ", ".join(f"{n:,} {what}" for what, n in found["ended"].items())
        cells = name, f"{found['cases']:,}", found["skipped"] or how, len(found["faults"])
        rows[name] = "| " + " | ".join(map(str, cells)) + " |"
    return PAGE.format(
        rows="\n".join(rows[name] for name in CAMPAIGNS if name in rows),
        details="\n".join(f"- **{name}**: {c.about}." for name, c in CAMPAIGNS.items()),
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", default=[], metavar="campaign")
    parser.add_argument("--short", action="store_true", help="as in `make test`")
    parser.add_argument("--count", type=int, help="how many cases, instead of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one case")
    parser.add_argument("--save", type=Path, help="write the counts into this page")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    names = given.names or list(CAMPAIGNS)
    if unknown := set(names) - CAMPAIGNS.keys():
        parser.error(f"there is {', '.join(CAMPAIGNS)}, not {', '.join(unknown)}")
    if given.inside:
        inside(names[0], given.count, given.seed, given.only, given.inside)
        return 0
    results = {}
    for name in names:
        usual = CAMPAIGNS[name].short if given.short else CAMPAIGNS[name].long
        count = usual if given.count is None else given.count
        results[name] = found = run(name, count, given.seed, given.only)
        how = found["skipped"] or ", ".join(f"{n} {what}" for what, n in found["ended"].items())
        print(f"{name}: {found['cases']} cases in {found['seconds']:.0f} s: {how}", flush=True)
        for fault in found["faults"]:
            print(f"  FAULT  {fault}")
    if given.save:
        before = given.save.read_text() if given.save.exists() else ""
        given.save.write_text(page(results, before))
    return 1 if any(found["faults"] for found in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
