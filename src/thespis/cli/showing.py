"""Commands that show and check: `plot`, `report`, `runs`, `list`, `check-env`."""

from __future__ import annotations

import json
import sys
import textwrap
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from thespis.cli.common import (
    JSON,
    OUT,
    TRUST,
    imported,
    open_run,
    overshadowed,
    print_result,
    read_arguments,
)
from thespis.errors import ThespisError, printable
from thespis.values import Option
from thespis.xla import compile_cache

KINDS = (
    "What to plot. Over seeds: curves. Over environments: efficiency (IQM against steps), scores "
    "(IQM, median, mean, optimality gap), profile (share of runs above a score) or improvement "
    "(how often one algorithm beats another). For each run: population (members, family tree, "
    "schedules) or repeats (of TAAC)."
)


def plot(argv: list[str]) -> None:
    kinds: Any = Literal[
        "curves", "efficiency", "scores", "profile", "improvement", "population", "repeats"
    ]
    options = [
        Option("output", str, "Image file (.png, .svg or .pdf); by default named by --kind."),
        Option("kind", kinds, KINDS, "curves"),
        Option("metric", str, "Column of metrics.csv.", "eval/mean_reward"),
        Option("statistic", Literal["iqm", "mean"], "Statistic of curves over seeds.", "iqm"),
        Option(
            "normalize",
            str,
            "How to normalise the scores of several environments: first-best (0 is the mean first "
            "evaluation, 1 the best one; the default), none, or a JSON file {env: [score of 0, "
            "score of 1]}.",
        ),
        Option("title", str, "Title of a plot of curves."),
        replace(TRUST, help="With repeats: import the code that a run of another user names."),
        JSON,
    ]
    example = "plot runs/sac/* runs/td3/* --kind efficiency -o efficiency.pdf"
    paths, args = read_arguments("plot RUN ... -o FILE", argv, options, example, None)
    if args.kind in ("population", "repeats"):  # plots of each run, in its folder
        if args.output and (args.kind == "population" or len(paths) > 1):
            raise ThespisError(
                f"--kind {args.kind} writes to the folder plots of each run: leave out -o"
            )
        plots = [str(file) for path in paths for file in draw(args.kind, path, args)]
        print_result({"plots": plots}, args.json, [f"plot  {file}" for file in plots])
        return

    imported("thespis.report.plots")
    from thespis.report import scores
    from thespis.report.plots import curves_of, learning_curve
    from thespis.runs.directory import find, read_config

    curves, file = curves_of(paths, args.metric), Path(args.output or f"{args.kind}.png")
    plots = []
    if args.kind == "curves":
        learning_curve(curves, file, args.metric, args.statistic, args.title)
        tuned = [path for path in paths if (find(path) / "lineage.csv").exists()]
        tuned = [path for path in tuned if read_config(find(path)).get("tuner")]
        plots = [str(plot) for path in tuned for plot in draw("population", path, args)]
    else:
        scores.KINDS[args.kind](scores.table(curves, args.metric, args.normalize), file)
    result = {"plot": str(file)} | ({"population": plots} if plots else {})
    print_result(result, args.json, [f"plot  {name}" for name in (file, *plots)])


def draw(kind: str, path: str, args: SimpleNamespace) -> list[Path]:
    """Draws the plots of one run and returns their files."""
    if kind == "repeats":
        from thespis.report import repeats

        return [repeats.plot(open_run(path, args)[0], args.output)]

    from thespis.report import lineage_plots

    return lineage_plots.draw(path, args.metric)


def report(argv: list[str]) -> None:
    options = [
        Option(
            "output",
            str,
            "HTML file; by default report.html in the folder of the run or runs, or in the current "
            "folder if several are named.",
        ),
        Option("watch", bool, "Keep the page up to date until the runs end.", False),
        Option("serve", bool, "Serve the page on this machine, up to date, until Ctrl-C.", False),
        Option("port", int, "With --serve: the port; 0 chooses a free one.", 0),
        Option("every", float, "With --watch or --serve: seconds between updates.", 5.0),
        Option("video_mb", float, "Embed up to this many megabytes of videos; link others.", 16.0),
        JSON,
    ]
    example = "report runs --serve"
    if any(word.partition("=")[0] == "--films" for word in argv):
        print("note: --films is now called --video-mb", file=sys.stderr)
        argv = [word.replace("--films", "--video-mb") for word in argv]
    paths, args = read_arguments("report RUN ...", argv, options, example, None)

    if args.every <= 0:
        raise ThespisError(f"every = {args.every:g}: give more than 0 seconds")
    if args.serve and args.output:
        raise ThespisError("--serve writes no file: leave out -o, or give --watch instead")
    if args.serve:
        serve(paths, args)
        return
    pages = imported("thespis.report.report")
    arguments = paths, args.output, args.video_mb
    updates = pages.watch(*arguments, args.every) if args.watch else [pages.report(*arguments)]
    with suppress(KeyboardInterrupt):  # which ends --watch
        for i, file in enumerate(updates):
            if i == 0:
                print_result({"report": str(file)}, args.json, [f"report  {file}"])


def serve(paths: list[str], args: SimpleNamespace) -> None:
    """Serves a page until Ctrl-C."""
    serving = imported("thespis.report.serve")
    live = serving.LivePage(paths, args.video_mb, args.every)
    with serving.Server(live, args.port) as server, suppress(KeyboardInterrupt):
        lines = [f"report  {server.url}", "Ctrl-C stops it"]
        print_result({"report": server.url}, args.json, lines)
        server.serve_forever()


def runs(argv: list[str]) -> None:
    states: Any = Literal["running", "stopped", "done", "failed", "damaged"]
    orders: Any = Literal["active", "run", "state", "algo", "env", "step", "last", "best"]
    options = [
        OUT,
        Option("state", states, "List only the runs in this state."),
        Option(
            "filter",
            tuple[str, ...],
            "List only runs with all of these words in their folder, algorithm, environment, tags "
            "or notes; FIELD=WORD looks in one of them.",
        ),
        Option("sort", orders, "Sort by this column; numbers and times descending.", "active"),
        Option("delete", bool, "Delete the listed runs, after confirmation.", False),
        Option("yes", bool, "With --delete: do not ask.", False),
        JSON,
    ]
    _, args = read_arguments("runs", argv, options, "runs --filter pendulum --sort best", 0)

    import time

    from thespis.runs.catalogue import ago, catalogue, matches, ordered

    runs = [run for run in catalogue(args.out) if args.state in (None, run["state"])]
    runs = ordered([run for run in runs if matches(run, args.filter or ())], args.sort)
    if args.delete:
        delete(runs, args)
        return
    if args.json or not runs:
        print_result({"runs": runs}, args.json, ["no runs"])
        return

    from rich.console import Console

    from thespis.report.table import fitting, short, summary
    from thespis.runs.naming import default_out

    tagged = any(run["tags"] for run in runs)
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
            **({"tags": " ".join(run["tags"] or [])} if tagged else {}),
        }
        for run in runs
    ]
    names = ("run", "state", "step", "last", "best", "active")
    narrow = [
        {name: row[name] for name in names} | {"step": f"{short(row['step'])}/{short(row['of'])}"}
        for row in rows
    ]
    root = Path(args.out or default_out())
    inside = [row | {"run": str(Path(row["run"]).relative_to(root))} for row in narrow]
    fitting(Console(), summary(rows), summary(narrow), summary(inside, f"in {root}"))
    for run in runs:
        if run["reason"]:
            print(printable(f"{run['run']} was ended by {run['reason']}"))


def delete(runs: list[dict[str, Any]], args: SimpleNamespace) -> None:
    """Deletes runs after the user has confirmed."""
    from thespis.runs.catalogue import refuse_to_delete, remove

    if not (args.filter or args.state):
        raise ThespisError("--delete: choose the runs by --filter or --state")
    for run in runs:
        refuse_to_delete(Path(run["run"]))
    if runs and not args.yes:
        if args.json or not sys.stdin.isatty():
            raise ThespisError(f"--delete: {len(runs)} run(s) would be deleted; give --yes")
        print("\n".join(printable(run["run"]) for run in runs))
        print(f"delete {'these' if len(runs) > 1 else 'this'}? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            runs = []
    for run in runs:
        remove(Path(run["run"]))
    deleted = [run["run"] for run in runs]
    lines = [f"deleted  {run}" for run in deleted] or ["nothing is deleted"]
    print_result({"deleted": deleted}, args.json, lines)


def list_(argv: list[str]) -> None:
    _, args = read_arguments("list", argv, [JSON], "list --json", 0)

    from thespis import envs, plugins
    from thespis.algos import ALGORITHMS, registry

    announced = plugins.announced(plugins.ALGORITHMS)
    presets = {name: list(algorithm.presets) for name, algorithm in ALGORITHMS.items()}
    names = envs.names()
    lines = ["algorithms"]
    for name, algorithm in ALGORITHMS.items():
        lines.append(f"  {name:<14}{algorithm.__doc__.splitlines()[0]}")
        for preset, groups in algorithm.presets.items():
            lines.append(f"  {'':<14}--preset {preset:<15} {groups.get('for', '')}".rstrip())
    for name in registry.names()[len(ALGORITHMS) :]:
        entry = announced[name]
        lines.append(f"  {name:<14}registered by {entry.package}: {entry.reference}")
    lines.append("environments")
    for group, ids in names.items():
        lines.append(f"  {group}" + ("" if ids else f"  (pip install 'thespis[{group}]')"))
        wrapped = textwrap.wrap("  ".join(ids), 92, break_on_hyphens=False)
        lines += [f"    {line}" for line in wrapped]
    notes = overshadowed(*announced, *plugins.announced(plugins.ENVIRONMENTS))
    lines += [f"note: {note}" for note in notes]
    result = {"algorithms": registry.names(), "presets": presets, "environments": names}
    print_result(result, args.json, lines)


def check_env(argv: list[str]) -> int:
    options = [Option("seed", int, "Seed of the episodes.", 0), JSON]
    words, args = read_arguments("check-env ENV", argv, options, "check-env Pendulum-v1")

    from thespis.envs.check import check_env as check

    compile_cache.use_cache()
    report = check(words[0], args.seed)
    checks = [check._asdict() for check in report.checks]
    speed = report.steps_per_second
    result = {"env": report.env, "ok": report.ok, "steps_per_second": speed, "checks": checks}
    print(json.dumps(result) if args.json else printable(report))
    return 0 if report.ok else 1
