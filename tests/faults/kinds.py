"""The runs that are attacked: small, and of every kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.faults.common import ROOT

SMALL: dict[str, Any] = {
    "steps": 300,
    "buffer-size": 150,
    "hidden": "8 8",
    "batch-size": 8,
    "learning-starts": 50,
    "eval-freq": 50,
    "eval-episodes": 2,
    "checkpoint-freq": 50,
}

# Algorithm and options; whether going on after a stop is bit for bit (JAX environments).
KINDS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "one agent": ("sac", {"env": "jax:pendulum"}, True),
    "several seeds": ("td3", {"env": "jax:mountain-car", "seeds": "0-1", "devices": 1}, True),
    "a population": (
        "td3",
        {"env": "jax:pendulum", "members": 4, "pbt.interval": 50, "devices": 1},
        True,
    ),
    "priorities": ("discrete-sac", {"env": "jax:cartpole", "prioritized-replay": ""}, True),
    "skills": ("dads", {"env": "jax:pointmass", "normalize-observations": ""}, True),
    "a Gymnasium environment": ("sac", {"env": "Pendulum-v1"}, False),
}


def words(kind: str, **more: Any) -> list[str]:
    """The arguments of `train`."""
    algo, given, _ = KINDS[kind]
    every = SMALL | given | more
    options = [w for k, v in every.items() for w in (f"--{k}", *str(v).split())]
    return [algo, *options, "--json"]


def start(*argv: Any, **env: str) -> subprocess.Popen:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "thespis", *map(str, argv)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | env, **pipes)


def folder_of(out: Path) -> Path | None:
    """The one run in there, if it is there yet."""
    found = sorted(out.glob("*/*_1"))
    return found[0] if found else None


def differences(reference: Path, found: Path, exact: bool) -> list[str]:
    """What a run that was disturbed has other than the one that was not."""
    from tests import small
    from thespis.runs import directory, metrics

    status = directory.read_json(found / "status.json")
    wanted = directory.read_json(reference / "status.json")
    faults = [f"status {status}, not {wanted}"] if status != wanted else []
    if not exact:
        return faults
    faults += [f"array {name} differs" for name in small.differences(reference, found)]
    faults += metrics.differences(reference / "metrics.csv", found / "metrics.csv")
    lineages = [folder / "lineage.csv" for folder in (reference, found)]
    if lineages[0].exists() and lineages[0].read_bytes() != lineages[1].read_bytes():
        faults.append("lineage.csv differs")
    return faults[:3]


def left_over(folder: Path) -> list[str]:
    """Temporary files that nobody cleared away."""
    temporary = [p for p in folder.rglob("*") if "tmp" in p.name or p.name.endswith("~")]
    return [f"left over: {p.relative_to(folder)}" for p in temporary]
