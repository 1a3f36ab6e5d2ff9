"""Callbacks: users' code that is called at events of a run, what it sees and what it may change.

A callback that only reads changes no result: events divide training into shorter epochs, and any
division gives the same numbers. Changes that callbacks request are made after all of them were
called, before the checkpoint of that step, and are saved in it: so a resumed run equals one that
was never stopped (callback_events.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np

from thespis.errors import ThespisError, shown
from thespis.runs import curriculum, metrics, pictures
from thespis.runs.build import SCHEDULE, spans_run
from thespis.runs.run import Policy
from thespis.runs.tuning_rounds import values as by_name
from thespis.tuning import hyper
from thespis.xla.placement import MEMBERS, all_of, local_part, local_slice

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
        here, policies = local_slice(trainer.loop.mesh, self.members), trainer.policies
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
        try:
            exact = [None if x is None else float(x) for x in numbers]
        except (TypeError, ValueError):
            raise ThespisError(
                f"log({name!r}): {shown(value)} is not a number, nor one per member; log_image and "
                "log_histogram take arrays"
            ) from None
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
