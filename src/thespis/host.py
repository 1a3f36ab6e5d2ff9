"""The same learning step around environments that live in Python: Gymnasium and the like."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from thespis.core import Mode, Step
from thespis.loop import TRAIN, Learner, Loop


class HostDriver:
    """Runs a `Loop` whose environments are opened here, `envs` for every member.

    Each iteration is two compiled calls: `respond` gives the actions, `absorb` stores and
    learns. The second is not waited for, so the environments step while the update runs.
    """

    def __init__(self, loop: Loop, seeds):
        self.loop, self.members = loop, len(seeds)
        seed = np.random.SeedSequence([int(s) for s in seeds]).generate_state(1)[0]
        # A resumed run goes on with start states of its own, hence the salt.
        self.open = lambda salt: loop.env.open(self.members * loop.envs, (int(seed) >> 2) + salt)
        self.envs = self.open(0)
        self.arrived = self.fold(self.envs.reset())
        self.programs = cache(self.compile)

    def init(self, seeds, hps, demos=None) -> Learner:
        return jax.jit(self.loop.init)(seeds, hps, demos, self.arrived)

    def resume(self, learner: Learner) -> Learner:
        """Environments begin new episodes; the row they left behind is cut off from what follows."""
        self.close()
        self.envs = self.open(int(learner.clock.iteration))
        self.arrived = self.fold(self.envs.reset())
        replay = learner.replay
        newest = (replay.head - 1) % replay.capacity
        truncated = replay.rows.truncated.at[newest].set(~replay.rows.terminated[newest])
        begin = jnp.ones_like(learner.actors.begin)
        changed = lambda x: (x.replay.rows.truncated, x.actors.begin, x.actors.arrived)
        return eqx.tree_at(changed, learner, (truncated, begin, self.arrived))

    def run(
        self, learner: Learner, hps, demos, seeds, length: int, mode: Mode, learn: bool
    ) -> Learner:
        """`length` iterations, `learner` is used up."""
        leaves, structure = jax.tree.flatten(learner)
        given, kind = jax.tree.flatten((hps, demos, seeds))
        respond, absorb = self.programs(structure, kind, mode, learn)
        for _ in range(length):
            row, actors = respond(leaves, given, self.arrived)
            action = np.asarray(row.action)
            leaves = absorb(leaves, given, row, actors)
            self.arrived = self.fold(self.envs.step(action.reshape(-1, *action.shape[2:])))
        learner = jax.tree.unflatten(structure, leaves)
        return eqx.tree_at(lambda x: x.actors.arrived, learner, self.arrived)

    def compile(self, structure, kind, mode: Mode, learn: bool):
        """The two halves of an iteration, over lists: these cross into compiled code faster."""

        def respond(leaves, given, arrived):
            learner, (hps, _, seeds) = jax.tree.unflatten(structure, leaves), unflatten(given)
            keys = self.loop.keys(seeds, TRAIN, learner.clock.iteration)
            actors = eqx.tree_at(lambda a: a.arrived, learner.actors, arrived)
            return self.loop.respond(learner.state, hps, actors, keys, learner.clock, mode)

        def absorb(leaves, given, row, actors):
            learner, (hps, demos, seeds) = jax.tree.unflatten(structure, leaves), unflatten(given)
            keys = self.loop.keys(seeds, TRAIN, learner.clock.iteration)
            return jax.tree.leaves(self.loop.absorb(learner, hps, demos, row, actors, keys, learn))

        unflatten = lambda given: jax.tree.unflatten(kind, given)
        return jax.jit(respond), jax.jit(absorb, donate_argnums=0)

    def fold(self, step: Step) -> Step:
        """Leaves [members * envs, ...] -> [members, envs, ...]."""
        return jax.tree.map(lambda x: x.reshape(self.members, -1, *x.shape[1:]), step)

    def close(self) -> None:
        self.envs.close()
