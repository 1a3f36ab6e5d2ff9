"""The machine: how many threads XLA gets, the compilation cache, and what compiling cost.

JAX reads the first of these once, when it starts. So this module does not import it: the
command line decides first and imports JAX afterwards.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from thespis import private
from thespis.errors import ThespisError

DEVICES = "--xla_force_host_platform_device_count"
WIDE = 128  # layers narrower than this lose more by sharing a product than they gain
MOST = 4096  # threads or devices: XLA would try to make as many as it is told
FETCHED, KEPT = "/thespis/fetch_duration", "kept_"  # an event, and names of programs.py's programs

keeping = False  # whether this process is the command, so that programs.py may keep programs


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(hidden: tuple[int, ...]) -> int:
    """Small products crawl when many threads share them; wide ones gain."""
    return cores() if max(hidden, default=0) >= WIDE else 1


def even_share(members: int, most: int) -> int:
    """The largest number of devices up to `most` that members are split over evenly."""
    return max(n for n in range(1, max(min(members, most), 1) + 1) if members % n == 0)


def set_threads(threads: int, devices: int = 1) -> bool:
    """Give XLA's pool this many threads; False if JAX has started with another number.

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


def started() -> bool:
    """Whether JAX has made its devices, after which nothing about them can be changed."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def together() -> tuple[int, int]:
    """This process's number, and how many train together (see hosts.py)."""
    distributed = sys.modules.get("jax._src.distributed")
    known = distributed and distributed.global_state
    return (known.process_id, known.num_processes) if known and known.client else (0, 1)


def use_cache() -> None:
    """Keep compiled programs on disk between processes, unless the user chose a place already.

    They are run as code, by JAX too: where others may write, nothing is kept and fetched.
    """
    import jax

    chosen = jax.config.jax_compilation_cache_dir  # type: ignore
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = chosen or str(home / "thespis" / "jax")
    if believed(folder):
        if chosen is None:
            os.chmod(folder, 0o700)
            jax.config.update("jax_compilation_cache_dir", folder)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    elif chosen and keeping:  # who calls JAX from Python has agreed with JAX on a place
        jax.config.update("jax_enable_compilation_cache", False)


@cache
def believed(folder: str) -> bool:
    """Whether programs may be fetched from here; one line says why not."""
    if "://" in folder:  # not on this machine: whoever named it knows who may write there
        return True
    why = private.complaint(Path(folder).absolute())
    if why:
        advice = "let only yourself write there, or name another with JAX_COMPILATION_CACHE_DIR"
        private.say(f"compiled programs are not kept in {folder}: {why}; {advice}")
    return why is None


class Ledger:
    """Seconds spent compiling (or fetching what was compiled before), by program."""

    def __init__(self):
        import jax

        self.programs: dict[str, float] = {}
        jax.monitoring.register_event_duration_secs_listener(self.note)

    @property
    def seconds(self) -> float:
        return sum(self.programs.values())

    def note(self, event: str, duration_secs: float, **more: str | int) -> None:
        compiling = "/backend_compile_duration", "/jaxpr_to_mlir_module_duration", FETCHED
        if event.endswith(compiling):
            name = str(more.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
            name = name.removeprefix(KEPT) or "others"
            self.programs[name] = self.programs.get(name, 0.0) + duration_secs

    def close(self) -> None:
        import jax

        jax.monitoring.unregister_event_duration_listener(self.note)
