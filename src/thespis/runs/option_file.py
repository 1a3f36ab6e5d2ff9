"""Options of a run from a file: TOML that people write, or the config.json of another run.

What is given beside the file wins over it, and the file over a preset. A file is data and may come
from anybody: the code that it names is imported only if the user trusts it (trust.py).
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from thespis.algos import registry
from thespis.errors import ThespisError, require
from thespis.runs import trust
from thespis.runs.config import OBJECTS, groups, place, typed
from thespis.runs.config_names import as_written, translate
from thespis.runs.directory import JSON_BYTES, path_of
from thespis.tuning import TUNERS
from thespis.values import convert, fields, grouped

MEMBERS = ("seed", "seeds", "members")
RATIO = ("gradient_steps", "train_freq")  # which mean something only together with `envs`
# Where the run is written; how the hyper-parameters of a rerun change; whom the run calls.
APART = ("out", "schedule", "callbacks")
ABOUT = ("format", "command", "resumes", "versions", "judge", trust.IDENTITY)  # of a config.json


class OptionFile(NamedTuple):
    """What a file says, by names such as hp.gamma; `run` is all of it if a run has written it."""

    path: Path
    algo: str | None
    values: dict[str, Any]
    run: dict[str, Any] | None


def read(path: Any) -> OptionFile:
    """Reads a TOML or JSON file; a folder stands for the config.json of the run that it is."""
    path = path_of("config", path)
    if path.is_dir():
        path /= "config.json"
    try:
        with path.open("rb") as file:
            text = file.read(JSON_BYTES).decode()
        is_json = text.lstrip().startswith("{")  # as no TOML does
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
    """Returns the options that a config.json holds, without labels of what was an object."""
    objects = {name.removesuffix("_given") for name in saved if name.endswith("_given")}
    left_out = {*ABOUT, "options", *objects, *(f"{name}_given" for name in objects)}
    if saved.get("tuner") is None:
        left_out |= {"tuner", "pbt"}
    return {name: x for name, x in saved.items() if name not in left_out} | {
        "algo": saved["options"]
    }


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns {"critic.norm": ...} of tables within tables."""
    values = {}
    for name, value in table.items():
        name = prefix + str(name).replace("-", "_")
        values |= flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return values


def find_algo(path: Any, trusted: bool) -> str:
    """Returns the algorithm that a file names, if it may."""
    file = read(path)
    require(file.algo, f'{file.path} has no algo: name the algorithm first, or add algo = "sac"')
    check_trust(file, {"algo": file.algo}, trusted)
    return str(file.algo)


def merge(algo: Any, given: dict[str, Any], path: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the algorithm and all options: those given, and those of the file beside them."""
    given = {name.replace("-", "_"): x for name, x in given.items()}
    if given.get("env", ...) is None:
        del given["env"]
    trusted = bool(given.get("trust"))
    if path is None:
        require(algo is not None, "name the algorithm, or a config file that does")
        return algo, given
    file = read(path)
    algo = find_algo(path, trusted) if algo is None else algo
    algorithm = registry.find(registry.name_of(algo))
    known, options = groups(algorithm), {n: x for n, x in given.items() if not of_tuner(n)}
    named = translate(algorithm, grouped(algorithm, options))
    wins = {place(known, name, as_written(name, options)) for name in named}
    try:
        values = remaining(algorithm, file.values, given, wins)
    except ThespisError as error:
        raise ThespisError(f"{file.path}: {error}") from error
    if file.run is not None and {*MEMBERS} & {*given}:
        values.pop("devices", None)  # which were those of other members
    options = {n.removeprefix("algo."): x for n, x in values.items() if n.startswith("algo.")}
    named = {name: values[name] for name in ("env", "eval_env", "callbacks") if name in values}
    check_trust(file, named | {"options": options}, trusted)
    return algo, values | given


def remaining(
    algorithm: type, file: dict[str, Any], given: dict[str, Any], wins: set[tuple[str, str]]
) -> dict[str, Any]:
    """Returns what a file says beside the places that are given, by our names with our types."""
    require("trust" not in file, "trust is yours to give, not the file's: leave it out")
    known, apart = groups(algorithm), (*MEMBERS, *RATIO, *APART)
    values = {name: file[name] for name in APART if name in file}
    said = {n: x for n, x in file.items() if n not in apart and not of_tuner(n)}
    for name, value in translate(algorithm, said).items():
        where = group, field = place(known, name, as_written(name, said))
        if where not in wins:
            if field in OBJECTS and group == "train":  # by their names alone
                value = convert(field, str | None, value)
            value = typed(known, group, field, value)
            plain = group == "train" or name == "target_entropy"  # a total, or per dimension?
            values[field if plain else f"{group}.{field}"] = value
    if ("train", "updates_per_step") not in wins:
        values |= {name: file[name] for name in RATIO if name in file}
    return values | members_beside(file, given) | tuner_beside(file, given)


def members_beside(file: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Returns what a file says of the members: all, or what goes with the seed or number given."""
    kept = MEMBERS
    if {*MEMBERS} & {*given}:
        kept = () if "seeds" in given else ("seed", "members")
    return {name: file[name] for name in kept if name in file}


def tuner_beside(file: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Returns what a file says of the tuner; of another one than its own, the fields both have."""
    whole, name = given.get("pbt"), given.get("tuner")
    said = {n: x for n, x in file.items() if of_tuner(n)}
    if whole is False:
        return {}
    if dataclasses.is_dataclass(whole):
        return {}
    if isinstance(whole, dict):
        said = {n: x for n, x in said.items() if n.removeprefix("pbt.") not in whole}
    if whole is None and name is None:
        return said
    name = name or "pbt"
    known = {f"pbt.{option.name}" for option in fields(TUNERS[name])} if name in TUNERS else ()
    return {n: x for n, x in said.items() if n in known}


def of_tuner(name: str) -> bool:
    return name.partition(".")[0] in ("tuner", "pbt")


def check_trust(file: OptionFile, named: dict[str, Any], trusted: bool) -> None:
    """Refuses code that a file names, unless the user trusts it or has trained that very run."""
    places = trust.places(named)
    if not places or trusted or (file.run is not None and trust.known(file.run)):
        return
    raise ThespisError(
        f"{file.path} names code: {trust.described(places)}; if you trust it, give --trust (in "
        "Python trust=True), or name it on the command line yourself"
    )
