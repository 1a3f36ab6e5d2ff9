"""The smallest tasks that can tell one fault from another, with the values an agent must find.

Run them in this order: the first that fails names the part at fault. `q` gives the value of an
action under the best policy, without any entropy bonus; leaves are [...] for obs [..., 1],
continuous actions [..., 1] and discrete ones [...].
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
    """One number to observe; an action of one number in [-1, 1], or of two choices."""

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
    """One step, reward 1. Q = 1. If this fails, the critic's loss is wrong."""

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return state, jnp.ones_like(state), jnp.array(True)

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        return jnp.ones(obs.shape[:-1])


class Observed(Probe):
    """One step, the reward is the observation, -1 or 1. Q(s) = s. The critic must see."""

    def start(self, key: Key) -> Array:
        return random.rademacher(key, (), jnp.float32)

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return state, state, jnp.array(True)

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        return obs[..., 0]


class Delayed(Probe):
    """Two steps, reward 0 at s = 0 and then 1 at s = 1. Q(0) = gamma, Q(1) = 1. Bootstrapping."""

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return jnp.ones_like(state), state, state > 0

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        return jnp.where(obs[..., 0] > 0, 1.0, gamma)


class Chosen(Probe):
    """One step, the action decides. Continuous: Q(a) = -(a - 0.5)². Discrete: Q(0) = -1, Q(1) = 1.

    The best action is 0.5, or 1. If this alone fails, the actor is wrong.
    """

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return state, self.q(state[None], action, 1.0), jnp.array(True)

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        if self.discrete:
            return jnp.where(action == 1, 1.0, -1.0)
        return -((action[..., 0] - 0.5) ** 2)


class Matched(Probe):
    """One step, the action must suit s, -1 or 1. Continuous: Q(s, a) = -(a - s/2)².

    Discrete: 1 for action 1 at s = 1 and action 0 at s = -1, else -1. The actor must see.
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
    """Reward 1 for ever, cut after `limit` steps, which s does not show. Q = 1 / (1 - gamma).

    If the value found is lower, truncation is taken for termination.
    """

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        return state, jnp.ones_like(state), jnp.array(False)

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        return jnp.full(obs.shape[:-1], 1 / (1 - gamma))


class Ending(Probe):
    """Reward 1 in each of five steps, the last of which terminates. s counts them: 0, 0.2 .. 0.8.

    Q(s) = (1 - gamma^k) / (1 - gamma) where k = 5 - 5s steps are left.
    """

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        state = state + 0.2
        return state, jnp.ones_like(state), state > 0.9

    def q(self, obs: Array, action: Array, gamma: float) -> Array:
        left = jnp.round(5 * (1 - obs[..., 0]))
        return (1 - gamma**left) / (1 - gamma)


PROBES = (Constant, Observed, Delayed, Chosen, Matched, Endless, Ending)
