"""Evaluation: whole episodes of a frozen policy, one result per episode, never the mean alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Bool, Float, Int

from thespis.core import Mode, Row, where
from thespis.loop import EVALUATE, Loop, environment_seeds

LIMIT = 10_000  # steps of an episode whose environment knows no limit


def unroll(algo, env, state, hp, key, n: int, length: int, mode: Mode) -> Row:
    """The first `length` rows [length, n, ...] of n environments under one policy.

    The state is not changed: statistics stand still. Environments go on after an episode's end.
    """
    k_env, k_memory, k_rows = random.split(key, 3)
    world, step = env.reset(k_env, n)
    start = world, step, algo.memory(k_memory, n), jnp.ones(n, bool)

    def advance(carry, t):
        world, step, memory, begin = carry
        k_act, k_step, k_fresh = random.split(random.fold_in(k_rows, t), 3)
        memory = where(begin, algo.memory(k_fresh, n), memory)
        action, memory, extra = algo.act(state, hp, memory, step.obs, k_act, t * n, mode)
        row = Row(step.obs, step.reward, step.terminated, step.truncated, action, extra)
        world, step = env.step(world, action, k_step)
        return (world, step, memory, row.final), row

    return jax.lax.scan(advance, start, jnp.arange(length))[1]


def first_episode(final: Bool[Array, "rows n"]) -> Bool[Array, "rows n"]:
    """True up to and with the row that ends each environment's first episode."""
    ended = jnp.cumsum(final, 0) - final.astype(int) > 0
    return ~ended


def outcome(rows: Row) -> tuple[Float[Array, "n"], Int[Array, "n"]]:
    """Undiscounted return and length of every environment's first episode."""
    mine = first_episode(rows.final)
    return jnp.where(mine, rows.reward, 0.0).sum(0), mine.sum(0) - 1


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Episodes of every member in an environment of their own."""

    loop: Loop
    env: Any
    episodes: int
    mode: Mode = "greedy"

    def __call__(self, state, hps, seeds, time) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths [members, episodes]; a function of the seeds and the time alone."""
        run = self.on_host if hasattr(self.env, "open") else self.on_device
        returns, lengths = run(state, hps, seeds, time)
        return np.asarray(returns), np.asarray(lengths)

    # --- JAX environments -------------------------------------------------------------------

    @cached_property
    def on_device(self):
        algo, env, length = self.loop.algo, self.env, self.env.limit + 1

        def one(_, state, hp, key):
            k_unroll = random.fold_in(key, 0)  # the loop's own keys may be folded, not used up
            rows = unroll(algo, env, state, hp, k_unroll, self.episodes, length, self.mode)
            return None, outcome(rows)

        def all_members(state, hps, seeds, time):
            keys = self.loop.keys(seeds, EVALUATE, time)
            return self.loop.each(one, None, state, hps, keys)[1]

        return jax.jit(all_members)

    # --- host environments ------------------------------------------------------------------

    def on_host(self, state, hps, seeds, time):
        """Each environment plays a fixed share of the episodes: short ones count no more."""
        members, width = len(seeds), min(self.episodes, 10)
        share = np.array([len(range(i, self.episodes, width)) for i in range(width)])
        starts = environment_seeds(np.asarray(seeds), EVALUATE, time, width)
        fold = lambda x: np.reshape(x, (members, width, *np.shape(x)[1:]))
        returns, lengths = (np.zeros((members, self.episodes), t) for t in (np.float32, int))
        total, steps, done = (np.zeros((members, width), t) for t in (float, int, int))
        begin, memory, t = np.ones((members, width), bool), None, 0
        envs = self.env.open(members * width, starts)
        try:
            step = envs.reset()
            while (done < share).any():
                # What arrives with a first observation belongs to no step.
                total = np.where(begin, 0, total + fold(step.reward))
                steps = np.where(begin, 0, steps + 1)
                endless = steps >= (self.env.limit or LIMIT)
                for m, w in zip(
                    *np.nonzero((fold(step.final) | endless) & (done < share)), strict=True
                ):
                    episode = w + done[m, w] * width
                    returns[m, episode], lengths[m, episode] = total[m, w], steps[m, w]
                    done[m, w] += 1
                args = state, hps, memory, begin, jax.tree.map(fold, step.obs), seeds, time, t
                action, memory = self.act(*args)
                begin = fold(step.final) | endless
                step, t = envs.step(np.asarray(action).reshape(members * width, -1)), t + 1
        finally:
            envs.close()
        return returns, lengths

    @cached_property
    def act(self):
        """One action of every member in every environment -> action [members, n, ...], memory."""

        algo = self.loop.algo

        def all_members(state, hps, memory, begin, obs, seeds, time, step):
            def one(_, state, hp, memory, begin, obs, key):
                k_act, k_memory = random.split(random.fold_in(key, step))
                fresh = algo.memory(k_memory, begin.shape[0])
                memory = fresh if memory is None else where(begin, fresh, memory)
                return None, algo.act(state, hp, memory, obs, k_act, step, self.mode)[:2]

            keys = self.loop.keys(seeds, EVALUATE, time)
            return self.loop.each(one, None, state, hps, memory, begin, obs, keys)[1]

        return jax.jit(all_members)
