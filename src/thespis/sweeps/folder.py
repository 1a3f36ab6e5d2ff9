"""The folder of a sweep: sweep.toml, results.csv, and in `jobs` a run and three files per job.

NAME.toml holds the options of a job, NAME.log its output, NAME.failed the reason if it failed.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError, printable, require, shown
from thespis.runs import directory, files, locks
from thespis.runs.naming import default_out, safe
from thespis.sweeps import plan as plans
from thespis.sweeps.plan import Job, Plan

FILE = "sweep.toml"
STOP = "stop"  # while this file exists, jobs on other machines save and end
HEAD = "# What this sweep was asked for. `thespis sweep FOLDER` goes on with it.\n\n"
LONGEST = 60  # letters of a default name
LINE = 2**16  # maximum bytes of a file with one line
WHY = "pruned by Optuna"  # reason in the status of a pruned run


def is_sweep(path: Path) -> bool:
    try:
        return files.regular(path / FILE)
    except ValueError:  # a name that no file can have
        return False


def of_job(run: Path) -> Path:
    """Returns the sweep that the run of a job belongs to."""
    sweep = run.absolute().parent.parent
    require(is_sweep(sweep), f"{run} is no job of a sweep any more: {sweep / FILE} is missing")
    return sweep


def plan_of(folder: Path, trusted: bool, typed: Container[str] = ()) -> Plan:
    """Reads the plan of a sweep; code that its file names must be `trusted`.

    Options that the user has `typed` replace those of the file, which are then not checked.
    """
    plan = draft_of(folder)
    options = {name: x for name, x in plans.read(folder / FILE).items() if name not in typed}
    plans.refuse_code(folder / FILE, options, trusted)
    with of_file(folder):
        plans.check(plan)
    return plan


def draft_of(folder: Path) -> Plan:
    """Reads the plan of a sweep without looking up its names: nothing is imported."""
    with of_file(folder):
        return plans.draft(without_running(plans.read(folder / FILE)))


@contextmanager
def of_file(folder: Path) -> Iterator[None]:
    """Names the file of the sweep in errors."""
    try:
        yield
    except ThespisError as error:
        raise ThespisError(f"{folder / FILE}: {error}") from error


def place(plan: Plan, name: str | None, out: Any, new: bool) -> Path:
    """Returns the folder of a sweep: an existing one with the same plan, or a `new` one."""
    parent = directory.path_of("out", default_out() if out is None else out) / "sweeps"
    name = safe(name or "-".join([*plan.algo, *plan.env])[:LONGEST])
    require(name, "name: give letters or digits")
    require(new or parent.is_dir(), f"there is no sweep in {parent} yet")
    with files.writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(parent):
        for folder in sorted(parent.iterdir()):
            if folder.name.startswith(f"{name}_") and is_sweep(folder):
                with suppress(ThespisError):
                    if draft_of(folder) == plan:  # whoever it is from: nothing is imported
                        return folder
        require(new, f"there is no such sweep in {parent} yet")
        folder = directory.create(parent.parent, parent.name, name)
        write(folder, plan)
    return folder


def without_running(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options without those that say how jobs are run."""
    return {name: x for name, x in options.items() if name not in plans.RUNNING}


@contextmanager
def one_at_a_time(parent: Path) -> Iterator[None]:
    """Lets only one process at a time look for a folder and make it."""
    handle = locks.open_folder(parent)
    try:
        with suppress(OSError):  # a file system without locks
            locks.take(handle, wait=True)
        yield
    finally:
        os.close(handle)


def write(folder: Path, plan: Plan, running: dict[str, Any] | None = None) -> None:
    text = HEAD + plans.to_toml({**(running or {}), **plan.asked})
    files.write(folder / FILE, text.encode())


# --- jobs -----------------------------------------------------------------------------------


def jobs_in(folder: Path) -> Path:
    return files.inside(folder, "jobs")


def run_of(folder: Path, name: str) -> Path:
    return files.inside(folder, "jobs", name)


def file_of(folder: Path, name: str, kind: str) -> Path:
    return files.inside(folder, "jobs", f"{name}.{kind}")


def write_job(folder: Path, job: Job) -> None:
    with files.writing(jobs_in(folder)):
        jobs_in(folder).mkdir(exist_ok=True)
    path, text = file_of(folder, job.name, "toml"), plans.job_file(job).encode()
    if not files.regular(path) or files.read(path) != text:
        files.write(path, text)


def job_of(folder: Path, name: str, plan: Plan | None = None) -> Job:
    """Reads a job; given the plan, also its choices."""
    path = file_of(folder, name, "toml")
    job = plans.read_job(path, ())
    if plan is None:
        return job
    require(job.algo in plan.algo, f"{path} has algo = {shown(job.algo)}, unlike the sweep: fix it")
    return plans.read_job(path, plan.choices(job.algo))


def written_jobs(folder: Path, plan: Plan) -> list[Job]:
    """Returns all jobs so far, in order."""
    names = sorted(path.name for path in jobs_in(folder).glob("*.toml"))
    return [job_of(folder, name.removesuffix(".toml"), plan) for name in names]


def status_of(folder: Path, name: str) -> dict[str, Any]:
    """Returns `state`, `step` and perhaps `error` of a job.

    The state is waiting, running, stopped, done, pruned or failed.
    """
    run, failed = run_of(folder, name), file_of(folder, name, "failed")
    status: dict[str, Any] = {"state": "waiting", "step": 0}
    if (run / "config.json").is_file():
        status = directory.status_of(run)
        if status["state"] == "done" and str(status.get("reason")).endswith(WHY):
            status["state"] = "pruned"
    if status["state"] in ("waiting", "stopped", "damaged") and files.regular(failed):
        text = files.read(failed, LINE).decode(errors="replace").strip()
        status |= {"state": "failed", "error": printable(text)}
    return status


def note_failure(folder: Path, name: str, text: str) -> None:
    """Writes the reason why a job failed, in one line."""
    files.write(file_of(folder, name, "failed"), f"{' '.join(text.split())}\n".encode())
