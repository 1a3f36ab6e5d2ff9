"""Callbacks: users' code that is called at events of a run, what it sees and what it may change.

A callback that only reads changes no result: events divide training into shorter epochs, and any
division gives the same numbers. Changes that callbacks request are made after all of them were
called, before the checkpoint of that step, and are saved in it: so a resumed run equals one that
was never stopped.
"""

from __future__ import annotations

import dataclasses
import json
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np

from thespis import plugins
from thespis.errors import ThespisError, one_line, shown
from thespis.runs import checkpoint, curriculum, metrics, pictures
from thespis.runs.build import SCHEDULE, spans_run
from thespis.runs.run import Policy
from thespis.runs.tuning_rounds import values as by_name
from thespis.tuning import hyper
from thespis.values import counted
from thespis.xla.multihost import leads, of_leader, several
from thespis.xla.placement import MEMBERS, all_of, local_part, mine

if TYPE_CHECKING:
    from thespis.runs.session import Session

LOOKS = ("on_checkpoint", "on_end")  # events after which nothing would be saved
MAY_LOOK = "may read, note and log images, but not change anything or log numbers"


class Callback:
    """Base class of callbacks. All methods do nothing: override those you need."""

    every: int | None = None
    """Environment steps of each member between calls of `on_step`; None means no calls."""

    def on_start(self, training: Training) -> None:
        """Is called before the first step, and whenever the run is resumed.

        Changes and logs of a resumed run's call are ignored: the checkpoint contains them.
        """

    def on_step(self, training: Training) -> None:
        """Is called at every multiple of `every` steps."""

    def on_evaluation(self, training: Training) -> None:
        """Is called after evaluations, before their row of metrics is written."""

    def on_checkpoint(self, training: Training) -> None:
        """Is called when a checkpoint has been saved. It may read, but not change anything."""

    def on_exchange(self, training: Training) -> None:
        """Is called when members of a tuned population have been replaced (`training.parents`)."""

    def on_end(self, training: Training, state: str) -> None:
        """Is called at the end: "done", "stopped" (by a signal) or "failed". It may only read."""


@runtime_checkable
class Stateful(Protocol):
    """A callback whose state, JSON-serialisable data, is saved in every checkpoint.

    When a run is resumed, `restore` is called with it before `on_start`.
    """

    def state(self) -> Any: ...
    def restore(self, state: Any) -> None: ...


class Training:
    """The running training, as callbacks see it."""

    def __init__(self, trainer: Session):
        config = trainer.config
        self._trainer, self._policies = trainer, {}
        self._event, self._heeded = "", True
        self._hypers: dict[str, np.ndarray] = {}
        self._env: dict[str, Any] = {}
        self._stop = ""
        self.step = 0
        """Environment steps of each member so far; after a failure, those that are saved."""
        self.steps: int = config.steps
        """Environment steps of the whole run."""
        self.seeds: tuple[int, ...] = config.seeds
        """The seed of each member."""
        self.folder: Path = trainer.folder
        """The folder of the run."""

    @property
    def members(self) -> int:
        """The number of members."""
        return len(self.seeds)

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The newest row of metrics of each member; empty before the first."""
        return [dict(row) for row in self._trainer.callbacks.newest]

    @property
    def hypers(self) -> dict[str, np.ndarray]:
        """Every hyper-parameter [members], as the next updates will use it."""
        return by_name(self._trainer.hps) | {k: x.copy() for k, x in self._hypers.items()}

    @property
    def parents(self) -> list[int]:
        """The member that each one copied in the newest exchange of a population, or itself."""
        tuning = self._trainer.tuning
        return [int(m) for m in (tuning.parents if tuning else range(self.members))]

    def policy(self, member: int = 0, stochastic: bool = False) -> Policy:
        """Returns a copy of a member's policy, which does not change as training continues."""
        trainer, place = self._trainer, self._member(member)
        if self._event == "failed":
            raise ThespisError("there is no policy after a failure: load the run")
        here, policies = mine(trainer.loop.mesh, self.members), trainer.policies
        if not here.start <= place < here.stop:
            raise ThespisError(f"policy({place}): another process trains this member")
        policies = local_part(trainer.loop.mesh, policies, all_of(MEMBERS, policies))
        frozen = jax.tree.map(lambda x: np.array(np.asarray(x)[place - here.start]), policies)
        if stochastic not in self._policies:
            self._policies[stochastic] = Policy(trainer.loop, frozen, stochastic)
        return self._policies[stochastic].at(frozen)

    def note(self, text: str) -> None:
        """Shows a line of text to the user, as Thespis shows its own notes."""
        self._trainer.reporter.note(str(text))

    # --- what callbacks may do --------------------------------------------------------------

    def log(self, name: str, value: Any, member: int | None = None) -> None:
        """Logs a number, or one per member, with the next row of metrics (metrics.csv, ...).

        That is this step's row, if it has one. The last of several values of a name is kept.
        """
        if not self._changes(f"log({name!r})"):
            return
        numbers = value if np.ndim(value) else [value] * self.members
        if member is not None:
            numbers = [None] * self.members
            numbers[self._member(member)] = value
        if len(numbers) != self.members:
            raise ThespisError(f"log({name!r}): {len(numbers)} values for {self.members} members")
        exact = [None if x is None else float(x) for x in numbers]
        self._trainer.callbacks.record(name, exact)

    def log_image(self, name: str, image: Any, member: int = 0) -> None:
        """Logs an image [height, width(, 3 or 4)] or a Matplotlib figure to TensorBoard and
        trackers.

        Pixels are bytes, or floats from 0 to 1.
        """
        if self._heeded:
            pixels, place = pictures.pixels(name, image), self._member(member)
            trainer = self._trainer
            trainer.log.show(self.step, place, lambda: pictures.image_value(name, pixels))
            trainer.reporter.media(self.step, place, name, pixels, None)

    def log_histogram(self, name: str, values: Any, member: int = 0) -> None:
        """Logs a histogram of the values to TensorBoard and trackers."""
        if self._heeded:
            counts, edges = pictures.histogram(name, values)
            place, trainer = self._member(member), self._trainer
            value = lambda: metrics.histogram_value(name, counts, edges)
            trainer.log.show(self.step, place, value)
            trainer.reporter.media(self.step, place, name, None, (counts, edges))

    def stop(self, reason: str = "") -> None:
        """Ends the run after this event with the state "done"; status.json has the reason."""
        if self._changes("stop"):
            self._stop = f"{self._trainer.callbacks.calling}: {reason or 'asked for the end'}"

    def set_hyper(self, **values: Any) -> None:
        """Changes hyper-parameters from the next update on: a number, or one per member."""
        if not self._changes(f"set_hyper({', '.join(values)})"):
            return
        config = self._trainer.config
        hyper.check(config.Algorithm.Hyper, values, self.members)
        for name, value in values.items():
            if config.schedule:
                raise ThespisError(f"set_hyper({name}): this run repeats another run's schedule")
            if name == SCHEDULE and spans_run(config).any():
                raise ThespisError(f"set_hyper({name}): it follows the length of the run")
            new = np.broadcast_to(np.asarray(value, np.float32), self.members)
            self._hypers[name] = np.array(new)

    def set_env(self, **attributes: Any) -> None:
        """Sets attributes of the training environments, all of which begin new episodes.

        They are fields of a JAX task, whose programs are then recompiled, or attributes of a
        Gymnasium environment. Evaluations keep the environment that the run started with.
        """
        if not self._changes(f"set_env({', '.join(attributes)})"):
            return
        new = curriculum.plain(attributes)
        curriculum.check(self._trainer, new)
        self._env |= new

    def _member(self, member: Any) -> int:
        if not isinstance(member, int | np.integer) or not 0 <= member < self.members:
            raise ThespisError(f"member = {shown(member)}: give 0 to {self.members - 1}")
        return int(member)

    def _changes(self, what: str) -> bool:
        """Returns whether to make a change; raises at events after which it would be lost."""
        if self._event in (*LOOKS, "failed"):
            raise ThespisError(f"{what}: {self._event} {MAY_LOOK}")
        return self._heeded


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
                raise ThespisError(f"{where} {cause(error)}") from error
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
                self.trainer.reporter.note(f"callback {name}: on_end {cause(another)}")

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
                    raise ThespisError(f"callback {name}: state {cause(error)}") from error
        memory = dataclasses.replace(self.memory, states=states)
        return None if memory == Memory() else vars(memory)

    def restore(self, saved: Any, alone: bool) -> None:
        """Restores the callbacks' part of a checkpoint; without states for one member `alone`."""
        if saved is None:
            return
        memory = self.memory = Memory.read(saved)
        if alone:
            parts = {"columns": memory.columns, "env": memory.env, "untraced": memory.untraced}
            self.memory = Memory(**parts)
            return
        for name, callback in self.callbacks.items():
            if isinstance(callback, Stateful) and name in memory.states and leads():
                try:
                    callback.restore(memory.states[name])
                except Exception as error:
                    raise ThespisError(f"callback {name}: restore {cause(error)}") from error
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
        if not all(isinstance(name, str) and metrics.loggable(name) for name in names):
            raise checkpoint.Damaged("a checkpoint is damaged: its data of callbacks is invalid")
        return cls(**saved)


def timer(name: str) -> str:
    """Returns a callback's name in the timetable."""
    return f"callback/{name}"


def as_read(row: Mapping[str, Any]) -> dict[str, float]:
    """Returns a row as it would be read from metrics.csv."""
    return {name: float(metrics.text(x)) for name, x in row.items()}


def cause(error: Exception) -> str:
    """Describes what a callback raised, and where in its file if the error is not ours."""
    if isinstance(error, ThespisError):
        return f"made an invalid request: {error}"
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = f"raised {type(error).__name__}: {one_line(error)}"
    return f"{text} ({Path(where.filename).name}, line {where.lineno})"


# --- from arguments of users ----------------------------------------------------------------


def make(arguments: Any) -> tuple[tuple[str, ...], list[Callback]]:
    """Returns the names of callbacks for config.json, and the callbacks.

    Each argument is MODULE:CLASS, a class or an object; an object is named by its class.
    """
    items = list(arguments) if isinstance(arguments, list | tuple) else [arguments]
    names, callbacks = [], []
    for item in items:
        name, kind = "", item
        if isinstance(item, str):
            if not plugins.is_reference(item):
                raise ThespisError(f"callback {shown(item)}: give MODULE:CLASS")
            name, kind = item, plugins.find(item)
        if isinstance(kind, type) and issubclass(kind, Callback):
            names.append(name or plugins.reference_to(kind) or kind.__name__)
            callbacks.append(without_arguments(kind, names[-1]))
        elif isinstance(kind, Callback) and not name:
            names.append(type(kind).__name__)
            callbacks.append(kind)
        else:
            what = plugins.described(kind)
            raise ThespisError(
                f"callback {name or shown(item)} is {what}: derive a class from thespis.Callback"
            )
    return tuple(names), callbacks


def without_arguments(kind: type[Callback], name: str) -> Callback:
    try:
        return kind()
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(
            f"callback {name} cannot be created without arguments: {text}; give its arguments "
            "defaults, or pass an object from Python"
        ) from error


def untraced(folder: Path) -> list[str]:
    """Returns the hyper-parameters that callbacks changed without an entry in lineage.csv."""
    for path in checkpoint.latest(folder / "checkpoints")[:1]:
        saved = checkpoint.manifest(path)["info"].get("callbacks")
        return Memory.read(saved).untraced if saved is not None else []
    return []


def check_found(folder: Path, names: Iterable[str]) -> None:
    """Refuses to resume a run without the callbacks that were passed as objects."""
    objects = [name for name in names if not plugins.is_reference(name)]
    if objects:
        raise ThespisError(
            f"{folder} has callbacks = {', '.join(objects)}, which were given as objects: pass "
            "callbacks, from Python, or none to resume without (callbacks=[], --callback none)"
        )
