"""Commands that train: `train`, `plan`, `resume`, `rerun`."""

from __future__ import annotations

import json
import sys
import textwrap
import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from thespis.cli.common import (
    HELP,
    IMPORT,
    JSON,
    OUT,
    TRUST_AND_REMEMBER,
    HelpPrinted,
    imported,
    overshadowed,
    read_arguments,
)
from thespis.cli.help_pages import help_page
from thespis.cli.options import read, split
from thespis.errors import ThespisError, printable, require
from thespis.values import UNSET, Option, fields, show
from thespis.xla.threads import Device

CALLBACK = Option(
    "callback",
    tuple[str, ...],
    "Call your own code at events of the run: MODULE:CLASS of a thespis.Callback "
    "(docs/callbacks.md). May be given several times.",
    metavar="MODULE:CLASS",
    repeated=True,
)
CONFIG = Option(
    "config",
    str,
    "Read options from this file, TOML or the config.json of a run; those given here win.",
)
RAY = Option(
    "ray",
    str,
    "The cluster of Ray on which collectors are: HOST:PORT of its head, or auto for one on this "
    "machine. Without it, RAY_ADDRESS, or else a Ray that is started here.",
    metavar="ADDRESS",
)
DRY_RUN = Option("dry_run", bool, "Say what would be run, and leave nothing.", False)
POPULATION = "A population that tunes itself"
PROCESSES = [
    Option(
        "coordinator",
        str,
        "Where processes that train together meet: HOST:PORT of process 0, or auto (as Slurm, "
        "Open MPI or Kubernetes say). Without it this process trains alone.",
    ),
    Option("processes", int, "How many processes there are; not needed with auto."),
    Option("process", int, "Which process this is, from 0; not needed with auto."),
    Option("wait", int, "Seconds to wait for all processes.", 120),
]


def train(argv: list[str]) -> int:
    more = [CONFIG, OUT, CALLBACK, RAY, DRY_RUN, JSON, *PROCESSES]
    algo, chosen = read_training("train", argv, more)
    given = chosen.pop("callback", None)
    if chosen.pop("dry_run", False):
        return dry_run(algo, chosen)
    chosen["callbacks"] = named(given)
    join(chosen)
    return finish("train", chosen, algo, chosen.pop("env", None))


def resume(argv: list[str]) -> int:
    options = [
        Option("steps", int, "Train to this many steps instead of the run's own number."),
        Option("member", str, "Continue this member (a number, or best) in a run of its own."),
        replace(OUT, help="Folder of that run."),
        Option("device", Device, "Kind of device; by default as before, if it is there."),
        Option("devices", int, "Devices of every process; by default as before."),
        replace(CALLBACK, help="Call this code instead of what the run names; none: call none."),
        RAY,
        TRUST_AND_REMEMBER,
        JSON,
        *PROCESSES,
    ]
    example = "resume runs/sac/jax-pendulum_1 --steps 50000"
    [path], args = read_arguments("resume RUN", argv, options, example)
    args.callbacks = named(vars(args).pop("callback"))
    join(vars(args))
    return finish("resume", vars(args), path)


def named(callbacks: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Returns the callbacks that were named; None leaves them to the run or the file."""
    return () if callbacks == ("none",) else callbacks


def rerun(argv: list[str]) -> int:
    options = [
        Option("member", str, "Whose hyper-parameters: a number, or best.", "best"),
        Option("seed", int, "Seed; by default the member's."),
        replace(OUT, help="Folder of the new run."),
        replace(TRUST_AND_REMEMBER, help=f"{IMPORT}, and trust the new run as well."),
        JSON,
    ]
    example = "rerun runs/sac/jax-pendulum_1 --member best"
    [path], args = read_arguments("rerun RUN", argv, options, example)
    return finish("rerun", vars(args), path)


def plan(argv: list[str]) -> int:
    probe = Option("probe", bool, "Measure the time by a short run; --no-probe: sizes only.", True)
    algo, chosen = read_training("plan", argv, [CONFIG, probe, JSON])

    api = imported("thespis.api")
    as_json = chosen.pop("json", False)
    estimate = api.plan(algo, chosen.pop("env", None), **chosen)
    print(json.dumps(estimate.as_dict()) if as_json else estimate)
    return 0 if estimate.fits else 1


def config(argv: list[str]) -> None:
    """Prints a file with all options, for `train --config`."""
    algo, chosen = read_training("config", argv, [CONFIG, OUT, JSON])

    from thespis.runs import option_file, option_toml

    as_json, file = chosen.pop("json", False), chosen.pop("config", None)
    text = option_toml.written(*option_file.merge(algo, chosen, file))
    print(json.dumps(tomllib.loads(text)) if as_json else text.rstrip())


def dry_run(algo: str, chosen: dict[str, Any]) -> int:
    """Prints sizes, placement and every setting of a run, of which nothing is made."""
    chosen = {n: x for n, x in chosen.items() if n not in {o.name for o in (RAY, *PROCESSES)}}
    as_json, out = chosen.pop("json", False), chosen.pop("out", None)
    api = imported("thespis.api")
    estimate = api.plan(algo, chosen.pop("env", None), probe=False, **chosen)

    from thespis.runs.directory import default_out
    from thespis.runs.naming import folder_name

    config = estimate.config
    folder = f"{out or default_out()}/{algo}/{folder_name(config, estimate.env)}_N"
    settings = {name: x for name, x in vars(config).items() if name not in ("options", "hp", "pbt")}
    settings |= config.options | {f"hp.{name}": x for name, x in config.hp.items()}
    settings |= {f"pbt.{name}": x for name, x in config.pbt.items()}
    if as_json:
        print(json.dumps(estimate.as_dict() | {"run": folder, "config": settings}, default=str))
        return 0 if estimate.fits else 1
    print(printable(f"{estimate}\nfolder     {folder}"), end="\n\n")
    given = {name: x for name, x in settings.items() if x not in UNSET}
    for name, value in given.items():
        print(printable(f"{name:<24} {show(value)}"))
    return 0 if estimate.fits else 1


def read_training(command: str, argv: list[str], more: list[Option]) -> tuple[str, dict[str, Any]]:
    """Returns the algorithm and the options that were given; or prints the help."""
    imported("thespis.runs.config")
    from thespis.algos import registry
    from thespis.runs.config import NOT_OPTIONS, Config
    from thespis.runs.config_names import ALIASES, COMPUTED
    from thespis.runs.other_libraries import advice

    run = fields(Config, skip=NOT_OPTIONS)
    run = [replace(o, kind=tuple[str, ...]) if o.name == "seeds" else o for o in run]
    run.insert(3, Option("seed", int, "One seed."))
    run += more
    tuning = tuner_options()
    algo, *rest = argv or ["--help"]
    if algo.startswith("-") and not {*HELP} & {*argv} and (file := file_in(argv)):
        from thespis.runs.option_file import find_algo

        algo, rest = find_algo(file, "--trust" in argv), argv
    if algo in HELP:
        about = textwrap.fill(f"algorithms: {', '.join(registry.names())}", 96)
        about += f"\n`thespis {command} ALGO --help` shows the options of one of them."
        everything = algo == "--help-all"
        groups = {"The run": [o for o in run if everything or o.name != "demos"]}
        print(help_page(command, "ALGO", about, groups | {POPULATION: tuning}, {}, everything))
        raise HelpPrinted
    if algo.startswith("-"):
        raise ThespisError(f"name the algorithm first: thespis {command} ALGO {algo} ...")
    algorithm = registry.find(algo)
    choices = fields(algorithm, "algo.", skip=("spec",))
    hypers = fields(algorithm.Hyper, "hp.")
    if {*HELP} & {*rest}:
        everything, about = "--help-all" in rest, algorithm.__doc__ or ""
        demonstrated = everything or getattr(algorithm, "demonstrated", False)
        groups = {
            "The run": [o for o in run if demonstrated or o.name != "demos"],
            f"Static choices of {algo}": choices,
            "Hyper-parameters (a change never recompiles)": hypers,
            POPULATION: tuning,
        }
        about = about if everything else about.partition("\n\n")[0]
        print(help_page(command, algo, about, groups, algorithm.presets, everything))
        raise HelpPrinted
    short = [replace(o, name=o.name.partition(".")[2]) for o in choices + hypers]
    kinds = {o.name: o.kind for o in run + short}
    aliases = [Option(name, kinds.get(ours, str)) for name, ours in ALIASES.items()]
    computed = [Option(name, kind) for name, kind in COMPUTED.items()]
    known = run + tuning + choices + hypers + short + aliases + computed
    unknown = {w.lstrip("-").partition("=")[0].replace("-", "_") for w in rest if w[:2] == "--"}
    for text in map(advice, unknown - {o.name for o in known}):
        require(not text, text)
    words, given = split(rest, known)
    if words:
        hint = "options start with --" if "env" in given else f"is it --env {words[0]}?"
        raise ThespisError(f"unexpected {words[0]!r}: {hint}")
    for name, check in names_to_check(algo, algorithm).items():  # before any number
        if name in given:
            check(read(*given[name]))
    chosen = {name: read(option, texts) for name, (option, texts) in given.items()}
    for text in overshadowed(algo, chosen.get("env")):
        print(f"note: {printable(text)}", file=sys.stderr)
    return algo, chosen


def names_to_check(algo: str, algorithm: type) -> dict[str, Callable[[Any], Any]]:
    """Returns options whose values are names, and what refuses those that there are not."""
    from thespis import envs
    from thespis.runs.config_presets import preset_of

    preset = lambda name: preset_of(algo, algorithm, name)
    return {
        "preset": preset,
        "tuner": lambda name: name,
        "env": envs.check_name,
        "eval_env": envs.check_name,
    }


def file_in(argv: list[str]) -> str | None:
    """Returns the value of --config."""
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--config" or word.startswith("--config="):
            return word.partition("=")[2] or after
    return None


def tuner_options() -> list[Option]:
    """Returns the options of populations: their size, the tuner, and the fields of all tuners."""
    from thespis.tuning import TUNERS

    every = {o.name: o for kind in reversed(TUNERS.values()) for o in fields(kind, "pbt.")}
    names: Any = Literal[tuple(TUNERS)]
    return [
        Option(
            "members", int, "Train a population of this many members, with seeds from --seed on."
        ),
        Option("pbt", bool, "Tune it by population-based training; the same as --tuner pbt."),
        Option(
            "tuner",
            names,
            "How hyper-parameters are tuned: pbt, another method, at random, or not at all.",
        ),
        *every.values(),
    ]


def finish(command: str, options: dict[str, Any], *words: Any) -> int:
    """Calls the function of the API with this name, and returns the exit code of the process."""
    from thespis.xla.threads import process_index_and_count

    as_json = options.pop("json", False)
    run = getattr(imported("thespis.api"), command)(*words, progress=not as_json, **options)
    if as_json and process_index_and_count()[0] == 0:
        print(json.dumps(result_of(run)))
    # What follows `&&` in a shell is not run if a signal has stopped this process.
    return 128 + run.signal if run.signal else 0


def join(options: dict[str, Any]) -> None:
    """Takes the options of several processes out of all options, and waits for the others."""
    values = {o.name: options.pop(o.name, o.default) for o in PROCESSES}
    changed = [o.name for o in PROCESSES if values[o.name] != o.default]
    if not changed:
        return
    if values["coordinator"] is None:
        raise ThespisError(f"{changed[0]} needs the coordinator: give HOST:PORT, or auto")

    from thespis.xla import multihost

    multihost.join(**values)


def result_of(run: Any) -> dict[str, Any]:
    """Returns what `train`, `resume` and `rerun` print with --json.

    `rewards` are the last evaluations of the `seeds`, `metrics` the last values of every
    column, as means over the seeds. A tuned population also has its best member, whom each
    member copied last (itself if nobody), and the hyper-parameters of all.
    """
    table, seeds = run.metrics, run.config.seeds
    last = {}  # of every column, the last value of each seed that has one
    for name, column in table.items():
        known = (column[(table["member"] == m) & (column == column)] for m in range(len(seeds)))
        last[name] = [float(x[-1]) if len(x) else None for x in known]
    means = {name: [x for x in values if x is not None] for name, values in last.items()}
    result = {
        "run": str(run.path),
        "state": run.status["state"],
        "step": run.status["step"],
        "seeds": seeds,
        "rewards": last["eval/mean_reward"],
        "metrics": {k: sum(xs) / len(xs) for k, xs in means.items() if xs and k != "member"},
    }
    if run.config.tuner:
        hypers = {name: x.tolist() for name, x in vars(run.hypers()).items()}
        result |= {"best": run.member("best"), "parents": run.parents, "hparams": hypers}
    return result
