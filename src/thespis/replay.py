"""The replay: one ring of rows for all members, time-major, each observation stored once."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Int

from thespis.core import Key, Row, Transition


class Index(NamedTuple):
    """Where rows lie, leaves [batch]; `time` counts from the oldest row."""

    time: Int[Array, "batch"]
    env: Int[Array, "batch"]

    def later(self, by: Int[Array, "batch"]) -> Index:
        return Index(self.time + by, self.env)

    def window(self, first: int, last: int) -> Index:
        """Leaves [last - first, batch]: the rows `first` .. `last - 1` after each."""
        time = self.time[None] + jnp.arange(first, last)[:, None]
        return Index(time, jnp.broadcast_to(self.env[None], time.shape))


class Replay(eqx.Module):
    """Leaves [capacity, members, envs, ...]: one clock, so one head for all members."""

    rows: Row
    head: Int[Array, ""]  # where the next row is written
    size: Int[Array, ""]  # rows stored so far

    @classmethod
    def empty(cls, capacity: int, row: Row) -> Replay:
        """`row` is an example, leaves [members, envs, ...]."""
        rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), row)
        return cls(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        return self.rows.reward.shape[0]

    def add(self, row: Row) -> Replay:
        """Write one row of every environment, leaves [members, envs, ...], over the oldest."""
        write = lambda ring, x: jax.lax.dynamic_update_index_in_dim(ring, x, self.head, 0)
        rows = jax.tree.map(write, self.rows, row)
        head = (self.head + 1) % self.capacity
        return Replay(rows, head, jnp.minimum(self.size + 1, self.capacity))

    def of(self, member: Int[Array, ""]) -> View:
        return View(self, member)


class View(eqx.Module):
    """One member's part of the ring, without a copy: what its algorithm samples from."""

    ring: Replay
    member: Int[Array, ""]

    def draw(self, key: Key, batch: int, length: int) -> Index:
        """Uniform starts of `length` consecutive rows; no window reaches past the newest row."""
        k_time, k_env = random.split(key)
        envs = self.ring.rows.reward.shape[2]
        time = random.randint(k_time, (batch,), 0, self.ring.size - length + 1)
        return Index(time, random.randint(k_env, (batch,), 0, envs))

    def at(self, index: Index, leaf=lambda rows: rows):
        """The rows at an index of any shape, or the `leaf` of them."""
        ring = self.ring
        oldest = jnp.where(ring.size == ring.capacity, ring.head, 0)
        time = (oldest + index.time) % ring.capacity
        return jax.tree.map(lambda x: x[time, self.member, index.env], leaf(ring.rows))

    def windows(self, key: Key, batch: int, length: int) -> Row:
        """Rows [length, batch, ...]; they may cross the end of an episode, and say so."""
        return self.at(self.draw(key, batch, length).window(0, length))

    def transitions(self, key: Key, batch: int, gamma, n: int = 1) -> Transition:
        """n-step transitions; shorter where the episode ends, with the true final observation.

        Rows are drawn uniformly. One that ends an episode starts no transition: it is kept as
        an invalid entry, because moving to its neighbour would favour that one.
        """
        start = self.draw(key, batch, n + 1)
        reward, final = self.at(start.window(1, n + 1), lambda r: (r.reward, r.final))
        going = jnp.concatenate([jnp.ones((1, batch), bool), ~final[:-1]])
        alive = jnp.cumprod(going.astype(jnp.float32), 0)  # up to and with the episode's end
        discount = jnp.power(gamma, jnp.arange(n, dtype=jnp.float32))[:, None]
        steps = alive.sum(0)

        now, then = self.at(start), self.at(start.later(steps.astype(jnp.int32)))
        return Transition(
            obs=now.obs,
            action=now.action,
            reward=(alive * discount * reward).sum(0),
            next_obs=then.obs,
            terminated=then.terminated.astype(jnp.float32),
            truncated=then.truncated.astype(jnp.float32),
            steps=steps,
            valid=(~now.final).astype(jnp.float32),
            weight=jnp.ones(batch),
            extra=now.extra,
        )
