"""Every use of randomness has a stream of its own."""

import dataclasses
from fractions import Fraction
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tests.engine.clerks import (
    Clerk,
)
from thespis.core import Box, Spec, Step
from thespis.engine import population
from thespis.engine.evaluation import Descriptor, play
from thespis.engine.loop import Clock, Loop
from thespis.engine.rollout import FrozenPolicy
from thespis.engine.streams import Stream, population_key
from thespis.tuning import hyper


class Witness:
    """An algorithm and an environment in one that do nothing but note their keys, as two numbers.

    Actions are the keys of acting; observations are the environment's key and the last action.
    Episodes end after two steps.
    """

    Hyper = Clerk.Hyper
    spec = Spec(jax.ShapeDtypeStruct((4,), jnp.uint32), Box((-1.0,), (1.0,), (1,)))
    name, limit = "witness", 4
    updates = 3  # of every iteration, each with a batch of its own

    def reset(self, key, n):
        return jnp.int32(0), self.seen(key, jnp.zeros((n, 2), jnp.uint32), 0)

    def step(self, time, action, key):
        time = (time + 1) % 3
        return time, self.seen(key, action, time)

    def seen(self, key, action, time):
        own = jnp.broadcast_to(random.key_data(key)[None], action.shape)
        over = jnp.broadcast_to(jnp.asarray(time == 2), action.shape[:1])
        obs = jnp.concatenate([own, action], -1)
        return Step(obs, jnp.zeros(action.shape[0]), over, jnp.zeros_like(over))

    def init(self, key, hp):
        return {"key": random.key_data(key), "batch": self.batch(key), "update": self.batch(key)}

    def batch(self, key):
        """The keys of an iteration, and the update that each was drawn for."""
        return {
            "key": jnp.zeros((self.updates, 2), jnp.uint32),
            "step": jnp.zeros(self.updates, int),
        }

    def memory(self, key, n):
        return jnp.broadcast_to(random.key_data(key)[None], (n, 2))

    def act(self, state, hp, memory, obs, key, step, mode):
        action = jnp.broadcast_to(random.key_data(key)[None], memory.shape)
        noted = jax.tree.map(lambda x: x[None], state)  # of the one environment there is
        return action, memory, {"memory": memory, **noted}

    def observe(self, state, rows):
        return state

    def sample(self, replay, demos, hp, key, step):
        return {"key": random.key_data(key), "step": step}

    def update(self, state, hp, batch, key, step):
        own = {"key": random.key_data(key), "step": step}
        push = lambda ring, new: jax.tree.map(
            lambda x, y: jnp.roll(x, -1, 0).at[-1].set(y), ring, new
        )
        new = {"batch": push(state["batch"], batch), "update": push(state["update"], own)}
        return state | new, {"loss": jnp.zeros(())}, jnp.zeros(1)


@cache
def witnessed():
    """Two members of a `Witness` after six iterations with three updates each, and its loop."""
    witness, seeds = Witness(), jnp.arange(2, dtype=jnp.int32)
    loop = Loop(witness, witness, envs=1, capacity=8, updates_per_step=Fraction(3))
    hps = hyper.fill(Witness.Hyper, {}, 2)
    train = jax.jit(lambda: loop.epoch(loop.init(seeds, hps), hps, None, seeds, 6, "explore", True))
    return loop, seeds, hps, train()


def test_batches_are_drawn_for_the_updates_that_learn_from_them():
    """Each at the time of its own update: schedules go on within an iteration."""
    state = jax.tree.map(np.asarray, witnessed()[3].state)
    for name in ("batch", "update"):
        np.testing.assert_array_equal(state[name]["step"], [[15, 16, 17]] * 2)


def test_every_use_of_randomness_has_a_stream_of_its_own():
    """No key is used for two things, in no member and at no time, nor is one made of another."""
    loop, seeds, hps, x = witnessed()
    then = 3  # an iteration that is noted, at which members are evaluated and replaced as well
    policies = FrozenPolicy(x.state, hps, jnp.full(2, then))
    every = Descriptor(reduce=lambda seen, stepped: seen)
    played = jax.jit(lambda: play(loop, loop.env, 1, "greedy", every, policies, seeds, then))()
    looked = np.asarray(played.descriptors)[:, :, 0]  # [members, rows, 4]
    earlier = dataclasses.replace(x, clock=Clock(jnp.array([then, 3 * then, 0])))
    restarted = population.restart(loop, earlier, seeds, jnp.ones(2, bool)).world.arrived.obs
    whole = [
        random.key_data(population_key(seeds, stream, time))
        for stream in (Stream.BEGIN, Stream.EXCHANGE, *range(Stream.HEAL, Stream.HEAL + 3))
        for time in (0, then)
    ]
    x = jax.tree.map(np.asarray, x)
    rows = jax.tree.map(lambda leaf: leaf[:6, :, 0], x.replay.rows)
    found = {
        "first state": x.state["key"],
        "environments": rows.obs[..., :2],
        "acting": rows.action,
        "memory": rows.extra["memory"],
        # Every row has noted the batches and updates of the iteration before.
        "sampling": rows.extra["batch"]["key"][1:],
        "updates": rows.extra["update"]["key"][1:],
        "environments of evaluations": looked[..., :2],
        "acting in evaluations": looked[:, 1:, 2:],
        "restarts": np.asarray(restarted)[..., :2],
        "exchanges": np.stack(whole),
    }
    names, keys = {}, []
    for name, data in found.items():
        for key in {tuple(k) for k in np.reshape(data, (-1, 2)).tolist()}:
            assert key not in names, f"{name} and {names[key]} share a key"
            names[key] = name
            keys.append(key)
    count = {name: list(names.values()).count(name) for name in found}
    assert count["acting"] == 2 * 6
    assert count["sampling"] == count["updates"] == 2 * 5 * 3
    assert count["environments"] == 2 * 6
    assert count["restarts"] == 2
    assert count["exchanges"] == len(whole)

    @jax.jit
    @jax.vmap
    def children(data):
        key = lambda: random.wrap_key_data(data)
        made = [random.split(key(), n) for n in (2, 3, 4)]
        made.append(jax.vmap(lambda i: random.fold_in(key(), i))(jnp.arange(6)))
        return random.key_data(jnp.concatenate(made))

    below = np.asarray(children(jnp.asarray(keys, jnp.uint32)))
    for parent, made in zip(keys, below.tolist(), strict=True):
        for child in {tuple(k) for k in made}:
            assert child not in names, (
                f"the key of {names[child]} is made of that of {names[parent]}"
            )
