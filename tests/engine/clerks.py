"""A task and an algorithm that tell all, and runs of them."""

from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.core import Box, Mean, Spec, mean
from thespis.engine.loop import DeviceDriver, Loop
from thespis.envs.autoreset import Autoreset
from thespis.replay.priorities import Rule
from thespis.tuning import hyper
from thespis.tuning.hyper import Uniform, prior


@dataclass(frozen=True)
class Lives:
    """Episodes of random lengths, 1 to 7, of which those beyond the limit are cut.

    Observes [steps taken, length, name of the episode, first number of the last action]; the
    second number enters the reward.
    """

    limit: int = 5
    obs: ClassVar = jax.ShapeDtypeStruct((4,), jnp.float32)
    action: ClassVar = Box((-2.0, -1.0), (6.0, 1.0), (2,))

    def start(self, key):
        length, name = random.uniform(key, (2,))
        return jnp.stack([0.0, jnp.floor(1 + 7 * length), name, 0.0])

    def observe(self, state):
        return state

    def step(self, state, action):
        state = jnp.stack([state[0] + 1, state[1], state[2], action[0]])
        return state, state[1] + 0.1 * action[1], state[0] >= state[1]


@dataclass(frozen=True)
class Clerk:
    """Acts at random, follows the mean reward, and keeps books of all that it is asked to do."""

    spec: Spec

    class Hyper(eqx.Module):
        rate: float = prior(0.1, Uniform(0, 1), "how fast the guess follows")
        gamma: float = prior(0.9, Uniform(0, 1), "discount")
        bad_row: float = prior(-1, Uniform(-1, 99), "when the action of environment 1 is NaN")
        bad_part: float = prior(0, Uniform(0, 1), "and which of its numbers")
        bad_update: float = prior(-1, Uniform(-1, 99), "the update whose loss is NaN")

    def init(self, key, hp):
        zero = jnp.zeros((), jnp.int32)
        return {"guess": random.uniform(key), "rows": zero, "updates": zero, "punctual": zero}

    def memory(self, key, n):
        return {"age": jnp.zeros(n, jnp.int32), "skill": random.uniform(key, (n,))}

    def act(self, state, hp, memory, obs, key, step, mode):
        n = memory["age"].shape[0]
        action = random.uniform(key, (n, 2), minval=-1, maxval=1)
        if mode == "greedy":
            action = jnp.zeros_like(action)
        env, part = jnp.arange(n)[:, None], jnp.arange(2.0)[None]
        bad = (step.astype(float) == hp.bad_row) & (env == 1) & (part == hp.bad_part)
        extra = memory | {"step": jnp.full(n, step)}
        return jnp.where(bad, jnp.nan, action), memory | {"age": memory["age"] + 1}, extra

    def observe(self, state, rows):
        return state | {"rows": state["rows"] + rows.reward.size}

    def sample(self, replay, demos, hp, key, step):
        return replay.transitions(key, 4, hp.gamma)

    def update(self, state, hp, batch, key, step):
        error, time = batch.reward - state["guess"], step.astype(float)
        loss = mean(error**2, batch.valid) + jnp.where(time == hp.bad_update, jnp.nan, 0.0)
        even = (step % 2 == 0).astype(float)
        new = {
            "guess": state["guess"] + hp.rate * mean(error, batch.valid),
            "rows": state["rows"],
            "updates": state["updates"] + 1,
            "punctual": state["punctual"] + (step == state["updates"]).astype(int),
        }
        return new, {"loss": loss, "even": Mean(even * time, even)}, jnp.abs(error)


@dataclass(frozen=True)
class Keen(Clerk):
    """Draws what it misjudged more often."""

    class Hyper(Clerk.Hyper):
        priority_alpha: float = prior(0.7, Uniform(0, 1), "exponent of priorities")

    def rule(self, envs):
        return Rule(max_use=20)

    def beta(self, hp, step):
        return jnp.float32(0.5)


class Run:
    """A driver and what it needs; programs are compiled once for all tests that share it."""

    def __init__(self, loop, members, hp=None, seed=0):
        self.driver = DeviceDriver(loop, np.arange(members))
        self.first = jax.jit(self.driver.init)
        self.hps = hyper.fill(loop.algo.Hyper, hp or {}, members)
        self.seeds = np.arange(seed, seed + members, dtype=np.int32)

    def init(self):
        return self.first(self.seeds, self.hps)

    def train(self, *lengths, start=None, mode="explore", learn=True):
        """From the beginning, unless a learner is given."""
        learner = self.init() if start is None else start
        for length in lengths:
            learner = self.driver.run(learner, self.hps, None, self.seeds, length, mode, learn)
        return learner

    def but(self, hps=None, seeds=None):
        """The same programs with other hypers or seeds."""
        other = copy(self)
        other.hps, other.seeds = hps or self.hps, self.seeds if seeds is None else seeds
        return other


@cache
def clerks(members, envs, ratio, capacity, side_by_side=False, kind=Clerk):
    env = Autoreset(Lives())
    return Run(Loop(kind(env.spec), env, envs, capacity, Fraction(ratio), side_by_side), members)


MANY = 4, 3, "3/2", 64  # 4.5 updates per iteration


ONE = 1, 1, "1/3", 10


def rows_of(learner):
    """Rows [time, members, envs, ...] as NumPy arrays, oldest first."""
    size, head = int(learner.replay.size), int(learner.replay.head)
    order = (np.arange(size) + (head if size == learner.replay.capacity else 0)) % size
    return jax.tree.map(lambda x: np.asarray(x)[order], learner.replay.rows)


def member(learner, i):
    """The part of one member, as of a population of one."""
    one = lambda tree: jax.tree.map(lambda x: np.asarray(x)[i : i + 1], tree)
    second = lambda tree: jax.tree.map(lambda x: np.asarray(x)[:, i : i + 1], tree)
    return {
        "state": one(learner.state),
        "actors": one(learner.actors),
        "world": one(learner.world),
        "rows": second(learner.replay.rows),
        "priorities": priorities_of(learner, i),
        "metric_sums": second(learner.metric_sums),
        "clock": jax.tree.map(np.asarray, learner.clock),
    }


def priorities_of(learner, i):
    tree = learner.replay.priorities
    if tree is None:
        return None
    parts = tree.weight, tree.uses, tree.nodes, tree.highest
    return [np.asarray(x)[:, i : i + 1] for x in parts]


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@contextmanager
def compilations():
    """A list that grows by one for every program compiled meanwhile."""
    seen = []
    note = lambda event, *_, **__: seen.append(event) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
