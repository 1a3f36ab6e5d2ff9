"""The zoo: trained policies that come with the package, as runs that nobody changes.

`zoo:NAME` stands for the folder of a run wherever one is read. Such a run has neither its replay
nor the moments of its optimisers: it can act, be evaluated and exported, and others start from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from thespis.errors import ThespisError, or_all
from thespis.runs.naming import default_out

HOME = Path(__file__).parents[1] / "trained"
PREFIX = "zoo:"
EVALUATION = "evaluation.json"  # what its policy reached when it was put into the zoo


@dataclass(frozen=True)
class Entry:
    """A trained policy: `thespis.load(f"zoo:{name}")` opens it."""

    name: str
    algo: str
    env: str
    steps: int
    mean_reward: float
    """Mean return of so many `episodes`, as measured when it was made."""
    std_reward: float
    episodes: int
    bytes: int
    command: str
    """That it was trained by."""


def zoo() -> list[Entry]:
    """Returns the trained policies that come with the package."""
    return [entry(name) for name in names()]


def names() -> list[str]:
    """Returns the names of all entries: JAX tasks first."""
    there = (path.parent.name for path in HOME.glob(f"*/{EVALUATION}"))
    return sorted(there, key=lambda name: (not name.startswith("jax-"), name.lower()))


def entry(name: str) -> Entry:
    """Returns what is known of one of them."""
    folder = located(f"{PREFIX}{name}")
    config, measured = (
        json.loads((folder / file).read_text("utf-8")) for file in ("config.json", EVALUATION)
    )
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    known = {key: config[key] for key in ("algo", "env", "steps", "command")}
    return Entry(name=name, bytes=size, **known, **measured)


def located(path: Path | str) -> Path:
    """Returns the folder that zoo:NAME stands for; any other path is left as it is."""
    if not is_named(str(path)):
        return Path(path)
    name = str(path).removeprefix(PREFIX)
    if name not in names():
        raise ThespisError(f"unknown policy {str(path)!r}{or_all(name, names())}")
    return HOME / name


def is_named(text: str) -> bool:
    """Tells whether this means a policy of the zoo, and not a folder."""
    return text.startswith(PREFIX)


def spelled(folder: Path) -> str:
    """Returns how users name a run: its folder, or zoo:NAME."""
    return f"{PREFIX}{folder.name}" if owns(folder) else str(folder)


def owns(folder: Path) -> bool:
    """Tells whether a run is one of the zoo."""
    return folder.parent == HOME


def outputs(folder: Path) -> Path:
    """Returns where to put what is made of a run: its folder, or for the zoo one of the user's."""
    return Path(default_out(), "zoo", folder.name) if owns(folder) else folder
