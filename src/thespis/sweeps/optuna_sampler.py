"""Optuna as a sampler, by ask and tell, and as a pruner.

The study is a journal in the sweep's folder, which the processes of jobs also read and write.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError, one_line, require, shown
from thespis.runs import files
from thespis.sweeps.plan import MOST, Job, Plan
from thespis.tuning.hyper import LogUniform, OneMinusLogUniform, Uniform
from thespis.values import show

JOURNAL = "optuna.journal"


def library() -> Any:
    """Returns Optuna, which logs only warnings."""
    try:
        import optuna  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ThespisError(
            "sampler = optuna needs a library: pip install 'thespis[optuna]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def study_of(plan: Plan, folder: Path, algo: str) -> Any:
    """Returns the study of an algorithm, a new one if there is none; processes may share it."""
    optuna = library()
    storages, journal = optuna.storages, optuna.storages.journal
    path = files.inside(folder, JOURNAL)
    file = str(path)
    require(algo in plan.algo, f"{folder} is a sweep without {algo}: restore its sweep.toml")
    require(files.regular(path) or not os.path.lexists(path), f"{file} is not a regular file")
    seed = plan.sampler_seed + plan.algo.index(algo)
    try:
        study = optuna.create_study(
            study_name=algo,
            storage=storages.JournalStorage(
                journal.JournalFileBackend(file, journal.JournalFileOpenLock(file))
            ),
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=plan.startup_trials),
            direction="maximize",
            load_if_exists=True,
        )
        study.get_trials(deepcopy=False)
        return study
    except Exception as error:  # of a damaged file Optuna raises many kinds
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(f"{file} cannot be used: {shown(text)}; restore it") from error


class Optuna:
    """Proposes jobs by one study per algorithm, in turn."""

    def __init__(self, plan: Plan, folder: Path):
        self.plan, self.total = plan, len(plan.algo) * (plan.trials or 1)
        require(self.total <= MOST, f"{self.total:,} jobs: give at most {MOST:,}")
        self.folder, self.studies = folder, {a: study_of(plan, folder, a) for a in plan.algo}
        self.choices = {algo: plan.choices(algo) for algo in plan.algo}

    def job(self, algo: str, trial: Any) -> Job:
        """Returns the job of a trial; one whose combination cannot work fails when it is run."""
        number = self.plan.algo.index(algo) * (self.plan.trials or 1) + trial.number
        choices = {
            name: from_trial(name, choice, trial.params)
            for name, choice in self.choices[algo].items()
        }
        return self.plan.job(number, algo, self.plan.env[0], choices)

    def known(self) -> list[Job]:
        # A process that was killed between asking and writing leaves a trial without parameters.
        wanted = {algo: {parameter(n, x) for n, x in c.items()} for algo, c in self.choices.items()}
        return [
            self.job(algo, trial)
            for algo, study in self.studies.items()
            for trial in study.get_trials(deepcopy=False)
            if wanted[algo] <= trial.params.keys()
        ]

    def ask(self) -> Job | None:
        counts = {
            algo: len(study.get_trials(deepcopy=False)) for algo, study in self.studies.items()
        }
        algo = min(counts, key=counts.__getitem__)
        if counts[algo] >= (self.plan.trials or 1):
            return None
        asked = {parameter(n, x): distribution(x) for n, x in self.choices[algo].items()}
        return self.job(algo, self.studies[algo].ask(asked))

    def tell(self, job: Job, state: str, score: float) -> None:
        trial = trial_of(self.studies[job.algo], self.plan, job.name)
        states = library().trial.TrialState
        if not trial.state.is_finished():
            kind = states.PRUNED if state == "pruned" else states.COMPLETE
            self.studies[job.algo].tell(
                trial.number, None if kind is states.PRUNED else score, kind
            )


def trial_of(study: Any, plan: Plan, name: str) -> Any:
    """Returns the trial of a job."""
    number = int(name.partition("-")[0]) - plan.algo.index(study.study_name) * (plan.trials or 1)
    trials = study.get_trials(deepcopy=False)
    require(0 <= number < len(trials), f"{JOURNAL} has no trial of job {name}: restore it")
    return trials[number]


# --- parameters -----------------------------------------------------------------------------


def parameter(name: str, choice: list[Any] | Uniform) -> str:
    """Returns Optuna's name of a choice; a discount is drawn as its distance from 1."""
    return f"1 - {name}" if isinstance(choice, OneMinusLogUniform) else name


def distribution(choice: list[Any] | Uniform) -> Any:
    """Returns the distribution of a choice; values of a list are given as text."""
    distributions = library().distributions
    if isinstance(choice, list):
        return distributions.CategoricalDistribution([show(x) for x in choice])
    return distributions.FloatDistribution(
        choice.low, choice.high, log=isinstance(choice, LogUniform)
    )


def from_trial(name: str, choice: list[Any] | Uniform, params: dict[str, Any]) -> Any:
    """Returns the value of a choice in a trial, rounded as one would type it."""
    drawn = params[parameter(name, choice)]
    if isinstance(choice, list):
        known = [x for x in choice if show(x) == drawn]
        require(known, f"{JOURNAL} has {name} = {shown(drawn)}, unlike the sweep: restore it")
        return known[0]
    if isinstance(choice, OneMinusLogUniform):
        return float(f"{1 - drawn:.6g}")
    return float(f"{drawn:.4g}")
