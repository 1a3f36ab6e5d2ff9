"""Rollouts of a frozen policy: in one program on the device, step by step on the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Int

from thespis.core import HostEnv, JaxEnv, Mode, Row, Step, longest, where

Look = Callable[[Any, Any], Any]  # (obs, env_state) [n, ...] -> what is of interest [n, ...]


class FrozenPolicy(eqx.Module):
    """A policy outside training, of one member, or of all with leaves [members, ...].

    It acts at the training clock at which it was taken, so that schedules stay where they were.
    """

    state: Any
    hp: Any
    step: Int[Array, "..."]  # rows of each member at that time

    def act(self, algo, memory, obs, key, mode: Mode) -> tuple:
        """Returns action [n, ...], memory, extra, as `Algorithm.act`."""
        return algo.act(self.state, self.hp, memory, obs, key, self.step, mode)

    def answer(self, algo, memory, begin, obs, key, mode: Mode) -> tuple:
        """Returns the same, with a new memory where an episode begins."""
        k_act, k_memory = random.split(key)
        fresh = algo.memory(k_memory, begin.shape[0])
        memory = fresh if memory is None else where(begin, fresh, memory)
        return self.act(algo, memory, obs, k_act, mode)


# --- in one program -------------------------------------------------------------------------


def unroll(algo, env: JaxEnv, policy: FrozenPolicy, key, n: int, length: int, mode: Mode) -> Row:
    """Returns the first `length` rows [length, n, ...] of n environments under one policy.

    The policy's state is not changed. Environments go on after the end of an episode.
    """
    return watch(algo, env, policy, key, n, length, mode, lambda obs, env_state: None)[0]


def watch(
    algo, env: JaxEnv, policy: FrozenPolicy, key, n: int, length: int, mode: Mode, look: Look
):
    """Returns the same rows, and what `look` returned for every row."""
    k_env, k_memory, k_rows = random.split(key, 3)
    world, step = env.reset(k_env, n)
    start = world, step, algo.memory(k_memory, n), jnp.ones(n, bool)

    def advance(carry, t):
        world, step, memory, begin = carry
        k_act, k_step, k_fresh = random.split(random.fold_in(k_rows, t), 3)
        memory = where(begin, algo.memory(k_fresh, n), memory)
        action, memory, extra = policy.act(algo, memory, step.obs, k_act, mode)
        row = Row(step.obs, step.reward, step.terminated, step.truncated, action, extra)
        looks = look(step.obs, world)
        world, step = env.step(world, action, k_step)
        return (world, step, memory, row.final), (row, looks)

    return jax.lax.scan(advance, start, jnp.arange(length))[1]


# --- step by step ---------------------------------------------------------------------------


class Moment(NamedTuple):
    """One time step of n host environments: what arrived, and the action that answered it."""

    step: Step  # leaves [n, ...]
    begin: np.ndarray  # bool [n]: it is the first of an episode
    length: np.ndarray  # int [n]: steps of the episode until now
    action: Any  # this and `extra` as `act` returned them
    extra: Any


def moments(env: HostEnv, seeds: Any, act: Callable) -> Generator[Moment, None, None]:
    """Plays episodes in as many host environments as seeds, until the generator is closed.

    `act(memory, begin, obs, t)` returns an action, the next memory and an extra; the memory is
    None at first. An episode that would never end is truncated (see `core.longest`).
    """
    n, most = len(seeds), longest(env)
    begin, length, memory = np.ones(n, bool), np.zeros(n, int), None
    envs = env.open(n, seeds)
    try:
        step = envs.reset()
        for t in itertools.count():
            length = np.where(begin, 0, length + 1)
            endless = (length >= most) & ~np.asarray(step.final)
            step = step._replace(truncated=step.truncated | endless)
            action, memory, extra = act(memory, begin, step.obs, t)
            yield Moment(step, begin, length, action, extra)
            begin = np.asarray(step.final)
            if endless.any():
                envs.end(endless)
            step = envs.step(np.asarray(action).reshape(n, *env.spec.action_shape))
    finally:
        envs.close()


class Copies:
    """n copies of an environment of either kind, stepped from Python."""

    def __init__(self, env: JaxEnv | HostEnv, n: int, render_mode: str | None = None):
        self.env, self.n, self.render_mode = env, n, render_mode
        self.host: Any = None
        if not isinstance(env, HostEnv):
            self.begin = jax.jit(lambda seed: env.reset(random.key(seed), n))
            # Only resets use the key, and what follows an episode is not used.
            self.advance = jax.jit(lambda world, action: env.step(world, action, random.key(0)))

    def open(self, seed: int) -> None:
        """Opens the copies, whose episodes are determined by the seed."""
        self.close()
        self.seed = seed
        if isinstance(self.env, HostEnv):
            self.host = self.env.open(self.n, seed, self.render_mode)

    def reset(self) -> Step:
        """Begins a new episode everywhere: in JAX always that of the seed."""
        if self.host is not None:
            return self.host.reset()
        self.world, step = self.begin(self.seed)
        return step

    def step(self, action: Any) -> Step:
        if self.host is not None:
            return self.host.step(np.asarray(action))
        self.world, step = self.advance(self.world, action)
        return step

    def close(self) -> None:
        if self.host is not None:
            self.host.close()
            self.host = None


def episode(
    step: Step, advance: Callable[[Any], Step], act: Callable, limit: int, early: bool = True
) -> Iterator[tuple[Step, np.ndarray, Any]]:
    """Yields each step of the first episode of every copy, whose was over before, and the action.

    `step` is the first one, `advance(action)` returns the next, `act(obs, t)` an action. It ends
    after `limit` steps or, if `early`, when all are over; there is no action on the last one.
    """
    over = np.zeros(step.terminated.shape, bool)
    for t in range(limit + 1):
        after = over | np.asarray(step.final)
        last = t == limit or (early and bool(after.all()))
        action = None if last else act(step.obs, t)
        yield step, over, action
        if last:
            return
        over, step = after, advance(action)
