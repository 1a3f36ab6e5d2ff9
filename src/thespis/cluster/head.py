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
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis import envs
from thespis.cluster import journal, merge, slices
from thespis.cluster.connect import address_of, connect
from thespis.cluster.group import PROOF, Assignment, Donor
from thespis.cluster.journal import Entry
from thespis.cluster.workers import Worker, Workers, places
from thespis.engine.loop import Loop
from thespis.errors import ThespisError, require
from thespis.runs import checkpoint, files, lineage
from thespis.runs.build import hyper_parameters, resolve_schedule
from thespis.runs.config import Config
from thespis.runs.directory import GROUPS, repair_status, status, write_json
from thespis.runs.log_keys import other_names
from thespis.runs.metrics import MetricsLog, lines
from thespis.runs.resets import Resets
from thespis.runs.timetable import RECORDS, Timetable
from thespis.runs.tuning_rounds import Decision, Tuning, inherited, values
from thespis.values import convert, counted
from thespis.xla import compile_cache

TRIES = 5  # deaths of a group without any progress, after which the run ends
DIED, STARTED, MOVED = lineage.EVENTS


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
        self.decided: Decision | None = None  # what members do when they go on from there
        self.donors: dict[int, Any] = {}  # what groups gave to others then
        self.past: Any = None  # the tuner's memory and the lineage, as they came to that meeting
        self.programs: dict[str, float] = {}
        self.log: Any = None  # metrics.csv, once a group has told what is measured
        self.pending: dict[tuple[int, int], Any] = {}  # reports not in metrics.csv, by group, step
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
        self.gather(0, [])
        self.save()

    def restore(self, folder: Path) -> None:
        """Goes on after the newest meeting."""
        entry = journal.newest(
            self.groups / "decisions", self.config, self.rounds, self.reporter.note
        )
        if entry is None:
            self.write_decision(None)
            entry = Entry(0, self.hps, None, self.rounds, b"", 0.0)
        self.at, self.elapsed = entry.step // self.config.envs, entry.elapsed
        self.hps = resolve_schedule(self.config, entry.hps, self.reporter.note)
        past = entry.lineage
        if self.tuning:
            self.tuning.rounds = entry.rounds
            events = self.later_events(past)
            columns = [self.tuning.tuner.fitness]  # which was checked before
            saved = (0, past or None)
            self.tuning.open(self.folder, columns, saved, self.hps, self.reporter.note)
            if events:
                files.append(self.tuning.lineage.path, events, durable=True)
            self.past = self.rounds, self.tuning.lineage.rows, self.tuning.lineage.content
        if entry.parents is not None and self.tuning:
            none = jnp.zeros((self.config.members, 1))
            parents = jnp.asarray(entry.parents)
            self.decided = Decision(self.hps, parents, none, inherited(self.tuning.tuner))
        there = checkpoint.latest(self.folder / "checkpoints")
        self.saved = int(there[0].name.rstrip(checkpoint.REPLACED)) if there else -1
        repair_status(self.folder, self.reporter.note)
        self.start_groups()

    def later_events(self, past: bytes) -> bytes:
        """Returns the lines of events that lineage.csv has beyond what a decision knows."""
        path = self.folder / lineage.FILE
        if not past or not os.path.lexists(path):
            return b""
        with suppress(OSError):
            content = files.read(path)
            if content.startswith(past):
                tail = content[len(past) :].split(b"\n")[:-1]
                return b"".join(x + b"\n" for x in tail if not x.endswith(b","))
        return b""

    def start_groups(self) -> None:
        self.groups.mkdir(parents=True, exist_ok=True)
        proof = secrets.token_hex(16)
        files.write(self.groups / PROOF, proof.encode())
        file = self.groups / "groups.json"
        if not os.path.lexists(file):
            size = self.size or slices.default_size(
                self.config.members, places(self.ray, self.config)
            )
            parts = slices.split(self.config.members, size)
            write_json(file, [[part.start, part.stop] for part in parts])
        parts = slices.read(file, self.config.members)
        folder = lambda i: files.inside(self.folder, GROUPS, f"{i:03d}")
        worker = lambda i, part: Worker(i, part, slices.part(self.config, part), folder(i))
        names = list(self.tuning.names) if self.tuning else []
        assignment = lambda w: Assignment(
            w.config,
            self.folder.absolute(),
            w.folder.absolute(),
            proof,
            names,
            slices.cut_hyper(self.first, w.members),
            w.members.start,
            compile_cache.keeping,
        )
        self.workers = Workers(self.ray, [worker(*x) for x in enumerate(parts)], assignment)
        room = places(self.ray, self.config) if self.fixed else len(parts)
        require(
            len(parts) <= room,
            f"{len(parts)} groups need more than this machine has, which is room for {room}: give "
            "a larger group, or the address of a cluster",
        )
        for one in self.workers.workers:
            self.workers.start(one)

    def open_log(self, told: dict[str, Any]) -> None:
        """Opens metrics.csv as it was at the newest meeting."""
        edges = {name: tuple(x) for name, x in told["edges"].items()}
        names, members = other_names(self.config.log_keys), self.config.members
        last = self.last_row(self.at)
        args = self.folder, told["columns"], members, names, edges, self.reporter.note, last
        self.log = MetricsLog(*args)
        self.log.cut(last)
        self.written = {(int(row[0]), int(row[1])) for row in lines(self.log.path)[1]}

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
        self.write_status("running")
        self.advance()
        while self.at < total and not reached:
            target = slices.meeting_after(self.config, self.timetable, self.at)
            met = self.gather(target, stop)
            if met is None:
                break
            reached = self.meet(met)
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
        `stop` is not empty. With a deadline some may be missing, though not at the end.
        """
        everyone, first = self.workers.workers, None
        cure: tuple[Decision, dict[int, Any]] | None = None
        while True:
            there = [w for w in everyone if w.step == target * self.config.envs]
            if len(there) == len(everyone):
                return target
            if there and first is None:
                first = time.monotonic()
            last = target == self.config.iterations(self.config.steps)
            seconds = math.inf if self.deadline is None or last else self.deadline
            if first is not None and time.monotonic() - first > seconds:
                self.say_late(target, [w for w in everyone if w not in there])
                return target
            if stop:
                return None
            paused = [w.paused["paused"] for w in everyone if w.paused is not None]
            if paused and min(paused) < target:
                target, cure = min(paused), None
                continue
            if cure is None and all(w in there or self.waits(w, target) for w in everyone):
                cure = self.decide_cure(target)
            for worker in everyone:
                if worker.ref is None and worker not in there:
                    self.order(worker, target, cure)
            due = self.saved != self.step and self.timetable.due(self.at, "checkpoint")
            if due and all(worker.step >= 0 for worker in everyone):
                self.save()  # while groups train on
            for worker, answer in self.workers.answers(timeout=1.0):
                self.hear(worker, answer)
            if text := self.workers.waiting():
                self.reporter.note(text)

    def waits(self, worker: Worker, target: int) -> bool:
        """Tells whether a group stands at this iteration, and has broken members."""
        return worker.paused is not None and worker.paused["paused"] == target

    def order(self, worker: Worker, target: int, cure: Any) -> None:
        """Tells a group that has nothing to do what to do next."""
        if self.waits(worker, target):
            if cure is not None:
                self.workers.ask(worker, {"until": target, "cure": self.told(worker, *cure)})
            return
        start = min(worker.step, self.step)
        require(
            start == self.step or self.deadline is not None,
            f"{worker.folder} has lost its checkpoint of step {self.step}, and the one before is "
            "of no use without the others': restore it",
        )
        at = start // self.config.envs
        decision = self.decided if start == self.step else None
        told = None if decision is None else self.told(worker, decision, self.donors)
        until = min(slices.meeting_after(self.config, self.timetable, at), target)
        order = {"step": start, "until": until, "decision": told}
        self.workers.ask(worker, order | {"stay": self.deadline is not None})

    def told(self, worker: Worker, decision: Decision, donors: dict[int, Any]) -> dict[str, Any]:
        """Returns what a group must know of a decision, and where to get parents elsewhere."""
        parents = [int(p) for p in np.asarray(decision.parents)]
        sick = ~np.isfinite(np.asarray(decision.scores).mean(1))
        mine = worker.members

        def source(parent: int) -> int | Donor:
            if parent in mine:
                return parent - mine.start
            other = self.group_of(parent)
            place = parent - other.members.start
            return Donor(donors.get(other.number), place, other.config, other.folder.absolute())

        return {
            "parents": [source(parents[m]) for m in mine],
            "sick": [bool(sick[m]) for m in mine],
            "hps": slices.cut_hyper(values(decision.hps), mine),
        }

    def group_of(self, member: int) -> Worker:
        return next(w for w in self.workers.workers if member in w.members)

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
            if self.log is None:
                self.open_log(answer)
        if worker.step != report["step"]:
            worker.deaths = 0
        worker.step, worker.report = report["step"], report
        if worker.step > self.step or (self.deadline is not None and not again):
            self.pending[worker.number, worker.step] = report["rows"]
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
                f"group {worker.number} (members {named(worker.members)}) died {worker.deaths} "
                f"times after step {step}: look at memory and logs of its node"
            )
        self.event(DIED, worker, f"died and is started again from step {step}")
        self.workers.end(worker)
        self.workers.start(worker)
        self.event(STARTED, worker)

    def event(self, kind: int, worker: Worker, text: str = "") -> None:
        """Writes down and says what happened to a group."""
        if text:
            members = named(worker.members)
            self.reporter.note(f"group {worker.number} (members {members}) {text}")
        if self.tuning:
            log, born = self.tuning.lineage, np.asarray(self.tuning.rounds.born)
        else:
            log = lineage.LineageLog(self.folder, (), events=True)
            born = np.zeros(self.config.members, int)
        step, now = max(worker.step, 0), values(self.hps)
        everyone = np.arange(self.config.members)
        log.append(step, worker.members, everyone, None, step - born, now, now, kind)

    def say_late(self, target: int, late: list[Worker]) -> None:
        numbers = ", ".join(str(worker.number) for worker in late)
        step = target * self.config.envs
        self.reporter.note(f"step {step}: an exchange without group(s) {numbers}, which are late")

    # --- meetings ---------------------------------------------------------------------------

    def meet(self, iteration: int) -> bool:
        """Takes over what all have reported -> whether no more training is wanted."""
        self.at, step = iteration, iteration * self.config.envs
        begin = {worker.number: worker.members.start for worker in self.workers.workers}
        rows = [
            (row[0], begin[number] + row[1], row[2], row[3])
            for (number, reported), found in self.pending.items()
            for row in found
            if reported <= step  # and not what somebody has to do once more
        ]
        self.pending = {}
        for row in sorted(rows, key=lambda row: row[:2]):
            if row[:2] not in self.written:
                self.log.append(*row)
                self.written.add(row[:2])
        self.log.sync()
        self.show(rows)
        if self.tuning:
            for worker in self.workers.workers:
                if worker.report is not None and worker.step == step:
                    ends = slice(worker.members.start, worker.members.stop)
                    new = jnp.asarray(worker.report["scores"], jnp.float32)
                    scores = self.tuning.rounds.scores.at[ends].set(new)
                    self.tuning.rounds = dataclasses.replace(self.tuning.rounds, scores=scores)
            self.past = self.tuning.rounds, self.tuning.lineage.rows, self.tuning.lineage.content
        return self.should_stop(step)

    def show(self, rows: list[Any]) -> None:
        """Lets the reporter see the rows, as a trainer does."""
        edges = dict(self.log.histograms.edges) if self.log else {}
        for step in sorted({row[0] for row in rows}):
            mine = sorted((row for row in rows if row[0] == step), key=lambda row: row[1])
            if len(mine) == self.config.members:
                counts = [{k: (np.array(x), edges[k]) for k, x in row[3].items()} for row in mine]
                self.reporter.row(step, [row[2] for row in mine], counts)

    def should_stop(self, step: int) -> bool:
        """Tells whether the wanted reward is reached, or nobody got better for too long."""
        goal, patience = self.config.stop_reward, self.config.patience
        reports = [worker.report or {} for worker in self.workers.workers]
        told = [report.get("evaluated") for report in reports]
        if not all(one is not None and one[0] == step for one in told):
            return False
        if goal is not None:
            returns = np.array([x for one in told if one for x in one[1]], np.float32)
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
        self.decided, self.donors = decision, {}
        if decision is not None:
            replay = decision.what.replay == "parent"
            self.donors = self.given(decision, replay)
        self.spread()

    def exchange(self) -> Decision | None:
        """Asks the tuner; who is late keeps its place, and so does whoever would copy it."""
        assert self.tuning is not None
        late = [w for w in self.workers.workers if w.step != self.step]
        return self.tuning.exchange(self.at, self.hps, [m for w in late for m in w.members])

    def given(self, decision: Decision, replay: bool) -> dict[int, Any]:
        """Asks for every parent that somebody elsewhere copies -> references by group."""
        wanted: dict[int, set[int]] = {}
        for m, parent in enumerate(np.asarray(decision.parents).tolist()):
            donor = self.group_of(parent)
            if m not in donor.members and donor.actor is not None:
                wanted.setdefault(donor.number, set()).add(parent - donor.members.start)
        donors = [worker for worker in self.workers.workers if worker.number in wanted]
        return {w.number: self.workers.give(w, sorted(wanted[w.number]), replay) for w in donors}

    def decide_cure(self, iteration: int) -> tuple[Decision, dict[int, Any]]:
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
        return decision, self.given(decision, replay=True)

    def spread(self) -> None:
        """Moves groups that share a node to nodes with fewer, if there are any now."""
        for _ in self.workers.workers:
            found = self.workers.uneven()
            if found is None:
                return
            worker, node = found
            if worker.ref is not None:
                return
            self.event(MOVED, worker, "moves to a node with fewer groups")
            self.workers.end(worker)
            self.workers.start(worker, node)
            worker.node = node

    # --- what is left on the disk -----------------------------------------------------------

    def write_decision(self, decision: Decision | None) -> None:
        parents = None if decision is None else np.asarray(decision.parents)
        known = self.tuning.lineage.content if self.tuning and self.step else b""
        entry = Entry(self.step, self.hps, parents, self.rounds, known, self.spent)
        journal.write(self.groups / "decisions", entry)

    def save(self) -> None:
        """Writes a checkpoint of all members, and their best policies."""
        found = []
        for worker in self.workers.workers:
            there = worker.folder / "checkpoints" / f"{self.step:012d}"
            step = self.step if there.is_dir() else None  # of who is late, the newest
            found.append(merge.load(worker.folder, worker.config, self.loop, step))
        parts = merge.joined([parts for parts, _ in found])
        info = {"rows": found[0][1]["rows"], "elapsed": self.spent, "programs": self.programs}
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


def named(members: range) -> str:
    last = members.stop - 1
    return f"{members.start}" if len(members) == 1 else f"{members.start} to {last}"
