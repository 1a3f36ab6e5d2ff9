"""Every test runs on one CPU thread, under JAX's strict rules and with types checked.

The settings are environment variables so that commands started by tests obey them too. They
must stand before JAX and Thespis are first imported, hence at the top of this file.
"""

import atexit
import ctypes
import gc
import mmap
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from functools import lru_cache, partial
from pathlib import Path

ROOT = Path(__file__).parents[1]

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["JAX_DEBUG_KEY_REUSE"] = "1"  # sees jax.random.key, not the older PRNGKey
os.environ["MPLBACKEND"] = "Agg"
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"  # nobody is there: no test asks the real hub
os.environ["IMAGEIO_FFMPEG_NO_PREVENT_SIGINT"] = "1"  # else it forks, which JAX warns of
os.environ.setdefault("NPROC", "1")  # XLA's threads: the cores are shared by pytest's workers
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="thespis-tests-")  # records of runs
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# Tests interrupt commands, and shells let what they start in the background ignore that.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.fsync = os.fstat  # refuses what is no open file, but waits for no disk

gc.set_threshold(100_000, 20, 50)  # JAX keeps much alive, and looking at it takes long

import jax  # noqa: E402
import pytest  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402

from tests import typecheck  # noqa: E402

typecheck.install("thespis")

# JAX makes a context for every program, which takes longer than to lower most of those in tests.
mlir.make_ir_context = lru_cache(maxsize=1)(mlir.make_ir_context)

NPROC = os.environ["NPROC"]
jax.devices()  # starts JAX with these settings, before a command that is tested chooses others

pytest_plugins = ("tests.skilled",)  # fixtures that several folders share


# Freed memory goes back to the system; glibc does so only when asked.
libc = ctypes.CDLL(None) if sys.platform != "win32" else None
give_back = partial(getattr(libc, "malloc_trim", int), 0)
SOME, MUCH = 1000 * 10**6, 1300 * 10**6  # bytes


def pytest_runtest_teardown(item, nextitem):
    """Compiled programs are kept for other tests until they are too many."""
    os.environ["NPROC"] = NPROC  # what a test chose is not for the next one
    if nextitem is not None and resident() > (MUCH if nextitem.path == item.path else SOME):
        if small := sys.modules.get("tests.small"):
            small.forget()
        jax.clear_caches()
        mlir.make_ir_context.cache_clear()
        gc.collect()
        give_back()


# These take longest: begun last, one of them would leave the other worker without work.
LONGEST = (
    "faults/test_campaigns.py",
    "runs/test_tuning_rounds.py",
    "runs/test_trainer.py",
    "algos/test_switches.py",
    "algos/test_sqil.py",
    "algos/test_taac.py",
    "runs/test_callbacks.py",
    "test_api.py",
    "cluster/test_head.py",
    "cluster/test_workers.py",
    "cli/test_training.py",
    "engine/test_loop.py",
    "runs/test_expert.py",
    "algos/test_masac.py",
    "algos/test_dads.py",
    "xla/test_program_cache.py",
    "xla/test_multihost.py",
    "xla/test_placement.py",
    "runs/test_build.py",
)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(items):
    """Files that take long come first; the Makefile tells xdist to leave it at that.

    Of a test marked `cases(n)`, all but the first n cases are thorough.
    """
    counts = Counter()
    for item in items:
        if marker := item.get_closest_marker("cases"):
            test = item.path, item.originalname
            counts[test] += 1
            if counts[test] > marker.args[0]:
                item.add_marker(pytest.mark.thorough)
    if sys.platform == "win32":
        for item in items:
            if item.get_closest_marker("posix"):
                item.add_marker(pytest.mark.skip(reason="needs what POSIX has"))
    folder = Path(__file__).parent
    place = {folder / name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish():
    """What is imported stays: there is no need to look through it for garbage again and again."""
    gc.freeze()


def resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not tell."""
    file = Path("/proc/self/statm")
    return int(file.read_text().split()[1]) * mmap.PAGESIZE if file.exists() else 0


@pytest.fixture
def undrawn(monkeypatch):
    """Plots are made, but their files stay empty: for tests that look at none."""
    empty = lambda figure, path, **given: path.touch()
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", empty)


@pytest.fixture(scope="module")
def kept():
    """Programs are kept as the command keeps them: for tests that train alike, again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.xla.compile_cache.keeping", True)
        yield
