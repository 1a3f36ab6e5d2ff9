"""The run directory: numbered folders and small JSON files."""

from __future__ import annotations

import difflib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterator, ValuesView
from contextlib import suppress
from pathlib import Path
from typing import Any

from thespis import plugins
from thespis.errors import ThespisError, shown
from thespis.runs import files, formats, zoo
from thespis.runs.files import set_aside, writing
from thespis.runs.naming import default_out, safe
from thespis.runs.process import busy
from thespis.values import convert

JSON_BYTES = 2**26  # the largest JSON file that is read
LEVELS = 50  # that lists and objects in one may have
GROUPS = "groups"  # the folder of runs on several machines that has their replays
KERNEL = "ipykernel_launcher.py"  # the program in which notebooks run
STATES = ("running", "stopped", "done", "failed")


def create(out: Path | str | None, algo: str, name: str) -> Path:
    """Creates `out/<algo>/<name>_<n>/` with the next free n, another one for every process."""
    name, parent = safe(name), path_of("out", default_out() if out is None else out) / safe(algo)
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        numbered = (re.fullmatch(re.escape(name) + r"_(\d+)", p.name) for p in parent.iterdir())
        n = 1 + max((int(match[1]) for match in numbered if match), default=0)
        while True:
            try:
                (parent / f"{name}_{n}").mkdir()
                return parent / f"{name}_{n}"
            except FileExistsError:  # another process was faster
                n += 1


def create_at(path: Path | str) -> Path:
    """Makes this very folder, which must not hold anything yet."""
    folder = path_of("folder", path)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ThespisError(f"folder = {folder}: it is not empty; name another, or resume it")
    return folder


def find(path: Path | str) -> Path:
    """Returns the run folder at `path`, which must contain a config.json, or that of zoo:NAME."""
    path = zoo.located(path_of("run", path))
    config = path / "config.json"
    try:
        if not config.is_dir() and os.path.lexists(config):  # reading it refuses other kinds
            return path
    except OSError as error:  # a name that no file can have
        raise ThespisError(f"no run at {shown(str(path))}: {error.strerror}") from error
    start = next(p for p in [path, *path.absolute().parents] if p.is_dir())
    above = (p for p in path.absolute().parents if (p / "config.json").is_file())
    runs = {str(p) for p in (*below(start), *above)}
    near = difflib.get_close_matches(str(path), sorted(runs), n=3, cutoff=0)
    hint = f"the nearest runs are {', '.join(near)}" if near else f"there are no runs in {start}"
    raise ThespisError(f"no run at {path}: looked for {path / 'config.json'}; {hint}")


def below(start: Path, depth: int = 3) -> Iterator[Path]:
    """Yields the runs down to three levels below a folder; none below /, which takes too long.

    Folders that appear, vanish or may not be read are ignored.
    """
    for folder, inside, names in os.walk(start) if start != Path(start.anchor) else ():
        level = len(Path(folder).relative_to(start).parts)
        if level and "config.json" in names:
            yield Path(folder)
        if level == depth:
            inside.clear()


def path_of(name: str, value: Any) -> Path:
    """Returns the path that a user wrote for the option `name`."""
    text = convert(name, str, value)
    if any(ord(letter) < 32 for letter in text):
        raise ThespisError(f"{name} = {text!r}: give a path without control characters")
    return Path(text)


def status(folder: Path, state: str, step: int, **more: Any) -> None:
    """Writes status.json: the state of a run (running, stopped, done or failed) and its step."""
    write_json(folder / "status.json", {"state": state, "step": step, **more})


def status_of(folder: Path | str) -> dict[str, Any]:
    """Returns `state` (running, stopped, done, failed or damaged) and `step` of a run.

    A run whose file says running but which has no process any more is stopped, however it ended.
    A run is damaged if its status.json cannot be read; it may still be resumed.
    """
    folder = find(folder)
    path = folder / "status.json"
    if not os.path.lexists(path):
        return {"state": "running" if busy(folder) else "stopped", "step": 0}
    status = _status(path)
    if status is None:
        return {"state": "running" if busy(folder) else "damaged", "step": 0}
    gone = status["state"] == "running" and not busy(folder)
    return status | {"state": "stopped"} if gone else status


def _status(path: Path) -> dict[str, Any] | None:
    """Returns the content of a status.json, or None if it is invalid."""
    try:
        content = read_json(path)
        known = content["state"] in STATES and _whole(content["step"]) and content["step"] >= -1
    except (ThespisError, TypeError, KeyError):
        return None
    return content if known else None


def programs_of(folder: Path) -> dict[str, float]:
    """Returns the seconds that each program took to compile; nothing if they are not known."""
    return _programs(folder / "compiled.json") or {}


def _programs(path: Path) -> dict[str, float] | None:
    with suppress(ThespisError):
        content = read_json(path)
        if isinstance(content, dict) and all(isinstance(x, int | float) for x in content.values()):
            return content
    return None


def repair_status(folder: Path, note: Callable[[str], None]) -> None:
    """Renames files that cannot be read, so that new ones can take their place."""
    for name, reader in (("status.json", _status), ("compiled.json", _programs)):
        path = folder / name
        if os.path.lexists(path) and reader(path) is None:
            note(f"{path} was damaged: it is replaced, and the old file is now {set_aside(path)}")


def read_config(folder: Path) -> dict[str, Any]:
    """Reads config.json, and checks the fields that every reader relies on."""
    path = folder / "config.json"
    return checked_config(path, read_json(path))


def checked_config(path: Path, config: Any) -> dict[str, Any]:
    """Returns the config that a file contains, if its fields are of the expected kinds."""
    if not isinstance(config, dict):
        raise ThespisError(f"{path} is not the config of a run: it is not an object; restore it")
    formats.check(path, config.get("format", 1))
    seeds, schedule = config.get("seeds"), config.get("schedule") or []
    callbacks, groups = config.get("callbacks") or [], ("hp", "options", "pbt", "versions")
    holds = {
        "algo": isinstance(config.get("algo"), str),
        "env": isinstance(config.get("env"), str),
        "seeds": isinstance(seeds, list) and seeds and all(map(_whole, seeds)),
        "steps": _whole(config.get("steps", 1)),
        "callbacks": isinstance(callbacks, list) and all(isinstance(x, str) for x in callbacks),
        "schedule": isinstance(schedule, list) and all(map(_change, schedule)),
        **{n: isinstance(config.get(n) or "", str) for n in ("preset", "tuner")},
        **{name: isinstance(config.get(name) or {}, dict) for name in groups},
    }
    for name, fine in holds.items():
        if not fine:
            raise ThespisError(f"{path} is not the config of a run: check {name!r}")
    return config | {name: {} for name in groups if name in config and not config[name]}


def _whole(number: Any) -> bool:
    """Returns whether this is a whole number that fits into 64 bits, and so into a float."""
    return type(number) is int and abs(number) < 2**63


def _change(entry: Any) -> bool:
    """Returns whether this is a pair [step, {name: value}]."""
    pair = isinstance(entry, list) and len(entry) == 2
    return pair and _whole(entry[0]) and isinstance(entry[1], dict)


def how_to_resume(folder: Path, steps: str = "") -> str:
    """Returns the command that resumes a run; a Python call if it needs objects."""
    config = read_json(folder / "config.json")
    objects = [name for name in ("env", "eval_env", "demos") if config.get(f"{name}_given")]
    if not all(map(plugins.is_reference, config.get("callbacks") or ())):
        objects.append("callbacks")
    on_ray = (folder / GROUPS).is_dir()
    if not objects:
        command = f"thespis resume {shlex.quote(str(folder))}" + " --ray" * on_ray
        return command + (f" --steps {steps}" if steps else "")
    arguments = [f"steps={steps}"] * bool(steps) + [f"{name}=..." for name in objects]
    return f'thespis.resume("{folder}", {", ".join(arguments)})'


def this_command() -> str:
    """Returns the command line of this process, as it can be typed again.

    It is empty where none was typed, as in notebooks and for `python -c`.
    """
    program, *words = sys.argv or [""]
    path = Path(program)
    if program in ("", "-", "-c") or path.name == KERNEL:
        return ""
    command = ["python", program] if path.suffix == ".py" else [program]
    if path.parts[-2:] == ("thespis", "__main__.py"):
        command = ["python", "-m", "thespis"]
    elif path.stem == "thespis":
        command = ["thespis"]
    return shlex.join([*command, *words])


def resumes_of(config: dict[str, Any]) -> list[str]:
    """Returns the commands that have resumed a run."""
    resumes = config.get("resumes")
    return [x for x in resumes if isinstance(x, str)] if isinstance(resumes, list) else []


def versions() -> dict[str, str]:
    """Returns the versions that the results of a run depend on."""
    import jax

    def version_of(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    return {
        "python": platform.python_version(),
        **{package: version_of(package) for package in ("thespis", "jax", "jaxlib", "numpy")},
        "platform": platform.platform(),
        "device": jax.devices()[0].device_kind,
    }


# --- files ----------------------------------------------------------------------------------


def write_json(path: Path, obj: Any) -> None:
    files.write(path, (json.dumps(obj, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        content = json.loads(files.read(path, JSON_BYTES))
        if too_deep(content):
            raise ValueError(f"more than {LEVELS} levels")
        return content
    except OSError as error:
        raise ThespisError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise ThespisError(f"{path} is not valid JSON ({error}); fix or restore it") from error


def too_deep(content: Any) -> bool:
    """Tells whether lists and objects contain each other so often that recursion may fail."""
    level = [content]
    for _ in range(LEVELS):
        inside = (x.values() if isinstance(x, dict) else x for x in level)
        level = [x for part in inside if isinstance(part, list | ValuesView) for x in part]
        if not level:
            return False
    return True
