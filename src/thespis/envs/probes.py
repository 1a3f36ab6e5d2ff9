"""Minimal tasks with known values, each of which tests one more part of an algorithm.

Run them in this order: the first one that fails shows which part is wrong. `q` is the value of an
action under the best policy, without an entropy bonus; it is [...] for obs [..., 1], continuous
actions [..., 1] and discrete ones [...].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array

from thespis.core import Box, Discrete, Key


@dataclass(frozen=True)
class Probe:
    """Base of the tasks: an observation of one number, an action in [-1, 1] or one of two."""

    discrete: bool = False
    limit: int = 10

    obs: ClassVar[jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct((1,), jnp.float32)

    @property
    def action(self) -> Box | Discrete:
        return Discrete(2) if self.discrete else Box(low=(-1.0,), high=(1.0,), shape=(1,))

    def start(self, key: Key) -> Array:
        del key
        return jnp.zeros((), jnp.float32)

    def observe(self, state: Array) -> Array:
        return state[None]


class Constant(Probe):
    """One step with reward 1, so Q = 1. It tests the critic's loss."""

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return state, jnp.ones_like(state), jnp.array(True)

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        return jnp.ones(obs.shape[:-1])


class Observed(Probe):
    """One step whose reward is the observation, -1 or 1, so Q(s) = s. It tests critic inputs."""

    def start(self, key: Key) -> Array:
        return random.rademacher(key, (), jnp.float32)

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return state, state, jnp.array(True)

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        return obs[..., 0]


class Delayed(Probe):
    """Two steps, reward 0 at s = 0, then 1 at s = 1. Q(0) = gamma, Q(1) = 1. Tests targets."""

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return jnp.ones_like(state), state, state > 0

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        return jnp.where(obs[..., 0] > 0, 1.0, gamma)


class Chosen(Probe):
    """One step whose reward depends on the action: Q(a) = -(a - 0.5)², or Q(0) = -1, Q(1) = 1.

    The best action is 0.5, or 1 if they are discrete. It tests the actor.
    """

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return state, self.q(state[None], action, 1.0), jnp.array(True)

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        if self.discrete:
            return jnp.where(action == 1, 1.0, -1.0)
        return -((action[..., 0] - 0.5) ** 2)


class Matched(Probe):
    """One step in which the best action depends on s, -1 or 1: Q(s, a) = -(a - s/2)².

    If actions are discrete, Q is 1 for action 1 at s = 1 and action 0 at s = -1, else -1. It tests
    the actor's inputs.
    """

    def start(self, key: Key) -> Array:
        return random.rademacher(key, (), jnp.float32)

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return state, self.q(state[None], action, 1.0), jnp.array(True)

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        if self.discrete:
            return jnp.where((action == 1) == (obs[..., 0] > 0), 1.0, -1.0)
        return -((action[..., 0] - 0.5 * obs[..., 0]) ** 2)


class Endless(Probe):
    """Reward 1 for ever, truncated after `limit` steps, which s does not show: Q = 1 / (1 - gamma).

    If the learned value is lower, truncation is treated as termination.
    """

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return state, jnp.ones_like(state), jnp.array(False)

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        return jnp.full(obs.shape[:-1], 1 / (1 - gamma))


class Ending(Probe):
    """Five steps with reward 1, the last of which terminates; s counts them: 0, 0.2, ..., 0.8.

    Q(s) = (1 - gamma^k) / (1 - gamma) with k = 5 - 5s steps left. It tests terminations.
    """

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        state = state + 0.2
        return state, jnp.ones_like(state), state > 0.9

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        left = jnp.round(5 * (1 - obs[..., 0]))
        return (1 - gamma**left) / (1 - gamma)


PROBES = (Constant, Observed, Delayed, Chosen, Matched, Endless, Ending)
