"""Several processes, on one host or many, that train one population together.

Each process has the members of its own devices and steps their environments. All run the same
code and decide the same; process 0 leads: it alone writes files and speaks.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from thespis import machine
from thespis.errors import ThespisError

BLOCK = 2**26  # bytes of one process that cross to the others at a time


def join(
    coordinator: str,
    processes: int | None = None,
    process: int | None = None,
    wait: int = 120,
) -> None:
    """Meet the other processes at HOST:PORT of process 0, before JAX starts.

    With "auto" as address all else is what Slurm, Open MPI or Kubernetes tell. Whoever waits in
    vain for so many seconds ends with one line, and exit code 2.
    """
    if machine.started():
        raise ThespisError("JAX has started: call join before any other function of JAX")
    auto = coordinator == "auto"
    if not auto and None in (processes, process):
        raise ThespisError(
            f"coordinator = {coordinator} needs processes, and the process's own number from 0"
        )
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ThespisError(f"process = {process}: give a number from 0 to {processes - 1}")
    where = "the launcher's coordinator" if auto else coordinator
    if not auto and not coordinator.rpartition(":")[2].isdecimal():
        raise ThespisError(f"coordinator = {coordinator}: give HOST:PORT, or auto")
    address = None if auto else coordinator
    detect = None if auto else "deactivate"
    with patience(wait, where, process, processes):
        try:
            jax.distributed.initialize(
                address,
                processes,
                process,
                cluster_detection_method=detect,
                initialization_timeout=wait + 60,
                shutdown_timeout_seconds=60,
            )
        except ValueError as error:
            raise ThespisError(
                "coordinator = auto finds no launcher: start with srun, mpirun or Kubernetes, or "
                "give coordinator, processes and process"
            ) from error
        except jax.errors.JaxRuntimeError as error:
            text = " ".join(str(error).split())
            raise ThespisError(f"cannot meet at {where}: {text}; try another port") from error


@contextmanager
def patience(wait: int, where: str, process: int | None, processes: int | None) -> Iterator[None]:
    """End the process if the block takes too long: nothing else stops JAX from waiting."""

    def give_up() -> None:
        missing = f"not all {processes} processes came to" if process == 0 else "nobody answers at"
        text = f"{missing} {where} in {wait} s: check the address, the port and the other hosts"
        print(f"thespis: {text}", file=sys.stderr, flush=True)
        os._exit(2)

    timer = threading.Timer(wait, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def leave(code: int) -> None:
    """End at once if others train along: they would wait for this one, and so learn that it went.

    Alone, this does nothing.
    """
    if several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# --- who is who -----------------------------------------------------------------------------


def several() -> bool:
    return machine.together()[1] > 1


def leads() -> bool:
    """Whether this is the process that writes and speaks."""
    return machine.together()[0] == 0


# --- what crosses ---------------------------------------------------------------------------


def together(f: Callable, *args: Any, **choices: Any) -> Any:
    """What comes of f, in which all processes take part; an error if one of them is gone."""
    if not several():
        return f(*args, **choices)
    try:
        with quiet():
            return jax.block_until_ready(f(*args, **choices))
    except jax.errors.JaxRuntimeError as error:
        raise ThespisError(
            "another process has ended or cannot be reached: see what it said, then resume"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without what libraries print about their connections."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def read(tree: Any) -> Any:
    """All of it as NumPy arrays, in every process."""
    return jax.tree.map(_read_leaf, tree)


def _read_leaf(x: Any) -> np.ndarray:
    from jax.experimental.multihost_utils import process_allgather

    split = isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated)
    return together(process_allgather, x, tiled=True) if split else np.asarray(x)


def gather(tree: Any) -> Any:
    """What each process has of its own members, put together: NumPy leaves [members, ...]."""
    return from_all(tree, tiled=True)


def of_leader(tree: Any) -> Any:
    """What process 0 says, wherever rounding may differ between hosts."""
    return jax.tree.map(lambda x: x[0], from_all(tree)) if several() else tree


def from_all(tree: Any, tiled: bool = False) -> Any:
    """NumPy leaves of all processes, stacked, or as longer arrays."""
    from jax.experimental.multihost_utils import process_allgather

    if not several():
        return jax.tree.map(lambda x: np.asarray(x) if tiled else np.asarray(x)[None], tree)
    tree = jax.tree.map(np.asarray, tree)
    return together(process_allgather, tree, tiled=tiled)


@dataclass(frozen=True)
class Rows:
    """The first rows of an array that may be split over processes, to be written to a file."""

    array: Any
    rows: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, *self.array.shape[1:])

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows, a few at a time if they come from afar: nobody needs memory for all."""
        if not isinstance(self.array, jax.Array) or self.array.is_fully_addressable:
            yield np.asarray(self.array)[: self.rows]
            return
        length = self.array.shape[0]
        size = min(length, max(1, BLOCK * self.rows // max(self.nbytes, 1)))
        for start in range(0, self.rows, size):
            # The last block is as long as the others, so that one program serves for all.
            first = min(start, length - size)
            block = read(jax.lax.dynamic_slice_in_dim(self.array, first, size))
            yield block[start - first :][: self.rows - start]
