"""A run whose members train in groups on a cluster: what all groups must know is decided here.

    RUN/                       as of any other run; its checkpoints have no replay
    RUN/groups/groups.json     the members of every group
    RUN/groups/decisions/      what was decided at the newest meetings (journal.py)
    RUN/groups/003/            checkpoints of a group with its replay, and its reports

Groups train from meeting to meeting, save there and report. The head writes down what follows from
all reports, and then lets them go on. So whatever dies, everybody finds on disk what it needs to
do the same once more, bit for bit: keys follow from seeds and time alone.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis import envs
from thespis.cluster import events, journal, merge, slices
from thespis.cluster.assign import make_workers
from thespis.cluster.connect import address_of, connect
from thespis.cluster.handover import Handover, ask_parents, orders_for
from thespis.cluster.journal import Entry
from thespis.cluster.run_log import RunLog
from thespis.cluster.workers import Worker
from thespis.engine.loop import Loop
from thespis.errors import ThespisError, require
from thespis.runs import checkpoint, files, lineage
from thespis.runs.build import hyper_parameters, resolve_schedule
from thespis.runs.config import Config
from thespis.runs.directory import GROUPS, repair_status, status, write_json
from thespis.runs.resets import Resets
from thespis.runs.timetable import RECORDS, Timetable
from thespis.runs.tuning_rounds import Decision, Tuning, values
from thespis.tuning import inherited
from thespis.values import convert, counted

TRIES = 5  # deaths of a group without any progress, after which the run ends


@contextmanager
def on_ray(
    config: Config, callbacks: Any, address: Any, size: int | None, deadline: float | None
) -> Iterator[Any]:
    """Joins a cluster, and yields what makes the `Head` of a run there."""
    slices.refuse(config, callbacks)
    size = size if size is None else counted("group", size)
    if deadline is not None:
        seconds = float(convert("deadline", float, deadline))
        require(config.tuner, "deadline is for exchanges: give pbt, or leave it out")
        require(seconds >= 0, f"deadline = {seconds:g}: give 0 or more seconds")
        deadline = seconds
    with connect(address) as ray:
        fixed = address_of(address) is None  # a Ray of this machine alone does not grow
        yield partial(Head, ray=ray, size=size, deadline=deadline, fixed=fixed)


class Head:
    """Trains like a `Trainer`: `start` or `restore`, then `run`."""

    def __init__(
        self,
        config: Config,
        pieces: tuple[Loop, Any],
        folder: Path,
        reporter: Any,
        callbacks: Iterable[Any] = (),
        *,
        ray: Any,
        size: int | None = None,
        deadline: float | None = None,
        fixed: bool = False,
    ):
        self.config, self.folder, self.reporter, self.ray = config, folder, reporter, ray
        self.loop = pieces[0]
        self.size, self.deadline, self.fixed = size, deadline, fixed
        self.seeds = jax.device_put(np.asarray(config.seeds, np.int32))
        self.tuning = Tuning(config, self.loop, self.seeds) if config.tuner else None
        if self.tuning:
            self.tuning.events = True
        self.hps = self.tuning.first if self.tuning else hyper_parameters(config)
        self.first = values(self.hps)
        self.timetable = Timetable.from_config(config, Resets(config, self.loop).iterations, {})
        self.at = 0  # the iteration of the newest meeting after which training went on
        self.handovers: dict[int, Handover] = {}  # what members do when they go on, by step
        self.past: Any = None  # the tuner's memory and the lineage, as they came to that meeting
        self.programs: dict[str, float] = {}
        self.log = RunLog(config, folder, reporter)
        self.workers: Any = None  # of the groups, once they are started
        self.announced: set[str] = set()  # notes of groups, most of which say the same
        self.saved, self.signal = -1, 0
        self.began, self.elapsed = time.monotonic(), 0.0

    # --- beginnings -------------------------------------------------------------------------

    @property
    def groups(self) -> Path:
        return files.inside(self.folder, GROUPS)

    def open(self) -> None:
        """Has no environments: groups do."""

    def start(self) -> None:
        """Begins the groups, or goes on with what a run left that was killed very early."""
        self.restore(self.folder)

    def restore(self, folder: Path) -> None:
        """Goes on after the newest meeting."""
        decisions = self.groups / "decisions"
        entry = journal.newest(decisions, self.config, self.rounds, self.reporter.note)
        if entry is None:
            self.write_decision(None)
            entry = Entry(0, self.hps, None, self.rounds, b"", 0.0)
        self.at, self.elapsed = entry.step // self.config.envs, entry.elapsed
        self.deadline = entry.deadline if self.deadline is None else self.deadline
        self.hps = resolve_schedule(self.config, entry.hps, self.reporter.note)
        past = entry.lineage
        if self.tuning:
            self.tuning.rounds = entry.rounds
            happened = events.later(self.folder, past)
            columns = [self.tuning.tuner.fitness]  # which was checked before
            saved = (0, past or None)
            self.tuning.open(self.folder, columns, saved, self.hps, self.reporter.note)
            if happened:
                files.append(self.tuning.lineage.path, happened, durable=True)
            self.past = self.rounds, self.tuning.lineage.rows, self.tuning.lineage.content
        self.follow(entry)
        if self.deadline is not None:  # who is late has the decision before it still to follow
            for earlier in journal.earlier(decisions, self.config, self.rounds, entry.step):
                self.follow(earlier)
        there = checkpoint.latest(self.folder / "checkpoints")
        self.saved = int(there[0].name.rstrip(checkpoint.REPLACED)) if there else -1
        repair_status(self.folder, self.reporter.note)
        names = list(self.tuning.names) if self.tuning else []
        how = names, self.first, self.size, self.fixed
        self.workers = make_workers(self.ray, self.config, self.folder, *how)
        for worker in self.workers.workers:
            self.workers.start(worker)

    def follow(self, entry: Entry) -> None:
        """Lets groups that go on from the step of a decision do as it says."""
        if entry.parents is not None and self.tuning:
            none, parents = jnp.zeros((self.config.members, 1)), jnp.asarray(entry.parents)
            hps = resolve_schedule(self.config, entry.hps)
            decision = Decision(hps, parents, none, inherited(self.tuning.tuner))
            self.handovers[entry.step] = Handover(decision, {})

    # --- time -------------------------------------------------------------------------------

    @property
    def rounds(self) -> Any:
        return self.tuning and self.tuning.rounds

    @property
    def step(self) -> int:
        return self.at * self.config.envs

    @property
    def spent(self) -> float:
        return self.elapsed + time.monotonic() - self.began

    def last_row(self, iteration: int) -> int:
        """Returns the newest step whose row of metrics may be part of this run by then."""
        step = iteration * self.config.envs
        return step if self.timetable.due(iteration, *RECORDS) else step - 1

    # --- running ----------------------------------------------------------------------------

    def run(self, stop: list[int]) -> str:
        """Trains until the end, or until `stop` is not empty -> "done" or "stopped"."""
        total, reached = self.config.iterations(self.config.steps), False
        if self.saved < 0:
            if self.gather(0, stop) is None:  # nothing has been trained that could be kept
                raise KeyboardInterrupt if stop[0] == signal.SIGINT else SystemExit(128 + stop[0])
            self.save()
        self.write_status("running")
        self.advance()
        while self.at < total and not reached:
            target = slices.meeting_after(self.config, self.timetable, self.at)
            met = self.gather(target, stop)
            if met is None:
                break
            ended = self.saved == met * self.config.envs  # here before: more steps are wanted now
            reached = self.meet(met) and not ended
            self.advance()
            if met < total and not reached:
                self.go_on()
            elif not self.timetable.due(met, "exchange"):
                self.write_decision(None)
        if self.saved != self.step:
            self.save()
        state = "done" if reached or self.at >= total else "stopped"
        self.signal = stop[0] if stop and state == "stopped" else 0
        self.write_status(state)
        return state

    def advance(self) -> None:
        total = self.config.iterations(self.config.steps) * self.config.envs
        self.reporter.advance(self.step, total, self.spent, sum(self.programs.values()))

    def gather(self, target: int, stop: list[int]) -> int | None:
        """Lets groups train until all have saved at this meeting, or come to one before it.

        Those that die are started again meanwhile. -> the iteration at which they met, or None if
        `stop` is not empty. With a deadline some may be missing, though not at the start or end.
        """
        everyone, first = self.workers.workers, None
        cure: Handover | None = None
        died = False  # somebody, since parents were asked for what a cure needs
        while True:
            there = [w for w in everyone if w.step == target * self.config.envs]
            if len(there) == len(everyone):
                return target
            if there and first is None:
                first = time.monotonic()
            together = target in (0, self.config.iterations(self.config.steps))
            seconds = math.inf if self.deadline is None or together else self.deadline
            if first is not None and time.monotonic() - first > seconds:
                self.say_late(target, [w for w in everyone if w not in there])
                return target
            if stop:
                return None
            paused = [w.paused["paused"] for w in everyone if w.paused is not None]
            if paused and min(paused) < target:
                target, cure = min(paused), None
                continue
            if (cure is None or died) and all(
                worker in there or self.waits(worker, target) for worker in everyone
            ):
                decision = self.decide_cure(target) if cure is None else cure.decision
                cure, died = ask_parents(self.workers, decision, replay=True), False
            for worker in everyone:
                if worker.ref is None and worker not in there:
                    self.order(worker, target, None if died else cure)
            due = self.saved < self.step and self.timetable.due(self.at, "checkpoint")
            if due and all(worker.step >= 0 for worker in everyone):
                self.save()  # while groups train on
            for worker, answer in self.workers.answers(timeout=1.0):
                if answer is None and stop:  # the same signal may have ended groups
                    return None
                died |= answer is None
                self.hear(worker, answer)
            if text := self.workers.waiting():
                self.reporter.note(text)

    def waits(self, worker: Worker, target: int) -> bool:
        """Tells whether a group stands at this iteration, and has broken members."""
        return worker.paused is not None and worker.paused["paused"] == target

    def order(self, worker: Worker, target: int, cure: Handover | None) -> None:
        """Tells a group that has nothing to do what to do next."""
        if self.waits(worker, target):
            if cure is not None:
                self.workers.ask(
                    worker, {"until": target, "cure": orders_for(self.workers, worker, cure)}
                )
            return
        start = min(worker.step, self.step)
        require(
            start == self.step or self.deadline is not None,
            f"{worker.folder} has lost its checkpoint of step {self.step}, and the one before is "
            "of no use without the others': restore it",
        )
        at = start // self.config.envs
        handover = self.handovers.get(start)
        decision = None if handover is None else orders_for(self.workers, worker, handover)
        until = min(slices.meeting_after(self.config, self.timetable, at), target)
        order = {"step": start, "until": until, "decision": decision}
        self.workers.ask(worker, order | {"stay": self.deadline is not None})

    def hear(self, worker: Worker, answer: dict[str, Any] | None) -> None:
        """Takes what a group has answered, or starts it again."""
        if answer is None:
            self.replace(worker)
            return
        if "paused" in answer:
            if self.deadline is not None:
                raise ThespisError(next(iter(answer["faults"].values())))
            worker.paused = answer
            return
        report, again = answer, worker.beginning
        if again:
            worker.beginning, worker.node, worker.pid = False, answer["node"], answer["pid"]
            report = answer["report"]
            if self.log.log is None:
                self.log.open(answer, self.last_row(self.at))
        if worker.step != report["step"]:
            worker.deaths = 0
        worker.step, worker.report = report["step"], report
        if worker.step > self.step or self.deadline is not None:
            self.log.keep(worker.members.start, worker.step, report["rows"])
        for text in report["notes"] if not again else ():
            if text not in self.announced:
                self.announced.add(text)
                self.reporter.note(text)
        for name, seconds in report["programs"].items():
            self.programs[name] = max(seconds, self.programs.get(name, 0.0))

    def replace(self, worker: Worker) -> None:
        """Starts a group again whose process, node or network is gone."""
        worker.deaths += 1
        step = max(worker.step, 0)
        if worker.deaths > TRIES:
            raise ThespisError(
                f"{events.named(worker)} died {worker.deaths} times after step {step}: look at "
                "memory and logs of its node"
            )
        self.say(worker, f"died and is started again from step {step}")
        events.write(self.folder, self.tuning, self.hps, events.DIED, worker)
        self.workers.end(worker)
        self.workers.start(worker)
        events.write(self.folder, self.tuning, self.hps, events.STARTED, worker)

    def say(self, worker: Worker, text: str) -> None:
        self.reporter.note(f"{events.named(worker)} {text}")

    def say_late(self, target: int, late: list[Worker]) -> None:
        numbers = ", ".join(str(worker.number) for worker in late)
        step = target * self.config.envs
        self.reporter.note(f"step {step}: an exchange without group(s) {numbers}, which are late")

    # --- meetings ---------------------------------------------------------------------------

    def meet(self, iteration: int) -> bool:
        """Takes over what all have reported -> whether no more training is wanted."""
        self.at, step = iteration, iteration * self.config.envs
        self.log.write(step)
        if self.tuning:
            for worker in self.workers.workers:
                if worker.report is not None and worker.step == step:
                    ends = slice(worker.members.start, worker.members.stop)
                    new = jnp.asarray(worker.report["scores"], jnp.float32)
                    scores = self.tuning.rounds.scores.at[ends].set(new)
                    self.tuning.rounds = dataclasses.replace(self.tuning.rounds, scores=scores)
            self.past = self.tuning.rounds, self.tuning.lineage.rows, self.tuning.lineage.content
        return self.should_stop(step)

    def should_stop(self, step: int) -> bool:
        """Tells whether the wanted reward is reached, or nobody got better for too long."""
        goal, patience = self.config.stop_reward, self.config.patience
        reports = [worker.report or {} for worker in self.workers.workers]
        evaluations = [report.get("evaluated") for report in reports]
        if not all(one is not None and one[0] == step for one in evaluations):
            return False
        if goal is not None:
            returns = np.array([x for one in evaluations if one for x in one[1]], np.float32)
            reached = returns >= goal
            if reached.any() if self.tuning else reached.all():
                return True
        waited = step - max(report["best_step"] for report in reports)
        period = self.timetable.every["eval"] * self.config.envs
        return patience is not None and waited >= patience * period

    def go_on(self) -> None:
        """Decides what members do next, writes that down, and lets parents give what they have."""
        start = self.config.iterations(self.config.learning_starts or 1)
        decision = None
        if self.tuning and self.timetable.due(self.at, "exchange") and self.at > start:
            decision = self.exchange()
        self.hps = self.hps if decision is None else decision.hps
        self.write_decision(decision)
        oldest = min(worker.step for worker in self.workers.workers)
        self.handovers = {step: x for step, x in self.handovers.items() if step >= oldest}
        if decision is not None:
            replay = decision.what.replay == "parent"
            self.handovers[self.step] = ask_parents(self.workers, decision, replay)
        self.spread()

    def exchange(self) -> Decision | None:
        """Asks the tuner; who is late keeps its place, and so does whoever would copy it."""
        assert self.tuning is not None
        late = [w for w in self.workers.workers if w.step != self.step]
        return self.tuning.exchange(self.at, self.hps, [m for w in late for m in w.members])

    def decide_cure(self, iteration: int) -> Decision:
        """Decides whose copies broken members become, once all others have saved there."""
        assert self.tuning is not None
        sick = np.zeros(self.config.members, bool)
        texts = {}
        for worker in self.workers.workers:
            for m, text in worker.paused["faults"].items() if worker.paused else ():
                sick[worker.members.start + int(m)] = True
                texts[worker.members.start + int(m)] = text
        if sick.all():
            raise ThespisError(texts[0])
        decision = self.tuning.cure(iteration, self.hps, sick, 0)
        self.hps = decision.hps
        for m, text in texts.items():
            parent = int(np.asarray(decision.parents)[m])
            self.reporter.note(f"{text}; member {m} goes on as a copy of member {parent}")
        return decision

    def spread(self) -> None:
        """Moves groups that share a node to nodes with fewer, if there are any now."""
        for _ in self.workers.workers:
            move = self.workers.uneven()
            if move is None:
                return
            worker, node = move
            if worker.ref is not None:
                return
            self.say(worker, "moves to a node with fewer groups")
            events.write(self.folder, self.tuning, self.hps, events.MOVED, worker)
            self.workers.end(worker)
            self.workers.start(worker, node)
            worker.node = node

    # --- what is left on the disk -----------------------------------------------------------

    def write_decision(self, decision: Decision | None) -> None:
        parents = None if decision is None else np.asarray(decision.parents)
        known = self.tuning.lineage.content if self.tuning and self.step else b""
        entry = Entry(self.step, self.hps, parents, self.rounds, known, self.spent, self.deadline)
        workers = self.workers.workers if self.workers else ()
        oldest = min((worker.step for worker in workers), default=None)
        journal.write(self.groups / "decisions", entry, oldest)

    def save(self) -> None:
        """Writes a checkpoint of all members, and their best policies."""
        saved = []
        for worker in self.workers.workers:
            there = worker.folder / "checkpoints" / f"{self.step:012d}"
            step = self.step if there.is_dir() else None  # of who is late, the newest
            saved.append(merge.load(worker.folder, worker.config, self.loop, step))
        parts = merge.joined([parts for parts, _ in saved])
        info = {"rows": saved[0][1]["rows"], "elapsed": self.spent, "programs": self.programs}
        info["env"] = envs.label(self.loop.env)
        if self.past is not None:  # before what was decided there: a run may end with it
            parts["tuning"], info["lineage"], content = self.past
            parts["lineage"] = {lineage.FILE: np.frombuffer(content, np.uint8)}
        checkpoint.save(self.folder / "checkpoints", self.step, parts, info)
        checkpoint.prune(self.folder / "checkpoints")
        parts["best"].write(self.folder / "best")
        self.saved = self.step
        self.write_status("running")

    def write_status(self, state: str) -> None:
        status(self.folder, state, self.saved)
        write_json(self.folder / "compiled.json", self.programs)

    def fail(self, error: BaseException) -> None:
        """Has nobody to tell."""

    def close(self) -> None:
        for worker in self.workers.workers if self.workers else ():
            self.workers.end(worker)
