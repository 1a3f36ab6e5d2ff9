"""Writes and reads the config of a run, config.json, and checks it whenever it is read."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

from thespis import envs
from thespis.algos import registry
from thespis.errors import ThespisError, require
from thespis.runs import trust
from thespis.runs.config import RETURN, Config, groups
from thespis.runs.config_checks import check_counts
from thespis.runs.config_names import RENAMED
from thespis.runs.directory import read_config, versions, write_json
from thespis.runs.formats import FORMAT
from thespis.tuning import hyper
from thespis.values import Reference, convert

TRUST = "trust"  # the field that only the user may set: it is neither written nor read
# Fields that runs of older versions lack.
LATER = ("devices", "frame_stack", "tuner", "pbt", "schedule", "demos", "demo_episodes", "patience")
LATER += ("skills_from", "skill_steps", "log_keys", "wandb", "name", "tags", "notes", "callbacks")
LATER += ("mlflow", "trackio", "device", "env_workers", "collectors", "sync_freq", "max_lag")


def write(folder: Path, config: Config, command: str) -> None:
    """Writes all that is needed to run it again, except environments passed as objects."""
    fields = {name: value for name, value in vars(config).items() if name != TRUST}
    for name in ("env", "eval_env"):
        if fields[name] is not None and not isinstance(fields[name], str):
            fields[name], fields[f"{name}_given"] = envs.label(fields[name]), True
    source = getattr(config.demos, "path", config.demos)  # of a run its folder
    if isinstance(source, Path):
        fields["demos"] = str(source)
    elif source is not None and not isinstance(source, str):
        fields["demos"], fields["demos_given"] = type(source).__name__, True
    about = {"format": FORMAT, "command": command, "versions": versions()}
    if registry.module_of(config.algo):  # so that readers need not import the algorithm
        about["judge"] = config.judge
    write_json(folder / "config.json", fields | about)


def judge_of(folder: Path) -> str:
    """Returns the metric that chooses the best policy, without importing code of the run."""
    saved = read_config(folder)
    if not registry.module_of(saved["algo"]):
        return read(folder)[0].judge
    judge = saved.get("judge")
    return judge if isinstance(judge, str) else RETURN


def read(folder: Path, trusted: bool = False) -> tuple[Config, dict[str, Any]]:
    """Returns the config, and the whole content of config.json.

    An algorithm MODULE:CLASS is imported if the run is trusted, or else refused (trust.py).
    """
    saved = read_config(folder)
    if registry.module_of(saved["algo"]):
        trust.check(folder, saved, trusted)
        registry.find(saved["algo"])  # its errors are not about config.json
    return parsed(folder / "config.json", saved), saved


def parsed(path: Path, saved: dict[str, Any]) -> Config:
    """Returns the config that a file contains, or says what is wrong with it."""
    try:
        return parse(saved)
    except (KeyError, TypeError, AttributeError, ValueError, ThespisError) as error:
        raise ThespisError(f"{path} is not the config of a run: check {error}") from error


def parse(saved: dict[str, Any]) -> Config:
    """Returns the config in a config.json, every value checked: users may have edited it.

    Functions named by options are not imported here.
    """
    algorithm: Any = registry.find(saved["algo"])
    known = groups(algorithm)

    def typed(group: str, values: dict[str, Any]) -> dict[str, Any]:
        new = {}
        for name, value in values.items():
            require(name in known[group], f"{saved['algo']} has no option {name}")
            kind = known[group][name]
            if kind is Any:  # an environment or demonstrations, by their names
                require(value is None or isinstance(value, str), f"{name} = {value!r}: give text")
            refers = Reference in (kind, *typing.get_args(kind))
            new[name] = value if refers else convert(name, kind, value)
            check_counts(name, new[name])
        return new

    names = (f.name for f in dataclasses.fields(Config) if f.name != TRUST)
    fields = {name: saved[name] for name in names if name in saved or name not in LATER}
    options = {RENAMED.get(name) or name: value for name, value in fields["options"].items()}
    fields |= typed("train", {name: x for name, x in fields.items() if name in known["train"]})
    tuples = lambda x: tuple(x) if isinstance(x, list) else x
    fields["options"] = typed("algo", options)
    fields["pbt"] = {name: tuples(value) for name, value in saved.get("pbt", {}).items()}
    fields["schedule"] = tuple((int(step), new) for step, new in saved.get("schedule", []))
    fields["callbacks"] = tuple(saved.get("callbacks", ()))
    config = Config(**fields)
    for hp in (config.hp, *(changes for _, changes in config.schedule)):
        hyper.check(algorithm.Hyper, hp, config.members)
    if config.tuner is not None:
        config.tuning.check(algorithm.Hyper, config.members, config.scores)
    return config
