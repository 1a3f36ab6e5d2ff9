"""How many threads and devices XLA gets, and which of several processes this is.

JAX reads these settings once, when it starts. So this module does not import it: the command line
decides first and imports JAX afterwards.
"""

from __future__ import annotations

import os
import sys
from typing import Literal

from thespis.errors import ThespisError

Device = Literal["auto", "cpu", "gpu", "tpu"]

DEVICES = "--xla_force_host_platform_device_count"
WIDE = 128  # width of layers from which several threads are faster than one
MOST = 4096  # threads or devices: XLA would try to make any number


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(hidden: tuple[int, ...]) -> int:
    """Returns the number of threads: one for narrow networks, which are slower with more."""
    return cores() if max(hidden, default=0) >= WIDE else 1


def even_share(members: int, most: int) -> int:
    """Returns the largest number of devices, up to `most`, that divides the members evenly."""
    return max(n for n in range(1, max(min(members, most), 1) + 1) if members % n == 0)


def set_threads(threads: int, devices: int = 1) -> bool:
    """Sets the size of XLA's thread pool; returns False if JAX has started with another one.

    The CPU is divided into `devices`, on which members run at the same time.
    """
    for name, number in (("threads", threads), ("devices", devices)):
        if number > MOST:  # the config of somebody else's run may hold anything
            raise ThespisError(f"{name} = {number}: give at most {MOST}")
    if started():
        return os.environ.get("NPROC", str(cores())) == str(threads)
    os.environ["NPROC"] = str(threads)
    if devices > 1 and DEVICES not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}={devices}".strip()
    return True


def choose_device(kind: Device) -> None:
    """Starts JAX on this kind of device, or raises an error; `auto` leaves it to JAX."""
    if kind == "auto":
        return
    import jax

    before = started()
    if kind == "cpu" and not before:
        jax.config.update("jax_platforms", "cpu")
    try:
        backend = jax.default_backend()
    except (AssertionError, RuntimeError):  # JAX_PLATFORMS names one that is not installed
        backend = None
    if backend == kind:
        return
    if before:
        raise ThespisError(
            f"device = {kind}: JAX has started on {backend}; call it before any other function of "
            "JAX, or use the command line"
        )
    raise ThespisError(
        f"device = {kind}: JAX finds none here; install it for one (docs/accelerators.md), check "
        "JAX_PLATFORMS, or leave device out"
    )


def started() -> bool:
    """Tells whether JAX has initialised its devices, after which settings have no effect."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def process_index_and_count() -> tuple[int, int]:
    """Returns the number of this process, and how many train together (see xla/multihost.py)."""
    distributed = sys.modules.get("jax._src.distributed")
    state = distributed and distributed.global_state
    return (state.process_id, state.num_processes) if state and state.client else (0, 1)
