"""Commands that train: `train`, `plan`, `config`, `resume`, `rerun`."""

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
from thespis.cli.options import read, read_one, split, unexpected
from thespis.errors import ThespisError, printable, require
from thespis.values import UNSET, Option, fields, show
from thespis.xla.threads import Device

CALLBACK = Option(
    "callback",
    tuple[str, ...],
    "Call your own code at events of the run: MODULE:CLASS of a thespis.Callback "
    "(docs/callbacks.md). Can be repeated.",
    metavar="MODULE:CLASS",
    repeated=True,
)
CONFIG = Option(
    "config",
    str,
    "Read options from this file, TOML or a run's config.json; the command line overrides it.",
)
DRY_RUN = Option("dry_run", bool, "Print what would be run, and write nothing.", False)
POPULATION = "A population that tunes itself"
PROCESSES = [
    Option(
        "coordinator",
        str,
        "Train in several processes: HOST:PORT of process 0, or auto (to detect Slurm, Open MPI "
        "or Kubernetes). Without it, this process trains alone.",
    ),
    Option("processes", int, "Number of processes; not needed with auto."),
    Option("process", int, "Index of this process, from 0; not needed with auto."),
    Option("wait", int, "Seconds to wait for all processes.", 120),
]
RAY = [
    Option(
        "ray",
        str,
        "Train groups of members, or run collectors, on a cluster of Ray, and restart those that "
        "die (docs/scale.md): HOST:PORT, auto, or by default RAY_ADDRESS, or else a Ray of this "
        "machine alone.",
        metavar="[ADDRESS]",
        bare=True,
    ),
    Option("group", int, "Members of each group; by default what fills the cluster's CPUs."),
    Option(
        "deadline",
        float,
        "Seconds that an exchange waits for groups that are late, once another is there; by "
        "default it waits for all.",
    ),
]


ONLY_TRAIN = [OUT, CALLBACK, DRY_RUN, *PROCESSES, *RAY]  # options of which a plan needs nothing


def train(argv: list[str]) -> int:
    more = [CONFIG, OUT, CALLBACK, DRY_RUN, JSON, *PROCESSES, *RAY]
    algo, chosen = read_training("train", argv, more)
    chosen["callbacks"] = named(chosen.pop("callback", None))
    if chosen.pop("dry_run", False):
        return dry_run(algo, chosen)
    join(chosen)
    return finish("train", chosen, algo, chosen.pop("env", None))


def resume(argv: list[str]) -> int:
    options = [
        Option("steps", int, "Train to this many steps in total; by default as configured."),
        Option("member", str, "Continue only this member (a number, or best) in a new run."),
        replace(OUT, help="With --member: folder of the new run."),
        Option("device", Device, "Type of device; by default as before, if it is available."),
        Option("devices", int, "Devices per process; by default as before."),
        replace(CALLBACK, help="Use this callback instead of the run's own; none disables them."),
        TRUST_AND_REMEMBER,
        JSON,
        *PROCESSES,
        RAY[0],
        RAY[2],
    ]
    example = "resume runs/sac/jax-pendulum_1 --steps 50000"
    if not {*HELP} & {*argv}:
        refuse_changes(argv, {o.name for o in options})
    [path], args = read_arguments("resume RUN", argv, options, example)
    args.callbacks = named(vars(args).pop("callback"))
    join(vars(args))
    return finish("resume", vars(args), path)


def named(callbacks: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Returns the callbacks to use; None leaves the choice to the run or the file."""
    return () if callbacks == ("none",) else callbacks


def rerun(argv: list[str]) -> int:
    options = [
        Option(
            "member", str, "Use the hyper-parameters of this member: a number, or best.", "best"
        ),
        Option("seed", int, "Random seed; by default that of the member."),
        replace(OUT, help="Folder of the new run."),
        replace(TRUST_AND_REMEMBER, help=f"{IMPORT}, and trust the new run as well."),
        JSON,
    ]
    example = "rerun runs/sac/jax-pendulum_1 --member best"
    [path], args = read_arguments("rerun RUN", argv, options, example)
    return finish("rerun", vars(args), path)


def plan(argv: list[str]) -> int:
    probe = Option("probe", bool, "Measure time in a short run; --no-probe: sizes only.", True)
    algo, chosen = read_training("plan", argv, [CONFIG, probe, JSON], ONLY_TRAIN)
    callbacks = named(chosen.get("callback"))
    chosen = {name: x for name, x in chosen.items() if name not in {o.name for o in ONLY_TRAIN}}
    chosen |= {} if callbacks is None else {"callbacks": callbacks}

    api = imported("thespis.api")
    as_json = chosen.pop("json", False)
    estimate = api.plan(algo, chosen.pop("env", None), **chosen)
    print(json.dumps(estimate.as_dict()) if as_json else estimate)
    return 0 if estimate.fits else 1


def config(argv: list[str]) -> None:
    """Prints a file with all options, for `train --config`."""
    algo, chosen = read_training("config", argv, [CONFIG, OUT, CALLBACK, JSON])
    if "callback" in chosen:
        chosen["callbacks"] = named(chosen.pop("callback"))

    from thespis.runs import option_file, option_toml

    as_json, file = chosen.pop("json", False), chosen.pop("config", None)
    text = option_toml.written(*option_file.merge(algo, chosen, file))
    print(json.dumps(tomllib.loads(text)) if as_json else text.rstrip())


def dry_run(algo: str, chosen: dict[str, Any]) -> int:
    """Prints sizes, placement and every setting of a run, without creating it."""
    elsewhere = {o.name for o in (*PROCESSES, *RAY)}
    chosen = {name: x for name, x in chosen.items() if name not in elsewhere}
    as_json, out = chosen.pop("json", False), chosen.pop("out", None)
    chosen = {name: x for name, x in chosen.items() if (name, x) != ("callbacks", None)}
    api = imported("thespis.api")
    estimate = api.plan(algo, chosen.pop("env", None), probe=False, **chosen)

    from thespis.runs import callback_names
    from thespis.runs.naming import default_out, folder_name

    config = estimate.config
    callback_names.make(config.callbacks)  # refuses wrong ones
    folder = f"{out or default_out()}/{algo}/{folder_name(config, estimate.env)}_N"
    settings = {name: x for name, x in vars(config).items() if name not in ("options", "hp", "pbt")}
    settings |= config.options | {f"hp.{name}": x for name, x in config.hp.items()}
    settings |= {f"pbt.{name}": x for name, x in config.pbt.items()}
    if as_json:
        print(json.dumps(estimate.as_dict() | {"run": folder, "config": settings}, default=str))
        return 0 if estimate.fits else 1
    print(printable(f"{estimate}\nfolder     {folder}"), end="\n\n")
    known = {name: x for name, x in settings.items() if x not in UNSET}
    for name, value in known.items():
        print(printable(f"{name:<24} {show(value)}"))
    return 0 if estimate.fits else 1


def read_training(
    command: str, argv: list[str], more: list[Option], unlisted: list[Option] | None = None
) -> tuple[str, dict[str, Any]]:
    """Returns the algorithm and the options in `argv`, or prints the help.

    Those that are `unlisted` are accepted as well, but not in the help.
    """
    imported("thespis.runs.config")
    from thespis.algos import registry
    from thespis.core import imitates

    run, tuning = run_options(more), tuner_options()
    algo, *rest = argv or ["--help"]
    early = lambda name: read_one(argv, next(o for o in run if o.name == name))
    if algo.startswith("-") and not {*HELP} & {*argv} and (file := early("config")):
        from thespis.runs.option_file import find_algo

        algo, rest = find_algo(file, bool(early("trust"))), argv
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
        demonstrated = everything or imitates(algorithm)
        groups = {
            "The run": [o for o in run if demonstrated or o.name != "demos"],
            f"Static options of {algo}": choices,
            "Hyper-parameters (changing them never recompiles)": hypers,
            POPULATION: tuning,
        }
        about = about if everything else about.partition("\n\n")[0]
        print(help_page(command, algo, about, groups, algorithm.presets, everything))
        raise HelpPrinted
    known = known_options(algorithm, run) + (unlisted or [])
    refuse_others(rest, known)
    words, typed = split(rest, known)
    if words:
        asked = f"unexpected {words[0]!r}: is it --env {words[0]}?"
        raise ThespisError(unexpected(words[0], rest) if "env" in typed else asked)
    for name, check in names_to_check(algo, algorithm).items():  # wrong names are reported first
        if name in typed:
            check(read(*typed[name]))
    chosen = {name: read(option, texts) for name, (option, texts) in typed.items()}
    for text in overshadowed(algo, chosen.get("env")):
        print(f"note: {printable(text)}", file=sys.stderr)
    return algo, chosen


def run_options(more: list[Option]) -> list[Option]:
    """Returns the fields of a run as options, and more."""
    from thespis.runs.config import NOT_OPTIONS, Config

    run = fields(Config, skip=NOT_OPTIONS)
    run = [replace(o, kind=tuple[str, ...]) if o.name == "seeds" else o for o in run]
    run.insert(3, Option("seed", int, "Random seed of a single member, or of the first one."))
    return run + more


def known_options(algorithm: Any, run: list[Option]) -> list[Option]:
    """Returns all that may be given to an algorithm: also by short names, and those of others."""
    from thespis.runs.config_names import ALIASES, COMPUTED

    long = fields(algorithm, "algo.", skip=("spec",)) + fields(algorithm.Hyper, "hp.")
    short = [replace(o, name=o.name.partition(".")[2]) for o in long]
    kinds = {o.name: o.kind for o in run + short}
    aliases = [Option(name, kinds.get(ours, str)) for name, ours in ALIASES.items()]
    computed = [Option(name, kind) for name, kind in COMPUTED.items()]
    return run + tuner_options() + long + short + aliases + computed


def refuse_others(argv: list[str], known: list[Option]) -> None:
    """Says what to write instead of an option of another library."""
    from thespis.runs.other_libraries import advice

    unknown = {w.lstrip("-").partition("=")[0].replace("-", "_") for w in argv if w[:2] == "--"}
    for text in map(advice, unknown - {o.name for o in known}):
        require(not text, text)


def refuse_changes(argv: list[str], known: set[str]) -> None:
    """Says how to change an option of a run, which `resume` continues as it was."""
    words = [w.partition("=")[0].lstrip("-") for w in argv if w[:2] == "--"]
    unknown = [word for word in words if word.replace("-", "_") not in known]
    if not unknown:
        return
    from thespis.algos import ALGORITHMS

    run = run_options([CONFIG])
    of_train = {o.name for kind in ALGORITHMS.values() for o in known_options(kind, run)}
    for word in unknown:
        require(
            word.replace("-", "_") not in of_train,
            f"--{word}: resume continues a run as it was; to change options, train another: "
            f"thespis train --config RUN --{word} ..., with --init-from RUN for its networks",
        )


def names_to_check(algo: str, algorithm: type) -> dict[str, Callable[[Any], Any]]:
    """Returns the options whose values are names, each with a function that refuses wrong ones."""
    from thespis import envs
    from thespis.runs.config_presets import preset_of

    preset = lambda name: preset_of(algo, algorithm, name)
    return {
        "preset": preset,
        "tuner": lambda name: name,
        "env": envs.check_name,
        "eval_env": envs.check_name,
    }


def tuner_options() -> list[Option]:
    """Returns the options of populations: their size, the tuner, and the fields of all tuners."""
    from thespis.tuning import TUNERS

    every = {o.name: o for kind in reversed(TUNERS.values()) for o in fields(kind, "pbt.")}
    names: Any = Literal[tuple(TUNERS)]
    return [
        Option("members", int, "Number of members, with consecutive seeds from --seed on."),
        Option("pbt", bool, "Use population-based training; the same as --tuner pbt."),
        Option(
            "tuner",
            names,
            "Method that tunes the hyper-parameters of the population.",
        ),
        *every.values(),
    ]


def finish(command: str, options: dict[str, Any], *words: Any) -> int:
    """Calls the function of thespis.api with this name, and returns the exit code."""
    from thespis.xla.threads import process_index_and_count

    as_json = options.pop("json", False)
    run = getattr(imported("thespis.api"), command)(*words, progress=not as_json, **options)
    if as_json and process_index_and_count()[0] == 0:
        print(json.dumps(result_of(run)))
    # A non-zero code after a signal, so that commands after `&&` in a shell are not run.
    return 128 + run.signal if run.signal else 0


def join(options: dict[str, Any]) -> None:
    """Removes the options about processes from `options`, and waits for the other processes."""
    values = {o.name: options.pop(o.name, o.default) for o in PROCESSES}
    changed = [o.name for o in PROCESSES if values[o.name] != o.default]
    if not changed:
        return
    if options.get("ray"):
        raise ThespisError(f"{changed[0]} and ray are two ways to train together: give one of them")
    if values["coordinator"] is None:
        raise ThespisError(f"{changed[0]} needs --coordinator: give HOST:PORT, or auto")

    from thespis.xla import multihost

    multihost.join(**values)


def result_of(run: Any) -> dict[str, Any]:
    """Returns the result that `train`, `resume` and `rerun` print with --json.

    `rewards` are the last evaluations of the `seeds`, `metrics` the last values of every
    column, as means over the seeds. A tuned population also has its best member, the member that
    each one copied last (or itself), and all hyper-parameters.
    """
    table, seeds = run.metrics, run.config.seeds
    last = {}  # {column: last value of each seed, or None}
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
