"""Prioritised replay with a sum tree: draws and updates take log(rows) steps.

Schaul et al. 2016, https://arxiv.org/abs/1511.05952. Every node of the tree depends on its two
children only, so a tree that is rebuilt from the rows' weights equals the old one bit for bit.
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

EPSILON = 1e-5  # added to every priority, so that every transition can be drawn again


@dataclass(frozen=True)
class Rule:
    """Which rows may be drawn."""

    ahead: int = 1
    """Number of later rows that a row needs, as for an n-step transition."""
    max_use: int | None = None
    """Maximum number of times that a row is drawn."""
    max_age: int | None = None
    """Maximum number of later rows of the same environment."""
    behind: int = 0
    """Number of earlier rows that a row needs, as for a stack of frames."""


class Drawn(eqx.Module):
    """The first rows of a batch, leaves [..., batch]; `row` counts all rows ever stored.

    A row of -1 is not from this replay, and has no priority to update.
    """

    row: Int[Array, "..."]
    env: Int[Array, "..."]


class Priorities(eqx.Module):
    """Weights w = (p + epsilon)^alpha of rows, and the tree above them, for every member.

    `nodes` is a heap: node 1 is the root, node i has the children 2i and 2i + 1, and the children
    of the last level are the weights: row by row, with all environments of a row in turn. A node
    holds the sum of the weights below it, and the smallest of them that is not 0.
    """

    weight: Float[Array, "capacity members envs"]  # 0: cannot be drawn
    uses: Int[Array, "capacity members envs"] | None  # draws so far, if they are limited
    nodes: Float[Array, "nodes members 2"] | None  # None in checkpoints: it follows from weights
    highest: Float[Array, "1 members"]  # the largest priority so far, which new rows get
    written: Int[Array, ""]  # rows so far
    rule: Rule = eqx.field(static=True)

    @classmethod
    def none(cls, shape: tuple[int, ...], rule: Rule) -> Priorities:
        """Returns the priorities of an empty replay [capacity, members, envs]."""
        uses = None if rule.max_use is None else jnp.zeros(shape, jnp.int32)
        highest, written = jnp.ones((1, shape[1])), jnp.zeros((), jnp.int32)
        return cls(jnp.zeros(shape), uses, None, highest, written, rule).rebuilt()

    @property
    def width(self) -> int:
        """Returns the number of leaves: a power of two, with at least one for every row."""
        capacity, _, envs = self.weight.shape
        return 1 << max(1, (capacity * envs - 1).bit_length())

    @property
    def members(self) -> Int[Array, "members 1"]:
        return jnp.arange(self.weight.shape[1])[:, None]

    def leaf(self, i: Int[Array, "..."], member: Int[Array, "..."]) -> Float[Array, "... 2"]:
        """Returns the i-th leaf, which is empty beyond the last weight."""
        envs = self.weight.shape[2]
        place = self.weight.at[i // envs, member, i % envs]
        weight = place.get(mode="fill", fill_value=0.0)
        return jnp.stack([weight, jnp.where(weight > 0, weight, jnp.inf)], -1)

    def rebuilt(self) -> Priorities:
        """Returns the priorities with a tree that is built from the weights."""
        members = self.weight.shape[1]
        level = self.leaf(jnp.arange(self.width)[:, None], jnp.arange(members)[None])
        levels = []
        while len(level) > 1:
            level = join(level[0::2], level[1::2])
            levels.append(level)
        nodes = jnp.concatenate([jnp.zeros((1, members, 2)), *levels[::-1]])
        return dataclasses.replace(self, nodes=nodes)

    # --- updates ----------------------------------------------------------------------------

    def put(self, slot: Int[Array, "members n"], env: Array, weight: Array) -> Priorities:
        """Sets weights [members, n] of some rows; slots outside of the ring are ignored.

        If a row occurs twice, the larger weight counts.
        """
        member, envs = self.members, self.weight.shape[2]
        entries = lambda ring: ring.at[slot, member, env]
        ring = entries(self.weight).set(0.0, mode="drop")
        ring = entries(ring).max(weight, mode="drop")
        new = dataclasses.replace(self, weight=ring)
        # Ignored slots have nodes as well, which are set to what they are.
        node = (self.width + jnp.minimum(slot * envs + env, self.width - 1)) // 2
        left = 2 * node - self.width
        lowest = join(new.leaf(left, member), new.leaf(left + 1, member))

        def up(_, carry):
            node, nodes = carry
            node = node // 2
            return node, nodes.at[node, member].set(
                join(nodes[2 * node, member], nodes[2 * node + 1, member])
            )

        levels = self.width.bit_length() - 2
        start = node, self.nodes.at[node, member].set(lowest)  # pyright: ignore
        return dataclasses.replace(new, nodes=jax.lax.fori_loop(0, levels, up, start)[1])

    def entering(self, head: Int[Array, ""]) -> Int[Array, ""]:
        """Returns the slot of the row that becomes drawable when one is written at the head."""
        return (head - self.rule.ahead) % self.weight.shape[0]

    def add(self, head: Int[Array, ""], final: Bool[Array, "members envs"], alpha) -> Priorities:
        """Returns the priorities after a row was written at the head, over the oldest.

        The new row cannot be drawn yet. The row that is `entering` can be drawn now, with the
        largest priority so far, unless it is `final`.
        """
        (capacity, members, envs), rule = self.weight.shape, self.rule
        enters = self.entering(head)
        largest = jnp.where(final, 0.0, ((self.highest[0] + EPSILON) ** alpha)[:, None])
        zero = jnp.zeros_like(largest)
        changes = [(head, zero), (jnp.where(self.written < rule.ahead, capacity, enters), largest)]
        oldest = min(rule.max_age or capacity, capacity - rule.behind)
        if oldest < capacity:
            changes.append(((head - oldest) % capacity, zero))
        slots = jnp.repeat(jnp.stack([slot for slot, _ in changes]), envs)
        slots = jnp.broadcast_to(slots[None], (members, slots.size))
        env = jnp.broadcast_to(jnp.arange(slots.shape[1])[None] % envs, slots.shape)
        new = self.put(slots, env, jnp.concatenate([weight for _, weight in changes], 1))
        uses = new.uses if new.uses is None else new.uses.at[head].set(0)
        return dataclasses.replace(new, uses=uses, written=self.written + 1)

    def update(self, drawn: Drawn, priority: Float[Array, "members batch"], alpha) -> Priorities:
        """Sets the priorities of drawn rows [members, batch].

        Rows that were overwritten since, or cannot be drawn any more, keep their weight.
        """
        capacity = self.weight.shape[0]
        stored = (drawn.row >= 0) & (drawn.row > self.written - 1 - capacity)
        slot, member = drawn.row % capacity, self.members
        stored = stored & (self.weight[slot, member, drawn.env] > 0)
        weight = (priority + EPSILON) ** alpha[:, None]
        uses, target = self.uses, jnp.where(stored, slot, capacity)
        if uses is not None and self.rule.max_use is not None:
            uses = uses.at[target, member, drawn.env].add(1, mode="drop")
            weight = jnp.where(uses[slot, member, drawn.env] < self.rule.max_use, weight, 0.0)
        highest = jnp.where(stored, priority, 0.0).max(1)[None]
        new = self.put(target, drawn.env, weight)
        return dataclasses.replace(new, uses=uses, highest=jnp.maximum(self.highest, highest))

    # --- draws ------------------------------------------------------------------------------

    def draw(self, key: Key, batch: int, member: Int[Array, ""]) -> tuple[Array, Array]:
        """Draws slots and environments of rows of one member, in proportion to their weights.

        Draws are stratified: the i-th of n lies in the i-th of n equal parts of the sum.
        """
        nodes: Any = self.nodes
        stratum = jnp.arange(batch, dtype=jnp.float32) + fast_random.uniform(key, (batch,))

        def choose(node, rest, left, right):
            # Rounding may leave more than the sum on the right: never go where it is 0.
            go_right = (rest >= left) & (right > 0)
            return 2 * node + go_right.astype(jnp.int32), jnp.where(go_right, rest - left, rest)

        def down(_, carry):
            node, rest = carry
            return choose(node, rest, *(nodes[2 * node + i, member, 0] for i in range(2)))

        start = jnp.ones(batch, jnp.int32), stratum * (nodes[1, member, 0] / batch)
        node, rest = jax.lax.fori_loop(0, self.width.bit_length() - 2, down, start)
        left = 2 * node - self.width
        pair = (self.leaf(left + i, member)[..., 0] for i in range(2))
        i = choose(node, rest, *pair)[0] - self.width
        envs = self.weight.shape[2]
        return i // envs, i % envs

    def importance(self, slot: Array, env: Array, member: Int[Array, ""], beta) -> Array:
        """Returns importance weights (w_min / w)^beta <= 1; 0 for rows that cannot be drawn."""
        weight: Any = self.weight[slot, member, env]
        smallest = self.nodes[1, member, 1]  # pyright: ignore
        legal = weight > 0
        return jnp.where(legal, (smallest / jnp.where(legal, weight, smallest)) ** beta, 0.0)


def join(left: Float[Array, "... 2"], right: Float[Array, "... 2"]) -> Float[Array, "... 2"]:
    """Returns the parent of two nodes."""
    return jnp.stack([left[..., 0] + right[..., 0], jnp.minimum(left[..., 1], right[..., 1])], -1)
