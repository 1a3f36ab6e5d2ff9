"""Compare the speed of Thespis with its peers, and print a table.

    python benchmarks/run.py --save docs/benchmarks.md      # everything, about an hour
    python benchmarks/run.py --only 'updates|first' --rounds 3
    python benchmarks/run.py --against ../before            # a checkout of another commit
    python benchmarks/run.py --avx2 --only updates          # as on processors without AVX-512
    python benchmarks/run.py --list                         # the cases there are

The peers' environments are made first, if they are not there yet (peers.py).

Each round runs Thespis and every peer of a case one after another, so that a noisy machine
hurts all alike; the ratio is the median over the rounds. `one core` pins a process to one core
with pools of one thread and counts per CPU-second; the others count per second of wall clock
and want an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from peers import HOME, ROOT, make, python

ENVIRONMENTS = {"sb3": "sb", "sbx": "sb", "qdax": "qdax", "rejax": "rejax", "ding": "di"}
HERE = Path(__file__).resolve().parent
BEFORE = "before"  # the peer that is another commit of Thespis
KEPT = 0.97  # the share of its speed that is wanted
AVX2 = {  # keeps XLA, OpenBLAS and PyTorch from wider instructions
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}


class Failed(Exception):
    """A worker that ended with an error."""


@dataclass(frozen=True)
class Case:
    """One workload. `wanted` is the ratio of Thespis to each peer; None only informs."""

    name: str
    command: str
    wanted: dict[str, float | None]
    place: str = "one core"  # or "two cores", or "as it comes": nothing pinned, nothing set
    lower_is_better: bool = False

    @property
    def unit(self) -> str:
        if self.lower_is_better:
            return "s"
        return "/CPU-s" if self.place == "one core" else "/s"


def cases() -> list[Case]:
    found = []
    for algo in ("sac", "td3"):
        peers = {"sbx": 1.15, "qdax": 1.15, "sb3": None}
        found.append(Case(f"updates {algo} 256", f"updates --algo {algo}", peers))
    for variant in ("crossq", "tqc", "droq"):
        command = f"updates --variant {variant}"
        found.append(Case(f"updates {variant} 256", command, {"sbx": 1.2}))
    found.append(Case("updates dads 256", "updates --algo dads", {"qdax": 1.2}))
    for algo in ("sac", "td3"):
        for hidden, peers in ((256, {"sbx": 1.2, "sb3": 2.2}), (64, {"sbx": 1.6, "sb3": 5.0})):
            for env in ("Pendulum-v1", "HalfCheetah-v5"):
                command = f"steps --algo {algo} --env {env} --hidden {hidden}"
                found.append(Case(f"steps {algo} {env} {hidden}", command, peers))
    command = "steps --algo discrete-sac --env CartPole-v1 --hidden 64"
    found.append(Case("steps discrete-sac CartPole-v1 64", command, {"ding": 3.0}))
    command = "steps --env HalfCheetah-v5 --hidden 256"
    found.append(Case("two cores sac HalfCheetah-v5 256", command, {"sbx": 1.2}, "two cores"))
    command = "steps --env Pendulum-v1 --hidden 64"
    found.append(Case("first try sac Pendulum-v1 64", command, {"sbx": 2.0}, "as it comes"))
    for algo in ("sac", "td3"):
        for hidden in (64, 256):
            for envs in (1, 8, 64):
                command = f"ondevice --algo {algo} --hidden {hidden} --envs {envs}"
                name = f"on-device {algo} Pendulum x {envs} {hidden}"
                found.append(Case(name, command, {"rejax": 1.0}))
    for hidden in (64, 256):
        for members in (1, 2, 4, 8, 16):
            command = f"population --hidden {hidden} --members {members}"
            peers = {"qdax": 1.1 if members >= 8 else 0.95}
            found.append(Case(f"population of {members} sac {hidden}", command, peers))
    command, peers = "first --env Pendulum-v1", {"sbx": 0.5}
    found.append(Case("first update sac Pendulum-v1", command, peers, "two cores", True))
    return found


def against(case: Case) -> Case:
    """The same workload, compared with another commit."""
    return replace(case, wanted={BEFORE: 1 / KEPT if case.lower_is_better else KEPT})


def placed(place: str, core: int, cache: Path) -> tuple[list[str], dict[str, str]]:
    """The prefix of a command and its environment variables."""
    unset = ("NPROC", "OMP_NUM_THREADS", "XLA_FLAGS", "PYTHONDONTWRITEBYTECODE")
    variables = {k: v for k, v in os.environ.items() if k not in unset}
    variables |= {"JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    # The same persistent cache of compiled programs for every JAX library, small ones included.
    variables |= {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    if place == "one core":
        return ["taskset", "-c", str(core)], variables | {"NPROC": "1", "OMP_NUM_THREADS": "1"}
    return (["taskset", "-c", "0,1"] if place == "two cores" else []), variables


def work(library: str, case: Case, args) -> dict:
    """Run one library's worker."""
    return run_worker(library, case.command.split(), case.place, args)


def run_worker(name: str, words: list[str], place: str, args) -> dict:
    """Run one worker and read the line it prints; those of no peer are our own."""
    interpreter, root = Path(sys.executable), ROOT
    if name in ENVIRONMENTS:
        interpreter = python(args.home, ENVIRONMENTS[name])
    cache = args.home / ("cache-avx2" if args.avx2 else "cache")
    prefix, variables = placed(place, args.core, cache / name)
    variables |= AVX2 if args.avx2 else {}
    if name == BEFORE:
        name, root = "thespis", args.against
    if name not in ENVIRONMENTS:
        variables["PYTHONPATH"] = str(root / "src")
    command = [*prefix, str(interpreter), "-m", f"workers.{name}", *words]
    command += ["--seconds", str(args.seconds)]
    here = {"cwd": root / "benchmarks", "env": variables}
    done = subprocess.run(command, **here, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def rate(case: Case, result: dict) -> float:
    if case.lower_is_better:
        return result["first_update_s"]
    count = result.get("updates", result.get("steps"))
    return count / result["cpu_seconds" if case.place == "one core" else "wall_seconds"]


def compare(case: Case, args) -> list[dict]:
    """One line of the table per peer."""
    libraries = ["thespis", *case.wanted]
    if case.lower_is_better:  # fill the caches
        for library in libraries:
            work(library, case, args)
    rounds = [{x: rate(case, work(x, case, args)) for x in libraries} for _ in range(args.rounds)]
    lines = []
    for peer, wanted in case.wanted.items():
        ratios = [r["thespis"] / r[peer] for r in rounds]
        ratio = statistics.median(ratios)
        met = (
            None
            if wanted is None
            else (ratio <= wanted)
            if case.lower_is_better
            else ratio >= wanted
        )
        line = {"case": case.name, "place": case.place, "unit": case.unit, "peer": peer}
        line |= {x: [r[y] for r in rounds] for x, y in (("ours", "thespis"), ("theirs", peer))}
        lines.append(line | {"ratios": ratios, "ratio": ratio, "wanted": wanted, "met": met})
    return lines


def growth(hidden: int, args, few: int = 1, many: int = 16) -> dict:
    """Memory of one more member with its replay, by the peaks of populations of two sizes."""

    def slope(library: str) -> float:
        size = lambda n: Case("", f"population --hidden {hidden} --members {n}", {})
        peaks = [work(library, size(n), args)["peak"] for n in (few, many)]
        return (peaks[1] - peaks[0]) / (many - few) / 2**20

    ours, theirs = ([slope(x) for _ in range(args.rounds)] for x in ("thespis", "qdax"))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    ratio = statistics.median(ratios)
    line = {"case": f"memory of a member sac {hidden}", "place": "one core", "unit": "MiB"}
    line |= {"peer": "qdax", "ours": ours, "theirs": theirs, "ratios": ratios, "ratio": ratio}
    return line | {"wanted": 0.6, "met": ratio <= 0.6}


def scaling(hidden: int, args, members: int = 8) -> dict:
    """Updates per second of wall clock on two cores against one."""
    wanted, rounds = {64: 1.8, 256: 1.55}[hidden], []
    for _ in range(args.rounds):
        speeds = []
        for devices, place in ((2, "two cores"), (1, "one core")):
            command = f"cores --hidden {hidden} --members {members} --devices {devices}"
            done = work("thespis", Case("", command, {}, place), args)
            speeds.append(done["updates"] / done["wall_seconds"])
        rounds.append(speeds)
    ours, theirs = (list(x) for x in zip(*rounds, strict=True))
    ratios = [a / b for a, b in rounds]
    ratio = statistics.median(ratios)
    line = {"case": f"{members} members on two cores {hidden}", "place": "two cores"}
    line |= {"unit": "/s", "peer": "itself on one core", "ours": ours, "theirs": theirs}
    return line | {"ratios": ratios, "ratio": ratio, "wanted": wanted, "met": ratio >= wanted}


def gflops(case: Case, done: dict) -> float:
    """Operations of matrix products per CPU-second, in billions."""
    return rate(case, done) * done["flops"] / 1e9


SMALL = ("fast", "crossq-cpu", "xqc-cpu", "simba-cpu", "flashsac-cpu")
LARGE = ("crossq", "droq", "redq", "tqc", "simba", "simbav2", "xqc", "flashsac")
SHARES = [
    ("sac", None, "matmul"),
    ("td3", None, "matmul"),
    ("sac", 0.8, "blas"),
    *((f"sac {preset}", 0.85, "matmul") for preset in (*SMALL, *LARGE)),
]


def share(update: str, wanted: float | None, yardstick: str, args) -> dict:
    """How much of the machine's own rate of matrix products an update reaches.

    The yardstick is `matmul`, the products of an update of SAC or TD3 and nothing else, as XLA
    makes them, or `blas`, those of a hidden layer by NumPy's BLAS.
    """
    words, algo = update.split(), "td3" if update == "td3" else "sac"
    chosen = f"--preset {words[1]}" if words[1:] else f"--algo {algo}"
    ours, theirs = Case("", f"updates {chosen}", {}), Case("", f"{yardstick} --algo {algo}", {})
    rounds = [
        [gflops(case, work("thespis", case, args)) for case in (ours, theirs)]
        for _ in range(args.rounds)
    ]
    ratios = [a / b for a, b in rounds]
    ratio = statistics.median(ratios)
    met = None if wanted is None else ratio >= wanted
    peer = {"matmul": "products alone", "blas": "NumPy's BLAS"}[yardstick]
    line = {"case": f"products of {update} 256", "place": "one core", "unit": "GFLOP/CPU-s"}
    line |= {"peer": peer, "ours": [a for a, _ in rounds], "theirs": [b for _, b in rounds]}
    return line | {"ratios": ratios, "ratio": ratio, "wanted": wanted, "met": met}


def windows(args) -> dict:
    """What an update of TAAC costs as a multiple of SAC's, next to that of their products.

    Wanted is the cost by products alone and 15 % more, at most.
    """
    costs, flops = {}, {}
    rounds = []
    for _ in range(args.rounds):
        for algo in ("sac", "taac"):
            done = run_worker("windows", [algo], "one core", args)
            costs[algo], flops[algo] = done["cpu_seconds"] / done["updates"], done["flops"]
        rounds.append(costs["taac"] / costs["sac"])
    products = flops["taac"] / flops["sac"]
    ratios = [x / products for x in rounds]
    ratio = statistics.median(ratios)
    line = {"case": "updates taac 256, over sac's", "place": "one core", "unit": "times"}
    line |= {"peer": "their matrix products", "ours": rounds, "theirs": [products] * len(rounds)}
    return line | {"ratios": ratios, "ratio": ratio, "wanted": 1.15, "met": ratio <= 1.15}


PRICES: dict[str, tuple[int, float | None]] = {  # updates per step, and the highest price wanted
    "fast": (2, 2.0),
    "crossq-cpu": (1, 1.3),
    "xqc-cpu": (1, None),
    "simba-cpu": (1, None),
    "flashsac-cpu": (1, None),
}


def price(preset: str, args) -> dict:
    """What the updates of a step cost with a preset, as a multiple of plain SAC's."""
    plain, chosen = Case("", "updates", {}), Case("", f"updates --preset {preset}", {})
    (updates, wanted), rounds = PRICES[preset], []
    for _ in range(args.rounds):
        ours, theirs = (rate(case, work("thespis", case, args)) for case in (chosen, plain))
        rounds.append((ours / updates, theirs))
    ours, theirs = (list(x) for x in zip(*rounds, strict=True))
    ratios = [b / a for a, b in rounds]
    ratio = statistics.median(ratios)
    line = {"case": f"price of a step, {preset}", "place": "one core", "unit": "/CPU-s"}
    line |= {"peer": "sac 256", "ours": ours, "theirs": theirs, "lower": True}
    met = None if wanted is None else ratio <= wanted
    return line | {"ratios": ratios, "ratio": ratio, "wanted": wanted, "met": met}


def help_time(args) -> dict:
    """Seconds that `thespis --help` takes."""
    command = [sys.executable, "-c", "from thespis.cli.command import main; main()", "--help"]
    variables = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    seconds = []
    for _ in range(args.rounds + 1):
        began = time.perf_counter()
        subprocess.run(command, env=variables, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    seconds = seconds[1:]  # the first reads the disc
    ratio = statistics.median(seconds)
    line = {"case": "thespis --help", "place": "as it comes", "unit": "s", "peer": "one second"}
    line |= {"ours": seconds, "theirs": [1.0] * len(seconds)}
    return line | {"ratios": seconds, "ratio": ratio, "wanted": 1.0, "met": ratio <= 1.0}


def columns(line: dict) -> tuple[str, ...]:
    """The cells of one line."""
    ours, theirs = (statistics.median(line[k]) for k in ("ours", "theirs"))
    lower = line.get("lower") or line["unit"] in ("s", "times", "MiB")
    sign = "<=" if lower else ">="
    wanted = "" if line["wanted"] is None else f"{sign} {line['wanted']:g}"
    met = {None: "", True: "yes", False: "NO"}[line["met"]]
    spread = f"{min(line['ratios']):.2f}-{max(line['ratios']):.2f}"
    cells = (line["case"], line["place"], f"{ours:.4g} {line['unit']}", line["peer"])
    return (*cells, f"{theirs:.4g}", f"{line['ratio']:.2f}", spread, wanted, met)


def show(line: dict) -> str:
    return "{:<34}{:<12}{:>14}  {:<30}{:>8}{:>8}  {:<12}{:>7}  {}".format(*columns(line))


HEADER = "{:<34}{:<12}{:>14}  {:<30}{:>8}{:>8}  {:<12}{:>7}  {}".format(
    "workload", "place", "thespis", "peer", "peer's", "ratio", "range", "wanted", "met"
)


COLUMNS = [
    "| workload | place | Thespis | compared with | | ratio | range | wanted | met | rounds | on |",
    "|---|---|---:|---|---:|---:|---|---|---|---:|---|",
]


def saved(page: str, lines: list[dict], avx2: bool = False) -> str:
    """Returns the page with these lines in this machine's table, in place of earlier ones."""
    title = f"## {os.cpu_count()} cores of {processor()}{', by AVX2 alone' if avx2 else ''}\n"
    head, *tables = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    mine = next((table for table in tables if table.startswith(title)), "")
    kept = [row for row in mine.splitlines() if row.startswith("| ") and row not in COLUMNS]
    day = time.strftime("%Y-%m-%d")
    told = [[*columns(line), str(len(line["ratios"])), day] for line in lines]
    rows = {identity(row): row for row in [*kept, *(f"| {' | '.join(row)} |" for row in told)]}
    table = "\n".join([title, *COLUMNS, *rows.values()]) + "\n\n"
    tables = [table if other is mine else other for other in tables]
    return "".join([head, *tables] if mine else [head, table, *tables]).rstrip() + "\n"


def identity(row: str) -> tuple[str, str]:
    """Returns what a row of the page compares, without the figures in parentheses."""
    _, workload, _, _, peer, *_ = row.split("|")
    return workload.strip(), re.sub(r"\(.*\)", "", peer).strip()


def processor() -> str:
    """Returns the processor's name, and what tells two of one name apart."""
    try:
        text = Path("/proc/cpuinfo").read_text()
        name, family = (re.search(rf"{x}\s*: (.*)", text)[1] for x in ("model name", "cpu family"))
    except (OSError, TypeError):
        return platform.processor() or platform.machine()
    return f"{name} (family {family}{', AVX-512' if 'avx512f' in text else ''})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=".", help="a regular expression that cases must match")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured, per worker and round")
    parser.add_argument("--core", type=int, default=1, help="where `one core` runs")
    parser.add_argument("--home", type=Path, default=HOME, help="of the peers' environments")
    parser.add_argument("--save", type=Path, help="the page with a table per machine")
    parser.add_argument("--against", type=Path, help="a checkout to compare with, not the peers")
    parser.add_argument("--avx2", action="store_true", help="without AVX-512; a table of its own")
    parser.add_argument("--list", action="store_true", help="print the cases, measure nothing")
    args = parser.parse_args()
    args.home = args.home.resolve()
    if args.against:
        args.against = args.against.resolve()
    if not shutil.which("taskset"):
        sys.exit("the benchmark pins processes with taskset (util-linux): install it")

    compared = cases() if args.against is None else [against(case) for case in cases()]
    jobs = [(case.name, lambda case=case: compare(case, args)) for case in compared]
    for of, wanted, yardstick in SHARES:
        name, given = f"products of {of} by {yardstick}", (of, wanted, yardstick)
        jobs.append((name, lambda given=given: [share(*given, args)]))
    jobs.append(("updates taac 256", lambda: [windows(args)]))
    for preset in PRICES:
        name = f"price {preset}"
        jobs.append((name, lambda preset=preset: [price(preset, args)]))
    for hidden in (64, 256):
        jobs.append((f"memory {hidden}", lambda hidden=hidden: [growth(hidden, args)]))
        jobs.append((f"cores {hidden}", lambda hidden=hidden: [scaling(hidden, args)]))
    jobs.append(("thespis --help", lambda: [help_time(args)]))
    jobs = jobs if args.against is None else jobs[: len(compared)]
    jobs = [(name, job) for name, job in jobs if re.search(args.only, name)]
    if args.list:
        print("\n".join(name for name, _ in jobs))
        return
    peers = {peer for case in compared if re.search(args.only, case.name) for peer in case.wanted}
    for name in sorted({ENVIRONMENTS[peer] for peer in peers - {BEFORE}}):
        make(args.home, name)

    print(f"load before the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(HEADER)
    failed = []
    for name, job in jobs:
        try:
            found = job()
        except Failed as error:
            print(f"{name}: {error}", flush=True)
            failed.append(name)
            continue
        print("\n".join(show(line) for line in found), flush=True)
        if args.save:
            args.save.write_text(saved(args.save.read_text(), found, args.avx2))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
