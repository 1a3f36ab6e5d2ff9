"""The folder in which compiled programs are kept between processes. It does not import JAX."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from thespis.xla import private_files

keeping = False  # whether this process is the command, whose programs program_cache.py may keep


def use_cache() -> None:
    """Keeps compiled programs on disk between processes, unless the user chose a place already.

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
    """Tells whether programs may be fetched from here; one line says why not."""
    if "://" in folder:  # not on this machine: whoever named it knows who may write there
        return True
    why = private_files.complaint(Path(folder).absolute())
    if why:
        advice = "let only yourself write there, or name another with JAX_COMPILATION_CACHE_DIR"
        private_files.say(f"compiled programs are not kept in {folder}: {why}; {advice}")
    return why is None
