"""Run folders made up for reports: any number of members, evaluations and columns."""

import base64
import itertools
import json
import re
from itertools import pairwise

import numpy as np

from thespis.report import sweep_results

HYPERS = ("actor_lr", "critic_lr", "alpha_lr", "gamma", "tau", "reward_scale")


def run(
    folder,
    seeds=(0,),
    evaluations=6,
    algo="sac",
    env="jax:pendulum",
    state="done",
    tuner=None,
    more=(),
    values=None,
    **config,
):
    """A run whose member m scores about -1000 + 900 (1 - exp(-5 t)) - 10 m at the share t of it.

    Every other line is one between two evaluations. `more` are further columns of noise;
    `values` [evaluations, members] stand in for the returns.
    """
    folder.mkdir(parents=True)
    members, steps = len(seeds), 1000 * evaluations
    written = {"algo": algo, "env": env, "seeds": list(seeds), "steps": steps, "tuner": tuner}
    written |= {"command": f"thespis train {algo} --env {env}", "hp": {"gamma": 0.99, "tau": 5e-3}}
    written |= {"options": {"hidden": [64, 64]}, "versions": {"jax": "0.10"}, "preset": None}
    (folder / "config.json").write_text(json.dumps(written | config))
    if state:
        status = {"state": state, "step": steps} | (
            {"error": "it fell"} if state == "failed" else {}
        )
        (folder / "status.json").write_text(json.dumps(status))
        (folder / "compiled.json").write_text(json.dumps({"epoch": 2.2, "init": 0.3}))
    columns = ("time/fps", "time/elapsed_s", "time/compile_s", "eval/mean_reward")
    columns += ("rollout/ep_rew_mean", "train/critic_loss", *(f"train/{name}" for name in more))
    columns += tuple(f"hparams/{name}" for name in HYPERS)
    rng = np.random.default_rng(0)
    t = np.arange(1, evaluations + 1)[:, None] / max(evaluations, 1)
    noise = rng.normal(0, 15, (evaluations, members))
    returns = -1000 + 900 * (1 - np.exp(-5 * t)) - 10 * np.arange(members) + noise
    returns = returns if values is None else np.asarray(values)
    lines = [",".join(["step", "member", *columns])]
    for i in range(evaluations):
        for half in (1, 0):
            for m in range(members):
                score = "" if half else f"{returns[i, m]:.6g}"
                row = [1000 * (i + 1) - 500 * half, m, 800 + i, 2.0 * i + 3 - half, 2.5, score]
                row += [f"{x:.7g}" for x in rng.normal(size=2 + len(more))]
                lines.append(",".join(map(str, [*row, *[0.001] * len(HYPERS)])))
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    if tuner:
        lineage(folder, members, evaluations, rng)
    return folder


def lineage(folder, members, evaluations, rng):
    """At every evaluation the last member copies a random one and halves its hypers."""
    names = [f"{when}/{name}" for when in ("before", "after") for name in HYPERS]
    lines = [",".join(["step,member,parent,score,age", *names])]
    hypers = rng.uniform(1e-4, 1e-2, (members, len(HYPERS)))
    for i in range(evaluations - 1):
        loser, parent = rng.choice(members, 2, replace=False)
        before = hypers.copy()
        hypers[loser] = hypers[parent] * rng.choice([0.8, 1.25], len(HYPERS))
        for m in range(members):
            told = [f"{x:.6g}" for x in (*before[m], *hypers[m])]
            row = [1000 * (i + 1), m, parent if m == loser else m, -500 + i, 500, *told]
            lines.append(",".join(map(str, row)))
    (folder / "lineage.csv").write_text("\n".join(lines) + "\n")


def histograms(folder, rows, members=1, name="rollout/actions/0", edges=(-1, 0, 0.5, 1)):
    """Every member's values lie in the first bin, and from half of the rows on in the last."""
    bins = [f"{name}:{low:g}:{high:g}" for low, high in pairwise(edges)]
    lines = [",".join(["step,member", *bins])]
    for i in range(rows):
        counts = [0] * len(bins)
        counts[-1 if 2 * i >= rows else 0] = 10
        lines += [",".join(map(str, [500 * (i + 1), m, *counts])) for m in range(members)]
    (folder / "histograms.csv").write_text("\n".join(lines) + "\n")


def sweep(folder, algos=("sac", "td3"), envs=("jax:pendulum",), seeds=range(3)):
    """A sweep over three rates and two batch sizes: the second rate and TD3 do best, one fails."""
    rows = []
    table = itertools.product(algos, envs, ("0.0001", "0.0003", "0.001"), ("64", "256"))
    for i, (algo, env, rate, batch) in enumerate(table):
        row = {"job": f"{i:03d}-{algo}", "algo": algo, "env": env, "critic_lr": rate}
        row |= {
            "batch_size": batch,
            "command": f"thespis train {algo} --env {env} --critic-lr {rate}",
        }
        if i == 1:
            rows.append(row | {"state": "failed", "error": "the curtain fell"})
            continue
        high = -300 + 60 * (rate == "0.0003") + 30 * (algo == "td3") + 10 * (batch == "256")
        values = np.linspace(-1000, high, 6)[:, None] - np.arange(len(seeds))
        place = folder / "jobs" / row["job"]
        run(place, seeds, 6, algo, env, values=values, hp={"critic_lr": float(rate)})
        rows.append(row | sweep_results.measured(place, "eval/mean_reward") | {"state": "done"})
    (folder / "sweep.toml").write_text('metric = "eval/mean_reward"\n')
    sweep_results.write(folder, rows)
    return folder


def data(file):
    """What a page was told."""
    text = file.read_text()
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    told = json.loads(found)
    told["array"] = lambda i: np.frombuffer(
        base64.b64decode(told["numbers"][i][1:]), f"<f{told['numbers'][i][0]}"
    )
    return told
