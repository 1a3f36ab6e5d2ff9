"""Compare how fast Thespis and its peers learn, by steps and by CPU-seconds.

    python benchmarks/learning.py --list                       # what is done, what is missing
    python benchmarks/learning.py --stage first --core 1       # train what is missing of a stage
    python benchmarks/learning.py --arms sac sbx-sac --envs Hopper-v5 --seeds 0 1 --steps 50000
    python benchmarks/learning.py --page                       # docs/learning.md and its plots

Arms (a library, an algorithm and its options) and stages (arms, environments, seeds and steps)
stand in learning.toml. To try new options of Thespis, add there

    [arms."sac+elu"]
    library = "thespis"
    options = "sac --preset locomotion --critic.activation elu"

and name it: `--stage first --arms sac+elu` has the environments, seeds and steps of that stage.
--arms, --envs, --seeds and --steps each replace what the stage says.

A cell is one arm in one environment with one seed. Its result is a small file that is committed,
results/learning/<arm>/<environment>/<seed>.json, and is written when the cell has ended: what was
killed on the way begins again, what is there is left alone (--again trains it anew). Cells whose
file has fewer steps than are wanted are trained again, for longer. Several processes may share
the work, one per core: each claims a cell by a lock that ends with the process. A failure is
told, and the next cell begun.

The protocol is the same for all: one core, one thread, one environment; every 5,000 steps 10
episodes of the greedy policy, whose time does not count. Every cell compiles its programs itself.

A long campaign wants sources that stand still: clone the repository, run the clone's learning.py
with --results where the files are to be, and PYTHONPATH=<clone>/src. Peers are installed as for
run.py (peers.py) at the first use, into --home.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from learning_cells import RESULTS, TABLE, Cell, Stage, Table, claim, known, save
from peers import HOME, ROOT, make, python
from run import Failed, placed, processor

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = {"sb3": "sb", "sbx": "sb", "rejax": "rejax", "rltools": "rltools"}
GUESS = 0.008  # CPU-seconds per step of an arm of which nothing is known


def cells(table: Table, args: argparse.Namespace) -> list[Cell]:
    """Those that are chosen, each once, with the most steps that are wanted of it."""
    if args.stage or not args.arms:
        known(args.stage or (), table.stages, "stage")
        stages = [table.stages[name] for name in args.stage or table.stages]
    else:
        stages = [Stage("chosen", tuple(args.arms), (), (), 0)]
        if not (args.envs and args.seeds and args.steps):
            sys.exit("without --stage, --arms wants --envs, --seeds and --steps as well")
    known(args.arms or (), table.arms, "arm")
    found: dict[tuple, Cell] = {}
    for stage in stages:
        for name in args.arms or stage.arms:
            for env in args.envs or stage.envs:
                for seed in args.seeds if args.seeds is not None else stage.seeds:
                    cell = Cell(table.arms[name], env, seed, args.steps or stage.steps)
                    same = found.get((name, env, seed))
                    if same is None or same.steps < cell.steps:
                        found[name, env, seed] = cell
    return list(found.values())


# --- work -------------------------------------------------------------------------------------


def train(cell: Cell, table: Table, args: argparse.Namespace) -> dict[str, Any]:
    """Run one worker to its end -> the result."""
    library = cell.arm.library
    interpreter = Path(sys.executable)
    if library in ENVIRONMENTS:
        interpreter = python(args.home, ENVIRONMENTS[library])
    words = ["--arm", json.dumps(cell.arm.given), "--env", cell.env, "--seed", str(cell.seed)]
    words += ["--steps", str(cell.steps), "--eval-freq", str(table.eval_freq)]
    words += ["--episodes", str(table.episodes)]
    worker = ["-m", f"workers.learn_{library}", *words]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        prefix, variables = placed("one core", args.core, Path(folder))
        variables |= {"TMPDIR": folder}
        if library not in ENVIRONMENTS:
            variables.setdefault("PYTHONPATH", str(ROOT / "src"))
        command = [*prefix, str(interpreter), *worker]
        began, load = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), os.getloadavg()[1]
        given = {"cwd": HERE, "env": variables, "text": True}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, **given) as child:
            try:
                lines = [told(cell, json.loads(line)) for line in child.stdout]
            except BaseException:
                child.terminate()
                raise
        if child.returncode:
            errors.seek(0)
            raise Failed(f"{shlex.join(command)}\n{errors.read()[-3000:]}")
    *evaluations, last = lines
    result = {"arm": cell.arm.given, "library": library, "env": cell.env, "seed": cell.seed}
    result |= {"steps": cell.steps, "eval_freq": table.eval_freq, "episodes": table.episodes}
    result |= {"evaluations": evaluations} | last
    if library not in ENVIRONMENTS:
        result["commit"] = commit(Path(variables["PYTHONPATH"].split(":")[0]))
    result |= {"processor": processor(), "cores": os.cpu_count(), "began": began}
    result |= {"load": [round(x, 1) for x in (load, os.getloadavg()[1])]}
    return result | {"command": shlex.join(["python", *worker])}


def told(cell: Cell, line: dict) -> dict:
    """Print how far a worker is."""
    if "returns" in line:
        reward = statistics.mean(line["returns"])
        where = f"{cell}: {line['step']:,} steps, {line['cpu_seconds']:,.0f} CPU-seconds"
        print(f"{time.strftime('%H:%M:%S')} {where}, return {reward:,.0f}", flush=True)
    return line


def commit(source: Path) -> str:
    git = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip()


def work(chosen: list[Cell], table: Table, args: argparse.Namespace) -> list[Cell]:
    """Train what is missing, one cell after the other -> those that failed."""
    failed, began = [], time.monotonic()
    for cell in chosen:
        if time.monotonic() - began > 60 * args.time_limit:
            print("the time is up")
            break
        path = cell.path(args.results)
        if (state := cell.state(args.results)) == "not there":
            print(f"{cell}: left out, {cell.arm.library} has no such environment")
            continue
        if state == "other options" and not args.again:
            print(f"{cell}: left out, its result has other options than the table; see --again")
            continue
        with claim(path) as mine:
            if not mine or (cell.done(args.results) and not args.again):
                continue
            try:
                save(train(cell, table, args), path)
            except Failed as error:
                print(f"{cell}: {error}", flush=True)
                failed.append(cell)
    return failed


# --- what there is ----------------------------------------------------------------------------


def cost(result: dict[str, Any]) -> float:
    """CPU-seconds per step, evaluations included."""
    spent = result["evaluations"][-1]["cpu_seconds"] + result["eval_cpu_seconds"]
    return spent / result["steps"]


def listing(table: Table, chosen: list[Cell], results: Path) -> str:
    """A line per arm and environment, and how long the rest will take."""
    all_done = [x for cell in chosen if (x := cell.result(results))]
    median = lambda found: statistics.median(map(cost, found)) if found else None
    lines, left, total = [], 0, 0.0
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in chosen:
        groups.setdefault((cell.arm.name, cell.env), []).append(cell)
    for (name, env), group in groups.items():
        arm = table.arms[name]
        of_arm = [x for x in all_done if x["arm"] == arm.given]
        same = [x for x in all_done if x["library"] == arm.library]
        per_step = median([x for x in of_arm if x["env"] == env])
        per_step = per_step or median(of_arm) or median(same) or GUESS
        states = {cell.seed: cell.state(results) for cell in group}
        rest = [c for c in group if states[c.seed] not in ("done", "not there")]
        hours = sum(per_step * cell.steps for cell in rest) / 3600
        left, total = left + len(rest), total + hours
        words = ", ".join(f"{state} {seeds}" for state, seeds in by_state(states).items())
        done = sum(state == "done" for state in states.values())
        time_left = f"{60 * hours:6.0f} min" if rest else ""
        steps = max(cell.steps for cell in group)
        head = f"{name:<20}{env:<16}{steps:>9,}  {done} of {len(group)}"
        lines.append(f"{head} {time_left:<10} {words}".rstrip())
    lines.append(f"{left} of {len(chosen)} cells are missing: about {total:.1f} CPU-hours")
    return "\n".join(lines)


def by_state(states: dict[int, str]) -> dict[str, str]:
    """Of every state but "done" its seeds."""
    found: dict[str, list[str]] = {}
    for seed, state in states.items():
        found.setdefault(state, []).append(str(seed))
    return {state: " ".join(seeds) for state, seeds in found.items() if state != "done"}


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--stage", nargs="+", metavar="NAME", help="of the table; all")
    parser.add_argument("--arms", nargs="+", metavar="NAME", help="instead of the stage's")
    parser.add_argument("--envs", nargs="+", metavar="ENV", help="instead of the stage's")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="instead of the stage's")
    parser.add_argument("--steps", type=int, help="instead of the stage's")
    parser.add_argument("--core", type=int, default=1, help="where the cells run; 1")
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="MINUTES")
    parser.add_argument("--again", action="store_true", help="train also what is done")
    parser.add_argument("--list", action="store_true", help="print what is done, train nothing")
    parser.add_argument("--page", action="store_true", help="write docs/learning.md")
    parser.add_argument("--table", type=Path, default=TABLE, help="of arms and stages")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--home", type=Path, default=HOME, help="of the peers' environments")
    args = parser.parse_args(words)
    args.home, args.results = args.home.resolve(), args.results.resolve()
    return args


def main() -> None:
    args = arguments()
    table = Table.read(args.table)
    if args.page:
        import learning_page

        print(learning_page.write(table, args.results, ROOT / "docs"))
        return
    chosen = cells(table, args)
    if args.list:
        print(listing(table, chosen, args.results))
        return
    if not shutil.which("taskset"):
        sys.exit("cells are pinned with taskset (util-linux): install it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a worker ends as well
    wanted = {c.arm.library for c in chosen if args.again or c.state(args.results) != "done"}
    for name in sorted({ENVIRONMENTS[x] for x in wanted if x in ENVIRONMENTS}):
        make(args.home, name)
    if failed := work(chosen, table, args):
        sys.exit(f"failed: {', '.join(map(str, failed))}")


if __name__ == "__main__":
    main()
