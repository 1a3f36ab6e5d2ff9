"""Options of a run from a file: TOML written by a user, or the config.json of another run.

Options given explicitly override the file, and the file overrides a preset. A file may be
untrusted: the code that it names is imported only if the user trusts it (trust.py).
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from thespis.algos import registry
from thespis.errors import ThespisError, require
from thespis.runs import files, trust
from thespis.runs.config import OBJECTS, groups, place, typed
from thespis.runs.config_names import as_written, translate
from thespis.runs.directory import JSON_BYTES, path_of
from thespis.tuning import TUNERS
from thespis.values import convert, fields, grouped

MEMBERS = ("seed", "seeds", "members")
RATIO = ("gradient_steps", "train_freq")  # whose meaning depends on `envs`
UNTYPED = ("out", "schedule", "callbacks")  # which are no fields of a run, algorithm or Hyper
# Fields of a config.json that are not options.
ABOUT = ("format", "command", "resumes", "versions", "judge", trust.IDENTITY)


class OptionFile(NamedTuple):
    """The options in a file, by names such as hp.gamma; `run` is the content of a config.json."""

    path: Path
    algo: str | None
    values: dict[str, Any]
    run: dict[str, Any] | None


def read(path: Any) -> OptionFile:
    """Reads a TOML or JSON file, or the config.json in the folder of a run."""
    path = path_of("config", path)
    folder = os.path.isdir(path)
    path = path / "config.json" if folder else path
    try:
        with files.open_regular(path) if folder else path.open("rb") as file:
            text = file.read(JSON_BYTES).decode()
        is_json = text.lstrip().startswith("{")  # TOML never does
        content = json.loads(text) if is_json else tomllib.loads(text)
        run = content if isinstance(content.get("options"), dict) else None
        algo = content["algo"] if isinstance(content.get("algo"), str) else None
        values = {name: x for name, x in content.items() if algo is None or name != "algo"}
        return OptionFile(path, algo, flat(values if run is None else from_run(run)), run)
    except OSError as error:
        raise ThespisError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise ThespisError(f"{path} is neither valid TOML nor JSON ({error}); fix it") from error


def from_run(saved: dict[str, Any]) -> dict[str, Any]:
    """Returns the options in a config.json, without the labels of objects."""
    objects = {name.removesuffix("_given") for name in saved if name.endswith("_given")}
    left_out = {*ABOUT, "options", *objects, *(f"{name}_given" for name in objects)}
    if saved.get("tuner") is None:
        left_out |= {"tuner", "pbt"}
    return {name: x for name, x in saved.items() if name not in left_out} | {
        "algo": saved["options"]
    }


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested tables to {"critic.norm": ...}."""
    values = {}
    for name, value in table.items():
        name = prefix + str(name).replace("-", "_")
        values |= flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return values


def find_algo(path: Any, trusted: bool) -> str:
    """Returns the algorithm that a file names, if it is trusted."""
    file = read(path)
    require(file.algo, f'{file.path} has no algo: name the algorithm first, or add algo = "sac"')
    check_trust(file, {"algo": file.algo}, trusted)
    return str(file.algo)


def merge(
    algo: Any, explicit: dict[str, Any], path: Any, on_ray: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Returns the algorithm and all options: the explicit ones, and others from the file."""
    explicit = {name.replace("-", "_"): x for name, x in explicit.items()}
    if explicit.get("env", ...) is None:
        del explicit["env"]
    trusted = convert("trust", bool, explicit.get("trust") or False)
    if path is None:
        require(algo is not None, "name the algorithm, or a config file that does")
        return algo, explicit
    file = read(path)
    algo = find_algo(path, trusted) if algo is None else algo
    algorithm = registry.find(registry.name_of(algo))
    known = groups(algorithm)
    options = {n: x for n, x in explicit.items() if n not in UNTYPED and not is_tuner_option(n)}
    named = translate(algorithm, grouped(algorithm, options))
    overridden = {place(known, name, as_written(name, options)) for name in named}
    try:
        values = remaining(algorithm, file.values, explicit, overridden)
    except ThespisError as error:
        raise ThespisError(f"{file.path}: {error}") from error
    if file.run is not None and (on_ray or {*MEMBERS} & {*explicit}):
        values.pop("devices", None)  # chosen for another number of members, or for one process
    options = {n.removeprefix("algo."): x for n, x in values.items() if n.startswith("algo.")}
    named = {name: values[name] for name in ("env", "eval_env", "callbacks") if name in values}
    check_trust(file, named | {"options": options}, trusted)
    return algo, values | explicit


def remaining(
    algorithm: type, file: dict[str, Any], explicit: dict[str, Any], overridden: set
) -> dict[str, Any]:
    """Returns a file's options that are not overridden, by our names and with our types."""
    require("trust" not in file, "trust is yours to give, not the file's: leave it out")
    known, separate = groups(algorithm), (*MEMBERS, *RATIO, *UNTYPED)
    values = {name: file[name] for name in UNTYPED if name in file and name not in explicit}
    options = {n: x for n, x in file.items() if n not in separate and not is_tuner_option(n)}
    for name, value in translate(algorithm, options).items():
        where = group, field = place(known, name, as_written(name, options))
        if where not in overridden:
            if field in OBJECTS and group == "train":  # a file can only name them
                value = convert(field, str | None, value)
            value = typed(known, group, field, value)
            plain = group == "train" or name == "target_entropy"  # a total, or per dimension?
            values[field if plain else f"{group}.{field}"] = value
    if ("train", "updates_per_step") not in overridden:
        values |= {name: file[name] for name in RATIO if name in file}
    return values | members_from_file(file, explicit) | tuner_from_file(file, explicit)


def members_from_file(file: dict[str, Any], explicit: dict[str, Any]) -> dict[str, Any]:
    """Returns a file's options of members that can be combined with the explicit ones."""
    names = MEMBERS
    if {*MEMBERS} & {*explicit}:
        names = () if "seeds" in explicit else ("seed", "members")
    return {name: file[name] for name in names if name in file}


def tuner_from_file(file: dict[str, Any], explicit: dict[str, Any]) -> dict[str, Any]:
    """Returns a file's options of the tuner; if the tuner is overridden, those it has too."""
    whole, name = explicit.get("pbt"), explicit.get("tuner")
    options = {n: x for n, x in file.items() if is_tuner_option(n)}
    if whole is False:
        return {}
    if dataclasses.is_dataclass(whole):
        return {}
    if isinstance(whole, dict):
        options = {n: x for n, x in options.items() if n.removeprefix("pbt.") not in whole}
    if whole is None and name is None:
        return options
    name = name or "pbt"
    known = {f"pbt.{option.name}" for option in fields(TUNERS[name])} if name in TUNERS else ()
    return {n: x for n, x in options.items() if n in known}


def is_tuner_option(name: str) -> bool:
    return name.partition(".")[0] in ("tuner", "pbt")


def check_trust(file: OptionFile, named: dict[str, Any], trusted: bool) -> None:
    """Refuses code that a file names, unless the user trusts it or has trained that run."""
    places = trust.places(named)
    if not places or trusted or (file.run is not None and trust.known(file.run)):
        return
    raise ThespisError(
        f"{file.path} names code: {trust.described(places)}; if you trust it, give --trust (in "
        "Python trust=True), or name it on the command line yourself"
    )
