"""Calls the callbacks of a run at its events, and does what they ask for."""

from __future__ import annotations

import dataclasses
import json
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from thespis.errors import ThespisError, one_line, or_all, shown
from thespis.runs import checkpoint, curriculum, metrics
from thespis.runs.callbacks import Callback, Stateful, Training
from thespis.runs.tuning_rounds import values as by_name
from thespis.values import counted
from thespis.xla.multihost import leads, of_leader, several

if TYPE_CHECKING:
    from thespis.runs.session import Session


class Callbacks:
    """The callbacks of a run, the changes that they request, and their part of a checkpoint."""

    def __init__(self, trainer: Session, callbacks: Iterable[Callback] = ()):
        self.trainer, self.training = trainer, Training(trainer)
        self.callbacks: dict[str, Callback] = {}
        for callback in callbacks:
            name, number = type(callback).__name__, 1
            while name in self.callbacks:
                number += 1
                name = f"{type(callback).__name__}#{number}"
            self.callbacks[name] = callback
        self.started = self.ended = False
        self.calling = ""  # the name of the callback that is being called
        self.rows: list[dict[str, float]] | None = None
        self.memory = Memory()

    @property
    def every(self) -> dict[str, int]:
        """Environment steps between calls of each `on_step`."""
        periods = {name: callback.every for name, callback in self.callbacks.items()}
        timed = {name: n for name, n in periods.items() if n is not None}
        return {timer(name): counted(f"every of callback {name}", n) for name, n in timed.items()}

    @property
    def stopped(self) -> str:
        """The reason why a callback has ended the run; empty if none has."""
        return self.training._stop

    # --- events -----------------------------------------------------------------------------

    def start(self) -> None:
        """Calls `on_start` of all callbacks, once."""
        if not self.started:
            self.started = True
            new = {name: name not in self.memory.started for name in self.callbacks}
            for name, callback in self.callbacks.items():
                for text in oversights(callback) if leads() else ():
                    self.trainer.reporter.note(f"callback {name}: {text}")
            self.fire("on_start", heeded=new)
            self.memory.started = list(self.callbacks)
            self.apply()

    def step(self) -> None:
        """Calls `on_step` of the callbacks that are due."""
        self.fire("on_step", [name for name in self.callbacks if self.trainer.due(timer(name))])

    def row(self, rows: list[dict[str, Any]], evaluated: bool) -> list[dict[str, Any]]:
        """Calls the callbacks that are due with a row, and returns the rows with their values."""
        if self.callbacks:
            self.rows = [as_read(row) for row in rows]
            if self.trainer.record_due:
                self.step()
            if evaluated:
                self.fire("on_evaluation")
        if not self.memory.pending:
            return rows
        pending, self.memory.pending = self.memory.pending, {}
        self.trainer.log.extend(self.memory.columns)
        rows = [
            row | {name: xs[m] for name, xs in pending.items() if xs[m] is not None}
            for m, row in enumerate(rows)
        ]
        self.rows = [as_read(row) for row in rows]
        return rows

    def fire(
        self,
        event: str,
        names: Iterable[str] | None = None,
        *args: Any,
        heeded: Mapping[str, bool] | None = None,
    ) -> None:
        """Calls a method of the named callbacks, or of all; only the first process does."""
        if not self.callbacks or not self.started or not leads():
            return
        training = self.training
        training.step = self.trainer.step
        for name in self.callbacks if names is None else names:
            self.calling, training._event = name, event
            training._heeded = heeded is None or heeded[name]
            try:
                getattr(self.callbacks[name], event)(training, *args)
            except Exception as error:
                where = f"callback {name}, step {training.step}: {event}"
                what = cause(error, self.callbacks[name], event)
                raise ThespisError(f"{where} {what}") from error
        training._heeded = True

    def apply(self) -> None:
        """Makes the changes that callbacks have requested, the same in all processes."""
        training, trainer = self.training, self.trainer
        if not self.callbacks:
            return
        if several():
            every = np.stack([*training.hypers.values()]), np.array(bool(training._stop))
            numbers, stop = of_leader(every)
            training._hypers = dict(zip(training.hypers, np.asarray(numbers), strict=True))
            training._stop = training._stop or ("process 0" if stop else "")
        before = by_name(trainer.hps)
        new = {k: x for k, x in training._hypers.items() if not np.array_equal(x, before[k])}
        training._hypers = {}
        if new:
            changed = {name: jax.device_put(x) for name, x in new.items()}
            trainer.hps = dataclasses.replace(trainer.hps, **changed)
            trainer.faults.forget()  # earlier updates cannot be repeated with the new values
            traced: Iterable[str] = ()
            if trainer.tuning:
                traced = trainer.tuning.names
                trainer.tuning.record(trainer.step, before, by_name(trainer.hps))
            untraced = {*self.memory.untraced, *(name for name in new if name not in traced)}
            self.memory.untraced = sorted(untraced)
        if training._env:
            self.memory.env |= training._env
            curriculum.change(trainer, training._env)
            training._env = {}

    def end(self, state: str) -> None:
        """Calls `on_end` of all callbacks, once."""
        if self.stopped and state == "done":
            self.trainer.reporter.note(f"step {self.trainer.step}: ended by {self.stopped}")
        self.ended = True
        self.fire("on_end", None, state)

    def fail(self, error: BaseException) -> None:
        """Calls `on_end` of all callbacks after an error; their own errors become notes."""
        if self.ended or not self.started or not leads():
            return
        self.ended, self.training.step = True, max(self.trainer.saved, 0)
        self.training._event, self.training._heeded = "failed", True
        state = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
        for name, callback in self.callbacks.items():
            try:
                callback.on_end(self.training, state)
            except Exception as another:
                what = cause(another, callback, "on_end")
                self.trainer.reporter.note(f"callback {name}: on_end {what}")

    # --- metrics ----------------------------------------------------------------------------

    @property
    def newest(self) -> list[dict[str, float]]:
        """The newest row of each member; in a resumed run, read from metrics.csv."""
        if self.rows is None:
            self.rows = [{} for _ in self.training.seeds]
            header, lines = metrics.lines(self.trainer.log.path)
            for _, member, *cells in lines:
                pairs = zip(header[2:], cells, strict=True)
                self.rows[int(member)] = {name: float(cell) for name, cell in pairs if cell}
        return self.rows

    def record(self, name: str, numbers: list[float | None]) -> None:
        """Keeps numbers of members for the next row of metrics."""
        if not metrics.loggable(name):
            raise ThespisError(
                f"log({shown(name)}): give a name without commas, quotes and line breaks"
            )
        if name not in self.memory.columns:
            if name in (*metrics.FIRST, *self.trainer.log.columns):
                raise ThespisError(f"log({name!r}): the run already has a metric of that name")
            self.memory.columns.append(name)
        before = self.memory.pending.get(name, [None] * len(numbers))
        pairs = zip(before, numbers, strict=True)
        self.memory.pending[name] = [old if new is None else new for old, new in pairs]

    # --- checkpoints ------------------------------------------------------------------------

    def saved(self) -> dict[str, Any] | None:
        """Returns the callbacks' part of a checkpoint, or None if there is nothing to save."""
        states = {}
        for name, callback in self.callbacks.items():
            if isinstance(callback, Stateful) and leads():
                try:
                    states[name] = json.loads(json.dumps(callback.state()))
                except Exception as error:
                    what = cause(error, callback, "state")
                    raise ThespisError(f"callback {name}: state {what}") from error
        memory = dataclasses.replace(self.memory, states=states)
        return None if memory == Memory() else vars(memory)

    def restore(self, saved: Any, alone: bool) -> None:
        """Restores the callbacks' part of a checkpoint; without states for one member `alone`."""
        if saved is None:
            return
        memory = self.memory = Memory.read(saved)
        if not alone and {len(xs) for xs in memory.pending.values()} - {
            self.trainer.config.members
        }:
            raise checkpoint.Damaged("a checkpoint is damaged: it has callbacks of other members")
        if alone:
            parts = {"columns": memory.columns, "env": memory.env, "untraced": memory.untraced}
            self.memory = Memory(**parts)
            return
        for name, callback in self.callbacks.items():
            if isinstance(callback, Stateful) and name in memory.states and leads():
                try:
                    callback.restore(memory.states[name])
                except Exception as error:
                    what = cause(error, callback, "restore")
                    raise ThespisError(f"callback {name}: restore {what}") from error
        memory.states = {}


@dataclasses.dataclass
class Memory:
    """The callbacks' part of a checkpoint."""

    started: list[str] = dataclasses.field(default_factory=list)
    """Callbacks whose `on_start` has taken effect."""
    states: dict[str, Any] = dataclasses.field(default_factory=dict)
    pending: dict[str, list[float | None]] = dataclasses.field(default_factory=dict)
    """Numbers of members for the next row of metrics."""
    columns: list[str] = dataclasses.field(default_factory=list)
    """Metrics that callbacks have logged, in the order of the file."""
    env: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Attributes that were set in the environments."""
    untraced: list[str] = dataclasses.field(default_factory=list)
    """Hyper-parameters that were changed but are not in lineage.csv."""

    @classmethod
    def read(cls, saved: Any) -> Memory:
        """Parses and checks the saved data: it may come from an untrusted run."""
        kinds = {f.name: type(getattr(cls(), f.name)) for f in dataclasses.fields(cls)}
        fits = isinstance(saved, dict) and saved.keys() == kinds.keys()
        fits = fits and all(type(saved[name]) is kind for name, kind in kinds.items())
        names = [*saved["columns"], *saved["pending"]] if fits else [""]
        texts = [*names, *saved["started"], *saved["untraced"]] if fits else [""]
        fits = all(isinstance(x, str) for x in texts) and all(map(metrics.loggable, names))
        number = lambda x: x is None or isinstance(x, int | float)
        every = saved["pending"].values() if fits else ()
        fits = fits and {*saved["pending"]} <= {*saved["columns"]}
        fits = fits and not {*saved["columns"]} & {*metrics.FIRST}
        if not fits or not all(isinstance(xs, list) and all(map(number, xs)) for xs in every):
            raise checkpoint.Damaged("a checkpoint is damaged: its data of callbacks is invalid")
        return cls(**saved)


def timer(name: str) -> str:
    """Returns a callback's name in the timetable."""
    return f"callback/{name}"


def as_read(row: Mapping[str, Any]) -> dict[str, float]:
    """Returns a row as it would be read from metrics.csv."""
    return {name: float(metrics.text(x)) for name, x in row.items()}


def cause(error: Exception, callback: Callback, method: str) -> str:
    """Describes what a method of a callback raised, and where in its file if it is not ours."""
    if isinstance(error, ThespisError):
        return f"made an invalid request: {error}"
    text = f"raised {type(error).__name__}: {one_line(error)}"
    code = getattr(getattr(type(callback), method), "__code__", None)
    file = code.co_filename if code else ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f"{text} ({Path(file).name}, line {lines[-1]})" if lines else text


def oversights(callback: Callback) -> list[str]:
    """Returns notes on methods that look like those of events and will never be called."""
    kind = type(callback)
    events = [name for name in vars(Callback) if name.startswith("on_")]
    methods = [name for name in dir(kind) if name.lstrip("_").startswith("on_")]
    notes = [
        f"no event calls {name}{or_all(name.lstrip('_'), events)}"
        for name in methods
        if name not in events and callable(getattr(kind, name))
    ]
    if kind.on_step is not Callback.on_step and callback.every is None:
        notes.append("on_step is not called without `every`, the steps between its calls")
    return notes
