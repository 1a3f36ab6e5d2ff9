"""The run directory: numbered folders, small JSON files, and writing that survives a crash."""

from __future__ import annotations

import difflib
import errno
import importlib.metadata
import json
import os
import platform
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError, shown
from thespis.options import convert
from thespis.runs.process import busy

ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EACCES: "choose a folder you may write to",
    errno.EPERM: "choose a folder you may write to",
    errno.EROFS: "choose a folder you may write to",
}


def create(out: Path | str, algo: str, env_label: str) -> Path:
    """Make `out/<algo>/<env>_<n>/` with the next free n; two processes never get the same one."""
    name = re.sub(r"[^\w.+-]+", "-", env_label)
    parent = path_of("out", out) / algo
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        numbered = (re.fullmatch(re.escape(name) + r"_(\d+)", p.name) for p in parent.iterdir())
        n = 1 + max((int(match[1]) for match in numbered if match), default=0)
        while True:
            try:
                (parent / f"{name}_{n}").mkdir()
                return parent / f"{name}_{n}"
            except FileExistsError:  # somebody was faster
                n += 1


def find(path: Path | str) -> Path:
    """The run folder at `path`, which is one that holds config.json."""
    path = path_of("run", path)
    try:
        if (path / "config.json").is_file():
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
    """The runs down to three levels below a folder; none below /, where everything is.

    Folders that come and go meanwhile, or may not be read, do not matter.
    """
    for folder, inside, files in os.walk(start) if start != Path(start.anchor) else ():
        level = len(Path(folder).relative_to(start).parts)
        if level and "config.json" in files:
            yield Path(folder)
        if level == depth:
            inside.clear()


def path_of(name: str, given: Any) -> Path:
    """The path that was given as `name`."""
    text = convert(name, str, given)
    if any(ord(letter) < 32 for letter in text):
        raise ThespisError(f"{name} = {text!r}: give a path without control characters")
    return Path(text)


def status(folder: Path, state: str, step: int, **more: Any) -> None:
    """Say how far a run is: running, stopped, done or failed."""
    write_json(folder / "status.json", {"state": state, "step": step, **more})


def status_of(folder: Path | str) -> dict[str, Any]:
    """`state` (running, stopped, done or failed) and `step` of a run.

    What is said to be running but has no process any more was stopped, however it ended.
    """
    folder = find(folder)
    path = folder / "status.json"
    found = read_json(path) if path.exists() else {"state": "running", "step": 0}
    gone = found["state"] == "running" and not busy(folder)
    return found | {"state": "stopped"} if gone else found


def how_to_resume(folder: Path, steps: str = "") -> str:
    """The command by which a run goes on; in Python if it needs objects that no file holds."""
    config = read_json(folder / "config.json")
    objects = [name for name in ("env", "eval_env", "demos") if config.get(f"{name}_given")]
    if not objects:
        return f"thespis resume {shlex.quote(str(folder))}" + (f" --steps {steps}" if steps else "")
    given = [f"steps={steps}"] * bool(steps) + [f"{name}=..." for name in objects]
    return f'thespis.resume("{folder}", {", ".join(given)})'


def versions() -> dict[str, str]:
    """What a run depends on, to be kept beside its results."""
    import jax

    def of(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    return {
        "python": platform.python_version(),
        **{package: of(package) for package in ("thespis", "jax", "jaxlib", "numpy")},
        "platform": platform.platform(),
        "device": jax.devices()[0].device_kind,
    }


# --- files ----------------------------------------------------------------------------------


def write_json(path: Path, obj: Any) -> None:
    write(path, (json.dumps(obj, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ThespisError(f"cannot read {path}: {error.strerror}; check the path") from error
    except ValueError as error:
        raise ThespisError(f"{path} is not valid JSON ({error}); mend or restore it") from error


def write(path: Path, data: bytes) -> None:
    """Replace a file as a whole: whatever happens, the path holds the old or the new content."""
    aside = path.with_name(f".{path.name}.tmp")
    with writing(path):
        try:
            with open(aside, "wb") as file:
                file.write(data)
                sync(file)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        sync_folder(path.parent)


def sync(file) -> None:
    """Return once the content is on the disk and not merely in the system's memory."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Return once the names in a folder are on the disk: what makes a rename last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into one line that the user can act on."""
    try:
        yield
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "check the path and the disk")
        reason = error.strerror or str(error)
        raise ThespisError(f"cannot write {path}: {reason}; {advice}") from error
