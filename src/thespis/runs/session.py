"""The state of a run that is being trained: how it starts, and what it writes to the disk."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis import envs
from thespis.core import HostEnv
from thespis.engine.evaluation import Evaluator
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import DeviceDriver, Loop
from thespis.engine.rollout import FrozenPolicy
from thespis.errors import ThespisError
from thespis.runs import curriculum, metric_rows, snapshot
from thespis.runs.best import Best
from thespis.runs.build import hyper_parameters, resolve_schedule
from thespis.runs.callback_events import Callbacks
from thespis.runs.callbacks import Callback
from thespis.runs.config import Config
from thespis.runs.directory import repair_status, status, write_json
from thespis.runs.expert import Demonstrations
from thespis.runs.faults import Faults
from thespis.runs.log_keys import other_names
from thespis.runs.metrics import MetricsLog
from thespis.runs.reporter import Reporter
from thespis.runs.resets import Resets
from thespis.runs.snapshot import Snapshot
from thespis.runs.timetable import RECORDS, Timetable
from thespis.runs.transplant import transplant
from thespis.runs.tuning_rounds import Tuning
from thespis.xla.compile_times import CompileTimes


class Session:
    """The state that a `Trainer` works on, set up by `start`, `restore` or `adopt`."""

    def __init__(
        self,
        config: Config,
        pieces: tuple[Loop, Any],
        folder: Path,
        reporter: Reporter,
        callbacks: Iterable[Callback] = (),
        driver: Callable[..., Any] | None = None,
    ):
        """`driver` stands in for the one that suits the environment."""
        self.config, self.folder, self.reporter = config, folder, reporter
        self.loop, eval_env = pieces
        self.env_label = envs.label(self.loop.env)
        self.seeds = jax.device_put(np.asarray(config.seeds, np.int32))
        self.tuning = self.make_tuning()
        self.hps = self.tuning.first if self.tuning else hyper_parameters(config)
        self.used = self.hps  # those of the newest updates
        self.evaluate = Evaluator(self.loop, eval_env, config.eval_episodes)
        usual = HostDriver if isinstance(self.loop.env, HostEnv) else DeviceDriver
        self.demos = Demonstrations(config, self.loop) if config.demos is not None else None
        self.driver: Any = (driver or usual)(self.loop, self.seeds)
        self.resets = Resets(config, self.loop)
        self.callbacks = Callbacks(self, callbacks)
        every = self.callbacks.every
        self.timetable = Timetable.from_config(config, self.resets.iterations, every)
        self.start_of_learning = self.iterations(config.learning_starts or 1)
        self.faults = Faults(config, self.loop, folder, self.start_of_learning)
        self.ledger = CompileTimes()
        self.began, self.elapsed = time.monotonic(), 0.0  # elapsed: seconds of earlier sessions
        self.announced: set[str] = set()  # notes that are shown only once
        self.signal = 0  # the signal that stopped it
        self.saved = -1  # the step of the newest checkpoint, once there is one

    def make_tuning(self) -> Tuning | None:
        """Returns who tunes the members."""
        return Tuning(self.config, self.loop, self.seeds) if self.config.tuner else None

    # --- beginnings -------------------------------------------------------------------------

    def open(self) -> None:
        """Opens environments in Python, so that faults in them show before the run begins."""
        self.driver.prepare()

    def start(self) -> None:
        """Creates new members, and saves their first checkpoint."""
        self.learner = self.driver.init(self.seeds, self.hps, self.demos_at(0))
        if self.config.init_from:
            state = transplant(self.learner.state, self.config.init_from, self.reporter.note)
            self.learner = self.loop.place(dataclasses.replace(self.learner, state=state))
        self.best = Best.empty(self.learner.state, self.hps)
        self.open_logs()
        self.callbacks.start()
        self.save()

    def restore(self, folder: Path) -> None:
        """Continues from the newest undamaged checkpoint in this folder."""
        lineage = self.load(folder, self.config.members)
        self.saved = self.step
        self.open_logs(lineage)
        self.cut_log()

    def adopt(self, folder: Path, members: int, member: int) -> None:
        """Starts as a copy of one member of another run, with its metrics so far."""
        self.load(folder, members, member)
        self.open_logs()
        try:
            self.log.copy_rows(folder, member, self.step)
        except ThespisError as error:
            self.reporter.note(f"{error}; the run continues without its earlier metrics")
        self.cut_log()
        self.save()

    def load(
        self, folder: Path, members: int, member: int | None = None
    ) -> tuple[int, bytes | None]:
        """Loads the newest undamaged checkpoint of a run of `members`: all of them, or one.

        Returns its lineage: the number of rows, and the file's content if that was saved.
        """
        expected = self.config, self.loop, self.env_label, self.rounds, members, member
        loaded = snapshot.load(folder / "checkpoints", *expected, self.reporter.note)
        self.elapsed, self.ledger.programs = loaded.elapsed, loaded.programs
        self.hps = self.used = resolve_schedule(self.config, loaded.hps, self.reporter.note)
        if self.tuning:
            self.tuning.rounds = loaded.rounds
        self.callbacks.restore(loaded.callbacks, alone=member is not None)
        curriculum.install(self, self.callbacks.memory.env)
        self.learner, self.best = self.driver.resume(loaded.learner), loaded.best
        self.write_best()
        return loaded.lineage

    def open_logs(self, lineage: tuple[int, bytes | None] = (0, None)) -> None:
        """Opens metrics.csv and, for a tuned population, lineage.csv with its earlier rows."""
        if self.demos:
            self.demos.pin(self.folder)
        note, sums = self.reporter.note, self.learner.metric_sums
        varying = self.tuning.names if self.tuning else ()
        measured = (*sums.names, *self.driver.measured)
        imitating = self.demos is not None
        columns = metric_rows.columns(self.loop.algo, measured, self.hps, varying, imitating)
        repair_status(self.folder, note)
        names, members = other_names(self.config.log_keys), self.config.members
        every = tuple(dict.fromkeys([*columns, *self.callbacks.memory.columns]))
        edges = dict(sums.edges)
        self.log = MetricsLog(self.folder, every, members, names, edges, note, self.last_row)
        self.logged = self.step, self.busy
        if self.tuning:
            self.tuning.open(self.folder, columns, lineage, self.hps, note)

    def demos_at(self, iteration: int) -> Any:
        """Returns the demonstrations at an iteration; an expert plays new ones per evaluation.

        When it does so does not depend on the speed of the machine.
        """
        return self.demos and self.demos.at(iteration // self.timetable.every["eval"])

    def cut_log(self) -> None:
        """Cuts metrics.csv at this step, without the extra row at the end of a shorter run.

        Callbacks have logged images and histograms of this step whether or not it has a row.
        """
        self.log.cut(self.last_row, self.step)

    @property
    def policies(self) -> FrozenPolicy:
        """The policies of all members as they are now."""
        step = np.full(self.config.members, self.step, np.int32)
        return FrozenPolicy(self.learner.state, self.hps, jax.device_put(step))

    # --- time -------------------------------------------------------------------------------

    @property
    def iteration(self) -> int:
        return self.learner.clock.now

    @property
    def step(self) -> int:
        """Environment steps of each member so far."""
        return self.iteration * self.config.envs

    def iterations(self, steps: int) -> int:
        return self.config.iterations(steps)

    def due(self, *names: str) -> bool:
        return self.timetable.due(self.iteration, *names)

    @property
    def record_due(self) -> bool:
        return self.due(*RECORDS)

    @property
    def last_row(self) -> int:
        """The newest step whose row of metrics may be part of this run."""
        return self.step if self.record_due else self.step - 1

    def until_next(self, end: int) -> int:
        """Returns how many iterations may run in one program, at most until `end`."""
        return min(self.timetable.until_next(self.iteration, end), self.loop.capacity)

    @property
    def spent(self) -> float:
        """Seconds of training, earlier sessions included."""
        return self.elapsed + time.monotonic() - self.began

    @property
    def busy(self) -> float:
        """Seconds of training without compilation."""
        return self.spent - self.ledger.seconds

    # --- files ------------------------------------------------------------------------------

    @property
    def rounds(self) -> Any:
        return self.tuning and self.tuning.rounds

    def save(self) -> None:
        """Writes a checkpoint of everything, unless a member is not finite."""
        if self.faults:
            return
        snapshot.refuse_not_finite(self.learner.state, f"{self.config.algo}, step {self.step}")
        lineage = self.tuning and (self.tuning.lineage.rows, self.tuning.lineage.content)
        parts = self.learner, self.hps, self.best, self.rounds, lineage or (0, None)
        self.log.sync()
        about = self.spent, self.ledger.programs, self.callbacks.saved()
        now = Snapshot(*parts, *about)
        snapshot.save(self.folder / "checkpoints", self.step, now, self.env_label)
        self.saved = self.step
        self.write_status("running")
        self.callbacks.fire("on_checkpoint")

    def write_best(self) -> None:
        """Makes the best policies those of the folder."""
        self.best.write(self.folder / "best")

    def write_status(self, state: str) -> None:
        """Writes status.json, and compile times to compiled.json."""
        reason = self.callbacks.stopped if state == "done" else ""
        status(self.folder, state, self.saved, **({"reason": reason} if reason else {}))
        write_json(self.folder / "compiled.json", self.ledger.programs)

    def fail(self, error: BaseException) -> None:
        """Tells callbacks of an error that ends the run."""
        self.callbacks.fail(error)

    def close(self) -> None:
        self.driver.close()
        self.ledger.close()
