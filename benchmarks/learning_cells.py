"""The table of what learning.py trains, its cells, and who works on which of them."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TABLE, RESULTS = HERE / "learning.toml", HERE / "results" / "learning"


@dataclass(frozen=True)
class Arm:
    """A library, an algorithm and its options."""

    name: str
    library: str
    options: Any = None
    algo: str = ""
    policy: str = ""
    envs: tuple[str, ...] | None = None  # None is all

    @property
    def given(self) -> dict[str, Any]:
        """What its worker is told, and what a result must agree with."""
        words = {"algo": self.algo, "policy": self.policy, "options": self.options}
        return {k: v for k, v in words.items() if v}

    @property
    def call(self) -> str:
        """As a user would write it."""
        if self.library == "thespis":
            return f"thespis train {self.options}"
        words = [f"{k}={v!r}" for k, v in (self.options or {}).items()]
        policy = [repr(self.policy or "MlpPolicy")] if self.library in ("sb3", "sbx") else []
        return f"{self.library}.{self.algo}({', '.join([*policy, 'env', *words])})"


@dataclass(frozen=True)
class Stage:
    """Arms that are compared, on the same environments, seeds and steps."""

    name: str
    arms: tuple[str, ...]
    envs: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int
    title: str = ""
    reading: str = ""  # what the page says about its results


@dataclass(frozen=True)
class Table:
    """All of learning.toml."""

    eval_freq: int
    episodes: int
    arms: dict[str, Arm]
    stages: dict[str, Stage]

    @classmethod
    def read(cls, path: Path = TABLE) -> Table:
        found = tomllib.loads(path.read_text())
        fixed = lambda x: {k: tuple(v) if isinstance(v, list) else v for k, v in x.items()}
        arms = {name: Arm(name, **fixed(x)) for name, x in found["arms"].items()}
        stages = {name: Stage(name, **fixed(x)) for name, x in found["stages"].items()}
        for stage in stages.values():
            known(stage.arms, arms, f"arm of stage {stage.name}")
        return cls(**found["protocol"], arms=arms, stages=stages)


def known(names, among, what: str) -> None:
    if unknown := [name for name in names if name not in among]:
        sys.exit(f"no {what} in the table: {', '.join(unknown)}; there are {', '.join(among)}")


@dataclass(frozen=True)
class Cell:
    """One arm in one environment with one seed."""

    arm: Arm
    env: str
    seed: int
    steps: int

    def __str__(self) -> str:
        return f"{self.arm.name} {self.env} seed {self.seed}"

    def path(self, results: Path) -> Path:
        env = self.env.replace(":", "-").replace("/", "-")
        return results / self.arm.name / env / f"{self.seed}.json"

    def result(self, results: Path) -> dict[str, Any] | None:
        """What was found, if that was with the options of the table."""
        path = self.path(results)
        found = json.loads(path.read_text()) if path.exists() else None
        return found if found and found["arm"] == self.arm.given else None

    def done(self, results: Path) -> bool:
        found = self.result(results)
        return found is not None and found["steps"] >= self.steps

    def state(self, results: Path) -> str:
        if self.done(results):
            return "done"
        if self.arm.envs is not None and self.env not in self.arm.envs:
            return "not there"
        if pid := holder(self.path(results)):
            return f"in process {pid}"
        if self.result(results):
            return "too short"
        return "other options" if self.path(results).exists() else "missing"


def save(result: dict[str, Any], path: Path) -> None:
    """Whole or not at all; a line per evaluation."""
    head = {k: v for k, v in result.items() if k != "evaluations"}
    lines = ",\n".join(f"  {json.dumps(x)}" for x in result["evaluations"])
    text = json.dumps(head, indent=1)[:-2] + f',\n "evaluations": [\n{lines}\n ]\n}}\n'
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


# --- claims -----------------------------------------------------------------------------------


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Whether this process may work on a result: nobody else does until this ends.

    The lock belongs to the process and not to the file, so that it ends with the process,
    however that ends: a file that is left over holds nobody up. It has the process's number.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_suffix(".lock")
    file = os.open(lock, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = lock.exists() and os.path.samestat(os.fstat(file), lock.stat())
        except BlockingIOError:
            mine = False
        if mine:
            os.truncate(file, 0)
            os.write(file, f"{os.getpid()}\n".encode())
        yield mine
        if mine:
            lock.unlink()
    finally:
        os.close(file)


def holder(path: Path) -> int | None:
    """The process that works on a result; None if nobody does."""
    lock = path.with_suffix(".lock")
    if not lock.exists():
        return None
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read() or 0)
    return None
