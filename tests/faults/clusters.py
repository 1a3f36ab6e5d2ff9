"""Populations on a cluster of Ray: workers, nodes and the head are killed, and nodes join."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.faults.common import Result, chance
from tests.faults.kinds import folder_of, start, words

LONGEST = 900
KIND = "a population"
NODES = 3
EVENTS = ("worker", "node", "head", "join")  # each once in every run, in random order
STEPS = 1600  # so many that a run is seldom at its end before all have happened


class Cluster:
    """Three nodes on loopback, each a raylet of its own; one of them, with Ray's GCS, stays."""

    def __init__(self):
        from thespis.cluster.connect import ray_module

        ray_module()  # its settings, by which workers are not nice to whatever else runs here
        from ray.cluster_utils import Cluster as Raylets

        self.raylets = Raylets(True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        self.fill(NODES)

    @property
    def address(self) -> str:
        return self.raylets.address

    def others(self) -> list[Any]:
        return [node for node in self.raylets.list_all_nodes() if not node.head]

    def fill(self, nodes: int) -> None:
        while len(self.raylets.list_all_nodes()) < nodes:
            self.raylets.add_node(num_cpus=1)

    def raylet(self, node: Any) -> int:
        return node.all_processes["raylet"][0].process.pid

    def workers(self) -> list[int]:
        """The processes of groups, which are children of our raylets."""
        ours = {self.raylet(node) for node in self.raylets.list_all_nodes()}
        return [pid for pid, (parent, name) in processes().items() if parent in ours and name]

    def kill_node(self, r) -> bool:
        nodes = self.others()
        if not nodes:
            return False
        node = r.choice(nodes)
        os.kill(self.raylet(node), signal.SIGKILL)
        self.raylets.remove_node(node, allow_graceful=False)
        return True

    def close(self) -> None:
        self.raylets.shutdown()


def processes() -> dict[int, tuple[int, bool]]:
    """Every process with its parent, and whether it is an actor that trains."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(entry.name)] = parent, b"ray::Actor" in (entry / "cmdline").read_bytes()
        except (OSError, ValueError):  # it is gone
            continue
    return found


def saved(out: Path) -> int:
    """Steps of all groups' newest checkpoints: it grows while they train."""
    folders = out.glob("*/*_1/groups/[0-9]*")
    newest = lambda folder: max(
        [0, *(int(p.name) for p in folder.glob("checkpoints/0*[0-9]") if p.name.isdigit())]
    )
    return sum(map(newest, folders))


def command(given: list[str], out: Path, address: str) -> list:
    """What begins the run in there, or goes on with it."""
    run = folder_of(out)
    begun = run is not None and any(run.glob("checkpoints/0*"))
    if begun:
        return ["resume", run, "--json", "--ray", address]
    return ["train", *given, "--out", out, "--ray", address, "--group", 2]


def disturbed(r, cluster: Cluster, given: list[str], out: Path) -> tuple[list[str], list[str]]:
    """A run through some random events -> these, and what is wrong with how it ended."""
    from tests.small import wait_for

    happened: list[str] = []
    child = start(*command(given, out, cluster.address))
    for event in r.sample(EVENTS, len(EVENTS)):
        more = saved(out) + r.randint(1, 500)
        wait_for(lambda more=more, c=child: saved(out) >= more or c.poll() is not None, LONGEST)
        time.sleep(r.random())
        if event == "worker":
            wait_for(lambda c=child: cluster.workers() or c.poll() is not None, LONGEST)
        if child.poll() is not None:
            break
        happened.append(event)
        if event == "worker":
            os.kill(r.choice(cluster.workers()), signal.SIGKILL)
        elif event == "node":
            cluster.kill_node(r)
            cluster.fill(NODES)
        elif event == "join":
            cluster.fill(len(cluster.raylets.list_all_nodes()) + 1)
        elif event == "head":
            os.kill(child.pid, signal.SIGKILL)
            child.communicate(timeout=LONGEST)
            child = start(*command(given, out, cluster.address))  # its groups may still be there
    try:
        _, err = child.communicate(timeout=LONGEST)
    finally:
        child.kill()
    return happened, [f"code {child.returncode}: {err[-500:]}"] if child.returncode else []


def campaign(count: int, seed: int, only: int | None, folder: Path) -> Result:
    from tests.cluster.same import differences

    result = Result()
    given = ["sac", *words(KIND, steps=STEPS, threads=1)[1:]]
    alone = folder / "alone"
    child = start("train", *given, "--out", alone)
    said = child.communicate(timeout=LONGEST)
    assert child.returncode == 0, said
    reference = folder_of(alone)
    assert reference is not None
    cluster = Cluster()
    try:
        for i in range(count) if only is None else [only]:
            r = chance("clusters", seed, i)
            cluster.fill(NODES)
            with tempfile.TemporaryDirectory(dir=folder) as out:
                happened, faults = disturbed(r, cluster, given, Path(out))
                run = folder_of(Path(out))
                if not faults:
                    assert run is not None
                    faults = differences(reference, run)[:3]
            for event in happened:
                result.ended[f"{event}s killed" if event != "join" else "nodes joined"] += 1
            how = "runs identical to one process" if not faults else "fault"
            case = f"clusters {i}, {' '.join(happened)}"
            result.add(how, faults, case)
            print(f"{case}: {how}", file=sys.stderr, flush=True)  # a case takes a minute
    finally:
        cluster.close()
    return result
