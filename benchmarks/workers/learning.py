"""What the workers of learning.py share: their command line, the evaluations, and what they print.

A worker runs inside its library's own environment, from the folder `benchmarks`:

    python -m workers.learn_sbx --arm '{"algo": "SAC"}' --env Hopper-v5 --seed 0 --steps 50000

and prints a line of JSON per evaluation, and a last one with the versions of what was used. The
CPU-seconds of a line count all threads since the process began: imports, compiling, stepping and
updates, but neither this evaluation nor those before it. What a CPU-second is worth depends on what
the machine does beside: so every line also has the matrix products that one made at that moment.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

import numpy as np


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--arm", type=json.loads, required=True, help="its options, as JSON")
    parser.add_argument("--env", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--eval-freq", type=int, default=5_000)
    parser.add_argument("--episodes", type=int, default=10)
    return parser.parse_args()


class Recorder:
    """Prints the lines; whatever else is printed goes to stderr from now on."""

    def __init__(self):
        self.out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.apart = np.zeros(2)  # wall-clock and CPU seconds of evaluations
        self.began = self.now()

    @staticmethod
    def now() -> np.ndarray:
        children = sum(os.times()[2:4])  # such as a compiler
        return np.array([time.perf_counter(), time.process_time() + children])

    @contextmanager
    def evaluation(self, step: int) -> Iterator[dict]:
        """Around an evaluation, which puts its `returns` and `lengths` into what it is given."""
        begin, found = self.now(), {}
        wall, cpu = begin - self.apart
        yield found
        found["gflops"] = speed()
        self.apart = self.apart + self.now() - begin
        self.print(
            {
                "step": step,
                "returns": [round(float(x), 2) for x in found["returns"]],
                "lengths": [int(x) for x in found["lengths"]],
                "cpu_seconds": round(float(cpu), 2),
                "gflops": round(found["gflops"], 1),
                "wall_seconds": round(float(wall - self.began[0]), 2),
            }
        )

    def end(self, *packages: str) -> None:
        versions = {"python": platform.python_version(), **{x: version(x) for x in packages}}
        wall, cpu = (round(float(x), 2) for x in self.apart)
        self.print({"versions": versions, "eval_cpu_seconds": cpu, "eval_wall_seconds": wall})

    def print(self, line: dict) -> None:
        """Fails when nobody reads any more: then there is no use in going on."""
        print(json.dumps(line), file=self.out, flush=True)


def speed(seconds: float = 0.3, width: int = 256) -> float:
    """Billions of operations per CPU-second in products of two small matrices, on one thread."""
    x = np.ones((width, width), np.float32)
    began, count = time.process_time(), 0
    while (spent := time.process_time() - began) < seconds:
        x @ x
        count += 1
    return 2 * width**3 * count / spent / 1e9


def play(
    env: str, episodes: int, seed: int, act: Callable[[np.ndarray], np.ndarray]
) -> tuple[list[float], list[int]]:
    """Returns and lengths of episodes in as many copies of a Gymnasium environment.

    `act` gives the actions of all copies [episodes, ...], in the environment's own bounds. Each
    plays one episode, so that short ones count no more.
    """
    import gymnasium

    envs = [gymnasium.make(env) for _ in range(episodes)]
    obs = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])
    returns, lengths = np.zeros(episodes), np.zeros(episodes, int)
    playing = set(range(episodes))
    while playing:
        actions = act(obs)
        for i in sorted(playing):
            obs[i], reward, terminated, truncated, _ = envs[i].step(actions[i])
            returns[i] += reward
            lengths[i] += 1
            if terminated or truncated:
                playing.remove(i)
    for env in envs:
        env.close()
    return returns.tolist(), lengths.tolist()


def start_seed(seed: int, step: int) -> int:
    """Start states of an evaluation: others than those of training, other ones every time."""
    return 1_000_000 + 10_000_000 * seed + step
