"""Callbacks: code of users that is called at events of a run, what it sees and what it may do.

A callback that only watches changes nothing: events divide training into shorter epochs, and any
division gives the same. What callbacks ask for is done after all of them were called, before the
checkpoint of that step, and is saved in it: so a resumed run equals one that never stopped
(callback_events.py).
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
from thespis.xla.placement import MEMBERS, all_of, local_part, mine

if TYPE_CHECKING:
    from thespis.runs.session import Session

LOOKS = ("on_checkpoint", "on_end")  # events after which nothing would be saved
MAY_LOOK = "may look, note and draw, but not change or log anything"


class Callback:
    """Does something at events of a run. All methods do nothing: override those you need."""

    every: int | None = None
    """Steps of each member between calls of `on_step`; without a number there are none."""

    def on_start(self, training: Training) -> None:
        """Is called before the first step, and whenever the run goes on after a stop.

        What it changes or logs when the run goes on is ignored: the checkpoint has it.
        """

    def on_step(self, training: Training) -> None:
        """Is called at every multiple of `every` steps."""

    def on_evaluation(self, training: Training) -> None:
        """Is called after evaluations, before their row of metrics is written."""

    def on_checkpoint(self, training: Training) -> None:
        """Is called when a checkpoint has been saved. It may look, but not change anything."""

    def on_exchange(self, training: Training) -> None:
        """Is called when members of a tuned population have been replaced (`training.parents`)."""

    def on_end(self, training: Training, state: str) -> None:
        """Is called at the end: "done", "stopped" (by a signal) or "failed". It may look only."""


@runtime_checkable
class Stateful(Protocol):
    """A callback with a state that checkpoints hold: JSON-able data. It is asked when one is saved.

    `restore` gets it back before `on_start`, where a run goes on.
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
        """Those of the whole run."""
        self.seeds: tuple[int, ...] = config.seeds
        """The seed of each member."""
        self.folder: Path = trainer.folder
        """The folder of the run."""

    @property
    def members(self) -> int:
        """How many members there are."""
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
        """Whom each member copied in the newest exchange of a population; itself if nobody."""
        tuning = self._trainer.tuning
        return [int(m) for m in (tuning.parents if tuning else range(self.members))]

    def policy(self, member: int = 0, stochastic: bool = False) -> Policy:
        """Returns a member's policy as it is now; it stays so while training goes on."""
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
        """Says something to whoever follows the run."""
        self._trainer.reporter.note(str(text))

    # --- what it may do ---------------------------------------------------------------------

    def log(self, name: str, value: Any, member: int | None = None) -> None:
        """Logs a number, or one per member, with the next row of metrics (metrics.csv, ...).

        The row of this very step, if there is one. Of several values of a name the last counts.
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
        """Shows an image [height, width(, 3 or 4)] or a Matplotlib figure, in TensorBoard and on
        trackers.

        Numbers are bytes, or floats from 0 to 1.
        """
        if self._heeded:
            pixels, place = pictures.pixels(name, image), self._member(member)
            trainer = self._trainer
            trainer.log.show(self.step, place, lambda: pictures.image_value(name, pixels))
            trainer.reporter.media(self.step, place, name, pixels, None)

    def log_histogram(self, name: str, values: Any, member: int = 0) -> None:
        """Shows how values are distributed, in TensorBoard and on trackers."""
        if self._heeded:
            counts, edges = pictures.histogram(name, values)
            place, trainer = self._member(member), self._trainer
            value = lambda: metrics.histogram_value(name, counts, edges)
            trainer.log.show(self.step, place, value)
            trainer.reporter.media(self.step, place, name, None, (counts, edges))

    def stop(self, reason: str = "") -> None:
        """Ends the run after this event, as done; status.json has the reason."""
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
                raise ThespisError(f"set_hyper({name}): the run repeats those of another")
            if name == SCHEDULE and spans_run(config).any():
                raise ThespisError(f"set_hyper({name}): it is the length of the run, as was asked")
            new = np.broadcast_to(np.asarray(value, np.float32), self.members)
            self._hypers[name] = np.array(new)

    def set_env(self, **attributes: Any) -> None:
        """Sets attributes of the environments of training, all of which begin new episodes.

        Fields of a JAX task, whose programs are then compiled anew, or attributes of a Gymnasium
        environment. Evaluations stay in the environment as the run was given it.
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
        """Tells whether something is to be done; refuses it where it would be lost."""
        if self._event in (*LOOKS, "failed"):
            raise ThespisError(f"{what}: {self._event} {MAY_LOOK}")
        return self._heeded
