"""Acting in environments far from the learner: what a collector does, and the weights it needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.cluster.collector import Task
from thespis.core import Mode, Step
from thespis.engine.loop import Actors, Clock, Loop
from thespis.engine.streams import Stream, member_keys
from thespis.tuning import hyper
from thespis.xla import compile_cache


class Collecting:
    """Environments that are stepped by policies, leaves [members, envs, ...]."""

    def __init__(self, task: Task):
        compile_cache.use_cache()
        self.task, self.loop = task, task.loop
        self.seeds = np.asarray(task.seeds, np.int32)
        shapes = weight_shapes(self.loop, self.seeds.size)
        leaves, self.structure = jax.tree.flatten(shapes)
        self.needed = needed(self.loop)
        # Whatever does not act stays behind: the program reads none of it.
        self.rest = [np.zeros(x.shape, x.dtype) for x in leaves]
        self.act = self.compile()
        members, envs = self.seeds.size, self.loop.envs
        self.begin = np.ones((members, envs), bool)
        self.memory = self.blank_memory()
        self.envs = self.loop.env.open(len(task.env_seeds), task.env_seeds)
        for name, value in task.attributes.items():
            self.envs.set_attr(name, value)
        self.arrived = self.fold(self.envs.reset())

    def collect(self, weights: list[np.ndarray], start: int, length: int, mode: Mode) -> dict:
        """Does so many iterations with these weights -> a block [length, members, envs, ...].

        It has what arrived, `step`, and what was done about it, `action` and `extra`.
        """
        leaves = list(self.rest)
        for i, x in zip(self.needed, weights, strict=True):
            leaves[i] = x
        leaves, rows = jax.device_put(leaves), []
        for iteration in range(start, start + length):
            step, time = self.arrived, np.array([iteration, self.task.number], np.int32)
            inputs = self.memory, self.begin, step.obs, self.seeds, time
            action, self.memory, extra = self.act(leaves, *inputs, mode=mode)
            action = np.asarray(action)
            extra = jax.tree.map(np.asarray, extra)
            rows.append({"step": step, "action": action, "extra": extra})
            self.begin = np.asarray(step.final)
            self.arrived = self.fold(self.envs.step(action.reshape(-1, *action.shape[2:])))
        return jax.tree.map(lambda *xs: np.stack(xs), *rows)

    def compile(self):
        """Compiles acting; all collectors have the same program."""
        loop, structure, collectors = self.loop, self.structure, self.task.collectors

        def answer(leaves, memory, begin, obs, seeds, time, mode: Mode):
            (state, hps), (iteration, index) = jax.tree.unflatten(structure, leaves), time
            keys = member_keys(seeds, Stream.COLLECT, iteration)
            keys = jax.vmap(partial(random.fold_in, data=index))(keys)
            # A policy that looks at the time counts the rows of all collectors.
            clock = Clock(jnp.array([collectors, 0, 0]) * iteration)
            count = jnp.zeros(begin.shape, jnp.int32)
            actors = Actors(memory, begin, jnp.zeros(begin.shape), count, count)
            return loop.act(state, hps, actors, obs, keys, clock, mode)

        return jax.jit(answer, static_argnames="mode")

    def blank_memory(self) -> Any:
        """Returns memories of the right shapes: they are made anew where an episode begins."""
        one = jax.eval_shape(lambda: self.loop.algo.memory(random.key(0), self.loop.envs))
        return jax.tree.map(lambda x: np.zeros((self.seeds.size, *x.shape), x.dtype), one)

    def fold(self, step: Step) -> Step:
        """Turns leaves [members * envs, ...] into [members, envs, ...]."""
        return jax.tree.map(lambda x: x.reshape(self.seeds.size, -1, *x.shape[1:]), step)


# --- weights --------------------------------------------------------------------------------


def weight_shapes(loop: Loop, members: int) -> Any:
    """Returns the shapes of the state and the hyper-parameters of all members."""
    hps = hyper.fill(loop.algo.Hyper, {}, members)
    keys = lambda: member_keys(jnp.zeros(members, jnp.int32), Stream.INIT, 0)
    return jax.eval_shape(lambda hps: (jax.vmap(loop.algo.init)(keys(), hps), hps), hps)


def weights_of(needed: list[int], state: Any, hps: Any) -> list[np.ndarray]:
    """Returns the arrays that acting needs."""
    leaves = jax.tree.leaves((state, hps))
    return [np.asarray(leaves[i]) for i in needed]


def needed(loop: Loop) -> list[int]:
    """Returns which leaves of a state and its hyper-parameters acting reads.

    Critics, targets and optimisers are most of a state, and never leave the learner.
    """
    drop = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    leaves, structure = jax.tree.flatten(jax.tree.map(drop, weight_shapes(loop, 1)))
    many = lambda s: jax.ShapeDtypeStruct((loop.envs, *s.shape), s.dtype)
    obs = jax.tree.map(many, loop.env.spec.obs)
    memory = jax.eval_shape(lambda: loop.algo.memory(random.key(0), loop.envs))

    def act(mode: Mode, leaves, memory, obs):
        state, hp = jax.tree.unflatten(structure, leaves)
        return loop.algo.act(state, hp, memory, obs, random.key(0), jnp.int32(0), mode)

    modes: tuple[Mode, ...] = ("random", "explore")
    read = [inputs_read(partial(act, mode), leaves, memory, obs) for mode in modes]
    return sorted(i for i in set().union(*read) if i < len(leaves))


def inputs_read(f: Callable, *inputs: Any) -> set[int]:
    """Returns which leaves of its inputs the results of a function depend on."""
    jaxpr = jax.make_jaxpr(f)(*inputs).jaxpr
    variables = lambda xs: {x for x in xs if not hasattr(x, "val")}  # others are plain numbers
    read = variables(jaxpr.outvars)
    for equation in reversed(jaxpr.eqns):
        if read & set(equation.outvars):
            read |= variables(equation.invars)
    return {i for i, x in enumerate(jaxpr.invars) if x in read}
