"""Verbs that train: `train`, `plan`, `resume`, `rerun`."""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import replace
from typing import Any, Literal

from thespis.cli.common import (
    HELP,
    JSON,
    NAMES,
    OUT,
    TRUST_ON,
    imported,
    overshadowed,
    run_and_options,
)
from thespis.cli.first_page import example_of, first_page, rate_option
from thespis.cli.options import describe, parse
from thespis.errors import ThespisError, printable
from thespis.values import Option, fields

PROCESSES = [
    Option(
        "coordinator",
        str,
        "Where processes that train together meet: HOST:PORT of process 0, or auto (as Slurm, "
        "Open MPI or Kubernetes say). Without it this process trains alone.",
    ),
    Option("processes", int, "How many they are; not needed with auto."),
    Option("process", int, "Which one this is, from 0; not needed with auto."),
    Option("wait", int, "Seconds to wait for all of them.", 120),
]


def train(argv: list[str]) -> int:
    algo, given = training("train", argv, [OUT, JSON, *PROCESSES])
    if algo is None:
        return 0

    join(given)
    api = imported("thespis.api")
    silent, out = given.pop("json", False), given.pop("out", "runs")
    result = api.train(algo, given.pop("env", None), out=out, progress=not silent, **given)
    if silent and leads():
        tell(result)
    return exit_code(result)


def plan(argv: list[str]) -> int:
    probe = Option("probe", bool, "Measure the time by a short run; --no-probe: sizes only.", True)
    algo, given = training("plan", argv, [probe, JSON])
    if algo is None:
        return 0

    api = imported("thespis.api")
    silent = given.pop("json", False)
    found = api.plan(algo, given.pop("env", None), **given)
    print(json.dumps(found.as_dict()) if silent else found)
    return 0 if found.fits else 1


def training(verb: str, argv: list[str], more: list[Option]) -> tuple[str | None, dict[str, Any]]:
    """The algorithm and all that is chosen of a run; no algorithm if help was wanted and given."""
    imported("thespis.runs.config")
    from thespis.algos import registry
    from thespis.runs.config import ALIASES, APART, COMPUTED, Config

    run = fields(Config, skip=APART)
    run = [replace(o, kind=tuple[str, ...]) if o.name == "seeds" else o for o in run]
    run.insert(3, Option("seed", int, "One seed."))
    run += more
    tuning = tuner_options()
    algo, *rest = argv or ["--help"]
    if algo in HELP:
        about = textwrap.fill(f"algorithms: {', '.join(registry.names())}", 96)
        about += f"\n`thespis {verb} ALGO --help` has what is special to one of them."
        if algo == "--help-all":
            print(f"usage: thespis {verb} ALGO --env ENV [options]\n\n{about}\n")
            print(f"{describe(run)}\n\nA population that tunes itself:\n{describe(tuning)}\n")
            print(f"example: thespis {verb} sac --env Pendulum-v1 --steps 20000 --seeds 0-4")
        else:
            lines = [o for o in run if o.name not in ("demos", "preset")]
            print(first_page(verb, "ALGO", about, lines + tuning))
        return None, {}
    if algo.startswith("-"):
        raise ThespisError(f"name the algorithm first: thespis {verb} ALGO {algo} ...")
    algorithm = Config(algo, None).Algorithm
    choices = fields(algorithm, "algo.", skip=("spec",))
    hypers = fields(algorithm.Hyper, "hp.")
    short = [replace(o, name=o.name.partition(".")[2]) for o in choices + hypers]
    if "--help-all" in rest:
        print(f"usage: thespis {verb} {algo} --env ENV [options]\n\n{algorithm.__doc__}\n")
        print(f"The run:\n{describe(run)}\n\nStatic choices of {algo}:\n{describe(choices)}\n")
        print(f"Hyper-parameters (a change never recompiles):\n{describe(hypers)}\n")
        print(f"A population that tunes itself:\n{describe(tuning)}\n")
        for preset, groups in algorithm.presets.items():
            print(f"--preset {preset:<15} {groups.get('for', '')}".rstrip())
        print("The prefixes algo. and hp. may be left out; Stable-Baselines3's names work as well.")
        print(f"example: thespis {verb} {algo} {example_of(algo)} --hp.gamma 0.98")
        return None, {}
    if {*HELP} & {*rest}:
        skip = () if getattr(algorithm, "demonstrated", False) else ("demos",)
        lines = [o for o in run + tuning + short + rate_option(short) if o.name not in skip]
        about = (algorithm.__doc__ or "").partition("\n\n")[0]
        print(first_page(verb, algo, about, lines, list(algorithm.presets)))
        return None, {}
    kinds = {o.name: o.kind for o in run + short}
    same = [Option(name, kinds[ours]) for name, ours in ALIASES.items() if ours in kinds]
    computed = [Option(name, kind) for name, kind in COMPUTED.items()]
    options = run + tuning + choices + hypers + short + same + computed
    words, given = parse(rest, options)
    if words:
        hint = "options start with --" if "env" in given else f"is it --env {words[0]}?"
        raise ThespisError(f"unexpected {words[0]!r}: {hint}")
    for text in overshadowed(algo, given.get("env")):
        print(f"note: {printable(text)}", file=sys.stderr)
    return algo, given


def tuner_options() -> list[Option]:
    """Options of populations: how many, who tunes them, and the fields of all tuners."""
    from thespis.tuning import TUNERS

    every = {o.name: o for kind in reversed(TUNERS.values()) for o in fields(kind, "pbt.")}
    names: Any = Literal[tuple(TUNERS)]
    return [
        Option("members", int, "Members of a population, with seeds from --seed on."),
        Option("pbt", bool, "Population-based training; like --tuner pbt."),
        Option("tuner", names, "Who tunes: pbt, or a control that draws at random, or none."),
        *every.values(),
    ]


def resume(argv: list[str]) -> int:
    options = [
        Option("steps", int, "Train to this many steps instead of the run's own."),
        Option("member", str, "Go on with this member (a number, or best) in a run of its own."),
        replace(OUT, help="Folder of that run."),
        Option("devices", int, "Devices of every process; by default as before."),
        TRUST_ON,
        JSON,
        *PROCESSES,
    ]
    example = "resume runs/sac/jax-pendulum_1 --steps 50000"
    path, given = run_and_options("resume RUN", argv, options, example)
    if path is None:
        return 0
    join(given)
    api = imported("thespis.api")
    silent = given.pop("json", False)
    result = api.resume(path, progress=not silent, **given)
    if silent and leads():
        tell(result)
    return exit_code(result)


def rerun(argv: list[str]) -> int:
    options = [
        Option("member", str, "Whose hyper-parameters: a number, or best.", "best"),
        Option("seed", int, "Another seed than that of the member."),
        replace(OUT, help="Folder of the new run."),
        replace(TRUST_ON, help=f"{NAMES}; the new run is remembered."),
        JSON,
    ]
    example = "rerun runs/sac/jax-pendulum_1 --member best"
    path, given = run_and_options("rerun RUN", argv, options, example)
    if path is None:
        return 0

    api = imported("thespis.api")
    silent = given.pop("json", False)
    result = api.rerun(path, progress=not silent, **given)
    if silent and leads():
        tell(result)
    return exit_code(result)


def join(given: dict[str, Any]) -> None:
    """Take the options of several processes out of those given, and meet the others."""
    found = {o.name: given.pop(o.name) for o in PROCESSES if o.name in given}
    if not found:
        return
    if "coordinator" not in found:
        raise ThespisError(f"{next(iter(found))} needs the coordinator: give HOST:PORT, or auto")

    from thespis.xla import multihost

    multihost.join(**found)


def leads() -> bool:
    """Whether this process is the one that speaks."""
    from thespis.xla.threads import process_index_and_count

    return process_index_and_count()[0] == 0


def exit_code(run) -> int:
    """That of a process which was stopped by a signal, if it was: what follows `&&` waits."""
    return 128 + run.signal if run.signal else 0


def tell(run) -> None:
    """The line of `train --json`, `resume --json` and `rerun --json`.

    `rewards` are the last evaluations of the `seeds`, `metrics` the last values of every
    column, as means over the seeds. A tuned population also tells its best member, whom each
    member copied last (itself if nobody), and the hyper-parameters of all.
    """
    table, seeds = run.metrics, run.config.seeds
    last = {}  # of every column, the last value of each seed that has one
    for name, column in table.items():
        known = (column[(table["member"] == m) & (column == column)] for m in range(len(seeds)))
        last[name] = [float(x[-1]) if len(x) else None for x in known]
    means = {name: [x for x in values if x is not None] for name, values in last.items()}
    found = {
        "run": str(run.path),
        "state": run.status["state"],
        "step": run.status["step"],
        "seeds": seeds,
        "rewards": last["eval/mean_reward"],
        "metrics": {k: sum(xs) / len(xs) for k, xs in means.items() if xs and k != "member"},
    }
    if run.config.tuner:
        hypers = {name: x.tolist() for name, x in vars(run.hypers()).items()}
        found |= {"best": run.member("best"), "parents": run.parents, "hparams": hypers}
    print(json.dumps(found))
