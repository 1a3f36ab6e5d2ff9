"""Small runs of everything there is, and what they end with: `python -m tests.recorded`.

    python -m tests.recorded --digests FILE    write or compare the digests of 36 runs
    python -m tests.recorded --folders DIR     keep runs of the present format, for later versions

Digests tell whether a change of the code changes a number: they cover metrics.csv, time apart,
and every array of the last checkpoint, whatever its name. They hold on one kind of processor.
Only the public interface is used here, so that older and newer code can be compared.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent

SMALL = {"buffer_size": 200, "hidden": (8, 8), "batch_size": 16, "learning_starts": 60}
OFTEN = {"eval_freq": 100, "eval_episodes": 2, "checkpoint_freq": 150, "progress": False}
PBT = {"members": 4, "pbt": {"interval": 100}, "devices": 1}

JAX = {
    "sac": ("sac", "jax:pendulum", {"normalize_observations": True}),
    "discrete-sac": ("discrete-sac", "jax:cartpole", {"prioritized_replay": True}),
    "td3": ("td3", "jax:mountain-car", {"n_step": 3}),
    "sqil": ("sqil", "jax:pendulum", {"bc_steps": 50}),
    "taac": ("taac", "jax:pendulum", {"normalize_rewards": True, "stratified": True}),
    "taac-l": ("taac-l", "jax:pendulum", {"prioritized_replay": True}),
    "taac-q": ("taac-q", "jax:pendulum", {"td_loss": "huber", "encoder": (8,)}),
    "dads": ("dads", "jax:pointmass", {"dynamics_data": "weighted"}),
    "masac": ("masac", "jax:meeting", {}),
}
HOST = {
    "sac": ("sac", "Pendulum-v1", {"order": "simultaneous", "critic_loss": "half-mean"}),
    "discrete-sac": ("discrete-sac", "CartPole-v1", {"frame_stack": 2}),
    "td3": ("td3", "Pendulum-v1", {"frame_stack": 3, "noise_repeat": 4}),
    "sqil": ("sqil", "CartPole-v1", {"objective": "iq", "temperature": "log"}),
    "taac": ("taac", "Pendulum-v1", {"recent_share": 0.25}),
    "taac-l": ("taac-l", "Pendulum-v1", {"first": "random"}),
    "taac-q": ("taac-q", "Pendulum-v1", {"max_repeat_steps": 4}),
    "dads": ("dads", "Pendulum-v1", {"objective": "metra", "descriptor": "0,1"}),
    "masac": ("masac", "pettingzoo", {}),
}


def cases() -> dict[str, tuple[str, Any, dict[str, Any]]]:
    """Name -> algorithm, environment, options."""
    alone = {"jax": JAX, "host": HOST}
    found = {}
    for where, runs in alone.items():
        for name, (algo, env, options) in runs.items():
            shared = {"seeds": range(2), "devices": 1} if where == "jax" else {"seed": 3}
            found[f"{name} {where}"] = algo, env, SMALL | options | shared
            found[f"{name} {where} population"] = algo, env, SMALL | options | PBT
    return found


def environment(name: str) -> Any:
    if name != "pettingzoo":
        return name
    from tests.recorded.walk import Walk
    from thespis.envs.pettingzoo import PettingZoo

    return PettingZoo(Walk)


def demonstrations(env: str) -> dict[str, np.ndarray]:
    """Forty steps of nobody in particular."""
    rng, n = np.random.default_rng(7), 40
    discrete = env.startswith("CartPole")
    obs = rng.normal(size=(n + 1, 4 if discrete else 3)).astype(np.float32)
    actions = rng.integers(0, 2, n) if discrete else rng.uniform(-2, 2, (n, 1)).astype(np.float32)
    last = np.arange(n) % 20 == 19
    return {
        "observations": obs[:-1],
        "next_observations": obs[1:],
        "actions": actions,
        "terminations": last & (np.arange(n) < 20),
        "truncations": last,
    }


def train(case: tuple[str, Any, dict[str, Any]], out: Path, steps: int = 300, **more: Any) -> Any:
    import thespis

    algo, env, options = case
    if algo == "sqil":
        file = out / "demos.npz"
        np.savez(file, **demonstrations(env))
        more = {"demos": str(file)} | more
    return thespis.train(algo, environment(env), steps=steps, out=out, **OFTEN | options | more)


# --- digests --------------------------------------------------------------------------------


def digest(run: Any) -> dict[str, str]:
    """Of the metrics but for times, and of all arrays of the last checkpoint."""
    from safetensors.numpy import load_file

    with open(run.path / "metrics.csv", newline="") as file:
        rows = list(csv.reader(file))
    kept = [i for i, name in enumerate(rows[0]) if not name.startswith("time/")]
    table = json.dumps([[row[i] for i in kept] for row in rows])
    newest = sorted((run.path / "checkpoints").glob("[0-9]*"))[-1]
    arrays = []
    for path in newest.glob("*.safetensors"):
        if path.stem != "lineage":
            for x in load_file(path).values():
                arrays.append(f"{x.dtype}{x.shape} {hashlib.sha256(x.tobytes()).hexdigest()}")
    sha = lambda text: hashlib.sha256(text.encode()).hexdigest()[:16]
    return {"metrics": sha(table), "arrays": sha(json.dumps(sorted(arrays)))}


def compare(file: Path, only: str) -> int:
    before = json.loads(file.read_text()) if file.exists() else {}
    found, different = {}, 0
    for name, case in cases().items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as out:
            run = train(case, Path(out))
            if run.status["state"] != "done":  # by a signal: its digest would tell of that alone
                sys.exit(f"{name} was stopped at step {run.status['step']}: run it again")
            found[name] = digest(run)
        same = before.get(name, found[name]) == found[name]
        different += not same
        print(f"{'same' if same else 'DIFFERENT'}  {name}", flush=True)
    if not before:
        file.write_text(json.dumps(found, indent=1) + "\n")
    return different


# --- folders --------------------------------------------------------------------------------

KEPT = ("sac jax", "sac host", "td3 jax population", "discrete-sac jax", "discrete-sac host")
KEPT += ("sqil jax", "taac jax", "taac-l host", "taac-q jax", "dads jax", "dads host", "masac jax")
TINY = {"hidden": (4, 4), "buffer_size": 40, "learning_starts": 20, "checkpoint_freq": 80}


def keep(folder: Path) -> None:
    """Runs of 80 steps, without what can be drawn again, and what their policies do."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in KEPT:
        with tempfile.TemporaryDirectory() as out:
            more = TINY | {"eval_freq": 40, "pbt": {"interval": 40}}
            more = more if "population" in name else more | {"pbt": None}
            run = train(cases()[name], Path(out), 80, **{k: v for k, v in more.items() if v})
            target = folder / name.replace(" ", "-")
            skip = shutil.ignore_patterns("tensorboard", "plots", "report.html", "000000000000")
            shutil.copytree(run.path, target, ignore=skip)
            if (demos := Path(out) / "demos.npz").exists():
                shutil.copy(demos, target)
            (target / "does.json").write_text(json.dumps(does(run)))
            print(name, flush=True)


def does(run: Any) -> dict[str, Any]:
    """The greedy actions of every member on one observation, twice in a row."""
    import jax

    plain = lambda tree: jax.tree.map(lambda x: np.asarray(x).tolist(), tree)
    obs, found = observation(run), []
    for member in range(run.config.members):
        policy = run.policy(member)
        twice = [policy(obs), policy(obs)]
        found.append(plain(twice))
    return {"actions": found, "returns": run.evaluate(episodes=2)["returns"]}


def observation(run: Any) -> Any:
    """Some observation of the run's environment: all parts count from a tenth on."""
    import jax

    spec = run.parts[0].env.spec.obs
    tenths = lambda s: (np.arange(1, np.prod(s.shape) + 1).reshape(s.shape) / 10).astype(s.dtype)
    return jax.tree.map(tenths, spec)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("--digests", type=Path, help="written if not there, else compared")
    parser.add_argument("--folders", type=Path, help="where runs are kept")
    parser.add_argument("--only", default="", help="part of the names of those to run")
    given = parser.parse_args()
    os.environ |= {"NPROC": "1", "XLA_FLAGS": ""}  # compiled as users' programs are
    if given.folders:
        keep(given.folders)
    return compare(given.digests, given.only) if given.digests else 0


if __name__ == "__main__":
    sys.exit(main())
