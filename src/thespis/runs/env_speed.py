"""How long an environment in Python takes for a step, and whether other processes would pay."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from thespis.core import Box, HostEnv, Spec, Step

SECONDS = 1.0  # that steps are measured for, about
HOP = 0.0005  # seconds that actions to and rows from other processes take, about
MILLISECONDS = 0.002  # a step below which no collector pays
WORTH = 1.2  # times as fast, or it is not worth it
MOST = 32  # collectors that are advised


class EnvSpeed(NamedTuple):
    """Seconds, of which an iteration is one step of all `envs`."""

    envs: int  # of all members
    step: float  # of one environment
    busy: float  # the share of it in which a core computes
    iteration: float  # as it would be trained
    learning: float  # without the environments

    def workers(self, cores: int) -> tuple[int, float]:
        """Returns the processes that would step the environments here, and how much faster."""
        many = self.envs if self.waits else max(1, min(self.envs, cores))
        stepping = math.ceil(self.envs / many) * self.step + HOP
        return many, self.iteration / max(self.learning, stepping)

    @property
    def waits(self) -> bool:
        """Whether its steps wait for something, and need no core of their own."""
        return self.busy < 0.5

    @property
    def collectors(self) -> tuple[int, float]:
        """The collectors that the learner keeps up with, and how much faster it would be."""
        learning, now = self.learning / self.envs, self.iteration / self.envs
        many = min(MOST, max(2, math.ceil(self.step / max(learning, 1e-6))))
        return many, now / max(learning, (self.step + HOP) / many)

    def advice(self, cores: int, alone: bool) -> str:
        """Returns a line on what would be faster; collectors are for one member `alone`."""
        text = f"{1000 * self.step:.2g} ms a step of one"
        (workers, faster), (collectors, far) = self.workers(cores), self.collectors
        if workers > 1 and faster >= WORTH:
            text += f"; --env-workers {workers} would train {faster:.1f} times as fast"
        if alone and self.step >= MILLISECONDS and far >= max(WORTH, WORTH * faster):
            where = "" if self.waits else ", on a cluster with a core for each,"
            text += f"; --envs {collectors} --collectors {collectors}{where} {far:.1f} times"
        return text if ";" in text else f"{text}: other processes would not pay"


class Still:
    """Environments that return at once what they returned last: what is left is learning."""

    def __init__(self, envs: Any, arrived: Step):
        join = lambda x: np.asarray(x).reshape(-1, *x.shape[2:])
        self.envs, self.arrived = envs, jax.tree.map(join, arrived)

    def step(self, action: Any) -> Step:
        return self.arrived

    def close(self) -> None:
        self.envs.close()


def step_time(env: HostEnv) -> tuple[float, float]:
    """Measures a step of one copy -> seconds, and the share of them in which this process works."""
    envs, draw, steps = env.open(1, 0), np.random.default_rng(0), 0
    try:
        envs.reset()
        began, worked = time.monotonic(), time.process_time()
        while (spent := time.monotonic() - began) < SECONDS or steps < 2:
            envs.step(any_action(env.spec, draw))
            steps += 1
        return spent / steps, (time.process_time() - worked) / max(spent, 1e-9)
    finally:
        envs.close()


def any_action(spec: Spec, draw: np.random.Generator) -> np.ndarray:
    """Draws an action in one environment."""
    kind = spec.single
    if isinstance(kind, Box):
        return draw.uniform(-1, 1, (1, *kind.shape)).astype(np.float32)
    return draw.integers(0, kind.n, 1)
