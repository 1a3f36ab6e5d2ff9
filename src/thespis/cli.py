"""The command `thespis`. Heavy libraries are imported by the verb that needs them."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from thespis import __version__
from thespis.errors import ThespisError, or_all
from thespis.options import Option, describe, fields, parse

HELP = """\
usage: thespis VERB ... [--help]

  train ALGO --env ENV    train an agent, several seeds at once, or a population (--pbt)
  plan ALGO --env ENV     what that would take: memory, placement, compilation, time
  resume RUN              go on exactly where a run stopped
  rerun RUN               train one agent with the hyper-parameters that won a population
  eval RUN                episodes of the trained policy, and their returns
  play RUN                a video of the trained policy, or a window
  demos RUN -o NAME       record the trained policy, for others to imitate
  plot RUN ... -o FILE    curves over seeds, comparisons over environments, populations
  export RUN              the trained policy for elsewhere: NumPy alone, or ONNX
  check-env ENV           whether an environment keeps the contract, and what to mend
  report RUN ...          a page with everything about a run, or several compared
  runs                    the runs there are, and how they are
  skills VERB RUN         what skills do, how good they are, and plans made of them
  list                    algorithms, presets, environments

example: thespis train sac --env jax:pendulum --steps 20000 --seed 0
"""

JSON = Option("json", bool, "Print one machine-readable line.")
BEST = Option("best", bool, "The policy of the best evaluation instead of the last one.")
SEED = Option("seed", int, "Seed of the start states.", 0)
OUT = Option("out", str, "Folder of the runs.", "runs")
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


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("--help", "-h", "help"):
        print(HELP, end="")
        return 0
    if argv[0] in ("--version", "version"):
        print(f"thespis {__version__}")
        return 0
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # so that --env module:id finds the user's module
    try:
        if argv[0] not in VERBS:
            raise ThespisError(f"unknown verb {argv[0]!r}{or_all(argv[0], VERBS)}{as_algo(argv)}")
        return VERBS[argv[0]](["--output" if word == "-o" else word for word in argv[1:]]) or 0
    except ThespisError as error:
        print(f"thespis: {' '.join(str(error).splitlines())}", file=sys.stderr)
        leave(2)
        return 2
    except KeyboardInterrupt:
        print("thespis: interrupted", file=sys.stderr)
        leave(130)
        return 130
    except BrokenPipeError:  # nobody reads on, as after `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


# --- verbs ----------------------------------------------------------------------------------


def train(argv: list[str]) -> None:
    algo, given = training("train", argv, [OUT, JSON, *PROCESSES])
    if algo is None:
        return

    join(given)

    from thespis import api

    silent, out = given.pop("json", False), given.pop("out", "runs")
    result = api.train(algo, given.pop("env", None), out=out, progress=not silent, **given)
    if silent and leads():
        tell(result)


def plan(argv: list[str]) -> int:
    probe = Option("probe", bool, "Measure the time by a short run; --no-probe: sizes only.", True)
    algo, given = training("plan", argv, [probe, JSON])
    if algo is None:
        return 0

    from thespis import api

    silent = given.pop("json", False)
    found = api.plan(algo, given.pop("env", None), **given)
    print(json.dumps(found.as_dict()) if silent else found)
    return 0 if found.fits else 1


def training(verb: str, argv: list[str], more: list[Option]) -> tuple[str | None, dict[str, Any]]:
    """The algorithm and all that is chosen of a run; no algorithm if help was wanted and given."""
    from thespis.algos import ALGORITHMS
    from thespis.runs.config import ALIASES, APART, COMPUTED, Config

    run = fields(Config, skip=APART)
    run = [replace(o, kind=tuple[str, ...]) if o.name == "seeds" else o for o in run]
    run.insert(3, Option("seed", int, "One seed."))
    run += more
    tuning = tuner_options()
    algo, *rest = argv or ["--help"]
    if algo in ("--help", "-h"):
        print(f"usage: thespis {verb} ALGO --env ENV [options]\n")
        print(f"algorithms: {', '.join(ALGORITHMS)}; `thespis {verb} ALGO --help` has more\n")
        print(f"{describe(run)}\n\nA population that tunes itself:\n{describe(tuning)}\n")
        print(f"example: thespis {verb} sac --env Pendulum-v1 --steps 20000 --seeds 0-4")
        print(f"         thespis {verb} sac --env Pendulum-v1 --steps 20000 --members 8 --pbt")
        return None, {}
    if algo.startswith("-"):
        raise ThespisError(f"name the algorithm first: thespis {verb} ALGO {algo} ...")
    algorithm = Config(algo, None).Algorithm
    choices = fields(algorithm, "algo.", skip=("spec",))
    hypers = fields(algorithm.Hyper, "hp.")
    if "--help" in rest or "-h" in rest:
        print(f"usage: thespis {verb} {algo} --env ENV [options]\n\n{algorithm.__doc__}\n")
        print(f"The run:\n{describe(run)}\n\nStatic choices of {algo}:\n{describe(choices)}\n")
        print(f"Hyper-parameters (a change never recompiles):\n{describe(hypers)}\n")
        print(f"A population that tunes itself:\n{describe(tuning)}\n")
        print(f"presets: {', '.join(algorithm.presets)}")
        print("The prefixes algo. and hp. may be left out; Stable-Baselines3's names work as well.")
        print(f"example: thespis {verb} {algo} --env jax:pendulum --steps 20000 --hp.gamma 0.98")
        return None, {}
    short = [replace(o, name=o.name.partition(".")[2]) for o in choices + hypers]
    kinds = {o.name: o.kind for o in run + short}
    same = [Option(name, kinds[ours]) for name, ours in ALIASES.items() if ours in kinds]
    computed = [Option(name, kind) for name, kind in COMPUTED.items()]
    options = run + tuning + choices + hypers + short + same + computed
    words, given = parse(rest, options)
    if words:
        hint = "options start with --" if "env" in given else f"is it --env {words[0]}?"
        raise ThespisError(f"unexpected {words[0]!r}: {hint}")
    return algo, given


def tuner_options() -> list[Option]:
    """Options of populations: how many, who tunes them, and the fields of all tuners."""
    from thespis.pbt import TUNERS

    every = {o.name: o for kind in reversed(TUNERS.values()) for o in fields(kind, "pbt.")}
    names: Any = Literal[tuple(TUNERS)]
    return [
        Option("members", int, "Members of a population, with seeds from --seed on."),
        Option("pbt", bool, "Population-based training; like --tuner pbt."),
        Option("tuner", names, "Who tunes: pbt, or a control that draws at random, or none."),
        *every.values(),
    ]


def resume(argv: list[str]) -> None:
    options = [
        Option("steps", int, "Train to this many steps instead of the run's own."),
        Option("member", str, "Go on with this member (a number, or best) in a run of its own."),
        replace(OUT, help="Folder of that run."),
        Option("devices", int, "Devices of every process; by default as before."),
        JSON,
        *PROCESSES,
    ]
    example = "resume runs/sac/jax-pendulum_1 --steps 50000"
    path, given = run_and_options("resume RUN", argv, options, example)
    if path is None:
        return
    join(given)

    from thespis import api

    silent = given.pop("json", False)
    result = api.resume(path, progress=not silent, **given)
    if silent and leads():
        tell(result)


def rerun(argv: list[str]) -> None:
    options = [
        Option("member", str, "Whose hyper-parameters: a number, or best.", "best"),
        Option("seed", int, "Another seed than that of the member."),
        replace(OUT, help="Folder of the new run."),
        JSON,
    ]
    example = "rerun runs/sac/jax-pendulum_1 --member best"
    path, given = run_and_options("rerun RUN", argv, options, example)
    if path is None:
        return

    from thespis import api

    silent = given.pop("json", False)
    result = api.rerun(path, progress=not silent, **given)
    if silent and leads():
        tell(result)


def evaluate(argv: list[str]) -> None:
    options = [
        Option("episodes", int, "Episodes of each member.", 100),
        Option("member", str, "Which member of several: a number, best, or all.", "all"),
        BEST,
        SEED,
        JSON,
    ]
    example = "eval runs/sac/jax-pendulum_1 --episodes 100"
    path, given = run_and_options("eval RUN", argv, options, example)
    if path is None:
        return

    run, which = opened(path), "best" if given.get("best") else "last"
    member = given.get("member")
    result = run.evaluate(given.get("episodes", 100), member, which, given.get("seed", 0))
    if given.get("json"):
        print(json.dumps({"run": str(run.path), **result}))
        return

    from statistics import fmean, pstdev

    from rich.console import Console

    from thespis.show.table import summary

    chosen = run.chosen(member, which)
    returns = result["returns"] if len(chosen) > 1 else [result["returns"]]
    rows = [
        {
            **({"member": m} if run.config.members > 1 else {}),
            "seed": run.config.seeds[m],
            "episodes": len(rewards),
            "reward": fmean(rewards),
            "± std": pstdev(rewards),
            "min": min(rewards),
            "max": max(rewards),
        }
        for m, rewards in zip(chosen, returns, strict=True)
    ]
    Console().print(summary(rows, f"{run.config.algo} on {run.config.env}, {which} policy"))


def play(argv: list[str]) -> None:
    options = [
        Option("output", str, "Video file (.mp4 or .gif); by default in the run's videos folder."),
        Option("episodes", int, "Episodes.", 1),
        Option("human", bool, "A window instead of a file."),
        Option("member", str, "A number, best, or all: side by side in one film.", "best"),
        BEST,
        SEED,
        JSON,
    ]
    example = "play runs/sac/jax-pendulum_1 -o swing-up.gif"
    path, given = run_and_options("play RUN", argv, options, example)
    if path is None:
        return

    run = opened(path)
    from thespis.show.play import play as show

    which, member = "best" if given.get("best") else "last", given.get("member", "best")
    file, returns = show(
        run,
        member=member if member == "all" else run.member(member, which),
        which=which,
        path=given.get("output"),
        episodes=given.get("episodes", 1),
        seed=given.get("seed", 0),
        human=given.get("human", False),
    )
    several = isinstance(returns[0], list)
    if given.get("json"):
        members = [{"member": m, "returns": x} for m, x in enumerate(returns)]
        told = {"members": members} if several else {"returns": returns}
        print(json.dumps({"run": str(run.path), "video": file and str(file)} | told))
        return
    for m, rewards in enumerate(returns if several else [returns]):
        who = f" of member {m}" if several else ""
        print(f"returns{who}  {', '.join(f'{reward:,.1f}' for reward in rewards)}")
    if file:
        print(f"video    {file}")


def demos(argv: list[str]) -> None:
    options = [
        Option("output", str, "A file, .npz, or the name of a local Minari dataset."),
        Option("episodes", int, "Episodes.", 20),
        Option("stochastic", bool, "Act as in training instead of greedily."),
        Option("member", str, "Which member of several: a number, or best.", "best"),
        BEST,
        SEED,
        JSON,
    ]
    example = "demos runs/sac/jax-pendulum_1 --episodes 20 -o pendulum/expert-v0"
    path, given = run_and_options("demos RUN -o NAME", argv, options, example)
    if path is None:
        return
    if "output" not in given:
        raise ThespisError("name the demonstrations: -o FILE.npz, or -o NAME of a Minari dataset")

    run, which = opened(path), "best" if given.get("best") else "last"
    from thespis.demos import save

    names = ("episodes", "member", "stochastic", "seed")
    episodes = run.record(which=which, **{name: given[name] for name in names if name in given})
    name = save(given["output"], episodes, run.parts[0].env.spec, run.config.algo)
    returns = [float(e.reward.sum()) for e in episodes]
    steps = sum(e.length for e in episodes)
    if given.get("json"):
        print(json.dumps({"run": str(run.path), "demos": name, "steps": steps, "returns": returns}))
        return
    print(
        f"episodes  {len(episodes)}, of {steps} steps and a mean reward of "
        f"{sum(returns) / len(returns):,.1f}"
    )
    print(f"demos     {name}")


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
        drawn = {
            "plots": [str(file) for path in paths for file in draw(kind, path, metric, output)]
        }
    else:
        from thespis.show.plots import curves_of, learning_curve
        from thespis.show.scores import KINDS as SCORES
        from thespis.show.scores import table

        curves, file = curves_of(paths, metric), Path(output or f"{kind}.png")
        if kind == "curves":
            statistic = given.get("statistic", "iqm")
            drawn = {
                "plot": str(learning_curve(curves, file, metric, statistic, given.get("title")))
            }
            drawn |= beside(paths, metric)
        else:
            drawn = {"plot": str(SCORES[kind](table(curves, metric, given.get("normalize")), file))}
    if given.get("json"):
        print(json.dumps(drawn))
        return
    for files in drawn.values():
        for name in [files] if isinstance(files, str) else files:
            print(f"plot  {name}")


KINDS = (
    "curves over seeds; over environments efficiency (IQM against steps), scores (IQM, median, "
    "mean, optimality gap), profile (share of runs above a score) or improvement (who beats whom "
    "how often); of one run population (members, family tree, schedules) or repeats (of TAAC)."
)


def draw(kind: str, path: str, metric: str, output: str | None) -> list[Path]:
    """The plots of one run."""
    if kind == "repeats":
        from thespis.show import repeats

        return [repeats.plot(opened(path), output)]

    from thespis.show import population

    return population.draw(path, metric)


def beside(paths: list[str], metric: str) -> dict[str, Any]:
    """Plots of those runs that are tuned populations, if there are any."""
    from thespis.runs.directory import find

    tuned = [path for path in paths if (find(path) / "lineage.csv").exists()]
    more = [str(file) for path in tuned for file in draw("population", path, metric, None)]
    return {"population": more} if more else {}


def export(argv: list[str]) -> None:
    options = [
        Option("format", Literal["numpy", "onnx", "all"], "Python and NumPy, or ONNX.", "numpy"),
        Option("output", str, "Folder; by default export in the run's own."),
        Option("member", str, "Which member of several: a number, best, or all.", "best"),
        BEST,
        JSON,
    ]
    example = "export runs/sac/jax-pendulum_1 --format all -o policy"
    path, given = run_and_options("export RUN", argv, options, example)
    if path is None:
        return

    from thespis.export import export as write

    run, which = opened(path), "best" if given.get("best") else "last"
    chosen = run.chosen(given.get("member", "best"), which)
    folder = Path(given["output"]) if "output" in given else run.path / "export"
    told = []
    for member in chosen:
        place = folder / f"member{member}" if len(chosen) > 1 else folder  # a folder each
        told.append(write(run, place, given.get("format", "numpy"), member, which))
    if given.get("json"):
        several = {"members": [{"member": m} | x for m, x in zip(chosen, told, strict=True)]}
        print(json.dumps({"run": str(run.path)} | (several if len(chosen) > 1 else told[0])))
        return
    for x in told:
        for name, error in x["largest_difference"].items():
            print(f"{name:<6} acts as the trained policy on 1,000 observations, to {error:.0e}")
        for file in x["files"]:
            print(f"file   {file}")


def check_env(argv: list[str]) -> int:
    options = [Option("seed", int, "Seed of the episodes.", 0), JSON]
    if wants_help("check-env ENV", argv, options, "check-env Pendulum-v1"):
        return 0
    words, given = parse(argv, options, 1)
    if not words:
        raise ThespisError("name the environment: thespis check-env ENV")

    from thespis import machine
    from thespis.envs.check import check_env as check

    machine.use_cache()
    report = check(words[0], given.get("seed", 0))
    if given.get("json"):
        checks = [check._asdict() for check in report.checks]
        speed = report.steps_per_second
        told = {"env": report.env, "ok": report.ok, "steps_per_second": speed, "checks": checks}
        print(json.dumps(told))
    else:
        print(report)
    return 0 if report.ok else 1


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

    from thespis.show import report as pages

    wanted = paths, given.get("output"), given.get("films", 16.0)
    line = lambda file: json.dumps({"report": file}) if given.get("json") else f"report  {file}"
    tell = lambda file: print(line(str(file)), flush=True)
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
        Option("state", Literal["running", "stopped", "done", "failed"], "Only those."),
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

    from thespis.show.table import summary, wide

    rows = [
        {
            "run": run["run"],
            "state": run["state"],
            "algo": run["algo"] + (f" {run['tuner']}" if run["tuner"] else ""),
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


def skills(argv: list[str]) -> None:
    from thespis.skills import cli

    cli.main(argv)


def list_(argv: list[str]) -> None:
    if wants_help("list", argv, [JSON], "list --json"):
        return
    _, given = parse(argv, [JSON], 0)

    from thespis import envs
    from thespis.algos import ALGORITHMS

    presets = {name: list(algorithm.presets) for name, algorithm in ALGORITHMS.items()}
    names = envs.names()
    if given.get("json"):
        found = {"algorithms": list(ALGORITHMS), "presets": presets, "environments": names}
        print(json.dumps(found))
        return
    print("algorithms")
    for name, algorithm in ALGORITHMS.items():
        print(f"  {name:<14}{algorithm.__doc__.splitlines()[0]}")
        print(f"  {'':<14}presets: {', '.join(presets[name]) or 'none'}")
    print("environments")
    for group, ids in names.items():
        print(f"  {group}" + ("" if ids else f"  (pip install 'thespis[{group}]')"))
        for line in textwrap.wrap("  ".join(ids), 92, break_on_hyphens=False):
            print(f"    {line}")


VERBS = {
    "train": train,
    "plan": plan,
    "resume": resume,
    "rerun": rerun,
    "eval": evaluate,
    "play": play,
    "demos": demos,
    "plot": plot,
    "export": export,
    "check-env": check_env,
    "report": report,
    "runs": runs,
    "skills": skills,
    "list": list_,
}


def as_algo(argv: list[str]) -> str:
    """What to say to those who forgot the verb `train`."""
    from thespis.algos import ALGORITHMS

    return f"; or is it: thespis train {argv[0]} ...?" if argv[0] in ALGORITHMS else ""


# --- what verbs share -----------------------------------------------------------------------


def wants_help(usage: str, argv: list[str], options: list[Option], example: str) -> bool:
    if "--help" not in argv and "-h" not in argv:
        return False
    print(f"usage: thespis {usage} [options]\n\n{describe(options)}\n\nexample: thespis {example}")
    return True


def run_and_options(
    usage: str, argv: list[str], options: list[Option], example: str
) -> tuple[str | None, dict[str, Any]]:
    """The run that a verb is about and its options; no run if help was wanted and given."""
    if wants_help(usage, argv, options, example):
        return None, {}
    words, given = parse(argv, options, 1)
    if not words:
        raise ThespisError(f"name the run: thespis {usage}")
    return words[0], given


def opened(path: str):
    """A run, with XLA's threads as it was trained with."""
    from thespis import api

    run = api.load(path)
    api.set_threads(run.config)
    return run


def join(given: dict[str, Any]) -> None:
    """Take the options of several processes out of those given, and meet the others."""
    found = {o.name: given.pop(o.name) for o in PROCESSES if o.name in given}
    if not found:
        return
    if "coordinator" not in found:
        raise ThespisError(f"{next(iter(found))} needs the coordinator: give HOST:PORT, or auto")

    from thespis import hosts

    hosts.join(**found)


def leads() -> bool:
    """Whether this process is the one that speaks."""
    from thespis.machine import together

    return together()[0] == 0


def leave(code: int) -> None:
    """Let others who train along know that this process is going."""
    if hosts := sys.modules.get("thespis.hosts"):
        hosts.leave(code)


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


if __name__ == "__main__":
    sys.exit(main())
