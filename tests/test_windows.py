"""Thespis without what only POSIX has. It has never been run on Windows itself."""

import json
import os
import subprocess
import sys
import textwrap

# What follows is hidden from the code of Thespis alone: other libraries know what they run on.
WITHOUT = """
    import builtins, importlib, os, pkgutil, signal, sys, types
    from pathlib import Path

    MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
    NAMES = {
        os: "O_CLOEXEC O_NOFOLLOW O_NONBLOCK fork geteuid getloadavg getuid killpg mkfifo"
            " sched_getaffinity setsid statvfs sysconf uname",
        signal: "SIGALRM SIGHUP SIGKILL SIGUSR1 alarm pthread_sigmask setitimer",
    }
    real_import = builtins.__import__

    def ours(depth):
        return sys._getframe(depth).f_globals.get("__name__", "").partition(".")[0] == "thespis"

    def hiding(name, *rest, **more):
        if name.partition(".")[0] in MODULES and ours(2):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name == "msvcrt" and ours(2):
            return types.SimpleNamespace(LK_NBLCK=2, locking=lambda *given: taken.append(given))
        return real_import(name, *rest, **more)

    class Hiding(types.ModuleType):
        def __getattribute__(self, name):
            if name in object.__getattribute__(self, "hidden") and ours(2):
                raise AttributeError(name)
            return super().__getattribute__(name)

    taken = []
    for module, names in NAMES.items():
        module.hidden = set(names.split())
        module.__class__ = Hiding
    builtins.__import__ = hiding
"""
IMPORT = """
    import thespis
    from thespis.runs import locks

    for found in pkgutil.walk_packages(thespis.__path__, "thespis."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    assert not locks.POSIX
    assert thespis.runs.sizes.memory() == 2**63
    assert thespis.xla.private_files.complaint(Path("kept").absolute()) is None
    assert thespis.xla.private_files.CAREFUL == 0
    code = thespis.cli.main(sys.argv[1:])
    assert taken  # the run was locked
    sys.exit(code)
"""


def test_every_module_is_imported_and_a_run_trained_without_what_windows_lacks(tmp_path):
    options = (
        "--env jax:pendulum --steps 20 --hidden 4 --updates-per-step 0 --eval-episodes 1 --json"
    )
    code = textwrap.dedent(WITHOUT) + textwrap.dedent(IMPORT)
    command = [sys.executable, "-c", code, "train", "sac", *options.split()]
    env = os.environ | {"TMPDIR": str(tmp_path)}  # of the lock
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.glob("runs/sac/*")
    assert json.loads((run / "status.json").read_text())["state"] == "done"
