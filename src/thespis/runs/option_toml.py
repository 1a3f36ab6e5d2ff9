"""Writes the options of a run as TOML, each with its help (option_file.py reads them)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from thespis.core import imitates
from thespis.runs.config import NOT_OPTIONS, Config, gather
from thespis.runs.config_checks import complete
from thespis.runs.config_presets import preset_of
from thespis.tuning import TUNERS
from thespis.values import UNSET, Option, fields

WIDTH = 98
EXAMPLES = {"env": "jax:pendulum", "demos": "runs/sac/jax-pendulum_1"}  # where none is given
CALLBACKS = (
    'Your own code for events of the run: ["MODULE:CLASS"] of thespis.Callback. A file that names '
    "code needs --trust; --callback on the command line does not."
)
HEAD = (
    "Options for `thespis train --config FILE`. They override the preset, and the command line "
    "overrides them. Lines that are commented out follow from other options, or are not set."
)


def written(algo: Any, values: dict[str, Any]) -> str:
    """Returns a TOML file with every option of a run: as given, from the preset, or the default."""
    out = values.get("out")
    config = gather(algo, {name: x for name, x in values.items() if name != "out"})
    algorithm: Any = config.Algorithm
    needed = EXAMPLES if imitates(algorithm) else {"env": EXAMPLES["env"]}
    missing = {name: x for name, x in needed.items() if getattr(config, name) is None}
    done = complete(replace(config, **missing))
    preset = preset_of(config.algo, algorithm, config.preset)

    lines = [comment(HEAD), "", f"algo = {toml(config.algo)}"]
    run = fields(Config, skip=(*NOT_OPTIONS, "trust"))
    run.append(Option("out", str, "Folder of the runs; by default $THESPIS_RUNS, or else runs."))
    run.append(Option("callbacks", tuple[str, ...], CALLBACKS))
    follows = vars(done) | {"out": "runs", "callbacks": None}
    lines += entries(run, vars(config) | {"out": out}, follows, preset.get("train", ()))
    if config.tuner:
        lines += ["", comment("How hyper-parameters are tuned."), f"tuner = {toml(config.tuner)}"]
    options = fields(algorithm, skip=("spec",))
    taken = {option.name for option in (*run, *options)}  # names that no table may have
    tables: dict[str, list[Option]] = {"": []}
    for option in options:
        table = option.name.rpartition(".")[0]
        tables.setdefault("" if table in taken else table, []).append(option)
    lines += ["", comment(f"--- Static options of {config.algo}.")]
    for name, members in tables.items():
        lines += ["", f"[{name}]"] if name else []
        lines += entries(members, done.options, {}, preset.get("algo", ()), name)
    lines += ["", comment("--- Hyper-parameters: changing them never recompiles."), "", "[hp]"]
    hypers = fields(algorithm.Hyper)
    lines += entries(hypers, done.hp, {o.name: o.default for o in hypers})
    if config.tuner:
        chosen = {o.name: o.default for o in fields(TUNERS[config.tuner])} | config.pbt
        lines += ["", comment(f"--- Options of the tuner {config.tuner}."), "", "[pbt]"]
        lines += entries(fields(TUNERS[config.tuner]), chosen, done.pbt)
    return "\n".join(lines) + "\n"


def entries(
    options: Iterable[Option],
    values: dict[str, Any],
    otherwise: dict[str, Any],
    preset: Iterable[str] = (),
    table: str = "",
) -> list[str]:
    """Returns the lines of options; one without a value is commented out, with its default.

    A value that is None although the default or the preset is not is written as "none".
    """
    lines = []
    for option in options:
        name, value = option.name, values.get(option.name)
        if value is None and (option.default not in UNSET or name in preset) and name in values:
            value = "none"
        follows, key = otherwise.get(name), name.removeprefix(f"{table}.")
        key = toml(key) if "." in key else key
        unset = f"# {key} = {'...' if follows is None else toml(follows)}"
        lines += ["", *([comment(option.help)] if option.help else [])]
        lines.append(unset if value is None else f"{key} = {toml(value)}")
    return lines


def comment(text: str) -> str:
    text = f"{text[:1].upper()}{text[1:].removesuffix('.')}."
    return textwrap.fill(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def toml(value: Any) -> str:
    """Returns a value in TOML's syntax."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    value = "none" if value is None else value  # TOML has no null
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:_}" if isinstance(value, int) else repr(value)
