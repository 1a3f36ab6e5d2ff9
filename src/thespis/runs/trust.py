"""Decides which code a run may import: its folder may come from anybody.

Options that the user types may name any code. A run may name what is built into Thespis. All other
code is imported only if the user trusts the run, or has trained it here with that code from the
same place: then there is a record in the user's state folder (see docs/security.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from thespis import envs, plugins, selection
from thespis.algos import registry
from thespis.errors import ThespisError
from thespis.runs.directory import read_json, write_json
from thespis.values import convert
from thespis.xla import private_files

IDENTITY = "identity"  # of a run that names code, in its config.json
# A callback of Thespis itself, by its whole name: other things in its modules might take arguments.
PRUNING = "callback = thespis.sweeps.pruning:Pruning"


def check(folder: Path, saved: dict[str, Any], trusted: bool, callbacks: bool = False) -> None:
    """Refuses a run that names code, unless it is `trusted` or `known`.

    Its `callbacks` count only where they will be imported, which is in training.
    """
    origins = places(saved, callbacks)
    if not origins or trusted or known(saved):
        return
    raise ThespisError(
        f"{folder} was not trained by you here, and its config.json names code: "
        f"{described(origins)}; if you trust it, give --trust (in Python trust=True)"
    )


def places(saved: dict[str, Any], callbacks: bool = True) -> dict[str, tuple[str, str]]:
    """Returns {option: (module, file)} of the code that a config would import."""
    named = code(saved) | (callback_code(saved) if callbacks else {})
    origins = {name: (m, plugins.origin(m)) for name, m in named.items() if name != PRUNING}
    return {name: (m, file) for name, (m, file) in origins.items() if file}  # of modules that exist


def described(origins: dict[str, tuple[str, str]]) -> str:
    """Describes what would be imported from where, for a message."""
    return ", ".join(f"{name} imports {m} from {file}" for name, (m, file) in origins.items())


def code(saved: dict[str, Any]) -> dict[str, str]:
    """Returns {option: module} of the options in a config.json that name code."""
    algo = saved.get("algo")
    modules = {f"algo = {algo}": registry.module_of(algo)} if isinstance(algo, str) else {}
    for name in ("env", "eval_env"):
        value = saved.get(name)
        if isinstance(value, str) and not saved.get(f"{name}_given"):
            modules[f"{name} = {value}"] = envs.module_of(value)
    for name, value in saved.get("options", {}).items():
        if isinstance(value, str) and selection.is_function(value):
            modules[f"{name} = {value}"] = value.partition(":")[0]
    return {name: module for name, module in modules.items() if module}


def callback_code(saved: dict[str, Any]) -> dict[str, str]:
    """Returns {callback: module} of the callbacks that a config.json names."""
    # Parsed as the config will be, which accepts a list or one string.
    names = convert("callbacks", tuple[str, ...], saved.get("callbacks") or ())
    named = filter(plugins.is_reference, names)
    return {f"callback = {name}": name.partition(":")[0] for name in named}


def remember(folder: Path) -> None:
    """Records that this user trains this run here, with the code that it names."""
    saved = read_json(folder / "config.json")
    if not (code(saved) or callback_code(saved)) or known(saved):
        return
    saved[IDENTITY] = secrets.token_hex(16)  # which the author of a run from elsewhere cannot know
    why = private_files.complaint(records())
    if why:
        private_files.say(f"cannot record in {records()} that you trained {folder}: {why}")
        return
    write_json(folder / "config.json", saved)
    private_files.write(record(saved), b"")


def known(saved: dict[str, Any]) -> bool:
    """Returns whether this user has trained this run here, with the same code in the same place."""
    if IDENTITY not in saved or not records().exists():
        return False
    return private_files.complaint(records()) is None and record(saved).is_file()


def records() -> Path:
    """Returns the folder of records, which has one file per run, named by a digest."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return (home / "thespis" / "runs").absolute()


def record(saved: dict[str, Any]) -> Path:
    modules = code(saved) | callback_code(saved)
    named = [(name, module, plugins.origin(module)) for name, module in modules.items()]
    text = json.dumps([saved[IDENTITY], sorted(named)])
    return records() / hashlib.sha256(text.encode()).hexdigest()
