"""The same learning step around environments that live in Python: Gymnasium and the like."""

from __future__ import annotations

import dataclasses
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from thespis.core import Mode, Step
from thespis.loop import TRAIN, Learner, Loop, environment_seeds
from thespis.placement import MEMBERS, SHARED, all_of, local, mine, own, put, spread, whole
from thespis.programs import compiled


class HostDriver:
    """Runs a `Loop` whose environments are opened here, `envs` for every member of this process.

    Each iteration is two compiled calls: `respond` gives the actions, `absorb` stores and
    learns. The second is not waited for, so the environments step while the update runs.
    """

    def __init__(self, loop: Loop, seeds):
        self.loop = dataclasses.replace(loop, mesh=local(loop.mesh))
        self.mesh, self.mine = loop.mesh, mine(loop.mesh, len(seeds))
        self.seeds = np.asarray(seeds)[self.mine]
        self.members = len(self.seeds)
        self.open(time=0)
        self.programs = cache(self.compile)

    def open(self, time: int) -> None:
        """Begin with start states of this time's own."""
        seeds = environment_seeds(self.seeds, TRAIN, time, self.loop.envs)
        self.envs = self.loop.env.open(len(seeds), seeds)
        self.arrived = self.fold(self.envs.reset())

    def init(self, seeds, hps, demos=None) -> Learner:
        seeds, hps = self.own(seeds, hps)
        learner = self.loop.create(seeds, hps, self.seen(demos), self.arrived)
        return whole(self.mesh, learner, learner.specs)

    def own(self, *given):
        """What is given of all members, of those of this process."""
        return own(self.mesh, given, all_of(MEMBERS, given))

    def seen(self, demos):
        """What all members see, on this process's devices."""
        return own(self.mesh, demos, all_of(SHARED, demos))

    def resume(self, learner: Learner) -> Learner:
        """Environments begin new episodes; the row they left is cut off from what follows."""
        self.close()
        self.open(learner.clock.now)
        replay = learner.replay
        newest = (replay.head - 1) % replay.capacity
        truncated = replay.rows.truncated.at[newest].set(~replay.rows.terminated[newest])
        changed = lambda x: (x.replay.rows.truncated, x.actors.begin)
        begin = jnp.ones_like(learner.actors.begin)
        learner = eqx.tree_at(changed, learner, (truncated, begin))
        return put(self.mesh, learner, learner.specs)

    def run(self, x: Learner, hps, demos, seeds, length: int, mode: Mode, learn: bool) -> Learner:
        """`length` iterations, `x` is used up."""
        specs = x.specs
        leaves, structure = jax.tree.flatten(own(self.mesh, x, specs))
        hps, seeds = self.own(hps, seeds)
        given, kind = jax.tree.flatten((hps, self.seen(demos), seeds))
        respond, absorb = self.programs(structure, kind, mode, learn)
        for _ in range(length):
            answer = respond(leaves, given, self.arrived.obs)
            action = np.asarray(answer[0])
            leaves = absorb(leaves, given, self.arrived, answer)
            self.arrived = self.fold(self.envs.step(action.reshape(-1, *action.shape[2:])))
        return whole(self.mesh, jax.tree.unflatten(structure, leaves), specs)

    def compile(self, structure, kind, mode: Mode, learn: bool):
        """The two halves of an iteration, over lists: these cross into compiled code faster."""

        def respond(leaves, given, obs):
            x, (hps, _, seeds) = jax.tree.unflatten(structure, leaves), unflatten(given)
            keys = self.loop.keys(seeds, TRAIN, x.clock.iteration)
            return self.loop.respond(x.state, hps, x.actors, obs, keys, x.clock, mode)

        def absorb(leaves, given, arrived, answer):
            x, (hps, demos, seeds) = jax.tree.unflatten(structure, leaves), unflatten(given)
            keys = self.loop.keys(seeds, TRAIN, x.clock.iteration)
            return jax.tree.leaves(self.loop.absorb(x, hps, demos, arrived, answer, keys, learn))

        unflatten = lambda given: jax.tree.unflatten(kind, given)
        specs = jax.tree.unflatten(structure, range(structure.num_leaves)).specs
        over = partial(spread, self.loop.mesh)
        hps, demos, _ = unflatten(range(kind.num_leaves))
        given = jax.tree.leaves((all_of(MEMBERS, hps), all_of(SHARED, demos), MEMBERS))
        leaves = jax.tree.leaves(specs)
        respond = over(respond, (leaves, given, MEMBERS), MEMBERS)
        absorb = over(absorb, (leaves, given, MEMBERS, MEMBERS), leaves)
        made_of = dataclasses.replace(self.loop, env=None), mode, learn
        return compiled(respond, made_of), compiled(absorb, made_of, donate_argnums=0)

    def fold(self, step: Step) -> Step:
        """Leaves [members * envs, ...] -> [members, envs, ...]."""
        return jax.tree.map(lambda x: x.reshape(self.members, -1, *x.shape[1:]), step)

    def close(self) -> None:
        self.envs.close()
