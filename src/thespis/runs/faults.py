"""Members that break: noticed, named, and their failing updates kept in files."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis import envs
from thespis.engine.loop import Learner, Loop
from thespis.runs import dump
from thespis.runs.config import Config
from thespis.runs.dump import Anchor, Found, Tracer
from thespis.xla.multihost import read
from thespis.xla.placement import SHARED, all_of, local_part
from thespis.xla.program_cache import compiled


class Faults(dict[int, str]):
    """Broken members, each with the message about it."""

    def __init__(self, config: Config, loop: Loop, folder: Path, start: int):
        super().__init__()
        self.config, self.loop, self.folder = config, loop, folder
        self.trace = Tracer(loop, start)
        self.anchor: Anchor | None = None
        self.demos: Any = None  # what is learned from since then
        self.first = 0  # the number in the run of the first member here

    def remember(self, x: Learner, demos: Any, length: int, window: int) -> None:
        """Keeps a moment to return to, before `length` iterations that lose none of its rows.

        Somebody will `forget` it within `window` iterations.
        """
        self.demos = demos
        passed = x.clock.now - self.anchor.iteration if self.anchor else 0
        if self.anchor is None or passed + length > self.loop.capacity:
            self.anchor = Anchor.take(x, window)

    def forget(self) -> None:
        """Drops that moment: it belongs to members that are no more, or is long ago."""
        self.anchor = None

    def look(self, x: Learner, hps: Any, seeds: Any) -> None:
        """Finds what was not finite on the way."""
        fault = read(x.metric_sums.fault)
        for m in np.flatnonzero(fault[0] >= 0):
            iteration, what, env = fault[:, m].tolist()
            name = x.metric_sums.watched[what].replace("rollout/ep_rew_mean", "return")
            self.add(x, hps, seeds, int(m), name, iteration, env)

    def look_closer(self, x: Learner, hps: Any, seeds: Any) -> None:
        """Finds also what is not finite but has not shown yet."""
        self.look(x, hps, seeds)
        for m in np.flatnonzero(~read(self.healthy(x.state))):
            self.add(x, hps, seeds, int(m), "state", x.clock.now - 1, 0)

    def look_at_returns(self, returns: np.ndarray, x: Learner, hps: Any) -> None:
        """Finds members whose evaluation [members, episodes] is not finite."""
        for m in np.flatnonzero(~np.isfinite(returns).all(1)).tolist():
            state, hp = jax.tree.map(lambda x: x[0], dump.of_one((x.state, hps), m))
            self.keep(m, Found("return", "return", x.clock.now, 0, 0, state), hp)

    @cached_property
    def healthy(self):
        return compiled(dump.healthy, self.loop.mesh)

    def add(self, x: Learner, hps, seeds, m: int, name: str, iteration: int, env: int) -> None:
        if m in self:
            return
        # Of a replay that is shared, a member's own rows do not tell what it learned from.
        anchor = None if self.loop.shared else self.anchor
        demos = local_part(self.loop.mesh, self.demos, all_of(SHARED, self.demos))
        fault = self.trace(anchor, x, hps, seeds, m, demos) if anchor else None
        if fault is None:
            self[m] = self.message(m, name, iteration, env)
        else:
            self.keep(m, fault, jax.tree.map(lambda x: x[m], hps), env)

    def keep(self, m: int, fault: Found, hp: Any, env: int = 0) -> None:
        """Writes the fault of a member to a file."""
        c = self.config
        path = dump.write(self.folder, fault, hp, self.first + m, c.seeds[m], c.envs)
        text = self.message(m, fault.what, fault.iteration, env)
        self[m] = f"{text}; what failed is in {path}"

    def message(self, m: int, name: str, iteration: int, env: int) -> str:
        where, advice = self.config.algo, "try smaller learning rates or rewards"
        if name in ("observation", "reward"):
            where = f"{envs.label(self.loop.env)}, environment {env}"
            advice = "fix the environment, or end the episode before its state diverges"
        step, seed = iteration * self.config.envs, self.config.seeds[m]
        return f"{where}, step {step}, seed {seed}: the {name} is not finite; {advice}"
