"""The command `sweep`: a table of trainings, its state, and what came out."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from thespis.cli.common import HELP, JSON, OUT, TRUST, HelpPrinted, imported
from thespis.cli.options import describe, read, read_one, split
from thespis.cli.training import known_options, refuse_others, run_options, tuner_options
from thespis.errors import ThespisError, printable
from thespis.values import Option, fields

USAGE = "sweep ALGO,... --env ENV,... --set NAME=VALUE,... | FILE.toml | FOLDER"
EXAMPLE = "sweep sac,td3 --env jax:pendulum --seeds 0-4 --set critic_lr=3e-4,1e-3"
RAW = ("set", "slurm")  # options whose words are read elsewhere
NOT_SWEPT = ("seed", "callbacks")
OWN = [
    Option(
        "set",
        tuple[str, ...],
        "Try these values of any option of `thespis train`: NAME=VALUE,VALUE (quote values of "
        "several words); NAME alone, or NAME=log:LOW:HIGH, is drawn from a prior. May be given "
        "several times.",
        metavar="NAME=VALUE,...",
        repeated=True,
    ),
    Option("env", tuple[str, ...], "Train in these environments.", metavar="ENV,..."),
    Option("seeds", tuple[str, ...], "Seeds of every job, all at once: 0-4, or 1 2 3."),
    Option(
        "sampler",
        Literal["grid", "random", "optuna"],
        "Which values are tried together: all combinations, some at random, or what Optuna "
        "proposes.",
        "grid",
    ),
    Option("trials", int, "With random and optuna: settings to try of each algorithm."),
    Option("sampler_seed", int, "Seed of the draws.", 0),
    Option("prune", bool, "With optuna: end jobs that are not worth going on.", True),
    Option("startup_trials", int, "With optuna: trials before any is pruned.", 5),
    Option("metric", str, "Column of metrics.csv to compare by.", "eval/mean_reward"),
    Option(
        "executor",
        Literal["local", "ray", "slurm"],
        "Where jobs run: on this machine, as tasks of Ray, or as jobs of Slurm.",
        "local",
    ),
    Option("jobs", int, "Jobs at a time; by default as many as there are cores."),
    Option("ray", str, "Address of a Ray cluster; by default $RAY_ADDRESS, or one started here."),
    Option(
        "slurm",
        tuple[str, ...],
        "Parameters of submitit, such as slurm_partition=gpu timeout_min=600.",
        metavar="NAME=VALUE ...",
        repeated=True,
    ),
    Option("name", str, "Call the folder so; by default after the file, or what is compared."),
    replace(OUT, help="Folder of the runs; the sweep is below its `sweeps`."),
    Option("status", bool, "Only tell how far the sweep is.", False),
    replace(TRUST, help="Import the code that the file or folder names."),
    JSON,
]


def sweep(argv: list[str]) -> int:
    imported("thespis.runs.config")
    word, *rest = argv or ["--help"]
    if {*HELP} & {*argv}:
        print_help(None if word in HELP else word, "--help-all" in argv)
        raise HelpPrinted
    if word.startswith("-"):
        raise ThespisError(f"name algorithms, a file or a folder first: thespis {USAGE}")
    file = word if os.path.exists(word) or word.endswith(".toml") else None
    chosen = read_options(algorithms(word, bool(read_one(rest, TRUST))), rest)
    as_json, trust = chosen.pop("json", False), chosen.pop("trust", False)
    only_status = chosen.pop("status", False)
    algo = word if file is None else None

    sweeps = imported("thespis.sweeps.sweep")
    if only_status:
        table, _ = sweeps.open_sweep({"algo": algo} | chosen, file, trust, new=False)
    else:
        table = sweeps.sweep(algo, config=file, progress=not as_json, trust=trust, **chosen)
    if as_json:
        print(json.dumps(sweeps.result_of(table)))
    else:
        print_table(table)
    if only_status:
        return 0
    if table.signal:
        if not as_json:
            print(printable(f"stopped; to go on: thespis sweep {table.path}"), file=sys.stderr)
        return 128 + table.signal
    unfinished = {*table.counts} - {*sweeps.FINISHED}
    return 1 if unfinished else 0


def algorithms(word: str, trusted: bool) -> list[Any]:
    """Returns the classes of the algorithms that a word, a file or a folder names."""
    from thespis.algos import registry

    named: Any = word
    path = Path(word)
    if os.path.exists(word) or word.endswith(".toml"):
        from thespis.sweeps import plan
        from thespis.sweeps.folder import FILE

        path = path / FILE if os.path.isdir(path) else path
        said = {"algo": plan.read(path).get("algo")}
        plan.refuse_code(path, said, trusted)
        named = said["algo"] or []
    items = named if isinstance(named, list) else str(named).split(",")
    return [registry.find(str(name).strip()) for name in items if str(name).strip()]


def options_of(classes: list[Any]) -> list[Option]:
    """Returns the options of a sweep of these algorithms: its own, and those of `train`."""
    names = {o.name for o in OWN}
    run = [o for o in run_options([]) if o.name not in names and o.name not in NOT_SWEPT]
    every = {o.name: o for algorithm in classes for o in known_options(algorithm, run)}
    every = every or {o.name: o for o in run + tuner_options()}
    return [*OWN, *(o for o in every.values() if o.name not in names)]


def read_options(classes: list[Any], argv: list[str]) -> dict[str, Any]:
    """Returns the options that were given."""
    known = options_of(classes)
    refuse_others(argv, known)
    words, typed = split(argv, known)
    if words:
        raise ThespisError(f"unexpected {words[0]!r}: options start with --")
    return {
        name: texts if name in RAW else read(option, texts)
        for name, (option, texts) in typed.items()
    }


def print_help(word: str | None, everything: bool) -> None:
    print(f"usage: thespis {USAGE} [options]\n")
    print("Trains a table of algorithms x environments x choices, seeds inside each job. The same")
    print("command again goes on where it was stopped. Exit code 1: a job failed.\n")
    print(describe(OWN))
    if everything:
        names = {o.name for o in OWN}
        groups = {"The run": [o for o in run_options([]) if o.name not in (*names, *NOT_SWEPT)]}
        for algorithm in algorithms(word, False) if word else ():
            title = f"Static choices of {algorithm.__name__}"
            groups[title] = fields(algorithm, "algo.", skip=("spec",))
            groups[f"Hyper-parameters of {algorithm.__name__}"] = fields(algorithm.Hyper, "hp.")
        groups["A population that tunes itself"] = tuner_options()
        for title, options in groups.items():
            print(f"\n{title}:\n{describe(options)}")
    else:
        print("\nAll options of `thespis train` are shared by all jobs; --help-all lists them.")
    print(f"\nexample: thespis {EXAMPLE}")


def print_table(table: Any) -> None:
    """Prints the table of a sweep, and the best setting as a command."""
    from rich.console import Console

    from thespis.report.sweep_results import choices_of
    from thespis.report.table import decimal, fitting, short, summary
    from thespis.values import show

    rows = table.rows
    choices = choices_of(rows)
    text = lambda x: None if x is None else show(x)
    interval = lambda r: (
        None if r["low"] is None else f"{decimal(r['low'])} to {decimal(r['high'])}"
    )
    varied = [n for n in ("algo", "env") if len({row[n] for row in rows}) > 1] + choices
    lines = [
        {
            "job": row["job"].partition("-")[0],
            **{name: text(row.get(name)) for name in varied},
            "state": row["state"],
            "step": f"{short(row['step'])}/{short(row['of_steps'])}",
            "IQM": row["iqm"],
            "95 % interval": interval(row),
        }
        for row in rows
    ]
    narrow = [{n: line[n] for n in ("job", *varied, "state", "IQM")} for line in lines]
    if lines:
        fitting(Console(), summary(lines), summary(narrow))
    for row in rows:
        if row["error"]:
            print(printable(f"failed  {row['job']}: {row['error']}"))
    counts = ", ".join(f"{n} {state}" for state, n in table.counts.items())
    print(f"jobs    {counts or 'none yet'}")
    if best := table.best:
        noun = "normalised IQM" if best["normalised"] else "IQM"
        named = " ".join(f"{name}={value}" for name, value in best["choices"].items())
        print(printable(f"best    {best['algo']} {named}  {noun} {best['iqm']:,.4g}"))
        for command in best["commands"].values():
            print(printable(f"        {command}"))
    page = table.path / "report.html"
    if page.exists():
        print(printable(f"report  {page}"))
