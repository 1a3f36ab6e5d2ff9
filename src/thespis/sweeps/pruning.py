"""Ends a job at an evaluation, if Optuna's pruner says so."""

from __future__ import annotations

import math
from typing import Any

from thespis.report import statistics
from thespis.runs.callbacks import Callback, Training
from thespis.sweeps import folder as folders
from thespis.sweeps.optuna_sampler import library, study_of, trial_of
from thespis.sweeps.plan import Plan


class Pruning(Callback):
    """Reports every evaluation to the study of the sweep that the run belongs to.

    It finds the study by the folder of the run, so that a job can also be resumed by hand.
    """

    plan: Plan | None = None
    study: Any = None

    def on_evaluation(self, training: Training) -> None:
        name = training.folder.name
        if self.plan is None:
            sweep = folders.of_job(training.folder)
            self.plan = folders.draft_of(sweep)
            self.study = study_of(self.plan, sweep, folders.job_of(sweep, name).algo)
        values = [row.get(self.plan.metric, math.nan) for row in training.metrics]
        values = [x for x in values if math.isfinite(x)]
        frozen = trial_of(self.study, self.plan, name)
        if not values or training.step >= training.steps or frozen.state.is_finished():
            return
        trial = library().trial.Trial(self.study, frozen._trial_id)
        if training.step not in frozen.intermediate_values:  # as it is after a resume
            trial.report(float(statistics.iqm(values)), training.step)
        if trial.should_prune():
            training.stop(folders.WHY)
