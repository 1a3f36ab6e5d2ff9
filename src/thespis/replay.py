"""The replay: one ring of rows for all members, time-major, each observation stored once."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from thespis import noise
from thespis.core import Key, Row, Transition, behind


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

    def add(self, row: Row, after=None) -> Replay:
        """Write one row of every environment, leaves [members, envs, ...], over the oldest.

        `after` is whatever was read from this ring before: then the row is written in place,
        where the compiler might otherwise keep a copy of the ring for the reader.
        """
        head = self.head if after is None else behind(self.head, after)
        write = lambda ring, x: jax.lax.dynamic_update_index_in_dim(ring, x, head, 0)
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
        """Uniform starts of `length` consecutive rows, none of which reaches past the newest row.

        That many must be stored: else they are rows of zeros, which the caller has to leave out.
        """
        starts, envs = self.ring.size - length + 1, self.ring.rows.reward.shape[2]
        # The remainder of 32 random bits favours none by more than starts / 2^32.
        time, env = noise.bits(key, (2, batch))
        rest = lambda bits, n: (bits % n.astype(jnp.uint32)).astype(jnp.int32)
        return Index(rest(time, starts), rest(env, jnp.asarray(envs)))

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
        an invalid entry, because moving to its neighbour would favour that one. All entries are
        invalid while fewer than n + 1 rows are stored.
        """
        start = self.draw(key, batch, n + 1)
        parts = lambda r: (r.reward, r.terminated, r.truncated)
        reward, *flags = self.at(start.window(0, n + 1), parts)  # [n + 1, batch]
        terminated, truncated = (f.astype(jnp.float32) for f in flags)
        going = 1.0 - jnp.maximum(terminated, truncated)
        first = jnp.ones((1, batch))
        alive = jnp.cumprod(jnp.concatenate([first, going[1:-1]]), 0)  # up to and with the end
        last = alive * jnp.concatenate([1.0 - going[1:-1], first])  # 1 in the last step only
        discount = jnp.power(gamma, jnp.arange(n, dtype=jnp.float32))[:, None]
        steps = alive.sum(0)

        obs, action, extra = self.at(start, lambda r: (r.obs, r.action, r.extra))
        return Transition(
            obs=obs,
            action=action,
            reward=(alive * discount * reward[1:]).sum(0),
            next_obs=self.at(start.later(steps.astype(jnp.int32)), lambda r: r.obs),
            terminated=(last * terminated[1:]).sum(0),
            truncated=(last * truncated[1:]).sum(0),
            steps=steps,
            valid=going[0] * (self.ring.size > n).astype(jnp.float32),
            weight=jnp.ones(batch),
            extra=extra,
        )
