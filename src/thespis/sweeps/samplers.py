"""Samplers propose the jobs of a sweep: all combinations, draws from priors, or Optuna's."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from thespis.errors import require
from thespis.sweeps.plan import MOST, Job, Plan
from thespis.tuning.hyper import LogUniform, OneMinusLogUniform, Uniform


@runtime_checkable
class Sampler(Protocol):
    """Proposes jobs: those `known` from the start, and others that depend on results."""

    total: int
    """Number of jobs in the end."""

    def known(self) -> list[Job]:
        """Returns the jobs that were proposed before, in this process or an earlier one."""
        ...

    def ask(self) -> Job | None:
        """Returns another job, or None if there is none."""
        ...

    def tell(self, job: Job, state: str, score: float) -> None:
        """Takes the result of a job that is done or was pruned."""
        ...


class Listed:
    """The base of samplers whose jobs are all known from the start."""

    def __init__(self, plan: Plan):
        settings = {algo: self.settings(plan, algo) for algo in plan.algo}
        self.total = sum(map(len, settings.values())) * len(plan.env)
        table = [
            (algo, env, choices)
            for algo, chosen in settings.items()
            for env in plan.env
            for choices in chosen
        ]
        self.jobs = [plan.job(i, *line) for i, line in enumerate(table)]
        for job in self.jobs:
            plan.check(job)

    def settings(self, plan: Plan, algo: str) -> list[dict[str, Any]]:
        raise NotImplementedError

    def known(self) -> list[Job]:
        return list(self.jobs)

    def ask(self) -> Job | None:
        return None

    def tell(self, job: Job, state: str, score: float) -> None:
        pass


class Grid(Listed):
    """Every combination of all values."""

    def settings(self, plan: Plan, algo: str) -> list[dict[str, Any]]:
        values: dict[str, Any] = plan.choices(algo)
        count = math.prod(map(len, values.values())) * len(plan.algo) * len(plan.env)
        require(count <= MOST, f"{count:,} jobs: give fewer values, at most {MOST:,} jobs")
        return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


class Random(Listed):
    """`trials` settings, drawn independently; all environments have the same ones."""

    def settings(self, plan: Plan, algo: str) -> list[dict[str, Any]]:
        trials = plan.trials or 1
        count = trials * len(plan.algo) * len(plan.env)
        require(count <= MOST, f"{count:,} jobs: give fewer trials, at most {MOST:,} jobs")
        rng = np.random.default_rng([plan.sampler_seed, plan.algo.index(algo)])
        choices = plan.choices(algo)
        return [{name: draw(x, rng.random()) for name, x in choices.items()} for _ in range(trials)]


def draw(choice: list[Any] | Uniform, share: float) -> Any:
    """Returns the value at a share, in [0, 1), of the way from the first to the last."""
    if isinstance(choice, list):
        return choice[int(share * len(choice))]
    low, high = choice.ends
    return from_coordinate(choice, low + share * (high - low))


def from_coordinate(prior: Uniform, coordinate: float) -> float:
    """Returns a value as one would type it, without starting JAX, unlike the priors' methods."""
    if isinstance(prior, OneMinusLogUniform):
        return float(f"{-math.expm1(coordinate):.6g}")
    x = math.exp(coordinate) if isinstance(prior, LogUniform) else coordinate
    return float(f"{x:.4g}")


def sampler_of(plan: Plan, folder: Path) -> Sampler:
    """Returns the sampler of a plan; Optuna's study is in the folder of the sweep."""
    if plan.sampler == "optuna":
        from thespis.sweeps.optuna_sampler import Optuna

        return Optuna(plan, folder)
    return {"grid": Grid, "random": Random}[plan.sampler](plan)
