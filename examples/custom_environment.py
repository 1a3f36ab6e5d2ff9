"""Bring your own task, as JAX functions or as a gymnasium.Env: both learn by the same loop.

python examples/custom_environment.py [STEPS]
"""

import sys
from dataclasses import dataclass
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import random

import thespis
from thespis import Box

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000


@dataclass(frozen=True)
class Thermostat:
    """Hold 20 degrees with a heater that may also cool; the room leaks. All inside XLA."""

    limit: int = 50

    name: ClassVar[str] = "thermostat"
    obs: ClassVar[jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct((1,), jnp.float32)
    action: ClassVar[Box] = Box(low=(-3.0,), high=(3.0,), shape=(1,))

    def start(self, key):
        return random.uniform(key, (), jnp.float32, 10.0, 30.0)

    def observe(self, state):
        return (state[None] - 20.0) / 10.0

    def step(self, state, action):
        state = state + action[0] + 0.05 * (5.0 - state)
        return state, -jnp.abs(state - 20.0), jnp.array(False)


class PlainThermostat(gymnasium.Env):
    """The same room as ordinary Python."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-3.0, 3.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.degrees, self.time = self.np_random.uniform(10.0, 30.0), 0
        return self.seen(), {}

    def step(self, action):
        self.degrees += float(action[0]) + 0.05 * (5.0 - self.degrees)
        self.time += 1
        return self.seen(), -abs(self.degrees - 20.0), False, self.time >= 50, {}

    def seen(self):
        return np.array([(self.degrees - 20.0) / 10.0], np.float32)


for env in (Thermostat(), PlainThermostat):
    run = thespis.train("td3", env=env, steps=steps, hidden=(32, 32))
    print(f"{run.path}: {run.evaluate(episodes=20)['mean_reward']:.1f}")
