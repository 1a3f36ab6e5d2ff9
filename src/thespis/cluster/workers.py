"""Processes of groups on a cluster: started, asked, missed when they die, and moved."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thespis.cluster.actor import Actor, settings
from thespis.cluster.connect import free_cpus, on_node, versions
from thespis.errors import ThespisError
from thespis.runs.config import Config

LONG = 60  # seconds after which it is said that a group still waits for a place


@dataclass(eq=False)
class Worker:
    """A group, and the process that has it now, if there is one."""

    number: int
    members: range
    config: Config  # of these members
    folder: Path
    actor: Any = None
    ref: Any = None  # of what it was asked, until it has answered
    node: str = ""
    pid: int = 0
    beginning: bool = True  # it was asked to begin, and nothing else yet
    since: float = 0.0  # when it was asked
    step: int = -1  # of its newest checkpoint
    report: dict[str, Any] | None = None  # at that step
    paused: dict[str, Any] | None = None  # where it waits for a cure
    deaths: int = 0  # since that checkpoint
    announced: bool = False  # that it waits


def needs(config: Config) -> dict[str, Any]:
    """Returns what a group of this run takes of a node, as Ray has it."""
    taken: dict[str, Any] = {"num_cpus": config.threads or 1}
    other = {"gpu": {"num_gpus": 1}, "tpu": {"resources": {"TPU": 1}}}
    return taken | other.get(config.device, {})


def places(ray: Any, config: Config) -> int:
    """Returns for how many groups a cluster has room."""
    have, taken = ray.cluster_resources(), needs(config)
    room = [have.get("CPU", 0) // taken["num_cpus"]]
    room += [have.get(kind.upper(), 0) for kind in ("gpu", "tpu") if config.device == kind]
    return int(min(room))


class Workers:
    """All groups of a run."""

    def __init__(self, ray: Any, workers: list[Worker], assignment: Callable[[Worker], Any]):
        self.ray, self.workers, self.assignment = ray, workers, assignment
        self.needs = needs(workers[0].config)

    def of_member(self, member: int) -> Worker:
        """Returns the group of a member."""
        return next(worker for worker in self.workers if member in worker.members)

    @property
    def cpus(self) -> int:
        """How many CPUs each needs."""
        return self.needs["num_cpus"]

    def start(self, worker: Worker, node: str | None = None) -> None:
        """Starts the process of a group on any node, or rather on this one."""
        where = "SPREAD" if node is None else on_node(self.ray, node, soft=True)
        remote = self.ray.remote(Actor).options(
            **self.needs, max_restarts=0, max_task_retries=0, scheduling_strategy=where
        )
        assignment = self.ray.cloudpickle.dumps(self.assignment(worker))
        how = settings(), os.getcwd(), sys.path, versions(), assignment
        worker.actor = remote.remote(*how)
        worker.ref, worker.beginning = worker.actor.begin.remote(), True
        worker.since, worker.announced, worker.paused = time.monotonic(), False, None

    def ask(self, worker: Worker, order: dict[str, Any]) -> None:
        """Lets a group train."""
        worker.ref, worker.since = worker.actor.advance.remote(order), time.monotonic()
        worker.paused = None

    def give(self, worker: Worker, members: list[int], replay: bool) -> Any:
        """Lets a group give some members -> the reference of what others take."""
        return worker.actor.give.remote(members, replay)

    def end(self, worker: Worker) -> None:
        """Ends the process of a group, if it lives."""
        if worker.actor is not None:
            with suppress(self.ray.exceptions.RayError, ValueError):  # it may be gone already
                self.ray.kill(worker.actor, no_restart=True)
        worker.actor = worker.ref = None

    def answers(self, timeout: float) -> list[tuple[Worker, dict[str, Any] | None]]:
        """Returns who has answered within so many seconds, and what; None of those who died."""
        asked = {worker.ref: worker for worker in self.workers if worker.ref is not None}
        if not asked:
            time.sleep(0.1)
            return []
        refs, _ = self.ray.wait(list(asked), num_returns=1, timeout=timeout)
        return [(asked[ref], self.answer(asked[ref])) for ref in refs]

    def answer(self, worker: Worker) -> dict[str, Any] | None:
        errors = self.ray.exceptions
        try:
            answer = self.ray.get(worker.ref)
        except errors.RayTaskError as error:  # a fault of ours, or of code of users
            raise (error.cause or error) from None
        except errors.RayError:
            return None
        worker.ref = None
        if "error" in answer:
            raise ThespisError(answer["error"])
        return answer

    # --- places -----------------------------------------------------------------------------

    def waiting(self) -> str:
        """Returns what groups wait for that have no place yet, once for each; or nothing."""
        now, need = time.monotonic(), self.cpus * len(self.workers)
        have = self.ray.cluster_resources().get("CPU", 0)
        late = lambda w: have < need or now - w.since > LONG
        begun = [w for w in self.workers if w.beginning and w.ref is not None and not w.announced]
        waiting = list(filter(late, begun))
        if not waiting:
            return ""
        for worker in waiting:
            worker.announced = True
        if have >= need:
            free = self.ray.available_resources().get("CPU", 0)
            numbers = ", ".join(str(worker.number) for worker in waiting)
            return f"group(s) {numbers} have not begun after {LONG} s; free CPUs: {free:g}"
        return (
            f"{len(self.workers)} groups need {need:g} CPUs and the cluster has {have:g}: some "
            "wait until there are more; add nodes, or give a larger --group"
        )

    def uneven(self) -> tuple[Worker, str] | None:
        """Returns a group that shares a node with others, and a node with at least two fewer.

        Only nodes are taken that have CPUs left: others than this run may work there.
        """
        left, here = free_cpus(self.ray), Counter(worker.node for worker in self.workers)
        coming = Counter(worker.node for worker in self.workers if worker.beginning)
        free = [node for node in left if left[node] - coming[node] * self.cpus >= self.cpus]
        if not free:
            return None
        target = min(free, key=lambda node: here[node])
        fullest = max(left, key=lambda node: here[node])
        if here[fullest] - here[target] < 2:
            return None
        return next(w for w in reversed(self.workers) if w.node == fullest), target
