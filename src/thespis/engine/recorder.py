"""Records whole episodes of a policy as demonstrations, and measures similarity to them."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Float

from thespis.core import Box, HostEnv, Mode, Row, where
from thespis.engine.rollout import FrozenPolicy, moments, unroll
from thespis.engine.streams import Stream, environment_seeds
from thespis.replay.demonstrations import Episode
from thespis.replay.ring import View


@dataclass(frozen=True, eq=False)
class Recorder:
    """Records whole episodes of a policy, in the environment's units."""

    algo: Any
    env: Any
    episodes: int
    mode: Mode = "greedy"

    def __call__(self, policy: FrozenPolicy, seed: int) -> list[Episode]:
        """Returns the episodes, which are determined by the seed."""
        width = min(self.episodes, 10) if isinstance(self.env, HostEnv) else self.episodes
        share = [len(range(i, self.episodes, width)) for i in range(width)]
        run = self.on_host if isinstance(self.env, HostEnv) else self.on_device
        rows = jax.tree.map(np.asarray, run(policy, seed, share))
        final, episodes = rows.terminated | rows.truncated, []
        for i, count in enumerate(share):
            ends = [-1, *np.flatnonzero(final[:, i])[:count]]
            for start, end in itertools.pairwise(ends):
                cut = slice(start + 1, end + 1)
                episodes.append(self.episode(jax.tree.map(lambda x, c=cut, i=i: x[c, i], rows)))
        return episodes

    def episode(self, rows: Row) -> Episode:
        action = self.env.spec.single.to_env(np.asarray(rows.action[:-1]))
        reward: Any = rows.reward[1:]
        return Episode(rows.obs, action, reward, bool(rows.terminated[-1]))

    def on_device(self, policy: FrozenPolicy, seed: int, share: list[int]) -> Row:
        return self.unrolled(policy, random.fold_in(random.key(int(Stream.DEMOS)), seed))

    @cached_property
    def unrolled(self):
        sizes = self.episodes, self.env.limit + 1, self.mode
        return jax.jit(lambda policy, key: unroll(self.algo, self.env, policy, key, *sizes))

    def on_host(self, policy: FrozenPolicy, seed: int, share: list[int]) -> Row:
        """Returns rows [time, environments, ...] until each has played its share of episodes."""
        starts = environment_seeds([seed], Stream.DEMOS, 0, len(share))
        act = lambda *inputs: self.act(policy, jnp.uint32(seed), *inputs)
        rows, done = [], np.zeros(len(share), int)
        with closing(moments(self.env, starts, act)) as played:
            for moment in played:
                rows.append((*moment.step, np.asarray(moment.action)))
                done = done + moment.step.final
                if (done >= share).all():
                    break
        obs, reward, terminated, truncated, action = jax.tree.map(lambda *x: np.stack(x), *rows)
        return Row(obs, *map(jnp.asarray, (reward, terminated, truncated, action)))

    @cached_property
    def act(self):
        def act(policy, seed, memory, begin, obs, time):
            key = random.fold_in(random.fold_in(random.key(int(Stream.DEMOS)), seed), time)
            action, memory, _ = policy.answer(self.algo, memory, begin, obs, key, self.mode)
            return action, memory, None

        return jax.jit(act)


def similarity(algo, policy: FrozenPolicy, demos: View) -> Float[Array, ""]:
    """Returns the similarity of greedy actions to demonstrations, 1 if they are the same.

    For discrete actions it is the fraction that agrees; for continuous ones the fraction of the
    demonstrations' variance that is explained, which is 0 for their mean action.
    """
    ring = demos.ring
    rows = jax.tree.map(lambda x: x[:, 0, 0], ring.rows)
    valid = (~rows.final & (jnp.arange(ring.capacity) < ring.size)).astype(jnp.float32)
    share = valid / jnp.maximum(valid.sum(), 1.0)
    action = answers(algo, policy, rows)
    if not isinstance(algo.spec.single, Box):
        return share @ (action == rows.action).astype(jnp.float32)
    average = share @ rows.action
    spread = lambda x: share @ ((rows.action - x) ** 2).sum(-1)
    return 1.0 - spread(action) / jnp.maximum(spread(average[None]), 1e-8)


def answers(algo, policy: FrozenPolicy, rows: Row) -> Array:
    """Returns greedy actions on the rows [n, ...] of one environment, in turn with a memory."""
    k_memory, k_act = random.split(random.key(0))
    fresh = algo.memory(k_memory, 1)
    act = lambda memory, obs, key: policy.act(algo, memory, obs, key, "greedy")[:2]
    if fresh is None:  # then observations are independent
        return act(None, rows.obs, k_act)[0]

    def one(carry, row):
        (memory, begin), (obs, final, t) = carry, row
        memory = where(begin[None], fresh, memory)
        obs = jax.tree.map(lambda x: x[None], obs)
        action, memory = act(memory, obs, random.fold_in(k_act, t))
        return (memory, final), action[0]

    rows_in_time = rows.obs, rows.final, jnp.arange(len(rows.reward))
    return jax.lax.scan(one, (fresh, jnp.array(True)), rows_in_time)[1]
