"""Estimates what a training needs before it starts: memory, devices, compilation and time."""

from __future__ import annotations

import dataclasses
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import jax

from thespis import envs
from thespis.engine.loop import Loop
from thespis.envs.gymnasium import Gymnasium
from thespis.runs import sizes
from thespis.runs.build import build
from thespis.runs.config import Config
from thespis.runs.config_checks import with_eval_freq
from thespis.runs.env_speed import EnvSpeed, Still, step_time
from thespis.runs.reporter import Silent
from thespis.runs.sizes import Sizes
from thespis.runs.trainer import Trainer
from thespis.runs.tuning_rounds import refuse_fitness
from thespis.selection import name_of
from thespis.xla.threads import cores

SECONDS = 3.0  # for which each phase is measured, roughly


class Times(NamedTuple):
    """Seconds of a whole run by phase, measured with its own programs."""

    compiling: float
    warm_up: float
    learning: float
    evaluating: float

    @property
    def total(self) -> float:
        return sum(self)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run needs; `times` is None if nothing was measured."""

    config: Config
    env: str
    member: Sizes
    memory: int
    platform: str
    devices: int
    times: Times | None = None
    stepping: EnvSpeed | None = None  # of Gymnasium environments that this process would step

    @property
    def needed(self) -> int:
        """The bytes of all members, and of their process."""
        return sizes.base() + self.member.total * self.config.members

    @property
    def largest(self) -> int:
        """The largest number of members that fits in memory."""
        return max(0, self.memory - sizes.base()) // self.member.total

    @property
    def fits(self) -> bool:
        return self.largest >= self.config.members

    @property
    def steps_per_second(self) -> float | None:
        """The steps of each member per second, while it learns."""
        if self.times is None:
            return None
        return (self.config.steps - (self.config.learning_starts or 0)) / self.times.learning

    def as_dict(self) -> dict[str, Any]:
        c, member = self.config, self.member
        return {
            "algo": c.algo,
            "env": self.env,
            "steps": c.steps,
            "members": c.members,
            "fits": self.fits,
            "largest_population": self.largest,
            "bytes_per_member": {**member._asdict(), "total": member.total},
            "bytes_base": sizes.base(),
            "bytes_needed": self.needed,
            "bytes_there": self.memory,
            "devices": self.devices,
            "platform": self.platform,
            "members_per_device": c.members // self.devices,
            "seconds": self.times and {**self.times._asdict(), "total": self.times.total},
            "steps_per_second": self.steps_per_second,
            "stepping": self.stepping and self.stepping._asdict(),
        }

    def __str__(self) -> str:
        c, member = self.config, self.member
        per_member = f"{written(member.replay)} of replay, {written(member.state)} of networks"
        many = f", {c.members} members" if c.members > 1 else ""
        on = f"{self.devices} {self.platform} device{'s' * (self.devices > 1)}"
        share, threads = c.members // self.devices, c.threads or 1
        each_has = f"{share} member{'s' * (share > 1)} on each"
        lines = [
            f"{c.algo} on {name_of(c.env)}: {c.steps:,} steps{many}",
            f"memory     {written(self.needed)} of {written(self.memory)}: {written(sizes.base())} "
            f"for any run; each member has {per_member}",
            f"placement  {on}, {each_has}, {threads} thread{'s' * (threads > 1)}",
            f"population {self.largest:,} members fit"
            + ("" if self.fits else f", not {c.members:,}: lower buffer_size or members"),
        ]
        if self.times is not None:
            t = self.times
            lines += [
                f"compiling  {duration(t.compiling)} this time; programs are cached for the next",
                f"time       {duration(t.total)}: warm-up {duration(t.warm_up)}, learning "
                f"{duration(t.learning)}, evaluations {duration(t.evaluating)}",
                f"speed      {self.steps_per_second:,.0f} steps of each member per second",
            ]
        if self.stepping is not None:
            lines.append(f"stepping   {self.stepping.advice(cores(), c.members == 1)}")
        return "\n".join(lines)


def plan(config: Config, probe: bool = True) -> Plan:
    """Computes sizes from shapes and, if they fit, measures times in a short run (`probe`)."""
    one = dataclasses.replace(config, seeds=config.seeds[:1], hp={}, tuner=None, devices=1)
    loop, _ = build(one)  # refuses a member that does not fit by itself
    result = Plan(
        config=config,
        env=envs.label(loop.env),
        member=sizes.member_sizes(loop),
        memory=sizes.memory(),
        platform=jax.default_backend(),
        devices=config.devices or 1,
    )
    if not result.fits:
        return result
    pieces = build(config)
    config = with_eval_freq(config, pieces[1])
    if config.tuner:
        refuse_fitness(config, pieces[0])
    mesh = pieces[0].mesh
    devices = 1 if mesh is None else mesh.size
    result = dataclasses.replace(result, config=config, devices=devices)
    if not probe:
        return result
    times, stepping = measure(config, pieces)
    return dataclasses.replace(result, times=times, stepping=stepping)


def measure(config: Config, pieces: tuple[Loop, Any]) -> tuple[Times, EnvSpeed | None]:
    """Measures every phase for a few seconds, an evaluation, and the environments' speed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Trainer(config, pieces, Path(folder), Silent())) as trainer,
    ):
        trainer.start()
        start, end = trainer.start_of_learning, trainer.iterations(config.steps)
        warm_up = per_iteration(trainer, learn=False) * start
        iteration = per_iteration(trainer, learn=True)
        began = trainer.busy
        trainer.evaluate(trainer.policies, trainer.seeds, trainer.learner.clock.iteration)
        evaluating = max(trainer.busy - began, 0.0)
        # The last evaluation is at the end, whatever eval_freq is.
        evaluations = -(-config.steps // (config.eval_freq or config.steps))
        learning = iteration * (end - start)
        times = Times(trainer.ledger.seconds, warm_up, learning, evaluating * evaluations)
        return times, stepping_of(trainer, iteration)


def stepping_of(trainer: Trainer, iteration: float) -> EnvSpeed | None:
    """Measures what Gymnasium environments cost, if this process steps them one after another."""
    env, driver, config = trainer.loop.env, trainer.driver, trainer.config
    if not isinstance(env, Gymnasium) or env.workers is not None:
        return None
    driver.envs = Still(driver.envs, driver.arrived)
    learning = per_iteration(trainer, learn=True)
    return EnvSpeed(config.envs * config.members, *step_time(env), iteration, learning)


def per_iteration(trainer: Trainer, learn: bool) -> float:
    """Measures the seconds of an iteration, without compilation."""
    trainer.epoch(2, learn)  # compiles
    length, spent = 2, trainer.epoch(2, learn)
    while spent < SECONDS / 4 and length < 10**6:
        length = max(2 * length, int(min(SECONDS / spent, 16) * length))
        spent = trainer.epoch(length, learn)
    return spent / length


def written(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
