"""One job of a sweep, in a process of its own: `python -m thespis.sweeps.job SWEEP NAME`.

It trains a job that has not begun, resumes one that was stopped, and does nothing if it is done,
so it may be started any number of times.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError, one_line
from thespis.runs import directory, files, trust
from thespis.sweeps import folder as folders
from thespis.sweeps import plan as plans
from thespis.sweeps.plan import Job

TRUST = "--trust"
POLL = 0.2  # seconds between checks
PATIENCE = 120.0  # seconds in which a process that ends must have saved
STOPPED = 130  # exit code of a job that was stopped
OTHER_RUNS = ("demos", "skills_from", "init_from")  # options by which a run may name others


def main(argv: list[str]) -> int:
    """Runs a job and returns the exit code of the process."""
    from thespis import plugins
    from thespis.runs.process import ENDING
    from thespis.xla import compile_cache

    if hasattr(signal, "pthread_sigmask"):  # workers of Ray block Ctrl-C, also for their children
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    compile_cache.keeping = True
    plugins.also[:] = [os.getcwd()]
    threading.Thread(target=end_with_parent, daemon=True).start()
    if hasattr(signal, "SIGUSR2"):  # which Slurm sends before it ends a job
        signal.signal(signal.SIGUSR2, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    sweep, name = Path(argv[0]), argv[1]
    try:
        return run(sweep, name, TRUST in argv)
    except ThespisError as error:
        print(f"thespis: {one_line(error)}", file=sys.stderr)
        folders.note_failure(sweep, name, str(error))
        return 2
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        traceback.print_exc()
        folders.note_failure(sweep, name, f"{type(error).__name__}: {error}")
        return 1


def run(sweep: Path, name: str, trusted: bool = False) -> int:
    """Trains or resumes a job, if it is not done -> 0, or 128 plus the signal that stopped it."""
    from thespis import api
    from thespis.runs.process import busy
    from thespis.sweeps.command import words

    plan, place = folders.draft_of(sweep), folders.run_of(sweep, name)
    job = folders.job_of(sweep, name)
    folders.file_of(sweep, name, "failed").unlink(missing_ok=True)
    end = time.monotonic() + PATIENCE
    while place.is_dir() and busy(place) and time.monotonic() < end:
        time.sleep(POLL)  # the process before is still saving
    if (place / "config.json").is_file():
        done = api.resume(place, progress=False, trust=trusted or is_own(place, job))
        return 128 + done.signal if done.signal else 0
    if place.is_dir():  # a process was killed before it had written anything
        shutil.rmtree(place)
    callbacks: list[Any] = []
    if plan.sampler == "optuna" and plan.prune:
        from thespis.sweeps.pruning import Pruning

        callbacks = [Pruning]
    before, sys.argv = sys.argv, ["thespis", *words(job)]  # which the run stores as its command
    try:
        done = api.train(
            job.algo, job.env, folder=place, progress=False, callbacks=callbacks, **job.options
        )
    finally:
        sys.argv = before
    return 128 + done.signal if done.signal else 0


def is_own(run: Path, job: Job) -> bool:
    """Returns whether a run names no other code than its job, and no runs, which may name more.

    The sweep has vetted the job, whereas there may be no record of the run on this machine.
    """
    values = lambda places: {option.partition(" = ")[2] for option in places}
    saved = directory.read_config(run)
    named = values(trust.places(saved))
    vetted = values(plans.code_in({"algo": job.algo, "env": job.env} | job.options))
    return named <= vetted and not any(saved.get(name) for name in OTHER_RUNS)


def end_with_parent() -> None:
    """Makes this process save and end when its parent has ended, which closes the pipe."""
    try:
        while os.read(0, 1):
            pass
    except OSError:
        return
    os.kill(os.getpid(), signal.SIGTERM)


# --- its process ----------------------------------------------------------------------------


def start(sweep: Path, name: str, trusted: bool = False, cwd: str | None = None) -> Any:
    """Starts the process of a job; its output is appended to NAME.log."""
    # -P: else a file in the current folder could stand in for a library.
    command = [sys.executable, "-P", "-m", "thespis.sweeps.job", str(sweep.absolute()), name]
    file = folders.file_of(sweep, name, "log")
    with files.writing(file), files.open_regular(file, "ab") as log:
        return subprocess.Popen(
            command + [TRUST] * trusted,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=cwd,
            start_new_session=True,  # Ctrl-C is for the sweep, which stops its jobs
        )


def supervise(sweep: str, name: str, trusted: bool, cwd: str) -> int:
    """Runs a job on this machine until it ends or the sweep's stop file appears -> exit code."""
    folder, stopping = Path(sweep), False
    if not folders.is_sweep(folder):
        where = os.uname().nodename if hasattr(os, "uname") else "this machine"
        raise ThespisError(f"{sweep} cannot be read on {where}: put it where all machines see it")
    if (folder / folders.STOP).exists():
        return STOPPED
    process = start(folder, name, trusted, cwd if os.path.isdir(cwd) else None)
    try:
        while process.poll() is None:
            if not stopping and (folder / folders.STOP).exists():
                stopping = True
                process.send_signal(signal.SIGINT)
            time.sleep(POLL)
    finally:
        if process.poll() is None:  # this was interrupted: let it save
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
    return int(process.returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
