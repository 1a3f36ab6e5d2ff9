"""Code in a Python of its own, for what is decided when a process starts."""

import os
import subprocess
import sys


def python(code: str, **environment) -> list[str]:
    """Run code in a new Python -> the words that it prints. None removes a variable."""
    code = f"import os; from thespis.xla import compile_cache, threads; {code}"
    env = {k: v for k, v in (os.environ | environment).items() if v is not None}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
