"""The replay buffer: one ring of rows for all members; each observation is stored once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int

from thespis.core import MASK, Key, Row, Transition, has_mask, where
from thespis.replay.priorities import Drawn, Priorities, Rule
from thespis.xla import fast_random
from thespis.xla.ordering import order_after


class Index(NamedTuple):
    """Positions of rows, leaves [batch]; `time` counts rows from the oldest."""

    time: Int[Array, "batch"]
    env: Int[Array, "batch"]

    def later(self, by: Int[Array, "batch"]) -> Index:
        return Index(self.time + by, self.env)

    def window(self, first: int, last: int) -> Index:
        """Returns the rows `first` .. `last - 1` after each, leaves [last - first, batch]."""
        time = self.time[None] + jnp.arange(first, last)[:, None]
        return Index(time, jnp.broadcast_to(self.env[None], time.shape))


@dataclass(frozen=True)
class Stacked:
    """Marks a leaf of observations that is gathered as a stack."""

    ring: Array


class Replay(eqx.Module):
    """A ring of rows, leaves [capacity, members, envs, ...], with one head for all members."""

    rows: Row
    head: Int[Array, ""]  # where the next row is written
    size: Int[Array, ""]  # rows stored so far
    priorities: Priorities | None = None  # None: all rows are equally likely

    @classmethod
    def empty(cls, capacity: int, row: Row, rule: Rule | None = None) -> Replay:
        """Returns an empty ring for rows like this one; with a rule, rows have priorities."""
        rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), row)
        shape = capacity, *row.terminated.shape
        priorities = None if rule is None else Priorities.none(shape, rule)
        return cls(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), priorities)

    @property
    def capacity(self) -> int:
        return self.rows.reward.shape[0]

    @property
    def oldest(self) -> Int[Array, ""]:
        """Returns the slot of the oldest row."""
        return jnp.where(self.size == self.capacity, self.head, 0)

    def add(self, row: Row, after=None, alpha=None) -> Replay:
        """Writes one row of every environment, leaves [members, envs, ...], over the oldest.

        `after` is what was read from this ring before. Naming it makes the compiler write in
        place, where it might otherwise keep a copy of the ring for the reader. `alpha` [members]
        is the exponent of priorities, if there are any.
        """
        head = self.head if after is None else order_after(self.head, after)
        write = lambda ring, x: jax.lax.dynamic_update_index_in_dim(ring, x, head, 0)
        rows = jax.tree.map(write, self.rows, row)
        priorities = self.priorities
        if priorities is not None:
            enters = priorities.entering(self.head)
            final = rows.terminated[enters] | rows.truncated[enters]
            priorities = priorities.add(self.head, final, alpha)
        head = (self.head + 1) % self.capacity
        return Replay(rows, head, jnp.minimum(self.size + 1, self.capacity), priorities)

    def view(self, member: Int[Array, ""] | None, beta=None) -> View:
        """Returns a view of the rows of one member, or of all."""
        return View(self, member, beta)


class View(eqx.Module):
    """What an algorithm samples from: the rows of one member, or of all, without a copy.

    Without a member, an index counts the environments of all members.
    """

    ring: Replay
    member: Int[Array, ""] | None
    beta: Float[Array, ""] | None = None  # exponent of the importance weights
    frames: int = eqx.field(static=True, default=1)  # observations in a stack
    whole: bool = eqx.field(static=True, default=False)  # whether rows are complete episodes

    def stacked(self, frames: int) -> View:
        """Returns a view whose observations are stacks [..., frames, ...], oldest first.

        Where a stack would reach back beyond the start of its episode, the first observation is
        repeated. Action masks are not stacked.
        """
        return dataclasses.replace(self, frames=frames)

    def draw(self, key: Key, batch: int, length: int, recent: int | None = None) -> Index:
        """Draws starts of `length` consecutive rows, which end at the newest row at the latest.

        Draws are uniform, or follow the priorities if there are any. As long as fewer rows are
        stored, some are zeros, which the caller has to leave out. With `recent`, draws are
        uniform over that number of last rows of every environment.
        """
        priorities = self.ring.priorities
        if priorities is not None and self.member is not None and recent is None:
            assert length <= priorities.rule.ahead + 1, "windows are longer than the rule allows"
            slot, env = priorities.draw(key, batch, self.member)
            return Index((slot - self.ring.oldest) % self.ring.capacity, env)
        first, count = self.starts(length)
        old = 0 if recent is None else jnp.maximum(count - recent, 0)
        # The remainder of 32 random bits is biased by at most starts / 2^32.
        time, env = fast_random.bits(key, (2, batch))
        remainder = lambda bits, n: (bits % n.astype(jnp.uint32)).astype(jnp.int32)
        time = first + old + remainder(time, count - old)
        return Index(time, remainder(env, jnp.asarray(self.envs)))

    def spread(
        self, key: Key, batch: int, length: int, evenly: bool, share: float = 0.0, recent: int = 1
    ) -> Index:
        """Draws starts like `draw`; without priorities they may be stratified, or partly recent.

        With `evenly`, environments have equally many starts, the i-th of which lies in the i-th
        part of its time; what is left over is drawn as by `draw`. The last `share` of the batch
        comes from the last `recent` rows.
        """
        if self.ring.priorities is not None:
            return self.draw(key, batch, length)
        k_draw, k_even, k_recent = random.split(key, 3)
        start, i = self.draw(k_draw, batch, length), jnp.arange(batch)
        from_recent = round(share * batch)
        if evenly:
            per_env, (first, count) = (batch - from_recent) // self.envs, self.starts(length)
            part = (i // self.envs).astype(jnp.float32) + fast_random.uniform(k_even, (batch,))
            time = jnp.floor(part / max(per_env, 1) * count.astype(jnp.float32)).astype(jnp.int32)
            even = Index(first + jnp.minimum(time, count - 1), i % self.envs)
            start = where(i < per_env * self.envs, even, start)
        if from_recent:
            newest = self.draw(k_recent, batch, length, recent)
            start = where(i >= batch - from_recent, newest, start)
        return start

    def starts(self, length: int) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Returns the first time at which `length` rows may start, and the number of such times."""
        # The oldest rows of a full ring may have lost a part of their stack.
        full = (self.ring.size == self.ring.capacity) & (not self.whole)
        lost = jnp.where(full, self.frames - 1, 0)
        return lost, self.ring.size - length + 1 - lost

    @property
    def envs(self) -> int:
        """Returns the number of environments in an index."""
        _, members, envs, *_ = self.ring.rows.reward.shape
        return envs * members if self.member is None else envs

    def at(self, index: Index, leaf=lambda rows: rows):
        """Returns the rows at an index of any shape, or only the `leaf` of them."""
        rows, place = self.ring.rows, self.place
        if self.frames == 1:
            return jax.tree.map(lambda x: x[place(index)], leaf(rows))
        history = self.history(index)

        def gather(x):
            if not isinstance(x, Stacked):
                return x[place(index)]
            return jnp.moveaxis(x.ring[place(history)], 0, index.time.ndim)

        obs = rows.obs
        marked = jax.tree.map(Stacked, obs)
        marked = marked | {MASK: obs[MASK]} if has_mask(obs) else marked
        return jax.tree.map(gather, leaf(dataclasses.replace(rows, obs=marked)))

    def history(self, index: Index) -> Index:
        """Returns the index of each stack's rows, leaves [frames, ...], oldest first."""
        steps, same_episode = jnp.zeros_like(index.time), jnp.ones_like(index.time)
        steps_back = [steps]
        for i in range(1, self.frames):
            before = Index(index.time - i, index.env)
            place, rows = self.place(before), self.ring.rows
            ended = rows.terminated[place] | rows.truncated[place]
            same_episode = same_episode * ((before.time >= 0) & ~ended).astype(jnp.int32)
            steps = steps + same_episode
            steps_back.append(steps)
        time = index.time[None] - jnp.stack(steps_back[::-1])
        return Index(time, jnp.broadcast_to(index.env[None], time.shape))

    def place(self, index: Index) -> tuple[Array, Array, Array]:
        """Returns slot, member and environment of an index."""
        member, env = self.member, index.env
        if member is None:
            member, env = jnp.divmod(env, self.ring.rows.reward.shape[2])
        return self.slot(index), member, env

    def slot(self, index: Index) -> Int[Array, "..."]:
        """Returns the slots of an index in the ring."""
        return (self.ring.oldest + index.time) % self.ring.capacity

    def importance(self, start: Index) -> tuple[Float[Array, "batch"], Drawn | None]:
        """Returns importance weights of a batch, 0 where it must be left out, and its rows."""
        priorities, batch = self.ring.priorities, start.env.shape[0]
        if priorities is None or self.member is None:
            return jnp.ones(batch), None
        weight = priorities.importance(self.slot(start), start.env, self.member, self.beta)
        first = priorities.written - self.ring.size
        return weight, Drawn(first + start.time, start.env)

    def windows(self, key: Key, batch: int, length: int) -> Row:
        """Draws rows [length, batch, ...], which may cross the end of an episode."""
        return self.at(self.draw(key, batch, length).window(0, length))

    def transitions(
        self, key: Key, batch: int, gamma, n: int = 1, recent: int | None = None, paid=None
    ) -> Transition:
        """Draws n-step transitions, shorter where an episode ends, with its true final observation.

        A row that ends an episode starts no transition. If it is drawn, the entry is invalid;
        taking its neighbour instead would favour that one. All entries are invalid while fewer
        than n + 1 rows are stored. `paid(reward, obs)` computes other rewards from those that
        came with observations.
        """
        # Complete episodes may end before n steps: nothing after their end is read.
        needed = 1 if self.whole else n
        start = self.draw(key, batch, needed + 1, recent)
        parts = lambda r: (r.obs if paid else None, r.reward, r.terminated, r.truncated)
        all_obs, reward, *flags = self.at(start.window(0, n + 1), parts)  # [n + 1, batch]
        reward = paid(reward, all_obs) if paid else reward
        terminated, truncated = (f.astype(jnp.float32) for f in flags)
        going = 1.0 - jnp.maximum(terminated, truncated)
        ones = jnp.ones((1, batch))
        alive = jnp.cumprod(jnp.concatenate([ones, going[1:-1]]), 0)  # up to and with the end
        last = alive * jnp.concatenate([1.0 - going[1:-1], ones])  # 1 in the last step only
        discount = alive * jnp.power(gamma, jnp.arange(n, dtype=jnp.float32))[:, None]
        steps = alive.sum(0)
        weight, drawn = self.importance(start)
        stored = (self.ring.size > needed) & (weight > 0)

        obs, action, extra = self.at(start, lambda r: (r.obs, r.action, r.extra))
        return Transition(
            obs=obs,
            action=action,
            reward=(discount.reshape(n, batch, *[1] * (reward.ndim - 2)) * reward[1:]).sum(0),
            next_obs=self.at(start.later(steps.astype(jnp.int32)), lambda r: r.obs),
            terminated=(last * terminated[1:]).sum(0),
            truncated=(last * truncated[1:]).sum(0),
            steps=steps,
            valid=going[0] * stored.astype(jnp.float32),
            weight=weight,
            extra=extra,
            drawn=drawn,
        )
