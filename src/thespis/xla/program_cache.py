"""A cache of compiled programs on disk, by what they are made of.

`jax.jit` has to trace and lower a function before it can look it up in its cache, which takes
longer than all else that a run does before its first update. The command `thespis` need not do
so: Thespis's source, the loop and the types of the arguments determine a program. In Python any
of it may have been patched; there, and for code of users, only `jax.jit` is used.

A cached program is machine code, which JAX unpickles and runs. So it is fetched only from a
folder, and a file, to which only this user may write (private_files.py).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import pickle
import platform
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jaxlib
import numpy as np
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from thespis.xla import compile_cache, private_files, threads
from thespis.xla.compile_times import FETCHED, KEPT

SIMULATORS = ("brax", "mujoco", "mujoco-mjx", "playground")  # packages whose tasks are cached
VERSIONED = {"builtins", "fractions", "jax", "jaxlib", "ml_dtypes", "numpy", "thespis"}
VERSIONED |= {"brax", "mujoco_playground"}  # modules whose code is determined by their version
EXCLUDED = {"cli", "export", "report"}  # packages that have no cached programs
SHORTEST = "jax_persistent_cache_min_compile_time_secs"


def compiled(f: Callable, made_of: Any, **options: Any) -> Callable:
    """Returns `jax.jit(f)`, cached on disk if `made_of`, which determines f, is known code."""
    recipe = recipe_of(made_of) if compile_cache.keeping and cache_folder() else None
    return jax.jit(f, **options) if recipe is None else CachedProgram(f, recipe, options)


def cache_folder() -> Path | None:
    """Returns the folder of the cache; None if it is off, or if several processes train."""
    folder = jax.config.jax_compilation_cache_dir  # type: ignore
    on = jax.config.jax_enable_compilation_cache and jax.default_backend() == "cpu"  # type: ignore
    local = folder and "://" not in folder and threads.process_index_and_count() == (0, 1)
    return Path(folder) if on and local and compile_cache.believed(folder) else None


class CachedProgram:
    """A function whose programs are fetched or compiled at the first call with their types."""

    def __init__(self, f: Callable, recipe: bytes, options: dict[str, Any]):
        self.f, self.name, self.recipe, self.options = f, f.__name__, recipe, options
        self.known: dict[Path, Callable] = {}
        self.latest: Callable | None = None

    def __call__(self, *args):
        if self.latest is None:
            self.latest = self.program(args)
        try:
            return self.latest(*args)
        except TypeError:  # arguments of other types, before anything has run
            self.latest = self.program(args)
            return self.latest(*args)

    def program(self, args: tuple) -> Callable:
        file = self.file(args)
        if file not in self.known:
            self.known[file] = self.fetch(file, args) or self.compile(file, args)
        return self.known[file]

    def file(self, args: tuple) -> Path:
        types = [str(jax.typeof(x)) for x in jax.tree.leaves(args)], str(jax.tree.structure(args))
        call = repr((self.name, types, self.options)).encode()
        digest = hashlib.sha256(b"".join([self.recipe, call, settings(), source()]))
        return cache_folder() / f"thespis-{self.name}-{digest.hexdigest()}"  # type: ignore

    def fetch(self, file: Path, args: tuple) -> Callable | None:
        began = time.monotonic()
        try:
            program, result = pickle.loads(private_files.read(file))
            trees = jax.tree.structure((args, {})), jax.tree.structure(result)
            loaded = deserialize_and_load(program, *trees, execution_devices=jax.devices()[:1])
        except Exception:  # missing, damaged, or made for another machine: compile it again
            return None
        spent = time.monotonic() - began
        jax.monitoring.record_event_duration_secs(FETCHED, spent, fun_name=self.name)
        return loaded

    def compile(self, file: Path, args: tuple) -> Callable:
        """Compiles without JAX's own cache, whose programs cannot be serialised again."""
        kept = lambda *args: self.f(*args)
        kept.__name__ = KEPT + self.name
        shortest = getattr(jax.config, SHORTEST)
        jax.config.update(SHORTEST, float("inf"))
        try:
            program = jax.jit(kept, **self.options).lower(*args).compile()
            binary, _, structure = serialize(program)
            result = jax.tree.unflatten(structure, range(structure.num_leaves))
            written = io.BytesIO()
            Result(written).dump((binary, result))
            private_files.write(file, written.getvalue())
            return program
        except (NotImplementedError, OSError, ValueError, pickle.PicklingError):
            return jax.jit(self.f, **self.options)  # not written; JAX's own cache may have it
        finally:
            jax.config.update(SHORTEST, shortest)


class Result(pickle.Pickler):
    """Pickles a program and its result; Equinox's sentinel stays a singleton."""

    def reducer_override(self, obj):
        kind = type(obj)
        sentinel = kind.__name__ == "_Missing" and kind.__module__.startswith("equinox.")
        return "MISSING" if sentinel else NotImplemented


# --- what a program is made of --------------------------------------------------------------


class Foreign(Exception):
    """Code that may change without a new version."""


class Recipe(pickle.Pickler):
    """Pickles objects of known classes and functions only."""

    def reducer_override(self, obj):
        code = isinstance(obj, type) or hasattr(obj, "__code__")
        if code and obj.__module__.partition(".")[0] not in VERSIONED:
            raise Foreign
        return NotImplemented


def recipe_of(made_of: Any) -> bytes | None:
    """Returns bytes that determine it, the same in every process; None if it has unknown code.

    Objects that find code by its name (a descriptor, an environment of Brax) must hold the code
    itself, since a name does not tell whether it has changed.
    """
    written = io.BytesIO()
    try:
        Recipe(written).dump(made_of)
    except (AttributeError, Foreign, TypeError, pickle.PicklingError):
        return None
    return written.getvalue()


def version(package: str) -> str | None:
    """Returns the version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def settings() -> bytes:
    """Returns the settings of JAX and XLA, and the machine's instructions."""
    versions = [module.__version__ for module in (jax, jaxlib, eqx, np)]
    versions += map(version, SIMULATORS)
    flags = sorted(jax.config.values.items(), key=lambda flag: flag[0])
    known = [os.environ.get(name) for name in ("XLA_FLAGS", "NPROC")]
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [platform.processor()]
    cpu = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    here = [platform.python_version(), platform.machine(), threads.cores(), sorted(cpu)]
    return repr([versions, flags, known, here]).encode()


@cache
def source() -> bytes:
    """Returns a digest of the source that programs are made from."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).parts[0] not in EXCLUDED:
            digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    return digest.digest()
