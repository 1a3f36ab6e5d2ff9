"""Runs a sweep: starts its jobs, waits for them, and writes the table and the page."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError, one_line, or_all, printable, require, shown
from thespis.report import sweep_results
from thespis.report.report import report
from thespis.report.sweep_results import Row
from thespis.report.table import decimal
from thespis.runs import files, metrics
from thespis.runs.process import alone, held, stoppable
from thespis.runs.reporter import Silent
from thespis.runs.run import frame_library
from thespis.sweeps import command, executors
from thespis.sweeps import folder as folders
from thespis.sweeps import plan as plans
from thespis.sweeps.executors import Executor
from thespis.sweeps.job import POLL
from thespis.sweeps.plan import Job, Plan
from thespis.sweeps.samplers import sampler_of
from thespis.values import convert, counted, show

FINISHED = ("done", "pruned")  # states after which a job is not run again
STATES = ("done", "pruned", "running", "waiting", "stopped", "failed")
ENDED_BY = (130, 143)  # exit codes of a job that was asked to stop
DOING = "being swept"


class Sweep:
    """The folder of a sweep, opened for reading: its table, the best setting, and the page.

    `trust` lets it import code that its sweep.toml names.
    """

    signal: int | None = None
    """The signal that ended `sweep`, if one did."""

    def __init__(self, path: Path | str, plan: Plan | None = None, trust: bool = False):
        self.path = Path(path)
        require(
            folders.is_sweep(self.path),
            f"no sweep at {shown(str(path))}: looked for {self.path / folders.FILE}",
        )
        self.plan = plan or folders.plan_of(self.path, trust)
        self.finished: dict[str, Row] = {}

    @property
    def jobs(self) -> list[Job]:
        """Returns the jobs so far; Optuna proposes more as results come in."""
        return folders.written_jobs(self.path, self.plan)

    @property
    def rows(self) -> list[Row]:
        """Returns a dict per job: its choices, its state, and its results so far."""
        return [self.row(job) for job in self.jobs]

    def row(self, job: Job) -> Row:
        """Returns the row of a job."""
        if job.name in self.finished:
            return self.finished[job.name]
        status, run = folders.status_of(self.path, job.name), folders.run_of(self.path, job.name)
        row: Row = {"job": job.name, "algo": job.algo, "env": job.env, **job.choices}
        row |= dict.fromkeys(sweep_results.NUMBERS)
        row |= {"state": status["state"], "step": status["step"]}
        row |= {"error": status.get("error", ""), "command": command.line(job)}
        if (run / "config.json").is_file():
            try:
                row |= sweep_results.measured(run, self.plan.metric)
            except ThespisError as error:
                row |= {"state": "damaged", "error": one_line(error)}
        if row["state"] in FINISHED:
            self.finished[job.name] = row
        return row

    @property
    def counts(self) -> dict[str, int]:
        """Returns how many jobs are in each state."""
        counts = Counter(row["state"] for row in self.rows)
        return {state: counts[state] for state in (*STATES, *counts) if counts[state]}

    @property
    def best(self) -> Row | None:
        """Returns the finished setting with the highest IQM, with commands to train it again.

        It is None before any job is done; docs/sweeps.md says how environments are weighed.
        """
        return sweep_results.best(self.path, self.rows, self.plan.metric)

    def frame(self, library: str = "pandas") -> Any:
        """Returns the table as a data frame of "pandas" or "polars", a row per job."""
        module = frame_library(library)
        rows = self.rows
        names = dict.fromkeys(name for row in rows for name in row)
        text = lambda x: show(x) if isinstance(x, list) else x
        return module.DataFrame({name: [text(row.get(name)) for row in rows] for name in names})

    def write(self) -> None:
        """Writes results.csv."""
        sweep_results.write(self.path, self.rows)

    def report(self, path: Path | str | None = None) -> Path:
        """Writes the page of the sweep, by default its report.html."""
        return report([self.path], path)


def sweep(
    algo: Any = None,
    env: Any = None,
    *,
    set: Any = None,
    seeds: Any = None,
    config: Any = None,
    sampler: str | None = None,
    trials: int | None = None,
    sampler_seed: int | None = None,
    prune: bool | None = None,
    startup_trials: int | None = None,
    metric: str | None = None,
    executor: str | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    slurm: Any = None,
    name: str | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    trust: bool = False,
    **options: Any,
) -> Sweep:
    """Trains a table of algorithms x environments x choices, and returns it (docs/sweeps.md).

    `sweep("sac,td3", env="A,B", seeds="0-4", set={"critic_lr": [3e-4, 1e-3]}, steps=20_000)`
    trains 8 jobs of 5 seeds each. `config` is a sweep.toml, or the folder of a sweep to go on
    with; what is given here wins over a file. The same call again goes on where it was stopped.
    All other options are those of `train`, shared by all jobs.
    """
    chosen = {"algo": algo, "env": env, "set": set, "seeds": seeds, "sampler": sampler}
    chosen |= {"trials": trials, "sampler_seed": sampler_seed, "prune": prune, "metric": metric}
    chosen |= {"startup_trials": startup_trials, "executor": executor, "jobs": jobs, "ray": ray}
    chosen |= {"slurm": slurm, "name": name, "out": out}
    with held():
        opened, running = open_sweep(chosen | options, config, convert("trust", bool, trust))
    return Runner(opened, running, convert("progress", bool, progress), trust).run()


def open_sweep(
    options: Mapping[str, Any], config: Any, trusted: bool, new: bool = True
) -> tuple[Sweep, dict[str, Any]]:
    """Returns the sweep of these options, and how to run it; if it may be `new`, it is made."""
    options = {name: x for name, x in options.items() if x is not None}
    path = None if config is None else Path(convert("config", str, config))
    if path is not None and folders.is_sweep(path):
        other = [name for name in options if name not in plans.RUNNING]
        require(not other, f"{other[:1]}: {path} is a sweep already; leave it out, or name another")
        plan = folders.plan_of(path, trusted, typed=options)
        return Sweep(path, plan), running_of(options, plans.read(path / folders.FILE))
    in_file: dict[str, Any] = {}
    if path is not None:
        require(
            os.path.isfile(path), f"no sweep at {shown(str(path))}: give a folder or a sweep.toml"
        )
        in_file = plans.read(path)
        remaining = {name: x for name, x in in_file.items() if name not in options}
        plans.refuse_code(path, remaining, trusted)
        executor_in(in_file)
        in_file.setdefault("name", path.stem)
    choices = plans.choices_of(in_file.get("set")) | plans.choices_of(options.get("set"))
    running = running_of(options, in_file)
    options = in_file | options | {"set": choices}
    not_planned = (*plans.RUNNING, *plans.PLACE)
    plan = plans.make({name: x for name, x in options.items() if name not in not_planned})
    if plan.sampler != "optuna":
        sampler_of(plan, Path())  # refuses jobs that cannot work, before there is a folder
    folder = folders.place(plan, options.get("name"), options.get("out"), new)
    return Sweep(folder, plan), running


def running_of(options: Mapping[str, Any], in_file: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of how jobs are run, checked.

    Who names an executor or a cluster here wants nothing of the file's other one.
    """
    name = executor_in(options) or in_file.get("executor") or executor_in(in_file) or "local"
    running: dict[str, Any] = {"executor": convert("executor", executors.Name, name)}
    options = {**in_file, **options}
    if options.get("jobs") is not None:
        running["jobs"] = counted("jobs", options["jobs"])
    if name == "ray" and options.get("ray") is not None:
        running["ray"] = convert("ray", str, options["ray"])
    slurm = options.get("slurm") or {}
    if not isinstance(slurm, Mapping):
        pairs = plans.pairs_of("slurm", slurm)
        require(all(equals for _, equals, _ in pairs), f"slurm = {shown(slurm)}: give NAME=VALUE")
        slurm = {key: plans.value_of(text) for key, _, text in pairs}
    if name == "slurm" and slurm:
        running["slurm"] = dict(slurm)
    return running


def executor_in(options: Mapping[str, Any]) -> Any:
    """Returns the executor that options name, by itself or by its cluster; None if there is none.

    The address of a Ray and parameters of Slurm are refused with other executors.
    """
    given = [name for name in ("ray", "slurm") if options.get(name) not in (None, {}, [], ())]
    executor = options.get("executor") or next(iter(given), None)
    other = [name for name in given if name != executor]
    require(
        not other,
        f"{', '.join(other)} is not for executor = {shown(executor)}: leave one of them out",
    )
    return executor


class Runner:
    """Starts the jobs of a sweep and waits until all have ended."""

    def __init__(self, sweep: Sweep, running: dict[str, Any], progress: bool, trusted: bool):
        self.sweep, self.plan, self.folder = sweep, sweep.plan, sweep.path
        self.running, self.progress, self.trusted = running, progress, trusted
        self.active: dict[str, Job] = {}
        self.measured: set[str] = set()  # algorithms whose metrics have been seen

    def run(self) -> Sweep:
        """Runs all jobs that are not finished, and writes the table and the page."""
        with alone(self.folder, DOING), stoppable(Silent().note) as caught:
            folders.write(self.folder, self.plan, self.running)
            (self.folder / folders.STOP).unlink(missing_ok=True)
            self.sampler = sampler_of(self.plan, self.folder)
            known = self.sampler.known()
            queue = [job for job in known if not self.is_over(job)]
            over, total = len(known) - len(queue), self.sampler.total
            self.say(f"sweep   {self.folder}: {total} jobs, {over} of them finished")
            with closing(self.make_executor()) as executor:
                self.follow(queue, over, executor, caught)
            self.sweep.write()
            with suppress(ThespisError):  # no job has begun
                self.sweep.report()
            self.sweep.signal = caught[0] if caught else None
        return self.sweep

    def make_executor(self) -> Executor:
        running, most = self.running, self.running.get("jobs")
        if running["executor"] == "slurm" and self.plan.sampler == "optuna":
            require(most, "optuna on slurm: say how many jobs may run at a time, by jobs")
        return executors.executor_of(
            running["executor"],
            self.folder,
            self.plan.cores,
            most,
            self.trusted,
            running.get("ray"),
            running.get("slurm", {}),
        )

    def is_over(self, job: Job) -> bool:
        """Writes the file of a job, and tells whether it is finished, also to the sampler."""
        folders.write_job(self.folder, job)
        row = self.sweep.row(job)
        if row["state"] in FINISHED:
            self.tell(job, row)
        return row["state"] in FINISHED

    def follow(self, queue: list[Job], over: int, executor: Executor, caught: list[int]) -> None:
        """Runs the jobs of the queue, and those that the sampler adds, until all have ended."""
        stopping = full = False
        while True:
            while not caught and not full and len(self.active) < executor.slots:
                job = queue.pop(0) if queue else self.ask()
                if job is None:
                    break
                full = not self.start(job, executor)
                if full:
                    queue.insert(0, job)
            if not self.active:
                return
            self.refuse_metric()
            ended = executor.ended()
            for name, code in ended.items():
                over += 1
                self.end(self.active.pop(name), code, stopping, f"{over}/{self.sampler.total}")
            if ended:
                full = False
                self.sweep.write()
            if caught and not stopping:
                stopping = True
                executor.stop()
            if not ended:
                time.sleep(POLL)

    def start(self, job: Job, executor: Executor) -> bool:
        """Starts a job; returns False if it must wait until another one has ended."""
        try:
            executor.start(job.name)
        except ThespisError as error:
            if not self.active:
                raise
            self.say(f"{one_line(error)}; {job.name} waits until another one has ended")
            return False
        self.active[job.name] = job
        return True

    def refuse_metric(self) -> None:
        """Refuses an unknown metric once a job has begun, which alone knows all that there are."""
        metric = self.plan.metric
        for job in self.active.values():
            path = folders.run_of(self.folder, job.name) / "metrics.csv"
            if job.algo in self.measured or not path.is_file():
                continue
            try:
                columns = metrics.lines(path)[0][2:]
            except ThespisError:  # the job repairs it when it resumes
                continue
            self.measured.add(job.algo)
            require(
                metric in columns,
                f"metric = {shown(metric)} is not a metric of {job.algo}{or_all(metric, columns)}",
            )

    def ask(self) -> Job | None:
        job = self.sampler.ask()
        if job is not None:
            folders.write_job(self.folder, job)
        return job

    def end(self, job: Job, code: int, stopping: bool, count: str) -> None:
        """Records and reports how a job has ended."""
        status = folders.status_of(self.folder, job.name)
        unfinished = status["state"] not in (*FINISHED, "failed")
        if unfinished and not stopping and code not in ENDED_BY:
            folders.note_failure(self.folder, job.name, why(self.folder, job.name, code))
        row = self.sweep.row(job)
        if row["state"] in FINISHED:
            self.tell(job, row)
        none = f"  no {self.plan.metric}" if row["state"] in FINISHED else ""
        score = none if row["iqm"] is None else f"  IQM {decimal(row['iqm'])}"
        text = f": {row['error']}" if row["state"] == "failed" else score
        self.say(f"{count:<7} {row['state']:<7} {job.name}{text}")

    def tell(self, job: Job, row: Row) -> None:
        if row["iqm"] is not None:
            self.sampler.tell(job, row["state"], row["iqm"])

    def say(self, text: str) -> None:
        if self.progress:
            print(printable(text), flush=True)


def why(folder: Path, name: str, code: int) -> str:
    """Returns how a job ended that left no reason itself."""
    log, last = folders.file_of(folder, name, "log"), ""
    with suppress(OSError):
        lines = files.read(log).decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    ended = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"{ended}; {log.name} ends with: {last}" if last else ended


def result_of(sweep: Sweep) -> dict[str, Any]:
    """Returns what the command prints with --json."""
    rows = json.loads(json.dumps(sweep.rows, default=str))
    return {
        "sweep": str(sweep.path),
        "counts": sweep.counts,
        "best": sweep.best,
        "jobs": rows,
        "plan": dataclasses.asdict(sweep.plan),
    }
