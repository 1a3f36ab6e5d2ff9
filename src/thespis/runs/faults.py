"""Notices members that become NaN or infinite, and saves the updates that failed."""

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
from thespis.runs.dump import Anchor, FailedUpdate, Tracer
from thespis.xla.multihost import read
from thespis.xla.placement import SHARED, all_of, local_part
from thespis.xla.program_cache import compiled


class Faults(dict[int, str]):
    """The members that are not finite any more, each with a message that says why."""

    def __init__(self, config: Config, loop: Loop, folder: Path, start: int):
        super().__init__()
        self.config, self.loop, self.folder = config, loop, folder
        self.trace = Tracer(loop, start)
        self.anchor: Anchor | None = None
        self.demos: Any = None  # demonstrations in use since the anchor

    def remember(self, x: Learner, demos: Any, length: int, window: int) -> None:
        """Takes an anchor if none still covers the next `length` iterations.

        The caller must `forget` it within `window` iterations.
        """
        self.demos = demos
        passed = x.clock.now - self.anchor.iteration if self.anchor else 0
        if self.anchor is None or passed + length > self.loop.capacity:
            self.anchor = Anchor.take(x, window)

    def forget(self) -> None:
        """Drops the anchor, since its members were replaced or it is not needed any more."""
        self.anchor = None

    def check_metrics(self, x: Learner, hps: Any, seeds: Any) -> None:
        """Adds members whose metrics were not finite at some iteration."""
        fault = read(x.metric_sums.fault)
        for m in np.flatnonzero(fault[0] >= 0):
            iteration, what, env = fault[:, m].tolist()
            name = x.metric_sums.watched[what].replace("rollout/ep_rew_mean", "return")
            self.add(x, hps, seeds, int(m), name, iteration, env)

    def check_states(self, x: Learner, hps: Any, seeds: Any) -> None:
        """Adds also members whose state is not finite though their metrics still are."""
        self.check_metrics(x, hps, seeds)
        for m in np.flatnonzero(~read(self.healthy(x.state))):
            self.add(x, hps, seeds, int(m), "state", x.clock.now - 1, 0)

    def check_returns(self, returns: np.ndarray, x: Learner, hps: Any) -> None:
        """Adds members whose returns [members, episodes] are not finite."""
        for m in np.flatnonzero(~np.isfinite(returns).all(1)).tolist():
            state, hp = jax.tree.map(lambda x: x[0], dump.member_part((x.state, hps), m))
            self.keep(m, FailedUpdate("return", "return", x.clock.now, 0, 0, state), hp)

    @cached_property
    def healthy(self):
        return compiled(dump.healthy, self.loop.mesh)

    def add(self, x: Learner, hps, seeds, m: int, name: str, iteration: int, env: int) -> None:
        if m in self:
            return
        # With a shared replay, a member's own rows are not all that it learned from.
        anchor = None if self.loop.shared else self.anchor
        demos = local_part(self.loop.mesh, self.demos, all_of(SHARED, self.demos))
        fault = self.trace(anchor, x, hps, seeds, m, demos) if anchor else None
        if fault is None:
            self[m] = self.message(m, name, iteration, env)
        else:
            self.keep(m, fault, jax.tree.map(lambda x: x[m], hps), env)

    def keep(self, m: int, fault: FailedUpdate, hp: Any, env: int = 0) -> None:
        """Saves the failed update of a member, and keeps a message about it."""
        c = self.config
        path = dump.write(self.folder, fault, hp, m, c.seeds[m], c.envs)
        text = self.message(m, fault.what, fault.iteration, env)
        self[m] = f"{text}; the failed update is in {path}"

    def message(self, m: int, name: str, iteration: int, env: int) -> str:
        where, advice = self.config.algo, "try smaller learning rates or rewards"
        if name in ("observation", "reward"):
            where = f"{envs.label(self.loop.env)}, environment {env}"
            advice = "fix the environment, or end the episode before its state diverges"
        step, seed = iteration * self.config.envs, self.config.seeds[m]
        return f"{where}, step {step}, seed {seed}: the {name} is not finite; {advice}"
