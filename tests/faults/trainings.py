"""Tiny trainings of random algorithms, options and environments: they end, or say why not."""

from __future__ import annotations

import gc
import random
import shutil
import typing
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.common import Result, chance, each, say

CONTINUOUS = ("jax:pendulum", "jax:mountain-car", "jax:pointmass", "Pendulum-v1")
DISCRETE = ("jax:cartpole", "jax:catch", "CartPole-v1")
TEAMS = ("jax:meeting", "jax:meeting-continuous")
SIZES = {
    "steps": 60,
    "eval-freq": 30,
    "eval-episodes": 1,
    "checkpoint-freq": 30,
    "learning-starts": 30,
    "buffer-size": 50,
    "batch-size": 8,
    "hidden": "4 4",
}
APART = {"hidden", "critic_hidden", "batch_size", "descriptor", "spec", "dynamics_hidden"}


def some(r: random.Random, kind: Any, default: Any) -> str | None:
    """A value of an option; None leaves it out."""
    args = typing.get_args(kind)
    plain = [a for a in args if isinstance(a, str)]
    if plain:
        return r.choice(plain)
    if kind is bool:
        return r.choice(["true", "false"])
    if kind is int or int in args:
        return str(r.randint(1, 4))
    if kind is float and isinstance(default, float):
        return f"{default * r.choice([0.5, 1.0, 2.0]):g}"
    return None


def line(r: random.Random) -> list[str]:
    """The arguments of `train`, of sizes that take seconds."""
    from thespis.algos import ALGORITHMS
    from thespis.tuning import hyper
    from thespis.values import fields

    algo = r.choice(sorted(ALGORITHMS))
    envs = {"discrete-sac": DISCRETE, "masac": TEAMS}.get(algo, CONTINUOUS)
    if algo == "sqil":
        envs = CONTINUOUS + DISCRETE
    given: dict[str, Any] = SIZES | {"env": r.choice(envs), "seed": r.randint(0, 9)}
    choices = [o for o in fields(ALGORITHMS[algo]) if o.name not in APART]
    for option in r.sample(choices, min(len(choices), r.choice([0, 1, 2, 3]))):
        value = some(r, option.kind, option.default)
        given |= {} if value is None else {option.name: value}
    known = hyper.declared(ALGORITHMS[algo].Hyper)
    for name in r.sample(sorted(known), r.choice([0, 1, 2])):
        low, high = known[name].prior.limits
        given[name] = f"{float(low) + r.random() * (float(high) - float(low)):.4g}"
    if r.random() < 0.3:
        given |= {"envs": r.randint(2, 3)}
    if r.random() < 0.2:
        given |= {"frame_stack": r.randint(2, 3)}
    if r.random() < 0.2:
        given |= {"updates_per_step": r.choice([0.5, 1.5, 2])}
    if r.random() < 0.3:
        given |= {"members": 4, "pbt.interval": 10, "devices": 1}
        given |= {"tuner": r.choice(["pbt", "pb2", "random", "none"])}
        given |= {"pbt.replay": r.choice(["own", "parent", "shared"])}
    if algo == "sqil":
        given["demos"] = "expert-discrete.npz" if given["env"] in DISCRETE else "expert.npz"
    if {"max_use", "max_staleness"} & given.keys():
        given |= {"prioritized_replay": "true", "max_staleness": 40}
    if algo == "dads":
        given["descriptor"] = "0,1"
    return [algo, *words(given)]


def words(given: dict[str, Any]) -> list[str]:
    """Options; a word after what is true or false would be one too many."""
    single = lambda k, v: [f"--{k}={v}"] if v in ("true", "false") else [f"--{k}", *str(v).split()]
    return [word for name, value in given.items() for word in single(name, value)]


def campaign(count: int, seed: int, only: int | None, folder: Path) -> Result:
    import jax

    from thespis.runs import metrics
    from thespis.xla import compile_cache

    compile_cache.keeping = True  # as in the command: what goes on fetches its programs

    result, out = Result(), folder / "runs"

    def try_one(i: int) -> None:
        r = chance("training", seed, i)
        argv = line(r)
        if "--demos" in argv:
            experts(folder, argv)
        shutil.rmtree(out, ignore_errors=True)
        said = say("train", *argv, "--json", "--out", out)
        faults = said.faults(0, 2)
        if said.code == 2 and list(out.glob("*/*")):
            faults.append("it failed and left a folder")
        for run in out.glob("*/*") if said.code == 0 else ():
            found = metrics.read(run / "metrics.csv")["eval/mean_reward"]
            if not len(found) or not np.isfinite(found).all():
                faults.append(f"evaluations {found}")
            more = say("resume", run, "--steps", 90, "--json")
            faults += [f"resume: {fault}" for fault in more.faults(0)]
        how = "trained, and resumed" if said.code == 0 else "one-line errors"
        result.add(how if not faults else "fault", faults, f"training {i}, {argv}")
        if i % 10 == 9:
            jax.clear_caches()
            gc.collect()

    each(count, only, try_one)
    return result


def experts(folder: Path, argv: list[str]) -> None:
    """Demonstrations of an untrained policy on the environment that a line names."""
    env = argv[argv.index("--env") + 1]
    at = argv.index("--demos") + 1
    file = folder / f"{env.replace(':', '-')}.npz"
    argv[at] = str(file)
    if file.exists():
        return
    algo = "discrete-sac" if env in DISCRETE else "sac"
    out = folder / "experts" / env.replace(":", "-")
    assert say("train", algo, "--env", env, *words(SIZES), "--out", out, "--json").code == 0
    run = next(iter(out.glob("*/*")))
    assert say("demos", run, "--episodes", 3, "-o", file, "--json").code == 0
