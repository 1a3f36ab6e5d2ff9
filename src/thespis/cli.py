"""The command `thespis`. Heavy libraries are imported by the verb that needs them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from thespis import __version__
from thespis.errors import ThespisError, or_all
from thespis.options import Option, describe, fields, parse

HELP = """\
usage: thespis VERB ... [--help]

  train ALGO --env ENV    train an agent, several seeds, or go through a preset
  resume RUN              go on exactly where a run stopped
  eval RUN                episodes of the trained policy, and their returns
  play RUN                a video of the trained policy, or a window
  plot RUN ... -o FILE    learning curves over seeds with 95 % bands
  list                    algorithms, environments, presets

example: thespis train sac --env jax:pendulum --steps 20000 --seed 0
"""

JSON = Option("json", bool, "Print one machine-readable line.", False)
MEMBER = Option("member", str, "Which member of several: a number or best.", "best")
WHICH = Option("best", bool, "The policy of the best evaluation instead of the last one.", False)


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("--help", "-h", "help"):
        print(HELP, end="")
        return 0
    if argv[0] in ("--version", "version"):
        print(f"thespis {__version__}")
        return 0
    try:
        if argv[0] not in VERBS:
            raise ThespisError(f"unknown verb {argv[0]!r}{or_all(argv[0], VERBS)}")
        VERBS[argv[0]](["--output" if word == "-o" else word for word in argv[1:]])
        return 0
    except ThespisError as error:
        print(f"thespis: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0


# --- verbs ----------------------------------------------------------------------------------


def train(argv: list[str]) -> None:
    from thespis.algos import ALGORITHMS
    from thespis.runs import config

    if not argv or argv[0].startswith("-"):
        if not argv or argv[0] in ("--help", "-h"):
            print(
                "usage: thespis train ALGO --env ENV [options]; options: thespis train ALGO --help"
            )
            print(f"algorithms: {', '.join(ALGORITHMS)}")
            print("example: thespis train sac --env Pendulum-v1 --steps 20000 --seeds 0-4")
            return
        raise ThespisError(f"name the algorithm first: thespis train ALGO {argv[0]} ...")
    algo, *rest = argv
    algorithm = config.Config(algo, None).Algorithm
    run = [
        Option("seeds", tuple[str, ...], "Seeds, such as 0-4 or 1 2 3; one member each.", ("0",))
    ]
    run += fields(config.Config, skip=("algo", "options", "hp", "seeds"))
    run += [
        Option("seed", int, "One seed.", 0),
        Option("out", str, "Folder of the runs.", "runs"),
        JSON,
    ]
    choices = fields(algorithm, "algo.", skip=("spec",))
    hypers = fields(algorithm.Hyper, "hp.")
    if "--help" in rest or "-h" in rest:
        print(f"usage: thespis train {algo} --env ENV [options]\n\n{algorithm.__doc__}\n")
        print(f"The run:\n{describe(run)}\n\nStatic choices of {algo}:\n{describe(choices)}\n")
        print(f"Hyper-parameters (a change never recompiles):\n{describe(hypers)}\n")
        print(f"presets: {', '.join(algorithm.presets)}")
        print("The prefixes algo. and hp. may be left out; Stable-Baselines3's names work as well.")
        print(f"example: thespis train {algo} --env jax:pendulum --steps 20000 --hp.gamma 0.98")
        return
    _, given = parse(
        rest, run + choices + hypers + short(choices + hypers) + aliases(run + choices + hypers), 0
    )
    machine_readable, out = given.pop("json", False), given.pop("out", "runs")
    if "seeds" in given:
        given["seeds"] = seeds_of(given["seeds"])
    env = given.pop("env", None)

    from thespis import api

    result = api.train(algo, env, out=out, progress=not machine_readable, **given)
    if machine_readable:
        tell(result)


def resume(argv: list[str]) -> None:
    options = [
        Option("steps", int, "Train to this many steps instead of the run's own."),
        Option("member", str, "Go on with this member alone, in a run of its own."),
        Option("out", str, "Folder of that run.", "runs"),
        JSON,
    ]
    if wants_help("resume RUN", argv, options, "resume runs/sac/jax-pendulum_1 --steps 50000"):
        return
    (path,), given = words(argv, options, "resume RUN")
    machine_readable = given.pop("json", False)

    from thespis import api

    result = api.resume(path, progress=not machine_readable, **given)
    if machine_readable:
        tell(result)


def evaluate(argv: list[str]) -> None:
    options = [
        Option("episodes", int, "Episodes.", 100),
        Option("seed", int, "Seed of the start states.", 0),
        MEMBER,
        WHICH,
        JSON,
    ]
    if wants_help("eval RUN", argv, options, "eval runs/sac/jax-pendulum_1 --episodes 100"):
        return
    (path,), given = words(argv, options, "eval RUN")
    episodes = given.get("episodes", 100)
    if episodes < 1:
        raise ThespisError(f"--episodes {episodes}: give at least 1")

    run = opened(path)
    which = "best" if given.get("best") else "last"
    result = run.evaluate(episodes, given.get("member"), which, given.get("seed", 0))
    if given.get("json"):
        print(json.dumps({"run": str(run.path), **result}))
        return
    returns = result["returns"] if isinstance(result["returns"][0], list) else [result["returns"]]
    member = given.get("member")
    seeds = run.config.seeds if len(returns) > 1 else [run.config.seeds[run.member(member or 0)]]
    from statistics import fmean, pstdev

    from rich.console import Console

    from thespis.show.table import summary

    rows = [
        {
            "seed": s,
            "episodes": len(r),
            "mean": fmean(r),
            "± std": pstdev(r),
            "min": min(r),
            "max": max(r),
        }
        for s, r in zip(seeds, returns, strict=True)
    ]
    Console().print(summary(rows, f"{run.config.algo} on {run.config.env}, {which} policy"))


def play(argv: list[str]) -> None:
    options = [
        Option("output", str, "Video file (.mp4 or .gif); by default in the run's videos folder."),
        Option("episodes", int, "Episodes.", 1),
        Option("seed", int, "Seed of the start states.", 0),
        Option("human", bool, "A window instead of a file.", False),
        MEMBER,
        WHICH,
        JSON,
    ]
    if wants_help("play RUN", argv, options, "play runs/sac/jax-pendulum_1 -o swing-up.gif"):
        return
    (path,), given = words(argv, options, "play RUN")

    run = opened(path)
    from thespis.show.play import play as film

    policy = run.policy(given.get("member", "best"), "best" if given.get("best") else "last")
    file, returns = film(
        run,
        policy,
        path=given.get("output"),
        episodes=given.get("episodes", 1),
        seed=given.get("seed", 0),
        human=given.get("human", False),
    )
    if given.get("json"):
        print(json.dumps({"run": str(run.path), "video": file and str(file), "returns": returns}))
    else:
        print(
            f"returns {', '.join(f'{r:,.1f}' for r in returns)}"
            + (f"\nvideo   {file}" if file else "")
        )


def plot(argv: list[str]) -> None:
    options = [
        Option("output", str, "Picture: .png, .svg or .pdf.", "curves.png"),
        Option("metric", str, "Column of metrics.csv.", "eval/mean_reward"),
        Option("statistic", str, "iqm or mean over seeds.", "iqm"),
        Option("title", str, "Title."),
        JSON,
    ]
    if wants_help(
        "plot RUN ... -o FILE", argv, options, "plot runs/sac/* runs/td3/* -o curves.png"
    ):
        return
    paths, given = parse(argv, options, -1)
    if not paths:
        raise ThespisError("name at least one run: thespis plot RUN ... -o FILE")
    statistic = given.get("statistic", "iqm")
    if statistic not in ("iqm", "mean"):
        raise ThespisError(f"--statistic {statistic}: give iqm or mean")

    from thespis.runs.directory import find
    from thespis.show.plots import curves_of, learning_curve

    metric = given.get("metric", "eval/mean_reward")
    curves = curves_of([find(p) for p in paths], metric)
    output = Path(given.get("output", "curves.png"))
    file = learning_curve(curves, output, metric, statistic, given.get("title"))
    print(json.dumps({"plot": str(file)}) if given.get("json") else f"plot  {file}")


def list_(argv: list[str]) -> None:
    if wants_help("list", argv, [JSON], "list"):
        return
    _, given = parse(argv, [JSON], 0)

    from thespis import envs
    from thespis.algos import ALGORITHMS

    presets = {name: list(a.presets) for name, a in ALGORITHMS.items()}
    names = envs.names()
    if given.get("json"):
        print(
            json.dumps({"algorithms": list(ALGORITHMS), "presets": presets, "environments": names})
        )
        return
    print("algorithms")
    for name, algorithm in ALGORITHMS.items():
        print(f"  {name:<6}{algorithm.__doc__}  presets: {', '.join(presets[name])}")
    print("environments")
    for group, ids in names.items():
        hint = "" if ids else f"  (pip install 'thespis[{group}]')"
        print(f"  {group}{hint}")
        for line in wrapped(ids):
            print(f"    {line}")


VERBS = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "play": play,
    "plot": plot,
    "list": list_,
}


# --- what verbs share -----------------------------------------------------------------------


def wants_help(usage: str, argv: list[str], options: list[Option], example: str) -> bool:
    if "--help" not in argv and "-h" not in argv:
        return False
    print(f"usage: thespis {usage} [options]\n\n{describe(options)}\n\nexample: thespis {example}")
    return True


def words(argv: list[str], options: list[Option], usage: str) -> tuple[list[str], dict[str, Any]]:
    found, given = parse(argv, options, 1)
    if not found:
        raise ThespisError(f"name the run: thespis {usage}")
    return found, given


def opened(path: str):
    """A run, with XLA's threads as it was trained with."""
    from thespis import api, machine

    run = api.load(path)
    machine.use_cache()
    machine.set_threads(run.config.threads or 1)
    return run


def tell(run) -> None:
    """The last line of `train --json` and `resume --json`."""
    table = run.metrics
    last = {}
    for name, column in table.items():
        known = column[column == column]
        if len(known):
            last[name] = float(known[-1])
    print(json.dumps({"run": str(run.path), **run.status, "metrics": last}))


def short(options: list[Option]) -> list[Option]:
    """algo.NAME and hp.NAME without their prefix."""
    return [Option(o.name.partition(".")[2], o.kind, o.help, o.default) for o in options]


def aliases(options: list[Option]) -> list[Option]:
    """Stable-Baselines3's names, with the types of ours."""
    from thespis.runs.config import ALIASES

    kinds = {o.name.rpartition(".")[2]: o.kind for o in options}
    kinds |= {"learning_rate": float, "ent_coef": str, "gradient_steps": int, "train_freq": int}
    return [Option(a, kinds[name]) for a, name in ALIASES.items() if name in kinds and a != "seed"]


def seeds_of(texts: tuple[str, ...]) -> tuple[int, ...]:
    """0-4, or 1 2 3."""
    seeds: list[int] = []
    for text in texts:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
        if not match:
            raise ThespisError(
                f"--seeds {text}: give a range such as 0-4, or numbers such as 1 2 3"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ThespisError(f"--seeds {text} is empty: give a range such as {last}-{first}")
        seeds += range(first, last + 1)
    return tuple(seeds)


def wrapped(names: list[str], width: int = 92) -> list[str]:
    import textwrap

    return textwrap.wrap("  ".join(names), width, break_on_hyphens=False, break_long_words=False)


if __name__ == "__main__":
    sys.exit(main())
