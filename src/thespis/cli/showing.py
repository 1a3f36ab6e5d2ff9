"""Verbs that show and check: `plot`, `report`, `runs`, `list`, `check-env`."""

from __future__ import annotations

import json
import textwrap
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from thespis.cli.common import JSON, OUT, TRUST, imported, opened, overshadowed, wants_help
from thespis.cli.options import parse
from thespis.errors import ThespisError, printable
from thespis.values import Option
from thespis.xla import compile_cache

KINDS = (
    "curves over seeds; over environments efficiency (IQM against steps), scores (IQM, median, "
    "mean, optimality gap), profile (share of runs above a score) or improvement (who beats whom "
    "how often); of one run population (members, family tree, schedules) or repeats (of TAAC)."
)


def plot(argv: list[str]) -> None:
    kinds: Any = Literal[
        "curves", "efficiency", "scores", "profile", "improvement", "population", "repeats"
    ]
    options = [
        Option("output", str, "Picture: .png, .svg or .pdf; by default named after its kind."),
        Option("kind", kinds, KINDS, "curves"),
        Option("metric", str, "Column of metrics.csv.", "eval/mean_reward"),
        Option("statistic", Literal["iqm", "mean"], "What curves show over seeds.", "iqm"),
        Option(
            "normalize",
            str,
            "Scores of several environments: first-best (0 is their mean first evaluation, 1 the "
            "best one; the default), none, or a JSON file {env: [score of 0, score of 1]}.",
        ),
        Option("title", str, "Title of curves."),
        replace(TRUST, help="For repeats, which plays: import code that a run of others names."),
        JSON,
    ]
    example = "plot runs/sac/* runs/td3/* --kind efficiency -o efficiency.pdf"
    if wants_help("plot RUN ... -o FILE", argv, options, example):
        return
    paths, given = parse(argv, options)
    if not paths:
        raise ThespisError("name at least one run: thespis plot RUN ... -o FILE")

    kind, metric = given.get("kind", "curves"), given.get("metric", "eval/mean_reward")
    output = given.get("output")
    if kind in ("population", "repeats"):  # plots of each run, into its folder
        if output and (kind == "population" or len(paths) > 1):
            raise ThespisError(f"--kind {kind} draws into each run's plots: leave out -o")
        drawn = {"plots": [str(file) for path in paths for file in draw(kind, path, given)]}
    else:
        imported("thespis.report.plots")
        from thespis.report.plots import curves_of, learning_curve
        from thespis.report.scores import KINDS as SCORES
        from thespis.report.scores import table

        curves, file = curves_of(paths, metric), Path(output or f"{kind}.png")
        if kind == "curves":
            statistic = given.get("statistic", "iqm")
            drawn = {
                "plot": str(learning_curve(curves, file, metric, statistic, given.get("title")))
            }
            drawn |= beside(paths, given)
        else:
            drawn = {"plot": str(SCORES[kind](table(curves, metric, given.get("normalize")), file))}
    if given.get("json"):
        print(json.dumps(drawn))
        return
    for files in drawn.values():
        for name in [files] if isinstance(files, str) else files:
            print(printable(f"plot  {name}"))


def draw(kind: str, path: str, given: dict[str, Any]) -> list[Path]:
    """The plots of one run."""
    if kind == "repeats":
        from thespis.report import repeats

        return [repeats.plot(opened(path, given), given.get("output"))]

    from thespis.report import lineage_plots

    return lineage_plots.draw(path, given.get("metric", "eval/mean_reward"))


def beside(paths: list[str], given: dict[str, Any]) -> dict[str, Any]:
    """Plots of those runs that are tuned populations, if there are any."""
    from thespis.runs.directory import find

    tuned = [path for path in paths if (find(path) / "lineage.csv").exists()]
    more = [str(file) for path in tuned for file in draw("population", path, given)]
    return {"population": more} if more else {}


def report(argv: list[str]) -> None:
    options = [
        Option(
            "output",
            str,
            "Page (.html); by default report.html in the run's folder, or of several runs here.",
        ),
        Option("watch", bool, "Keep the page up to date until the runs end."),
        Option("every", float, "Seconds between looks, with --watch.", 5.0),
        Option(
            "films", float, "Megabytes of videos to put into the page; others are linked.", 16.0
        ),
        JSON,
    ]
    example = "report runs/sac/jax-pendulum_1 --watch"
    if wants_help("report RUN ...", argv, options, example):
        return
    paths, given = parse(argv, options)
    if not paths:
        raise ThespisError("name at least one run: thespis report RUN ...")

    pages = imported("thespis.report.report")

    wanted = paths, given.get("output"), given.get("films", 16.0)
    line = lambda file: json.dumps({"report": file}) if given.get("json") else f"report  {file}"
    tell = lambda file: print(printable(line(str(file))), flush=True)
    if not given.get("watch"):
        tell(pages.report(*wanted))
        return
    every = given.get("every", 5.0)
    if every <= 0:
        raise ThespisError(f"every = {every:g}: give more than 0 seconds")
    told = None
    with suppress(KeyboardInterrupt):  # how one stops watching
        for file in pages.watch(*wanted, every):
            if told is None:
                tell(file)
            told = file


def runs(argv: list[str]) -> None:
    options = [
        OUT,
        Option("state", Literal["running", "stopped", "done", "failed", "damaged"], "Only those."),
        JSON,
    ]
    if wants_help("runs", argv, options, "runs --state running"):
        return
    _, given = parse(argv, options, 0)

    import time

    from thespis.runs.catalogue import ago, catalogue

    found = catalogue(given.get("out", "runs"))
    found = [run for run in found if given.get("state") in (None, run["state"])]
    if given.get("json"):
        print(json.dumps({"runs": found}))
        return

    from rich.console import Console

    from thespis.report.table import summary, wide

    rows = [
        {
            "run": run["run"],
            "state": run["state"],
            "algo": " ".join(filter(None, [run["algo"], run["tuner"]])) or None,
            "env": run["env"],
            "members": run["members"],
            "step": run["step"],
            "of": run["steps"],
            "last": run["last"],
            "best": run["best"],
            "active": f"{ago(time.time() - run['active'])} ago",
        }
        for run in found
    ]
    if rows:
        wide(Console(), summary(rows))
    else:
        print("no runs")


def list_(argv: list[str]) -> None:
    if wants_help("list", argv, [JSON], "list --json"):
        return
    _, given = parse(argv, [JSON], 0)

    from thespis import envs, plugins
    from thespis.algos import ALGORITHMS, registry

    others = plugins.announced(plugins.ALGORITHMS)
    presets = {name: list(algorithm.presets) for name, algorithm in ALGORITHMS.items()}
    names = envs.names()
    if given.get("json"):
        found = {"algorithms": registry.names(), "presets": presets, "environments": names}
        print(json.dumps(found))
        return
    print("algorithms")
    for name, algorithm in ALGORITHMS.items():
        print(f"  {name:<14}{algorithm.__doc__.splitlines()[0]}")
        for preset, groups in algorithm.presets.items():
            print(f"  {'':<14}--preset {preset:<15} {groups.get('for', '')}".rstrip())
    for name in registry.names()[len(ALGORITHMS) :]:
        about = others[name]
        print(printable(f"  {name:<14}announced by {about.package}: {about.reference}"))
    print("environments")
    for group, ids in names.items():
        print(f"  {group}" + ("" if ids else f"  (pip install 'thespis[{group}]')"))
        for line in textwrap.wrap("  ".join(ids), 92, break_on_hyphens=False):
            print(f"    {line}")
    for text in overshadowed(*others, *plugins.announced(plugins.ENVIRONMENTS)):
        print(printable(f"note: {text}"))


def check_env(argv: list[str]) -> int:
    options = [Option("seed", int, "Seed of the episodes.", 0), JSON]
    if wants_help("check-env ENV", argv, options, "check-env Pendulum-v1"):
        return 0
    words, given = parse(argv, options, 1)
    if not words:
        raise ThespisError("name the environment: thespis check-env ENV")

    from thespis.envs.check import check_env as check

    compile_cache.use_cache()
    report = check(words[0], given.get("seed", 0))
    if given.get("json"):
        checks = [check._asdict() for check in report.checks]
        speed = report.steps_per_second
        told = {"env": report.env, "ok": report.ok, "steps_per_second": speed, "checks": checks}
        print(json.dumps(told))
    else:
        print(report)
    return 0 if report.ok else 1
