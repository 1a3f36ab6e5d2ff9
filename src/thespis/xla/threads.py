"""Threads and devices: how many XLA gets of this machine, and which process this is of several.

JAX reads these numbers once, when it starts. So this module does not import it: the command line
decides first and imports JAX afterwards.
"""

from __future__ import annotations

import os
import sys
from typing import Literal

from thespis.errors import ThespisError

Device = Literal["auto", "cpu", "gpu", "tpu"]

DEVICES = "--xla_force_host_platform_device_count"
WIDE = 128  # layers narrower than this lose more by sharing a product than they gain
MOST = 4096  # threads or devices: XLA would try to make as many as it is told


def cores() -> int:
    """Returns the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(hidden: tuple[int, ...]) -> int:
    """Returns one thread for narrow networks, which crawl when many share them, else all cores."""
    return cores() if max(hidden, default=0) >= WIDE else 1


def even_share(members: int, most: int) -> int:
    """Returns the largest number of devices up to `most` that members are split over evenly."""
    return max(n for n in range(1, max(min(members, most), 1) + 1) if members % n == 0)


def set_threads(threads: int, devices: int = 1) -> bool:
    """Gives XLA's pool this many threads; False if JAX has started with another number.

    A CPU counts as so many devices, on which members run at the same time.
    """
    for name, number in (("threads", threads), ("devices", devices)):
        if number > MOST:  # a run of somebody else may say anything
            raise ThespisError(f"{name} = {number}: give at most {MOST}")
    if started():
        return os.environ.get("NPROC", str(cores())) == str(threads)
    os.environ["NPROC"] = str(threads)
    if devices > 1 and DEVICES not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}={devices}".strip()
    return True


def choose_device(kind: Device) -> None:
    """Starts JAX on this kind of device, or refuses; `auto` leaves it to JAX."""
    if kind == "auto":
        return
    import jax

    before = started()
    if kind == "cpu" and not before:
        jax.config.update("jax_platforms", "cpu")
    try:
        found = jax.default_backend()  # else the best that it is installed for
    except (AssertionError, RuntimeError):  # JAX_PLATFORMS names what is not there
        found = None
    if found == kind:
        return
    if before:
        raise ThespisError(
            f"device = {kind}: JAX has started on {found}; call it before any other function of "
            "JAX, or use the command line"
        )
    raise ThespisError(
        f"device = {kind}: JAX finds none here; install it for one (docs/accelerators.md), check "
        "JAX_PLATFORMS, or leave device out"
    )


def started() -> bool:
    """Tells whether JAX has made its devices, after which nothing about them can be changed."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def process_index_and_count() -> tuple[int, int]:
    """Returns this process's number, and how many train together (see xla/multihost.py)."""
    distributed = sys.modules.get("jax._src.distributed")
    known = distributed and distributed.global_state
    return (known.process_id, known.num_processes) if known and known.client else (0, 1)
