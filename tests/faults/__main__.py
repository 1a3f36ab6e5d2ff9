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
    """A campaign; `short` and `long` are the numbers of cases of `make test` and `test-faults`."""

    module: str
    short: int
    long: int
    about: str
    needs_shim: bool = False


CAMPAIGNS = {
    "kills": Campaign(
        "kills",
        1,
        100,
        "runs of six kinds are killed by SIGKILL, half of them during a file operation, and then "
        "resumed to their end",
    ),
    "disk": Campaign(
        "disk",
        2,
        0,
        "the n-th creation, write, fsync or rename of a file fails (with ENOSPC from then on, or "
        "once with EIO), for every n of a short run and of its resumption",
        needs_shim=True,
    ),
    "folders": Campaign(
        "folders",
        2,
        1000,
        "files of a run are damaged at random; then runs, eval, plot, report, export and resume",
    ),
    "lines": Campaign("lines", 200, 10_000, "random command lines, with typing errors"),
    "configurations": Campaign("configurations", 200, 2000, "random arguments of `thespis.train`"),
    "trainings": Campaign(
        "trainings", 1, 200, "tiny trainings with random algorithms, options and environments"
    ),
    "pairs": Campaign("pairs", 0, 2, "two processes that train together, each killed in turn"),
    "clusters": Campaign(
        "clusters",
        0,
        30,
        "a population trains in groups on a cluster of three raylets (`--ray`); in random order "
        "and at random moments, workers, raylets and the head are killed by SIGKILL, and nodes "
        "join",
    ),
}


def run(name: str, count: int, seed: int = 0, only: int | None = None) -> dict[str, Any]:
    """Runs one campaign in a process of its own -> its `Result`, and the seconds it took."""
    campaign, began = CAMPAIGNS[name], time.monotonic()
    if campaign.needs_shim and shim.library() is None:
        return vars(common.Result(skipped=shim.NO_COMPILER)) | {"seconds": 0.0}
    more = shim.loaded() if campaign.needs_shim else {}
    env = {"XLA_FLAGS": QUICK} | os.environ | more
    with tempfile.TemporaryDirectory(prefix=f"thespis-{name}-") as folder:
        numbers = ["--count", str(count), "--seed", str(seed)]
        numbers += [] if only is None else ["--only", str(only)]
        command = [sys.executable, "-m", "tests.faults", name, "--inside", folder, *numbers]
        ended = subprocess.run(command, env=env, cwd=common.ROOT, check=False)
        if ended.returncode:
            raise SystemExit(f"the campaign {name} itself ended with {ended.returncode}")
        return json.loads((Path(folder) / "result.json").read_text()) | {
            "seconds": time.monotonic() - began
        }


def inside(name: str, count: int, seed: int, only: int | None, folder: Path) -> None:
    common.prepare(folder)
    module = importlib.import_module(f"tests.faults.{CAMPAIGNS[name].module}")
    result = module.campaign(count, seed, only, folder)
    (folder / "result.json").write_text(json.dumps(vars(result)))


# --- the page -------------------------------------------------------------------------------

PAGE = """\
# Reliability

Test campaigns kill runs, let disks fail, damage files and pass random options. `make test` runs a
few cases of most campaigns, `make test-faults` all of them, and then updates this page. A case can
be repeated by its number: `python -m tests.faults folders --only 17`.

A case is a fault unless all of this holds:

- **Nothing is lost**: what was saved before the kill or the failure can be loaded and resumed.
- **Nothing changes**: a resumed run in JAX equals one that was never disturbed, bit for bit: all
  arrays of its last checkpoint, and metrics.csv except for its times.
- **Errors are one line**: a command succeeds, or ends with code 2 and one line `thespis: ...`.

The campaigns:

{details}

Results of the last `make test-faults`:

| campaign | cases | outcomes | faults |
|---|---|---|---|
{rows}
"""


def page(results: dict[str, dict[str, Any]], before: str = "") -> str:
    """Returns the page with these results, and the old ones of other campaigns."""
    rows = {line.split("|")[1].strip(): line for line in before.splitlines() if line[:2] == "| "}
    for name, result in results.items():
        how = ", ".join(f"{n:,} {what}" for what, n in result["ended"].items())
        cells = name, f"{result['cases']:,}", result["skipped"] or how, len(result["faults"])
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
    args = parser.parse_args(argv)
    names = args.names or list(CAMPAIGNS)
    if unknown := set(names) - CAMPAIGNS.keys():
        parser.error(f"there is {', '.join(CAMPAIGNS)}, not {', '.join(unknown)}")
    if args.inside:
        inside(names[0], args.count, args.seed, args.only, args.inside)
        return 0
    results = {}
    for name in names:
        usual = CAMPAIGNS[name].short if args.short else CAMPAIGNS[name].long
        count = usual if args.count is None else args.count
        results[name] = result = run(name, count, args.seed, args.only)
        how = result["skipped"] or ", ".join(f"{n} {what}" for what, n in result["ended"].items())
        print(f"{name}: {result['cases']} cases in {result['seconds']:.0f} s: {how}", flush=True)
        for fault in result["faults"]:
            print(f"  FAULT  {fault}")
    if args.save:
        before = args.save.read_text() if args.save.exists() else ""
        args.save.write_text(page(results, before))
    return 1 if any(result["faults"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
