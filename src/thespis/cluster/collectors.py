"""Environments far from the learner: `--collectors N` steps them in Ray actors, on any node.

Each collector owns a fixed slice of the environments. It is asked for blocks of consecutive rows,
each with the newest weights of the actor, and the learner puts the slices of a block together. So
many blocks are asked for ahead, and no more: collectors wait when that many are unread, the learner
waits when one is missing, and no row is older than `max_lag`. Since a block is asked for exactly
when an earlier one has been learned from, a run depends on no process's speed.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from thespis.cluster.collecting import needed, weights_of
from thespis.cluster.collector import Collector, Task, settings
from thespis.cluster.connect import connect, versions
from thespis.core import Mode, Step
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import Learner, Loop
from thespis.engine.streams import Stream, environment_seeds, member_keys
from thespis.errors import Fault, ThespisError, one_line
from thespis.runs.config import Config
from thespis.runs.trainer import Trainer
from thespis.xla.placement import put
from thespis.xla.program_cache import compiled

LAG, WAIT, LOST = "rollout/policy_lag", "time/wait_s", "rollout/collectors_lost"
SECONDS = 10  # that collectors have to close their environments
TRIES = 3  # deaths of a collector in a row, without a block between them


class Order(NamedTuple):
    """A block that was asked for: its first iteration, and who acts."""

    start: int
    weights: Any  # a reference
    mode: Mode
    weights_from: int  # the iteration at which the learner had these weights


@dataclass
class Slice:
    """A collector, and what it was asked for and has not delivered."""

    index: int
    envs: slice  # its part of the environments
    actor: Any = None
    asked: deque[tuple[Order, Any]] = field(default_factory=deque)  # with references of blocks
    deaths: int = 0  # since its newest block
    opened: int = 0  # the iteration at which its environments began


class CollectorDriver(HostDriver):
    """Runs a `Loop` whose environments are stepped by `collectors` Ray actors.

    They fetch weights every `sync` iterations, and are asked for `ahead` blocks at a time.
    """

    measured = (LAG, WAIT, LOST)

    def __init__(
        self,
        loop: Loop,
        seeds: Any,
        collectors: int,
        sync: int,
        ahead: int,
        address: str | bool | None = None,
        note: Any = print,
    ):
        super().__init__(loop, seeds)
        self.sync, self.ahead, self.address, self.note = sync, ahead, address, note
        share = loop.envs // collectors
        self.parts = [Slice(i, slice(i * share, (i + 1) * share)) for i in range(collectors)]
        self.far = replace(loop, envs=share, capacity=1, mesh=None, side_by_side=False)
        self.needed = needed(self.far)
        self.stack = ExitStack()
        self.ray: Any = None  # the module, once it is joined
        self.block: dict[str, Any] | None = None
        self.position = 0  # rows of the block that were learned from
        self.lag, self.rows, self.waited, self.lost = 0.0, 0, 0.0, 0
        self.learning = cache(self.compile_learning)

    # --- collectors -------------------------------------------------------------------------

    def open(self, time: int) -> None:
        """Starts new collectors, whose start states follow from the time."""
        if self.ray is None:
            self.ray = self.stack.enter_context(connect(self.address))
        self.end()
        self.opened, self.asked = time, time
        for part in self.parts:
            part.opened = time
            self.start(part, time)
        begun = [(part, part.actor.begin.remote()) for part in self.parts]
        for part, answer in begun:
            self.begin(part, answer, time)
        self.envs = self  # for whoever sets attributes

    def begin(self, part: Slice, answer: Any, time: int) -> None:
        """Waits until a collector has opened its environments; a lost one is started again."""
        errors = self.ray.exceptions
        for left in reversed(range(TRIES)):
            try:
                return self.refuse(part, self.ray.get(answer))
            except errors.RayError as error:
                if not left or isinstance(error, errors.RayTaskError):
                    text = f"collector {part.index} cannot begin: {reason(error)}"
                    raise ThespisError(text) from error
            self.note(f"collector {part.index} is lost and started again")
            self.kill(part)
            self.start(part, time)
            answer = part.actor.begin.remote()

    def kill(self, part: Slice) -> None:
        """Ends the process of a collector, which may be gone, or out of reach for a while."""
        with suppress(Exception):
            self.ray.kill(part.actor, no_restart=True)

    def start(self, part: Slice, time: int) -> None:
        """Starts the process of one collector."""
        cloudpickle: Any = self.ray.cloudpickle
        seeds = environment_seeds(self.seeds, Stream.TRAIN, time, self.loop.envs)
        mine = np.reshape(seeds, (self.members, -1))[:, part.envs].reshape(-1).tolist()
        task = Task(self.far, len(self.parts), part.index, self.seeds, mine, self.attributes)
        try:
            packed = cloudpickle.dumps(task)
        except Exception as error:  # pickling may raise anything
            text = f"{type(error).__name__}: {one_line(error)}"
            raise ThespisError(
                f"{self.loop.env.name} cannot be sent to collectors: {text}; give a class or a "
                "function of a module"
            ) from error
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0}
        # Environments that wait need no core, so that any number fits anywhere.
        options |= {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        remote = self.ray.remote(Collector).options(**options)
        part.actor = remote.remote(settings(), os.getcwd(), sys.path, versions(), packed)

    def end(self) -> None:
        """Ends all collectors; what they had not delivered is lost."""
        self.block, self.position, ray = None, 0, self.ray
        actors: list[Any] = [part.actor for part in self.parts if part.actor is not None]
        with suppress(Exception):  # some may be gone already
            closed = [actor.close.remote() for actor in actors]
            ray.wait(closed, num_returns=len(closed), timeout=SECONDS)
        for part in self.parts:
            if part.actor is not None:
                self.kill(part)
            part.asked.clear()
            part.actor = None

    def close(self) -> None:
        if self.ray is not None:
            self.end()
            self.stack.close()
            self.ray = self.envs = None

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of every environment; lost collectors do so when they begin again."""
        errors = self.ray.exceptions
        for answer in [part.actor.set_attr.remote(name, value) for part in self.parts]:
            try:
                text = self.ray.get(answer)
            except errors.RayTaskError as error:
                raise ThespisError(f"set_env: {reason(error)}") from error
            except errors.RayError:
                continue
            if text:
                raise ThespisError(text)

    # --- blocks -----------------------------------------------------------------------------

    def ask(self, x: Learner, hps: Any, mode: Mode) -> None:
        """Asks all collectors for one more block, with the weights as they are now."""
        weights = self.ray.put(weights_of(self.needed, x.state, hps))
        order = Order(self.asked, weights, mode, x.clock.now)
        for part in self.parts:
            self.send(part, order)
        self.asked += self.sync

    def send(self, part: Slice, order: Order) -> None:
        ref = part.actor.collect.remote(order.weights, order.start, self.sync, order.mode)
        part.asked.append((order, ref))

    def fetch(self, x: Learner) -> Learner:
        """Waits for the next block; episodes of collectors that were lost are cut off."""
        ray, began, rows = self.ray, time.monotonic(), []
        order = self.parts[0].asked[0][0]
        for part in self.parts:
            while True:
                try:
                    new = ray.get(part.asked[0][1])
                    break
                except ray.exceptions.RayTaskError as error:
                    raise ThespisError(f"collector {part.index}: {reason(error)}") from error
                except ray.exceptions.RayError as error:
                    x = self.restart(part, x, error)
            self.refuse(part, new)
            part.asked.popleft()
            part.deaths = 0
            rows.append(new)
        self.block = jax.device_put(jax.tree.map(lambda *xs: np.concatenate(xs, 2), *rows))
        self.position = 0
        mean = order.start - order.weights_from + (self.sync - 1) / 2
        self.lag += mean * self.loop.envs
        self.rows += 1
        self.waited += time.monotonic() - began
        return x

    def restart(self, part: Slice, x: Learner, error: Exception) -> Learner:
        """Starts a collector again that was lost, and asks it for the same blocks.

        The newest row of its environments is cut off from what follows, as at a resume.
        """
        part.deaths += 1
        self.lost += 1
        if part.deaths >= TRIES:
            raise ThespisError(
                f"collector {part.index} ended {TRIES} times in a row before it delivered a row: "
                f"{reason(error)}; check its environment by `thespis check-env`"
            ) from error
        now = x.clock.now
        self.note(f"step {now * self.loop.envs}: collector {part.index} is lost and started again")
        orders = [order for order, _ in part.asked]
        part.asked.clear()
        part.opened = orders[0].start
        self.kill(part)
        # Of another time each, so that a second loss begins no episode again.
        self.start(part, now + self.lost)
        part.actor.begin.remote()  # if something is wrong, it tells so instead of a block
        for order in orders:
            self.send(part, order)
        return self.cut(x, part.envs)

    def cut(self, x: Learner, envs: slice) -> Learner:
        """Ends the episodes of some environments with the newest row, unless they terminated."""
        replay = x.replay
        newest = (replay.head - 1) % replay.capacity
        rows = replay.rows
        cut = rows.truncated.at[newest, :, envs].set(~rows.terminated[newest, :, envs])
        truncated = jnp.where(replay.size > 0, cut, rows.truncated)
        changed = lambda x: (x.replay.rows.truncated, x.actors.begin)
        x = eqx.tree_at(changed, x, (truncated, x.actors.begin.at[:, envs].set(True)))
        return put(self.mesh, x, x.specs)

    def refuse(self, part: Slice, answer: Any) -> None:
        """Raises what is wrong with environments, if it is not rows that arrived."""
        if isinstance(answer, str):
            raise ThespisError(answer)
        if isinstance(answer, tuple):
            place, step, what = answer
            member, env = divmod(place, self.far.envs)
            place = member * self.loop.envs + part.envs.start + env
            step += part.opened - self.opened  # since all were opened
            raise self.located(Fault(self.loop.env.name, place, step, what))

    # --- the loop ---------------------------------------------------------------------------

    def init(self, seeds, hps, demos=None) -> Learner:
        if self.envs is None:
            self.prepare()
        return self.loop.create(seeds, hps, demos, blank_step(self.loop, self.members))

    def run(self, x: Learner, hps, demos, seeds, length: int, mode: Mode, learn: bool) -> Learner:
        """Does `length` iterations; `x` is used up."""
        program, end = self.learning(learn), x.clock.now + length
        while length:
            while self.asked < x.clock.now - self.position + self.ahead * self.sync:
                self.ask(x, hps, mode)
            if self.block is None:
                x = self.fetch(x)
            n = min(length, self.sync - self.position)
            bounds = np.int32(self.position), np.int32(self.position + n)
            x = program(x, hps, demos, seeds, self.block, *bounds)
            self.position, length = self.position + n, length - n
            if self.position == self.sync:
                self.block, self.position = None, 0
        assert x.clock.now == end
        return x

    def compile_learning(self, learn: bool):
        """Compiles learning from consecutive rows of a block, one after another."""

        def learn_from(x: Learner, hps, demos, seeds, block: dict, first, last) -> Learner:
            def body(t, x: Learner) -> Learner:
                now = jax.tree.map(lambda leaf: leaf[t], block)
                keys = member_keys(seeds, Stream.TRAIN, x.clock.iteration)
                # Memories stay with the collectors.
                answer = now["action"], x.actors.memory, now["extra"]
                return self.loop.store_and_learn(x, hps, demos, now["step"], answer, keys, learn)

            return jax.lax.fori_loop(first, last, body, x)

        return compiled(learn_from, (replace(self.loop, env=None), learn), donate_argnums=0)

    def measures(self) -> dict[str, float]:
        """Returns what is known of the rows since this was last asked."""
        lag, waited = self.lag / max(self.rows, 1), self.waited
        known = {LAG: lag} if self.rows else {}
        self.lag, self.rows, self.waited = 0.0, 0, 0.0
        return known | {WAIT: waited, LOST: self.lost}


def trainer(address: str | bool | None, config: Config, *rest: Any) -> Trainer:
    """Makes the trainer of a run whose environments collectors step, on the Ray at an address."""
    _, _, reporter, *_ = rest
    sync = (config.sync_freq or 1) // config.envs
    driver = partial(
        CollectorDriver,
        collectors=config.collectors or 1,
        sync=sync,
        ahead=(config.max_lag or 1) // (sync * config.envs),
        address=address,
        note=reporter.note,
    )
    return Trainer(config, *rest, driver=driver)


def blank_step(loop: Loop, members: int) -> Any:
    """Returns what environments might have returned, by which a learner knows its shapes."""
    zeros = lambda shape, dtype: np.zeros((members, loop.envs, *shape), dtype)
    dim = loop.algo.spec.reward_dim
    reward = zeros(() if dim is None else (dim,), np.float32)
    numbers: Any = reward, zeros((), bool), zeros((), bool)
    obs = jax.tree.map(lambda s: zeros(s.shape, s.dtype), loop.env.spec.obs)
    return Step(obs, *numbers)


def reason(error: Exception) -> str:
    """Returns one line of what Ray tells in many."""
    text = str(getattr(error, "cause", None) or error)
    return one_line(ThespisError(text.strip().partition("\n")[0] or type(error).__name__))
