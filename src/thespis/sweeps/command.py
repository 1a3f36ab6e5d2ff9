"""A job as the command `thespis train`, to paste into a shell."""

from __future__ import annotations

import shlex
from typing import Any

from thespis.sweeps.plan import Job
from thespis.values import show

SHARED = ("threads", "devices")  # 1 by default, since a sweep runs several jobs at a time


def words(job: Job) -> list[str]:
    """Returns the words of the command that follow `thespis`."""
    command = ["train", job.algo, "--env", job.env]
    for name, value in job.options.items():
        if value is None or (name in SHARED and value == 1):
            continue
        command += option(name, value)
    return command


def option(name: str, value: Any) -> list[str]:
    """Returns an option with its value, as words of the command."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, list | tuple):
        return [f"--{flag}", *(show(x) for x in value)]
    return [f"--{flag}", repr(value) if isinstance(value, float) else str(value)]


def line(job: Job) -> str:
    return shlex.join(["thespis", *words(job)])
