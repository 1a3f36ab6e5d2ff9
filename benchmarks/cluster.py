"""What training on Ray costs, and how its messages grow: figures for docs/scale.md.

python benchmarks/cluster.py cost [--members 8] [--hidden 256 256] [--interval 5000] [--window 5000]
python benchmarks/cluster.py collectors [--collectors 8] [--rows 2000]
python benchmarks/cluster.py messages [--groups 1000] [--processes 8]

`cost` trains the same population in one process and with `--ray` on this machine, in turn, and
takes the seconds of a window of steps in whose middle is one exchange; learning starts shortly
before it. With the window as long as the interval, that is the cost; shorter ones are quicker, and
count the exchange for more than it is. Before that, it kills a worker, and lets exchanges follow
each other soon, to time them, from the last group's arrival, which then saves, until it trains on:
the first of a process also loads its programs.

`collectors` counts the rows per second of one collector and of several, each with one environment
whose step sleeps 10 ms, without updates.

`messages` sends what an exchange of many groups sends, between actors that hold weights of the
right size and do not train: many of them share a process, all are on this machine, and nothing
crosses a network.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from run import processor

import thespis
from thespis.cluster import head
from thespis.cluster.connect import connect
from thespis.runs.directory import versions

RESULTS = Path(__file__).parent / "results" / "cluster.json"


# --- the cost of --ray ----------------------------------------------------------------------


class Watched(head.Head):
    """A head that measures its exchanges, and may kill a worker after one."""

    kill_after = -1  # the meeting after which a worker is killed
    newest: Watched | None = None

    def __init__(self, *args: Any, **given: Any):
        super().__init__(*args, **given)
        self.exchanges: list[float] = []
        self.meetings, self.killed, self.recovered = 0, 0.0, 0.0
        Watched.newest = self

    def meet(self, iteration: int) -> bool:
        gaps = [worker.report.get("gap") for worker in self.workers.workers if worker.report]
        if gaps and None not in gaps and self.meetings and not self.killed:
            self.exchanges.append(min(gaps))  # who comes last waits for nobody
        self.meetings += 1
        return super().meet(iteration)

    def go_on(self) -> None:
        super().go_on()
        if self.meetings == self.kill_after:
            self.killed = time.monotonic()
            os.kill(self.workers.workers[0].pid, signal.SIGKILL)

    def hear(self, worker, answer) -> None:
        super().hear(worker, answer)
        if self.killed and not self.recovered and answer is not None and "node" in answer:
            self.recovered = time.monotonic() - self.killed


def window_seconds(run: thespis.Run, first: int, last: int) -> float:
    """Seconds between the rows of two steps, of the slowest member."""
    table = run.metrics
    at = lambda step: table["time/elapsed_s"][table["step"] == step]
    assert len(at(first)) == len(at(last)) == run.config.members
    return float((at(last) - at(first)).max())


def cost(args: argparse.Namespace) -> dict[str, Any]:
    half = args.window // 2
    assert args.interval % half == 0, "half a window must divide the interval"
    given: dict[str, Any] = {
        "env": args.env,
        "members": args.members,
        "hidden": args.hidden,
        "steps": args.interval + half,
        "learning_starts": max(1, args.interval - half - args.interval // 20),
        "pbt": True,
        "pbt.interval": args.interval,
        "eval_freq": args.interval,
        "eval_episodes": 2,
        "checkpoint_freq": args.interval,
        "log_freq": half,
        "progress": False,
    }
    began, load = time.monotonic(), os.getloadavg()[0]
    short = {"steps": args.interval + 100, "learning_starts": args.interval - 100}
    soon = max(20, args.interval // 20)
    often = dict.fromkeys(("pbt.interval", "eval_freq", "checkpoint_freq", "log_freq"), soon)
    often |= {"steps": 6 * soon, "learning_starts": soon // 2}
    kinds = {"one process": {}, "ray": {"ray": True}}
    order = [[*kinds][:: 1 if i % 2 == 0 else -1] for i in range(args.rounds)]
    with tempfile.TemporaryDirectory() as out:
        train = lambda name, **more: in_process(given | more | {"out": f"{out}/{name}"})
        train("warm", **short)  # so that programs of exchanges are in JAX's cache
        killed = train("killed", **short, ray=True, kill=1)
        exchanged = train("exchanges", **often, ray=True)["exchanges"]
        rounds = [
            {kind: train(f"{kind} {i}", **kinds[kind]) for kind in pair}
            for i, pair in enumerate(order)
        ]
    seconds = {kind: [told[kind]["seconds"] for told in rounds] for kind in kinds}
    return {
        "settings": {k: v for k, v in given.items() if k != "progress"},
        "seconds_of_the_window": seconds,
        "ray_to_one_process": [
            told["ray"]["seconds"] / told["one process"]["seconds"] for told in rounds
        ],
        "seconds_of_first_exchanges": [told["ray"]["exchanges"][0] for told in rounds],
        "seconds_of_later_exchanges": exchanged[1:],
        "seconds_until_a_killed_worker_is_back": killed["recovered"],
        "load_of_the_machine_before": load,
        "seconds_in_all": time.monotonic() - began,
    }


def in_process(given: dict[str, Any]) -> dict[str, Any]:
    """Trains in a process of its own, where JAX has not started, as the command does."""
    command = [sys.executable, __file__, "train", "--given", json.dumps(given)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(said.splitlines()[-1])


def train(args: argparse.Namespace) -> dict[str, Any]:
    given = json.loads(args.given)
    head.Head = Watched  # type: ignore
    Watched.kill_after = given.pop("kill", -1)
    run = thespis.train("sac", **given)
    if "collectors" in given:
        return {"rows_per_second": rows_per_second(run)}
    half = given["log_freq"]
    first, last = given["pbt.interval"] - half, given["pbt.interval"] + half
    told: dict[str, Any] = {}
    if given["steps"] == last:
        told["seconds"] = window_seconds(run, first, last)
    if Watched.newest is not None:
        told |= {"exchanges": Watched.newest.exchanges, "recovered": Watched.newest.recovered}
    return told


# --- rows of collectors ---------------------------------------------------------------------


def collectors(args: argparse.Namespace) -> dict[str, Any]:
    began, load = time.monotonic(), os.getloadavg()[0]
    counts = (1, args.collectors)
    found: dict[int, list[float]] = {n: [] for n in counts}
    for i in range(args.rounds):
        for n in counts[:: 1 if i % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory() as out:
                steps = n * args.rows
                given: dict[str, Any] = {"env": "sleeping:Sleeping", "envs": n, "collectors": n}
                given |= {"steps": steps, "learning_starts": steps // 2, "updates_per_step": 0}
                given |= {"log_freq": steps // 10}
                given |= {"eval_freq": steps, "eval_episodes": 1, "checkpoint_freq": steps}
                given |= {"hidden": [8, 8], "out": out, "progress": False}
                found[n].append(in_process(given)["rows_per_second"])
    pairs = zip(found[counts[0]], found[counts[1]], strict=True)
    return {
        "rows_per_second": found,
        "several_to_one": [several / one for one, several in pairs],
        "load_of_the_machine_before": load,
        "seconds_in_all": time.monotonic() - began,
    }


def rows_per_second(run: thespis.Run) -> float:
    """Rows from the second line of metrics to the last but one: between start and evaluation."""
    steps, seconds = run.metrics["step"], run.metrics["time/elapsed_s"]
    return float((steps[-2] - steps[1]) / (seconds[-2] - seconds[1]))


# --- the messages of many groups ------------------------------------------------------------


class Dummies:
    """Groups of one member each that hold weights, and do not train."""

    def __init__(self, bytes_each: int):
        self.weights = np.random.default_rng(0).bytes(bytes_each)

    def report(self, group: int) -> dict[str, Any]:
        return {"step": 0, "scores": [float(group)] * 10, "rows": [0.0] * 40}

    def give(self, group: int) -> bytes:
        return self.weights

    def take(self, group: int, refs: list) -> int:
        import ray

        return len(ray.get(refs[0]))


def messages(args: argparse.Namespace) -> dict[str, Any]:
    size = state_bytes(args)
    with connect(None) as ray:
        actors = [
            ray.remote(Dummies).options(num_cpus=0).remote(size) for _ in range(args.processes)
        ]
        of = lambda group: actors[group % len(actors)]
        ray.get([actor.report.remote(0) for actor in actors])
        rounds = []
        for _ in range(args.rounds):
            began = time.monotonic()
            reports = ray.get([of(g).report.remote(g) for g in range(args.groups)])
            reported = time.monotonic()
            order = np.argsort([report["scores"][0] for report in reports])
            out = max(1, args.groups // 5)
            parents = {int(c): int(p) for c, p in zip(order[:out], order[-out:])}
            refs = {p: of(p).give.remote(p) for p in set(parents.values())}
            taken = ray.get([of(c).take.remote(c, [refs[p]]) for c, p in parents.items()])
            done = time.monotonic()
            rounds.append(
                {
                    "seconds_of_reports": reported - began,
                    "seconds_of_weights": done - reported,
                    "bytes_of_weights": sum(taken),
                }
            )
    return {
        "groups": args.groups,
        "processes": args.processes,
        "bytes_of_a_member": size,
        "replaced": len(parents),
        "rounds": rounds,
    }


def state_bytes(args: argparse.Namespace) -> int:
    """Bytes of a member's networks, targets and moments."""
    import jax

    from thespis.runs.build import build, state_shapes
    from thespis.runs.config import make

    config = make("sac", {"env": args.env, "hidden": tuple(args.hidden)})
    shapes = state_shapes(config, build(config, training=False)[0])
    return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(shapes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cost", "collectors", "messages", "train"))
    parser.add_argument("--given", help=argparse.SUPPRESS)
    parser.add_argument("--env", default="jax:pendulum")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--interval", type=int, default=5000)
    parser.add_argument("--window", type=int, help="steps; by default as many as the interval")
    parser.add_argument("--collectors", type=int, default=8)
    parser.add_argument("--rows", type=int, default=2000, help="of every collector")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, help="by default 2, and 5 of messages")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    args.window = args.window or args.interval
    args.rounds = args.rounds or (5 if args.what == "messages" else 2)
    kinds = {"cost": cost, "collectors": collectors, "messages": messages, "train": train}
    found = kinds[args.what](args)
    if args.what == "train":
        print(json.dumps(found))
        return
    found |= {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": os.cpu_count()}
    found["processor"] = processor()
    found["versions"] = versions()
    print(json.dumps(found, indent=1))
    before = json.loads(args.output.read_text()) if args.output.exists() else {}
    args.output.write_text(json.dumps(before | {args.what: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
