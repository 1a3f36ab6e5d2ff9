"""Executors run the jobs of a sweep: as processes of this machine, on Ray, or on Slurm."""

from __future__ import annotations

import math
import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from thespis.cluster.connect import connect, nodes
from thespis.errors import ThespisError, one_line, require, shown
from thespis.runs import files
from thespis.sweeps import folder as folders
from thespis.sweeps import job as jobs
from thespis.xla.threads import cores

Name = Literal["local", "ray", "slurm"]
QUEUE_MINUTES = 24 * 60  # default time limit of a job on Slurm
QUEUED = 1000  # default number of jobs on Slurm at a time


@runtime_checkable
class Executor(Protocol):
    """Runs jobs by their names, several at a time."""

    @property
    def slots(self) -> int:
        """Returns how many jobs may run at a time now."""
        ...

    def start(self, name: str) -> None:
        """Starts a job; an error means that no more are taken at present."""
        ...

    def ended(self) -> dict[str, int]:
        """Returns the jobs that have ended since the last call, with their exit codes."""
        ...

    def stop(self) -> None:
        """Asks all jobs to save and end."""
        ...

    def close(self) -> None:
        """Frees its resources, once all jobs have ended."""
        ...


class Local:
    """Runs every job in a process of this machine, by default as many at a time as cores allow."""

    def __init__(self, folder: Path, size: int, most: int | None, trusted: bool):
        self.folder, self.trusted = folder, trusted
        self.slots = most or max(1, cores() // size)
        self.processes: dict[str, Any] = {}

    def start(self, name: str) -> None:
        self.processes[name] = jobs.start(self.folder, name, self.trusted)

    def ended(self) -> dict[str, int]:
        codes = {name: process.poll() for name, process in self.processes.items()}
        codes = {name: code for name, code in codes.items() if code is not None}
        for name in codes:
            self.processes.pop(name).stdin.close()
        return codes

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)

    def close(self) -> None:
        self.stop()
        for process in self.processes.values():
            process.wait()


class Remote:
    """The base of executors on other machines, whose jobs are stopped by a file."""

    def __init__(self, folder: Path):
        self.folder = folder.absolute()
        self.running: dict[str, Any] = {}

    def stop(self) -> None:
        files.write(self.folder / folders.STOP, b"")

    def exit_code(self, handle: Any) -> int | None:
        """Returns the exit code of a job; None while it runs."""
        raise NotImplementedError

    def ended(self) -> dict[str, int]:
        codes = {name: self.exit_code(handle) for name, handle in self.running.items()}
        codes = {name: code for name, code in codes.items() if code is not None}
        for name in codes:
            del self.running[name]
        return codes

    def close(self) -> None:
        if self.running:
            self.stop()
        while self.running:
            self.ended()
            time.sleep(jobs.POLL)


class Ray(Remote):
    """Runs every job as a task on a cluster, which may grow and shrink; lost tasks are retried."""

    def __init__(
        self, folder: Path, size: int, most: int | None, trusted: bool, address: str | None
    ):
        super().__init__(folder)
        with ExitStack() as stack:
            self.ray, self.size, self.most = stack.enter_context(connect(address)), size, most
            largest = max((x["Resources"].get("CPU", 0) for x in nodes(self.ray)), default=0)
            require(
                size <= largest,
                f"a job takes {size} CPU(s), and the largest node of Ray has {largest:g}: give "
                "fewer threads and devices, or add larger nodes first",
            )
            self.connection = stack.pop_all()
        self.end: float | None = None  # of the time in which running tasks save, once stopped
        self.arguments = trusted, os.getcwd()
        task = self.ray.remote(jobs.supervise)
        self.task = task.options(num_cpus=size, max_retries=3, name="thespis sweep")

    @property
    def slots(self) -> int:
        available = int(self.ray.cluster_resources().get("CPU", 0)) // self.size
        return self.most or max(1, available)

    def close(self) -> None:
        with self.connection:
            super().close()

    def start(self, name: str) -> None:
        self.running[name] = self.task.remote(str(self.folder), name, *self.arguments)

    def stop(self) -> None:
        """Cancels tasks that wait for a place, which may never come; running ones save first."""
        super().stop()
        begun = lambda name: folders.file_of(self.folder, name, "log").exists()
        self.cancel([name for name in self.running if not begun(name)])
        self.end = self.end or time.monotonic() + jobs.PATIENCE

    def ended(self) -> dict[str, int]:
        if self.end is not None and time.monotonic() > self.end:
            self.cancel(list(self.running))
            self.end = math.inf
        return super().ended()

    def cancel(self, names: list[str]) -> None:
        for name in names:
            self.ray.cancel(self.running[name])

    def exit_code(self, handle: Any) -> int | None:
        if not self.ray.wait([handle], timeout=0)[0]:
            return None
        try:
            return int(self.ray.get(handle))
        except self.ray.exceptions.TaskCancelledError:
            return jobs.STOPPED
        except self.ray.exceptions.RayError as error:
            name = next(name for name, other in self.running.items() if other is handle)
            cause = getattr(error, "cause", None) or error
            folders.note_failure(self.folder, name, one_line(cause)[:1000])
            return 1


class Task:
    """A job on Slurm, which resumes by itself if it is interrupted and queued again."""

    def __init__(self, *arguments: Any):
        self.arguments = arguments

    def __call__(self) -> int:
        return jobs.supervise(*self.arguments)

    def checkpoint(self) -> Any:
        import submitit  # pyright: ignore[reportMissingImports]

        return submitit.helpers.DelayedSubmission(self)


@contextmanager
def without_current_folder() -> Iterator[None]:
    """Lets Python processes that are started now find no modules in the current folder.

    A file there could stand in for a library; modules that users name are found nevertheless.
    """
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


class Slurm(Remote):
    """Submits every job to Slurm, by submitit with these parameters."""

    def __init__(
        self, folder: Path, size: int, most: int | None, trusted: bool, parameters: dict[str, Any]
    ):
        super().__init__(folder)
        try:
            import submitit  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ThespisError(
                "executor = slurm needs a library: pip install 'thespis[slurm]'"
            ) from None
        self.slots, self.arguments = most or QUEUED, (trusted, os.getcwd())
        parameters = {"timeout_min": QUEUE_MINUTES, "cpus_per_task": size} | parameters
        cluster = parameters.pop("cluster", "slurm")
        # Jobs unpickle what is in its folder, so it is a new one that only this user writes to.
        place = files.inside(self.folder, "slurm") / secrets.token_hex(8)
        with files.writing(place):
            place.mkdir(0o700, parents=True)
        try:
            self.executor = submitit.AutoExecutor(place, cluster=cluster)
            self.executor.update_parameters(**parameters)
        except (NameError, TypeError, ValueError, RuntimeError, AssertionError) as error:
            raise ThespisError(f"slurm: {one_line(error)}") from error

    def start(self, name: str) -> None:
        task = Task(str(self.folder), name, *self.arguments)
        try:
            with without_current_folder():
                self.running[name] = self.executor.submit(task)
        except (RuntimeError, OSError) as error:  # too many jobs at once, a wrong partition, ...
            raise ThespisError(f"slurm takes no job: {shown(one_line(error))}") from error

    def stop(self) -> None:
        super().stop()
        for handle in self.running.values():
            if handle.state == "PENDING":
                handle.cancel(check=False)

    def exit_code(self, handle: Any) -> int | None:
        return 0 if handle.done() else None


def executor_of(
    name: Name,
    folder: Path,
    size: int,
    most: int | None,
    trusted: bool,
    address: str | None,
    slurm: dict[str, Any],
) -> Executor:
    """Returns the executor of this name, for jobs of `size` cores, at most `most` at a time."""
    if name == "ray":
        return Ray(folder, size, most, trusted, address)
    if name == "slurm":
        return Slurm(folder, size, most, trusted, slurm)
    return Local(folder, size, most, trusted)
