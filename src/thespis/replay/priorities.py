"""Prioritised replay by a tree of sums: draws and changes take log(rows) steps.

Schaul et al. 2016, https://arxiv.org/abs/1511.05952. Every node of the tree is made of its two
children alone, so one that is built anew from the rows' weights equals the old one bit for bit.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.core import Key
from thespis.xla import fast_random

EPSILON = 1e-5  # added to every priority, so that no transition is lost for ever


@dataclass(frozen=True)
class Rule:
    """Which rows may be drawn."""

    ahead: int = 1
    """Rows that must follow, as in an n-step transition, before a row can be drawn."""
    max_use: int | None = None
    """Draws after which a row cannot be drawn any more."""
    max_age: int | None = None
    """Newer rows of the same environment after which a row cannot be drawn any more."""
    behind: int = 0
    """Older rows that must still be stored, as in a stack of frames."""


class Drawn(eqx.Module):
    """The first rows of a batch, leaves [..., batch]; `row` counts from the first ever stored.

    A row of -1 is not from this replay, and is left alone when priorities are updated.
    """

    row: Int[Array, "..."]
    env: Int[Array, "..."]


class Priorities(eqx.Module):
    """Weights w = (p + epsilon)^alpha of rows, and the tree above them, of every member.

    `nodes` is a heap: node 1 is the root, node i has the children 2i and 2i + 1, and those of the
    lower half are the weights, one environment after another for every row. A node holds the sum
    of the weights below it, and the smallest that is not 0.
    """

    weight: Float[Array, "capacity members envs"]  # 0: not to be drawn
    uses: Int[Array, "capacity members envs"] | None  # draws so far, if they are limited
    nodes: Float[Array, "nodes members 2"] | None  # None in files: it follows from the weights
    highest: Float[Array, "1 members"]  # the greatest priority so far: that of new rows
    written: Int[Array, ""]  # rows so far
    rule: Rule = eqx.field(static=True)

    @classmethod
    def none(cls, shape: tuple[int, ...], rule: Rule) -> Priorities:
        """Makes the priorities of an empty replay [capacity, members, envs]."""
        uses = None if rule.max_use is None else jnp.zeros(shape, jnp.int32)
        highest, written = jnp.ones((1, shape[1])), jnp.zeros((), jnp.int32)
        return cls(jnp.zeros(shape), uses, None, highest, written, rule).rebuilt()

    @property
    def width(self) -> int:
        """The number of leaves: a power of two, with at least one for every row."""
        capacity, _, envs = self.weight.shape
        return 1 << max(1, (capacity * envs - 1).bit_length())

    @property
    def members(self) -> Int[Array, "members 1"]:
        return jnp.arange(self.weight.shape[1])[:, None]

    def leaf(self, i: Int[Array, "..."], member: Int[Array, "..."]) -> Float[Array, "... 2"]:
        """Returns the node of a weight; it is empty beyond the last weight."""
        envs = self.weight.shape[2]
        place = self.weight.at[i // envs, member, i % envs]
        weight = place.get(mode="fill", fill_value=0.0)
        return jnp.stack([weight, jnp.where(weight > 0, weight, jnp.inf)], -1)

    def rebuilt(self) -> Priorities:
        """Returns these weights with their tree."""
        members = self.weight.shape[1]
        level = self.leaf(jnp.arange(self.width)[:, None], jnp.arange(members)[None])
        levels = []
        while len(level) > 1:
            level = join(level[0::2], level[1::2])
            levels.append(level)
        nodes = jnp.concatenate([jnp.zeros((1, members, 2)), *levels[::-1]])
        return dataclasses.replace(self, nodes=nodes)

    # --- changes ----------------------------------------------------------------------------

    def put(self, slot: Int[Array, "members n"], env: Array, weight: Array) -> Priorities:
        """Sets weights [members, n] of some rows; slots outside of the ring are left out.

        If a row is named twice, the greater weight counts.
        """
        who, envs = self.members, self.weight.shape[2]
        place = lambda ring: ring.at[slot, who, env]
        ring = place(self.weight).set(0.0, mode="drop")
        ring = place(ring).max(weight, mode="drop")
        new = dataclasses.replace(self, weight=ring)
        # Slots that are left out have nodes as well, which stay as they are.
        node = (self.width + jnp.minimum(slot * envs + env, self.width - 1)) // 2
        left = 2 * node - self.width
        lowest = join(new.leaf(left, who), new.leaf(left + 1, who))

        def up(_, carry):
            node, nodes = carry
            node = node // 2
            return node, nodes.at[node, who].set(
                join(nodes[2 * node, who], nodes[2 * node + 1, who])
            )

        levels = self.width.bit_length() - 2
        start = node, self.nodes.at[node, who].set(lowest)  # pyright: ignore
        return dataclasses.replace(new, nodes=jax.lax.fori_loop(0, levels, up, start)[1])

    def entering(self, head: Int[Array, ""]) -> Int[Array, ""]:
        """Returns the slot of the row that can be drawn once a row is written at the head."""
        return (head - self.rule.ahead) % self.weight.shape[0]

    def add(self, head: Int[Array, ""], final: Bool[Array, "members envs"], alpha) -> Priorities:
        """Notes that a row was written at the head, over the oldest; it cannot be drawn yet.

        The row that is `entering` can now be drawn, with the greatest priority so far, unless it
        is `final`.
        """
        (capacity, members, envs), rule = self.weight.shape, self.rule
        enters = self.entering(head)
        first = jnp.where(final, 0.0, ((self.highest[0] + EPSILON) ** alpha)[:, None])
        nothing = jnp.zeros_like(first)
        changes = [(head, nothing), (jnp.where(self.written < rule.ahead, capacity, enters), first)]
        oldest = min(rule.max_age or capacity, capacity - rule.behind)
        if oldest < capacity:
            changes.append(((head - oldest) % capacity, nothing))
        slots = jnp.repeat(jnp.stack([slot for slot, _ in changes]), envs)
        slots = jnp.broadcast_to(slots[None], (members, slots.size))
        env = jnp.broadcast_to(jnp.arange(slots.shape[1])[None] % envs, slots.shape)
        new = self.put(slots, env, jnp.concatenate([weight for _, weight in changes], 1))
        uses = new.uses if new.uses is None else new.uses.at[head].set(0)
        return dataclasses.replace(new, uses=uses, written=self.written + 1)

    def back(self, drawn: Drawn, priority: Float[Array, "members batch"], alpha) -> Priorities:
        """Sets the priorities of rows [members, batch] that updates have computed.

        Rows that were overwritten since, or may not be drawn any more, keep their weight.
        """
        capacity = self.weight.shape[0]
        there = (drawn.row >= 0) & (drawn.row > self.written - 1 - capacity)
        slot, who = drawn.row % capacity, self.members
        there = there & (self.weight[slot, who, drawn.env] > 0)
        weight = (priority + EPSILON) ** alpha[:, None]
        uses, outside = self.uses, jnp.where(there, slot, capacity)
        if uses is not None and self.rule.max_use is not None:
            uses = uses.at[outside, who, drawn.env].add(1, mode="drop")
            weight = jnp.where(uses[slot, who, drawn.env] < self.rule.max_use, weight, 0.0)
        highest = jnp.where(there, priority, 0.0).max(1)[None]
        new = self.put(outside, drawn.env, weight)
        return dataclasses.replace(new, uses=uses, highest=jnp.maximum(self.highest, highest))

    # --- draws ------------------------------------------------------------------------------

    def draw(self, key: Key, batch: int, member: Int[Array, ""]) -> tuple[Array, Array]:
        """Draws slots and environments of rows of one member, in proportion to their weights.

        The i-th of n draws lies in the i-th of n equal shares of the sum.
        """
        nodes: Any = self.nodes
        share = jnp.arange(batch, dtype=jnp.float32) + fast_random.uniform(key, (batch,))

        def choose(node, rest, left, right):
            # Rounding may leave more than there is on the right: never go where there is nothing.
            go = (rest >= left) & (right > 0)
            return 2 * node + go.astype(jnp.int32), jnp.where(go, rest - left, rest)

        def down(_, carry):
            node, rest = carry
            return choose(node, rest, *(nodes[2 * node + i, member, 0] for i in range(2)))

        start = jnp.ones(batch, jnp.int32), share * (nodes[1, member, 0] / batch)
        node, rest = jax.lax.fori_loop(0, self.width.bit_length() - 2, down, start)
        left = 2 * node - self.width
        pair = (self.leaf(left + i, member)[..., 0] for i in range(2))
        i = choose(node, rest, *pair)[0] - self.width
        envs = self.weight.shape[2]
        return i // envs, i % envs

    def importance(self, slot: Array, env: Array, member: Int[Array, ""], beta) -> Array:
        """Returns importance weights (w_min / w)^beta, at most 1; 0 for rows not to be drawn."""
        weight: Any = self.weight[slot, member, env]
        least = self.nodes[1, member, 1]  # pyright: ignore
        legal = weight > 0
        return jnp.where(legal, (least / jnp.where(legal, weight, least)) ** beta, 0.0)


def join(left: Float[Array, "... 2"], right: Float[Array, "... 2"]) -> Float[Array, "... 2"]:
    """Returns the node above two children."""
    return jnp.stack([left[..., 0] + right[..., 0], jnp.minimum(left[..., 1], right[..., 1])], -1)
