"""Writes the options of a run as TOML, each with what it means (read back by option_file.py)."""

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
HEAD = (
    "Options for `thespis train --config FILE`. The command line wins over them, and they win over "
    "the preset. What is commented out follows from the others, or is not set."
)


def written(algo: Any, values: dict[str, Any]) -> str:
    """Returns a file with every option of a run: as given, else of the preset, else by default."""
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
    follows = vars(done) | {"out": "runs"}
    lines += entries(run, vars(config) | {"out": out}, follows, preset.get("train", ()))
    if config.tuner:
        lines += ["", comment("How hyper-parameters are tuned."), f"tuner = {toml(config.tuner)}"]
    options = fields(algorithm, skip=("spec",))
    taken = {option.name for option in (*run, *options)}  # which no table can be called
    tables: dict[str, list[Option]] = {"": []}
    for option in options:
        table = option.name.rpartition(".")[0]
        tables.setdefault("" if table in taken else table, []).append(option)
    lines += ["", comment(f"--- Static choices of {config.algo}.")]
    for name, members in tables.items():
        lines += ["", f"[{name}]"] if name else []
        lines += entries(members, done.options, {}, preset.get("algo", ()), name)
    lines += ["", comment("--- Hyper-parameters: a change never recompiles."), "", "[hp]"]
    hypers = fields(algorithm.Hyper)
    lines += entries(hypers, done.hp, {o.name: o.default for o in hypers})
    if config.tuner:
        given = {o.name: o.default for o in fields(TUNERS[config.tuner])} | config.pbt
        lines += ["", comment(f"--- Choices of the tuner {config.tuner}."), "", "[pbt]"]
        lines += entries(fields(TUNERS[config.tuner]), given, done.pbt)
    return "\n".join(lines) + "\n"


def entries(
    options: Iterable[Option],
    values: dict[str, Any],
    otherwise: dict[str, Any],
    preset: Iterable[str] = (),
    table: str = "",
) -> list[str]:
    """Returns the lines of options; what has no value is commented out, with what it is then.

    A value that is None though the default or the preset has one is "none".
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
    """Returns a value as TOML writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    value = "none" if value is None else value  # TOML has no null
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:_}" if isinstance(value, int) else repr(value)
