"""Computes the memory that members need, from shapes alone and before anything is compiled."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from thespis.core import HostEnv, Row
from thespis.engine.loop import Loop
from thespis.replay.ring import Replay

BASE = 640 * 2**20  # Python, its libraries, and memory that XLA's compiler does not give back
STATES = 3  # copies of a member's state: the current, an earlier (to find faults), and the best


class Sizes(NamedTuple):
    """Bytes of one member."""

    replay: int
    state: int  # networks, targets, moments and statistics
    environments: int  # states of JAX environments; the size of others is not known

    @property
    def total(self) -> int:
        return self.replay + STATES * self.state + self.environments


def member_sizes(loop: Loop) -> Sizes:
    """Returns the sizes of one member from shapes alone, without allocating its replay."""
    algo, n, key = loop.algo, loop.envs, jax.random.key(0)
    hp = jax.tree.map(jnp.float32, algo.Hyper())
    state = jax.eval_shape(algo.init, key, hp)
    lead = lambda shape, dtype: jax.ShapeDtypeStruct((n, *shape), dtype)
    obs = jax.tree.map(lambda s: lead(s.shape, s.dtype), loop.env.spec.obs)

    def row(state, obs) -> Row:
        args = algo.memory(key, n), obs, key, jnp.int32(0), "explore"
        action, _, extra = algo.act(state, hp, *args)
        reward = jnp.zeros((n,) if (d := loop.env.spec.reward_dim) is None else (n, d))
        stored = Row(obs, reward, jnp.zeros(n, bool), jnp.zeros(n, bool), action, extra)
        return jax.tree.map(lambda x: x[None], stored)

    example = jax.eval_shape(row, state, obs)
    replay = jax.eval_shape(lambda row: Replay.empty(loop.capacity, row, loop.rule), example)
    host = isinstance(loop.env, HostEnv)
    world = () if host else jax.eval_shape(lambda: loop.env.reset(key, n))
    return Sizes(size(replay), size(state), size(world))


def size(tree: Any) -> int:
    """Returns the bytes of all leaves."""
    bytes_of = lambda x: 8 if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x.dtype.itemsize
    return sum(math.prod(x.shape) * bytes_of(x) for x in jax.tree.leaves(tree))


def base() -> int:
    """Returns the bytes of the process itself, if members share its memory."""
    return BASE if jax.default_backend() == "cpu" else 0


def memory() -> int:
    """Returns the bytes available to members: of the devices, the machine or its container."""
    if jax.default_backend() != "cpu":
        stats = (device.memory_stats() or {} for device in jax.local_devices())
        limits = [x["bytes_limit"] for x in stats if "bytes_limit" in x]
        return sum(limits) or 2**63
    if not hasattr(os, "sysconf"):  # Windows: the size is not known, so nothing is refused
        return 2**63
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    container = Path("/sys/fs/cgroup/memory.max")
    text = container.read_text().strip() if container.exists() else ""
    return min(physical, int(text)) if text.isdigit() else physical
