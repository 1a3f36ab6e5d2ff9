"""A group of members, trained by the ordinary trainer from one meeting of all groups to the next.

It runs in a process of its own, anywhere. What it needs to go on is in its folder: a checkpoint of
its newest meeting, and beside it what it had to report then.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from thespis.cluster import transfer
from thespis.cluster.transfer import Parcel
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import Learner, Loop
from thespis.engine.population import cut, inherit, restart
from thespis.errors import ThespisError, require
from thespis.runs import checkpoint, files, metric_rows
from thespis.runs.build import build
from thespis.runs.config import RETURN, Config
from thespis.runs.directory import read_json, write_json
from thespis.runs.metric_rows import Evaluation
from thespis.runs.process import alone
from thespis.runs.reporter import Mute
from thespis.runs.trainer import Trainer
from thespis.runs.tuning_rounds import Rounds, Tuning, end_episodes, values
from thespis.tuning import Inherit, inherited
from thespis.xla import compile_cache, threads
from thespis.xla.placement import to_device

ARRIVES = 600  # seconds in which a member is sent from one node to another
LOCKED = 300  # seconds in which the process that had this group before is gone
PROOF = "proof"  # the file by which a process knows that this is the run's folder


class Paused(Exception):
    """Training stands at a row of metrics, before members that are broken were replaced."""


class Rows:
    """The metrics of a group on their way to the run's metrics.csv."""

    def __init__(self, columns: list[str], edges: dict[str, Any]):
        self.columns, self.edges = tuple(columns), edges
        self.rows: list[tuple[int, int, dict[str, float], dict[str, list[int]]]] = []

    def append(self, step: int, member: int, row: dict[str, Any], counts: dict[str, Any]) -> None:
        numbers = {name: float(x) for name, x in row.items()}
        self.rows.append(
            (step, member, numbers, {k: [int(n) for n in x] for k, x in counts.items()})
        )

    def sync(self) -> None: ...
    def cut(self, step: int, media: int | None = None) -> None: ...


class Notes(Mute):
    """Keeps what is to be said until somebody asks for it."""

    def __init__(self):
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


class Elsewhere:
    """Stands for lineage.csv, which is written where all members are known."""

    path, rows, content = "lineage.csv", 0, b""


class GroupTuning(Tuning):
    """Does what was decided for a population of which this group is a part."""

    def __init__(self, config: Config, loop: Loop, seeds, names: list[str], first: dict[str, Any]):
        self.loop, self.seeds, self.tuner = loop, seeds, config.tuning
        self.names, members = names, config.members
        self.first = hyper_of(config.Algorithm.Hyper, first)
        none = jnp.full((members, config.scores), jnp.nan)
        self.rounds = Rounds(None, jnp.zeros(members, jnp.int32), none)
        self.parents = np.arange(members)
        self.lineage: Any = Elsewhere()
        self.decision: dict[str, Any] | None = None  # until it is done

    def begin(self, hps: Any) -> None:
        self.asked = {name: x for name, x in values(hps).items() if name in self.names}

    def round(self, x: Learner, hps: Any, driver: Any) -> tuple[Learner, Any]:
        """Does the round that was decided, if there was one; `x` is used up."""
        if self.decision is None:
            return x, hps
        self.rounds = dataclasses.replace(
            self.rounds, scores=jnp.full_like(self.rounds.scores, jnp.nan)
        )
        return self.follow(x, driver, inherited(self.tuner))

    def follow(self, x: Learner, driver: Any, what: Inherit) -> tuple[Learner, Any]:
        """Makes members copies of others, as was decided."""
        decision, self.decision = self.decision, None
        assert decision is not None
        members, parents = range(len(self.seeds)), decision["parents"]
        places: list[int] = [p if isinstance(p, int) else -1 for p in parents]
        new = np.array([p != m for m, p in zip(members, places)])
        taken = new if what.replay == "parent" else new & np.asarray(decision["sick"], bool)
        who = [int(m) for m in np.flatnonzero(taken)]
        mine = lambda place: transfer.pack(x.state, place, x.replay)
        rows = {m: mine(places[m]) if places[m] >= 0 else parents[m] for m in who}
        replay = transfer.graft(x.replay, {m: parcel["replay"] for m, parcel in rows.items()})
        of_parents = jax.device_put(transfer.states(x.state, parents))
        hps = hyper_of(type(self.first), decision["hps"])
        if new.any():
            x = dataclasses.replace(x, replay=replay)
            what = dataclasses.replace(what, replay="own")
            x = self.copy(x, new, taken, of_parents, self.seeds, what=what)
        if isinstance(driver, HostDriver):
            end_episodes(driver, new)
        self.asked = {name: np.asarray(decision["hps"][name]) for name in self.names}
        return x, hps

    @cached_property
    def copy(self) -> Callable:
        def copy(x: Learner, new, taken, of_parents, seeds, what):
            x = dataclasses.replace(x, replay=cut(x.replay, taken))
            x = inherit(x, jnp.where(new, -1, jnp.arange(new.size)), what, of_parents=of_parents)
            return x if x.world is None else restart(self.loop, x, seeds, new)

        return jax.jit(copy, static_argnames="what", donate_argnums=0)


class GroupTrainer(Trainer):
    """The ordinary trainer of some members, whose logs and decisions are elsewhere."""

    def __init__(
        self, config: Config, pieces: Any, folder: Path, names: list[str], first: dict[str, Any]
    ):
        self.names, self.first = names, first
        self.notes = Notes()
        self.evaluated: tuple[int, list[float]] | None = None  # the newest: step, mean returns
        self.met: float | None = None  # when it last came to a meeting
        self.gap: float | None = None  # seconds from then until it trained on
        super().__init__(config, pieces, folder, self.notes)
        every = {name: n for name, n in self.timetable.every.items() if name != "checkpoint"}
        self.timetable = dataclasses.replace(self.timetable, every=every)

    def epoch(self, length: int, learn: bool) -> float:
        if self.met is not None:
            self.gap, self.met = time.monotonic() - self.met, None
        return super().epoch(length, learn)

    def make_tuning(self) -> Tuning | None:
        if not self.config.tuner:
            return None
        return GroupTuning(self.config, self.loop, self.seeds, self.names, self.first)

    def open_logs(self, lineage: tuple[int, bytes | None] = (0, None)) -> None:
        sums, varying = self.learner.metric_sums, self.tuning.names if self.tuning else ()
        columns = metric_rows.columns(self.loop.algo, sums.names, self.hps, varying, False)
        self.log: Any = Rows(columns, dict(sums.edges))
        self.logged = self.step, self.busy
        self.evaluated = None
        if isinstance(self.tuning, GroupTuning):
            self.tuning.begin(self.hps)

    def should_stop(self, evaluation: Evaluation) -> bool:
        """Leaves it to whoever knows all members."""
        self.evaluated = self.step, [float(x) for x in evaluation.scores[RETURN]]
        return False

    def write_best(self) -> None: ...
    def write_status(self, state: str) -> None: ...

    def heal(self, now: bool, attempt: int = 0) -> None:
        """Lets broken members become what was decided of them, or waits for that decision."""
        if now:
            self.faults.check_states(self.learner, self.used, self.seeds)
        if attempt and self.faults:
            raise ThespisError(next(iter(self.faults.values())))
        if self.faults and not self.tuning:
            raise ThespisError(next(iter(self.faults.values())))
        if now and self.faults:
            raise Paused

    def go_on_after_pause(self, decision: dict[str, Any]) -> None:
        """Replaces those who were broken, and does what is due at this iteration."""
        assert isinstance(self.tuning, GroupTuning)
        self.tuning.decision = decision
        self.learner, self.hps = self.tuning.follow(self.learner, self.driver, Inherit())
        self.used = self.hps
        self.faults.clear()
        self.faults.forget()
        self.after_epoch()  # where nobody is broken any more

    # --- what is left for others --------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Returns what happened since the last meeting, as plain data."""
        scores = np.asarray(self.tuning.rounds.scores).tolist() if self.tuning else None
        return {
            "step": self.step,
            "rows": self.log.rows,
            "scores": scores,
            "evaluated": self.evaluated,
            "best_step": int(self.best.step.max()),
            "notes": self.notes.texts,
            "programs": self.ledger.programs,
            "gap": self.gap,
        }

    def save(self) -> None:
        """Writes the report, and then a checkpoint: where there is one, there is the other."""
        reports = files.inside(self.folder, "reports")
        reports.mkdir(parents=True, exist_ok=True)
        write_json(reports / f"{self.step:012d}.json", self.report())
        super().save()
        kept = {p.name for p in checkpoint.latest(self.folder / "checkpoints")}
        for old in reports.glob("*.json"):
            if old.stem not in kept:
                old.unlink(missing_ok=True)

    def reported(self) -> dict[str, Any]:
        """Returns what was reported with the checkpoint from which it goes on."""
        path = files.inside(self.folder, "reports", f"{self.step:012d}.json")
        report = read_json(path)
        if not self.is_report(report):
            raise ThespisError(f"{path} is damaged: it is not what a group reports; restore it")
        return report

    def is_report(self, report: Any) -> bool:
        """Returns whether this is a report of this group at this step, whoever has written it."""
        members, kinds = range(self.config.members), {"rows": list, "notes": list, "programs": dict}
        try:
            shape = np.shape(np.asarray(report["scores"], float)) if self.tuning else ()
            when, returns = report["evaluated"] or (self.step, [])
            numbers = [when, report["best_step"], *returns, *report["programs"].values()]
            for step, member, values, counts in report["rows"]:
                known = values.keys() <= {*self.log.columns} and member in members
                bins = {name: len(edges) - 1 for name, edges in self.log.edges.items()}
                if not known or any(len(x) != bins.get(name) for name, x in counts.items()):
                    return False
                numbers += [step, *values.values(), *(n for x in counts.values() for n in x)]
            return (
                all(type(report[name]) is kind for name, kind in kinds.items())
                and type(report["step"]) is int
                and report["step"] == self.step
                and shape == ((len(members), self.config.scores) if self.tuning else ())
                and all(isinstance(x, int | float) for x in numbers)
                and all(isinstance(text, str) for text in report["notes"])
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return False


class Lost(Exception):
    """A member to copy can be had nowhere at this moment."""


class Donor(NamedTuple):
    """Where a member of another group is to be had."""

    ref: Any  # of what that group gave
    place: int  # of the member in that group
    config: Config
    folder: Path


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What a process is told that takes over a group."""

    config: Config  # of this group's members
    run: Path
    folder: Path
    proof: str
    names: list[str]  # of hyper-parameters in which members differ
    first: dict[str, np.ndarray]  # hyper-parameters of its members at the start
    start: int  # the number of its first member in the run
    keeping: bool  # whether compiled programs are kept


class Group:
    """The process of a group: `begin`, and then `advance` from meeting to meeting."""

    def __init__(self, assignment: Assignment):
        self.assignment, self.stack = assignment, ExitStack()

    def begin(self) -> dict[str, Any]:
        """Starts, or goes on from the newest checkpoint -> where that is, and its report."""
        a = self.assignment
        self.check_folder()
        compile_cache.keeping = a.keeping
        compile_cache.use_cache()
        threads.set_threads(a.config.threads or 1)
        threads.choose_device(a.config.device)
        a.folder.mkdir(parents=True, exist_ok=True)
        self.lock()
        files.clear(a.folder)
        pieces = build(a.config)
        trainer = GroupTrainer(a.config, pieces, a.folder, a.names, a.first)
        trainer.faults.folder, trainer.faults.first = a.run, a.start
        self.trainer = trainer
        if checkpoint.latest(a.folder / "checkpoints"):
            trainer.restore(a.folder)
        else:
            trainer.open()
            trainer.start()
        columns, edges = trainer.log.columns, trainer.log.edges
        facts = {"columns": columns, "edges": edges, "pid": os.getpid()}
        return facts | {"report": self.finished(trainer.reported())}

    def check_folder(self) -> None:
        """Refuses to train where the folder of the run is another one, or none."""
        path = self.assignment.folder.parent / PROOF
        try:
            same = files.read(path).decode() == self.assignment.proof
        except OSError:
            same = False
        if not same:
            raise ThespisError(
                f"{os.uname().nodename} cannot read {self.assignment.run}: put the runs into a "
                "folder that all nodes share, with --out"
            )

    def lock(self) -> None:
        """Waits until whoever had this group before is gone."""
        end = time.monotonic() + LOCKED
        while True:
            try:
                self.stack.enter_context(alone(self.assignment.folder))
                return
            except ThespisError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def advance(self, order: dict[str, Any]) -> dict[str, Any]:
        """Trains until the next meeting, saves, and reports; or stops where members broke.

        `order` has the step at which it begins, the iteration of the next meeting, what was
        decided, if anything; or the cure of members where it stopped.
        """
        trainer, cure = self.trainer, order.get("cure")
        try:
            if cure is None:
                self.prepare(order)
                trainer.train_until(order["until"], [])
            else:
                trainer.go_on_after_pause(self.fetched(cure, order["until"]))
        except (Paused, Lost):
            return {"paused": trainer.iteration, "faults": dict(trainer.faults)}
        came = time.monotonic()
        trainer.save()
        report = self.finished(trainer.report())
        trainer.met = came
        return report

    def prepare(self, order: dict[str, Any]) -> None:
        """Makes the trainer one that stands where an order begins, and knows what was decided."""
        trainer, step = self.trainer, order["step"]
        if trainer.step != step or trainer.faults:
            there = checkpoint.latest(self.assignment.folder / "checkpoints")
            steps = {path: int(path.name.rstrip(checkpoint.REPLACED)) for path in there}
            lost = f"{self.assignment.folder} has no checkpoint of step {step}: restore it"
            require(step in steps.values(), lost)
            checkpoint.verified(next(path for path in there if steps[path] == step))
            for path in there:  # and only now
                if steps[path] > step:
                    checkpoint.remove(path)
            trainer.faults.clear()
            trainer.faults.forget()
            trainer.restore(self.assignment.folder)
            require(trainer.step == step, lost)
        trainer.log.rows.clear()
        trainer.notes.texts.clear()
        if isinstance(trainer.tuning, GroupTuning):
            decision, stay = order.get("decision"), order.get("stay", False)
            try:
                trainer.tuning.decision = self.fetched(decision, trainer.iteration, stay)
            except Lost as lost:
                raise ThespisError(f"{lost} is neither in memory nor saved: restore it") from lost

    def finished(self, report: dict[str, Any]) -> dict[str, Any]:
        """Returns a report with the last rows of a run that ends between two."""
        trainer = self.trainer
        before = list(report["rows"])
        trainer.log.rows = []
        trainer.close_rows()
        return json.loads(json.dumps(report | {"rows": before + trainer.log.rows}))

    def fetched(self, decision: Any, iteration: int, stay: bool = False) -> Any:
        """Returns a decision with everybody's parent: a place here, or what has arrived of it.

        Who should copy what is lost may `stay` as it is.
        """
        if decision is None:
            return None
        replay = any(decision["sick"]) or inherited(self.trainer.config.tuning).replay == "parent"
        step, parents = iteration * self.trainer.config.envs, list(decision["parents"])
        for member, parent in enumerate(parents):
            if isinstance(parent, Donor):
                try:
                    parents[member] = self.parcel(parent, replay, step)
                except Lost:
                    if not stay:
                        raise
                    parents[member] = member
        return decision | {"parents": parents}

    def parcel(self, donor: Donor, replay: bool, step: int) -> Parcel:
        """Returns a member of another group: as it was in memory there, or as it was saved."""
        if donor.ref is not None:
            import ray
            import ray.exceptions

            # If its process or its node is gone, so is what was in memory there.
            with suppress(ray.exceptions.RayError):
                return ray.get(donor.ref, timeout=ARRIVES)[donor.place]
        try:
            config, loop = donor.config, self.trainer.loop
            return transfer.load(donor.folder, config, loop, donor.place, replay, step)
        except (ThespisError, OSError) as error:
            raise Lost(f"member {donor.place} of {donor.folder} at step {step}") from error

    def give(self, members: list[int], replay: bool) -> dict[int, Parcel]:
        """Returns members by their places here, as they are now."""
        x = self.trainer.learner
        return {m: transfer.pack(x.state, m, x.replay if replay else None) for m in members}


def hyper_of(Hyper: type, numbers: dict[str, Any]) -> Any:
    """Returns an algorithm's `Hyper` with these values [members]."""
    return Hyper(**{name: to_device(np.asarray(x)) for name, x in numbers.items()})
