"""Verbs that use a trained policy: `eval`, `play`, `demos`, `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from thespis.cli.common import BEST, JSON, SEED, TRUST, chosen_policy, opened, run_and_options
from thespis.errors import ThespisError, printable
from thespis.values import Option


def evaluate(argv: list[str]) -> None:
    options = [
        Option("episodes", int, "Episodes of each member.", 100),
        Option("member", str, "Which member of several: a number, best, or all.", "all"),
        BEST,
        SEED,
        TRUST,
        JSON,
    ]
    example = "eval runs/sac/jax-pendulum_1 --episodes 100"
    path, given = run_and_options("eval RUN", argv, options, example)
    if path is None:
        return

    run, which = opened(path, given), chosen_policy(given)
    member = given.get("member")
    result = run.evaluate(given.get("episodes", 100), member, which, given.get("seed", 0))
    if given.get("json"):
        print(json.dumps({"run": str(run.path), **result}))
        return

    from statistics import fmean, pstdev

    from rich.console import Console

    from thespis.report.table import summary

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
        TRUST,
        JSON,
    ]
    example = "play runs/sac/jax-pendulum_1 -o swing-up.gif"
    path, given = run_and_options("play RUN", argv, options, example)
    if path is None:
        return

    run = opened(path, given)
    from thespis.report.play import play as show

    which, member = chosen_policy(given), given.get("member", "best")
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
        print(printable(f"video    {file}"))


def demos(argv: list[str]) -> None:
    options = [
        Option("output", str, "A file, .npz, or the name of a local Minari dataset."),
        Option("episodes", int, "Episodes.", 20),
        Option("stochastic", bool, "Act as in training instead of greedily."),
        Option("member", str, "Which member of several: a number, or best.", "best"),
        BEST,
        SEED,
        TRUST,
        JSON,
    ]
    example = "demos runs/sac/jax-pendulum_1 --episodes 20 -o pendulum/expert-v0"
    path, given = run_and_options("demos RUN -o NAME", argv, options, example)
    if path is None:
        return
    if "output" not in given:
        raise ThespisError("name the demonstrations: -o FILE.npz, or -o NAME of a Minari dataset")

    run, which = opened(path, given), chosen_policy(given)
    from thespis.replay.demonstrations import save

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
    print(printable(f"demos     {name}"))


def export(argv: list[str]) -> None:
    options = [
        Option("format", Literal["numpy", "onnx", "all"], "Python and NumPy, or ONNX.", "numpy"),
        Option("output", str, "Folder; by default export in the run's own."),
        Option("member", str, "Which member of several: a number, best, or all.", "best"),
        BEST,
        TRUST,
        JSON,
    ]
    example = "export runs/sac/jax-pendulum_1 --format all -o policy"
    path, given = run_and_options("export RUN", argv, options, example)
    if path is None:
        return

    from thespis.export import export as write

    run, which = opened(path, given), chosen_policy(given)
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
            print(printable(f"file   {file}"))
