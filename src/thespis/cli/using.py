"""Commands that use a trained policy: `eval`, `play`, `zoo`, `demos`, `export`."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from thespis.cli.common import BEST, JSON, SEED, TRUST, open_run, print_result, read_arguments
from thespis.errors import ThespisError
from thespis.values import Option

if TYPE_CHECKING:
    from thespis.runs.zoo import Entry

MEMBER = Option("member", str, "Member of the run: a number, best, or all.", "best")
PLAYING = [
    Option("output", str, "Video file (.mp4 or .gif); by default in the run's videos folder."),
    Option("episodes", int, "Number of episodes.", 1),
    Option("human", bool, "Show a window instead of writing a file.", False),
]


def evaluate(argv: list[str]) -> None:
    episodes = Option("episodes", int, "Episodes per member.", 100)
    options = [episodes, replace(MEMBER, default="all"), BEST, SEED, TRUST, JSON]
    example = "eval runs/sac/jax-pendulum_1 --episodes 100"
    [path], args = read_arguments("eval RUN", argv, options, example)

    run, which = open_run(path, args)
    result = run.evaluate(args.episodes, args.member, which, args.seed)
    if args.json:
        print(json.dumps({"run": str(run.path), **result}))
        return

    from statistics import fmean, pstdev

    from rich.console import Console

    from thespis.report.table import summary

    members = run.chosen(args.member, which)
    returns = result["returns"] if len(members) > 1 else [result["returns"]]
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
        for m, rewards in zip(members, returns, strict=True)
    ]
    Console().print(summary(rows, f"{run.config.algo} on {run.config.env}, {which} policy"))


def play(argv: list[str]) -> None:
    options = [
        *PLAYING,
        replace(MEMBER, help=f"{MEMBER.help[:-1]}, side by side in one video."),
        BEST,
        SEED,
        TRUST,
        JSON,
    ]
    example = "play runs/sac/jax-pendulum_1 -o swing-up.gif"
    [path], args = read_arguments("play RUN", argv, options, example)
    show(path, args)


def show(path: str, args: SimpleNamespace, recorded: Entry | None = None) -> None:
    """Plays a run and prints what came of it, beside what was `recorded` of one of the zoo."""
    run, which = open_run(path, args)
    from thespis.report import play
    from thespis.report.table import decimal

    member = args.member if args.member == "all" else run.member(args.member, which)
    file, returns = play.play(
        run, member, which, args.output, args.episodes, args.seed, human=args.human
    )
    several = isinstance(returns[0], list)
    members = [{"member": m, "returns": x} for m, x in enumerate(returns)]
    result: dict[str, Any] = {"run": str(run.path), "video": file and str(file)}
    result |= {"members": members} if several else {"returns": returns}
    lines = [
        f"returns{f' of member {m}' if several else ''}  {', '.join(map(decimal, rewards))}"
        for m, rewards in enumerate(returns if several else [returns])
    ]
    if recorded:
        mean, episodes = recorded.mean_reward, recorded.episodes
        result["recorded"] = {"mean_reward": mean, "episodes": episodes}
        lines.append(f"recorded {decimal(mean)}, the mean of {episodes} episodes")
    print_result(result, args.json, lines + [f"video    {file}"] * (file is not None))


def zoo(argv: list[str]) -> None:
    video = "Video file (.mp4 or .gif); by default in the folder zoo of the runs."
    options = [replace(PLAYING[0], help=video), *PLAYING[1:], SEED, JSON]
    example = "zoo jax-pendulum -o swing-up.gif"
    names, args = read_arguments("zoo [NAME]", argv, options, example)

    from thespis.runs import zoo

    if names:
        one = zoo.entry(names[0].removeprefix(zoo.PREFIX))
        known = SimpleNamespace(**vars(args), member="best", best=False, trust=False)
        show(f"{zoo.PREFIX}{one.name}", known, one)
        return
    entries = zoo.zoo()
    lines = [f"{'name':<25} {'algorithm':<13} {'environment':<25} {'reward':>7} {'kB':>4}"]
    lines += [
        f"{x.name:<25} {x.algo:<13} {x.env:<25} {x.mean_reward:>7.2f} {x.bytes / 1000:>4.0f}"
        for x in entries
    ]
    lines += [
        "",
        f"reward is the mean of {entries[0].episodes} episodes; thespis zoo NAME plays one,",
        "and zoo:NAME stands for it where a run is named: thespis eval zoo:NAME",
    ]
    print_result({"zoo": [vars(x) for x in entries]}, args.json, lines)


def demos(argv: list[str]) -> None:
    options = [
        Option("output", str, "Name of a .npz file, or of a local Minari dataset."),
        Option("episodes", int, "Number of episodes.", 20),
        Option("stochastic", bool, "Act stochastically, as in training.", False),
        replace(MEMBER, help="Member of the run: a number, or best."),
        BEST,
        SEED,
        TRUST,
        JSON,
    ]
    example = "demos runs/sac/jax-pendulum_1 --episodes 20 -o pendulum/expert-v0"
    [path], args = read_arguments("demos RUN -o NAME", argv, options, example)
    if args.output is None:
        raise ThespisError("name the demonstrations: -o FILE.npz, or -o NAME of a Minari dataset")

    run, which = open_run(path, args)
    from thespis.report.table import decimal
    from thespis.runs.expert import save

    episodes = run.record(args.episodes, args.member, which, args.stochastic, args.seed)
    name = save(args.output, episodes, run.parts[0].env.spec, run.config.algo)
    returns = [float(e.reward.sum()) for e in episodes]
    steps, mean = sum(e.length for e in episodes), sum(returns) / len(returns)
    result = {"run": str(run.path), "demos": name, "steps": steps, "returns": returns}
    about = f"{len(episodes)}, with {steps} steps and a mean return of {decimal(mean)}"
    print_result(result, args.json, [f"episodes  {about}", f"demos     {name}"])


def export(argv: list[str]) -> None:
    options = [
        Option("format", Literal["numpy", "onnx", "all"], "Format of the policy.", "numpy"),
        Option("output", str, "Folder to write to; by default `export` in the run's folder."),
        MEMBER,
        BEST,
        TRUST,
        JSON,
    ]
    example = "export runs/sac/jax-pendulum_1 --format all -o policy"
    [path], args = read_arguments("export RUN", argv, options, example)

    from thespis.export import export as write
    from thespis.runs.files import output

    run, which = open_run(path, args)
    members = run.chosen(args.member, which)
    folder, results, lines = output(run.path, args.output, "export"), [], []
    for member in members:
        place = folder / f"member{member}" if len(members) > 1 else folder  # a folder each
        results.append(result := write(run, place, args.format, member, which))
        for name, error in result["largest_difference"].items():
            text = f"acts as the trained policy on 1,000 observations, within {error:.0e}"
            lines.append(f"{name:<6} {text}")
        lines += [f"file   {file}" for file in result["files"]]
    by_member = [{"member": m} | x for m, x in zip(members, results, strict=True)]
    result = {"members": by_member} if len(members) > 1 else results[0]
    print_result({"run": str(run.path)} | result, args.json, lines)
