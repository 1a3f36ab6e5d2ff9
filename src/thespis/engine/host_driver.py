"""The training loop around environments in Python, such as Gymnasium's."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from thespis.core import Mode, Step
from thespis.engine.loop import Learner, Loop
from thespis.engine.streams import Stream, environment_seeds, member_keys
from thespis.errors import Fault, ThespisError
from thespis.xla.placement import (
    MEMBERS,
    SHARED,
    all_of,
    local,
    local_part,
    local_slice,
    put,
    spread,
    whole,
)
from thespis.xla.program_cache import compiled
from thespis.xla.threads import cores

SMALL = 4096  # bytes of an array that is joined with others


class HostDriver:
    """Runs a `Loop` whose environments are opened here, `envs` for every member of this process.

    Each iteration is two compiled calls: `act` gives the actions, `store_and_learn` stores and
    learns. The second is not waited for, so the environments step while the update runs.
    """

    measured: tuple[str, ...] = ()  # names of the metrics that `measures` returns

    def __init__(self, loop: Loop, seeds):
        self.loop = dataclasses.replace(loop, mesh=local(loop.mesh))
        self.mesh, self.local_slice = loop.mesh, local_slice(loop.mesh, len(seeds))
        self.seeds = np.asarray(seeds)[self.local_slice]
        self.members = len(self.seeds)
        self.envs: Any = None  # `HostEnvs`, once they are open
        self.attributes: dict[str, Any] = {}  # set when environments are opened
        self.programs = cache(self.compile)

    def open(self, time: int) -> None:
        """Opens the environments, with seeds that depend on the time."""
        self.close()
        seeds = environment_seeds(self.seeds, Stream.TRAIN, time, self.loop.envs)
        self.envs = self.loop.env.open(len(seeds), seeds)
        self.opened = time
        for name, value in self.attributes.items():
            self.envs.set_attr(name, value)
        try:
            self.arrived = self.fold(self.envs.reset())
        except Fault as fault:
            raise self.located(fault) from fault.__cause__

    def prepare(self) -> None:
        """Opens the environments of a new run, so that their faults appear before it begins."""
        self.open(time=0)

    def init(self, seeds, hps, demos=None) -> Learner:
        if self.envs is None:
            self.prepare()
        seeds, hps = self.local_members(seeds, hps)
        learner = self.loop.create(seeds, hps, self.local_demos(demos), self.arrived)
        return whole(self.mesh, learner, learner.specs)

    def local_members(self, *trees):
        """Returns the part of trees of all members that belongs to this process."""
        return local_part(self.mesh, trees, all_of(MEMBERS, trees))

    def local_demos(self, demos):
        """Returns the demonstrations, which all members share, on this process's devices."""
        return local_part(self.mesh, demos, all_of(SHARED, demos))

    def resume(self, learner: Learner) -> Learner:
        """Begins new episodes; the newest stored row is truncated, as nothing follows it."""
        self.open(learner.clock.now)
        replay = learner.replay
        newest = (replay.head - 1) % replay.capacity
        truncated = replay.rows.truncated.at[newest].set(~replay.rows.terminated[newest])
        leaves = lambda x: (x.replay.rows.truncated, x.actors.begin)
        begin = jnp.ones_like(learner.actors.begin)
        learner = eqx.tree_at(leaves, learner, (truncated, begin))
        return put(self.mesh, learner, learner.specs)

    def run(self, x: Learner, hps, demos, seeds, length: int, mode: Mode, learn: bool) -> Learner:
        """Does `length` iterations; the buffers of `x` are donated."""
        specs = x.specs
        hps, seeds = self.local_members(hps, seeds)
        trees = local_part(self.mesh, x, specs), (hps, self.local_demos(demos), seeds)
        # With a second core, arrays are passed while the update runs.
        join = self.loop.mesh is None and cores() == 1
        learner, rest = (Bundle.from_tree(tree, join) for tree in trees)
        act, store_and_learn = self.programs(learner, rest, mode, learn)
        leaves, rest_leaves = learner.pack(trees[0]), rest.pack(trees[1])
        try:
            for _ in range(length):
                answer = act(leaves, rest_leaves, self.arrived.obs)
                action = np.asarray(answer[0])
                leaves = store_and_learn(leaves, rest_leaves, self.arrived, answer)
                self.arrived = self.fold(self.envs.step(action.reshape(-1, *action.shape[2:])))
        except Fault as fault:
            raise self.located(fault) from fault.__cause__
        return whole(self.mesh, learner.unpack(leaves), specs)

    def compile(self, learner: Bundle, rest: Bundle, mode: Mode, learn: bool):
        """Returns the two halves of an iteration; lists of leaves are passed faster than trees."""

        def act(leaves, rest_leaves, obs):
            x, (hps, _, seeds) = learner.unpack(leaves), rest.unpack(rest_leaves)
            keys = member_keys(seeds, Stream.TRAIN, x.clock.iteration)
            return self.loop.act(x.state, hps, x.actors, obs, keys, x.clock, mode)

        def store_and_learn(leaves, rest_leaves, arrived, answer):
            x, (hps, demos, seeds) = learner.unpack(leaves), rest.unpack(rest_leaves)
            keys = member_keys(seeds, Stream.TRAIN, x.clock.iteration)
            return learner.pack(
                self.loop.store_and_learn(x, hps, demos, arrived, answer, keys, learn)
            )

        hps, demos, _ = jax.tree.unflatten(rest.structure, range(rest.structure.num_leaves))
        rest_leaves = jax.tree.leaves((all_of(MEMBERS, hps), all_of(SHARED, demos), MEMBERS))
        x = jax.tree.unflatten(learner.structure, range(learner.structure.num_leaves))
        leaves = jax.tree.leaves(x.specs)
        split = partial(spread, self.loop.mesh)
        act = split(act, (leaves, rest_leaves, MEMBERS), MEMBERS)
        store_and_learn = split(store_and_learn, (leaves, rest_leaves, MEMBERS, MEMBERS), leaves)
        recipe = dataclasses.replace(self.loop, env=None), mode, learn
        return compiled(act, recipe), compiled(store_and_learn, recipe, donate_argnums=0)

    def located(self, fault: Fault) -> ThespisError:
        """Returns the error, with the environment and step at which it happened."""
        member, env = divmod(fault.environment, self.loop.envs)
        return fault.at(env, (self.opened + fault.step) * self.loop.envs, int(self.seeds[member]))

    def fold(self, step: Step) -> Step:
        """Turns leaves [members * envs, ...] into [members, envs, ...]."""
        return jax.tree.map(lambda x: x.reshape(self.members, -1, *x.shape[1:]), step)

    def measures(self) -> dict[str, float]:
        """Returns metrics of the driver since the last call: none here."""
        return {}

    def close(self) -> None:
        if self.envs is not None:
            self.envs.close()
            self.envs = None


@dataclass(frozen=True)
class Bundle:
    """How a tree becomes a list of arrays in which the small ones of each dtype are joined.

    Every array that is passed to compiled code costs about a microsecond, and most arrays of a
    learner are small biases and counts.
    """

    structure: Any
    types: tuple[tuple[tuple[int, ...], Any], ...]
    """Shape and dtype of every leaf."""
    joined: tuple[tuple[int, ...], ...]
    """Groups of leaves, each of which is one array."""

    @classmethod
    def from_tree(cls, tree: Any, join: bool) -> Bundle:
        leaves, structure = jax.tree.flatten(tree)
        groups: dict[Any, list[int]] = {}
        for i, x in enumerate(leaves):
            if join and x.nbytes <= SMALL:
                groups.setdefault(x.dtype, []).append(i)
        types = tuple((x.shape, x.dtype) for x in leaves)
        return cls(structure, types, tuple(map(tuple, groups.values())))

    @property
    def separate(self) -> list[int]:
        """Returns the leaves that are not joined with others."""
        small = set().union(*self.joined)
        return [i for i in range(len(self.types)) if i not in small]

    def pack(self, tree: Any) -> list:
        """Returns the arrays: joined ones first."""
        leaves = jax.tree.leaves(tree)
        xp = array_module(leaves)
        join = lambda group: xp.concatenate([xp.ravel(leaves[i]) for i in group])
        return [*map(join, self.joined), *(leaves[i] for i in self.separate)]

    def unpack(self, arrays: list) -> Any:
        """Inverts `pack`."""
        xp, n = array_module(arrays), len(self.joined)
        leaves = dict(zip(self.separate, arrays[n:]))
        for group, joined in zip(self.joined, arrays[:n]):
            sizes = [math.prod(self.types[i][0]) for i in group]
            parts = xp.split(xp.array(joined), np.cumsum(sizes)[:-1])
            leaves |= {i: x.reshape(self.types[i][0]) for i, x in zip(group, parts)}
        in_order = [leaves[i] for i in range(len(leaves))]
        in_order = in_order if xp is jnp else jax.device_put(in_order)
        return jax.tree.unflatten(self.structure, in_order)


def array_module(leaves: list) -> Any:
    """Returns JAX's NumPy if leaves are traced, else NumPy, which has nothing to compile."""
    return jnp if any(isinstance(x, Tracer) for x in leaves) else np
