"""Several processes, on one host or many, that train one population together.

Each process has the members of its own devices, and steps their environments. All run the same
code and make the same decisions; only process 0 writes files and reports.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from thespis.errors import ThespisError
from thespis.xla import threads

WATCH, FAREWELL = "thespis/watch", b"."  # key of process 0's port, and the last byte that is sent
GONE = "another process has ended or cannot be reached: see what it said, then resume"
SOON = 5.0  # seconds in which a broken connection is noticed
BLOCK = 2**26  # bytes of one process that are sent to the others at a time


def join(
    coordinator: str,
    processes: int | None = None,
    process: int | None = None,
    wait: int = 120,
) -> None:
    """Connects to the other processes at HOST:PORT of process 0, before JAX starts.

    With "auto" as the address, all settings come from Slurm, Open MPI or Kubernetes. If not all
    have joined after `wait` seconds, the process ends with one line and exit code 2.
    """
    if threads.started():
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
    with timeout_guard(wait, where, process, processes):
        try:
            devices = None
            if auto:
                coordinator, processes, process, devices = launched(processes, process, wait)
            jax.distributed.initialize(
                coordinator if process == 0 else relay(coordinator),
                processes,
                process,
                devices,
                cluster_detection_method="deactivate",
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
        watch_others(coordinator)


def launched(processes: int | None, process: int | None, wait: int) -> tuple[str, int, int, Any]:
    """Returns coordinator, number of processes, number of this one, and devices of a launcher."""
    from jax._src.clusters import ClusterEnv  # `initialize` asks it too late for `relay`

    settings = os.environ.get("JAX_COORDINATOR_ADDRESS"), processes, process, None, None, wait + 60
    address, count, number, devices = ClusterEnv.auto_detect_unset_distributed_params(*settings)
    if address is None or count is None or number is None:
        raise ValueError("no launcher")
    return address, count, number, devices


@contextmanager
def timeout_guard(
    wait: int, where: str, process: int | None, processes: int | None
) -> Iterator[None]:
    """Ends the process if the block takes too long, since JAX itself waits for ever."""

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
    """Ends this process at once if there are others, whose connections break: they end, too."""
    if several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# --- processes that die ---------------------------------------------------------------------


def relay(coordinator: str) -> str:
    """Returns an address on this host that forwards all data to the coordinator, and back.

    XLA aborts when its connection to process 0 breaks. The one to this address does not break, so
    that `watch` can end the process with a message.
    """
    server = socket.create_server(("127.0.0.1", 0))

    def forward(source: socket.socket, target: socket.socket, last: bool) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)
            if last:
                target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        while True:
            near, _ = server.accept()
            try:
                far = socket.create_connection(host_and_port(coordinator))
            except OSError:  # it has not started yet: XLA tries again
                near.close()
                continue
            for ends in ((near, far, True), (far, near, False)):
                threading.Thread(target=forward, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


def host_and_port(address: str, other_port: str = "") -> tuple[str, int]:
    """Splits HOST:PORT; another port may replace that of the address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(other_port or port)


def watch_others(coordinator: str) -> None:
    """Connects process 0 with every other one: when a connection breaks, a process has died.

    XLA notices that after a minute, and aborts with a trace of its own; the operating system
    notices at once. A process that has done its work sends a farewell.
    """
    from jax._src.distributed import global_state

    client: Any = global_state.client
    if leads():
        server = socket.create_server(("", 0), backlog=global_state.num_processes)
        password = secrets.token_hex(16)
        client.key_value_set(WATCH, f"{server.getsockname()[1]} {password}")
        missing = global_state.num_processes - 1
        while missing:
            connection, _ = server.accept()
            if received(connection, len(password)) == password.encode():
                connection.sendall(FAREWELL)  # lets the other process go on
                watch(connection)
                missing -= 1
            else:
                connection.close()
        server.close()
    else:
        port, password = client.blocking_key_value_get(WATCH, 10**6).split()
        connection = socket.create_connection(host_and_port(coordinator, port))
        connection.sendall(password.encode())
        received(connection, len(FAREWELL))
        watch(connection)


def watch(connection: socket.socket) -> None:
    """Ends this process when the connection breaks without a farewell."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # to notice a host that no longer answers
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def listen() -> None:
        if received(connection, len(FAREWELL)) != FAREWELL:
            time.sleep(SOON / 5)  # an error of this process itself is printed instead
            print(f"thespis: {GONE}", file=sys.stderr, flush=True)
            os._exit(2)

    threading.Thread(target=listen, daemon=True).start()
    atexit.register(say_farewell, connection)


def say_farewell(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.sendall(FAREWELL)


def received(connection: socket.socket, size: int) -> bytes:
    """Returns the next `size` bytes; fewer if the connection breaks."""
    data = b""
    with suppress(OSError):
        while len(data) < size and (more := connection.recv(size - len(data))):
            data += more
    return data


# --- which process this is ------------------------------------------------------------------


def several() -> bool:
    """Tells whether several processes train together."""
    return threads.process_index_and_count()[1] > 1


def leads() -> bool:
    """Tells whether this is the process that writes and reports."""
    return threads.process_index_and_count()[0] == 0


# --- communication --------------------------------------------------------------------------


def collective(f: Callable, *args: Any, **options: Any) -> Any:
    """Calls f in all processes at once; if one of them is gone, an error says so."""
    if not several():
        return f(*args, **options)
    try:
        with quiet():
            return jax.block_until_ready(f(*args, **options))
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if isinstance(error, ValueError) and "gloo" not in str(error).lower():
            raise
        time.sleep(SOON)  # until `watch` ends this process with one line
        raise ThespisError(GONE) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Hides what libraries print about their connections."""
    sys.stdout.flush()
    stdout, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(null)


def read(tree: Any) -> Any:
    """Returns a tree as NumPy arrays, whole in every process."""
    return jax.tree.map(_read_leaf, tree)


def _read_leaf(x: Any) -> np.ndarray:
    from jax.experimental.multihost_utils import process_allgather

    split = isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated)
    return collective(process_allgather, x, tiled=True) if split else np.asarray(x)


def gather(tree: Any) -> Any:
    """Joins the NumPy leaves of each process's members: [members, ...]."""
    return from_all(tree, tiled=True)


def of_leader(tree: Any) -> Any:
    """Returns the values of process 0, since rounding may differ between hosts."""
    return jax.tree.map(lambda x: x[0], from_all(tree)) if several() else tree


def from_all(tree: Any, tiled: bool = False) -> Any:
    """Returns the NumPy leaves of all processes: stacked, or concatenated if `tiled`."""
    from jax.experimental.multihost_utils import process_allgather

    if not several():
        return jax.tree.map(lambda x: np.asarray(x) if tiled else np.asarray(x)[None], tree)
    tree = jax.tree.map(np.asarray, tree)
    return collective(process_allgather, tree, tiled=tiled)


@dataclass(frozen=True)
class Rows:
    """The first rows of an array that may be split over processes, to write them to a file."""

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
        """Yields all rows in blocks, so that there is never a second copy of all."""
        length = self.array.shape[0]
        size = min(length, max(1, BLOCK * self.rows // max(self.nbytes, 1)))
        if isinstance(self.array, jax.Array) and not self.array.is_fully_addressable:
            for start in range(0, self.rows, size):
                # The last block is as long as the others, so that one program serves them all.
                first = min(start, length - size)
                block = read(jax.lax.dynamic_slice_in_dim(self.array, first, size))
                yield block[start - first :][: self.rows - start]
            return
        parts = parts_of(self.array)
        for start in range(0, self.rows, size):
            rows = [part[start : min(start + size, self.rows)] for part in parts]
            yield rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)


def parts_of(array: Any) -> list[np.ndarray]:
    """Returns the parts of an array, split along its second axis, on the devices of this process.

    On a CPU nothing is copied, unlike by `np.asarray` of the whole.
    """
    if not isinstance(array, jax.Array) or array.is_fully_replicated:
        return [np.asarray(array)]
    shards = sorted(array.addressable_shards, key=lambda shard: shard.index[1].start or 0)
    return [np.asarray(shard.data) for shard in shards]
