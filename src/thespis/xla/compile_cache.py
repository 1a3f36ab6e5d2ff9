"""The folder of the compilation cache. This module does not import JAX."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from thespis.xla import private_files

keeping = False  # whether this process is the command, whose programs program_cache.py may cache


def use_cache() -> None:
    """Caches compiled programs on disk, unless the user has chosen a folder already.

    Programs from the cache are run as code, so a folder that others may write to is not used.
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
    elif chosen and keeping:  # from Python, the folder is the caller's own choice
        jax.config.update("jax_enable_compilation_cache", False)


@cache
def believed(folder: str) -> bool:
    """Tells whether programs may be fetched from a folder; if not, prints why."""
    if "://" in folder:  # on another machine: the user knows who may write there
        return True
    why = private_files.complaint(Path(folder).absolute())
    if why:
        advice = "let only yourself write there, or name another with JAX_COMPILATION_CACHE_DIR"
        private_files.say(f"compiled programs are not kept in {folder}: {why}; {advice}")
    return why is None
