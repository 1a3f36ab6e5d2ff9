"""One small environment in both forms, whose observations tell all that happened to it."""

from dataclasses import dataclass
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.core import Box, Spec, Step
from thespis.envs.autoreset import Autoreset
from thespis.envs.gymnasium import Gymnasium

LOW, HIGH = (-3.0, 0.1), (1.0, 0.7)  # 0.1 + (0.7 - 0.1) is not 0.7 in float32


@dataclass(frozen=True)
class Tally:
    """Observes [steps taken, start, last action]; the reward is the number of steps taken.

    The start is a random number that stays for the episode. Terminates after `end` steps.
    """

    end: int = 99
    limit: int = 99

    obs: ClassVar = jax.ShapeDtypeStruct((4,), jnp.float32)
    action: ClassVar = Box(LOW, HIGH, (2,))

    def start(self, key):
        return jnp.concatenate([jnp.zeros(1), random.uniform(key, (1,)), jnp.zeros(2)])

    def observe(self, state):
        return state

    def step(self, state, action):
        steps = state[:1] + 1
        state = jnp.concatenate([steps, state[1:2], action])
        return state, steps[0], steps[0] >= self.end


class GymTally(gymnasium.Env):
    """The same for Gymnasium, with a time limit of its own, so that both ends may coincide."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Box(np.float32(LOW), np.float32(HIGH))

    def __init__(self, end=99, limit=99):
        self.end, self.limit = end, limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([0, self.np_random.uniform(), 0, 0], np.float32)
        return self.state, {}

    def step(self, action):
        self.state[0] += 1  # in place, as careless environments do
        self.state[2:] = action
        steps = self.state[0]
        return self.state, steps, steps >= self.end, steps >= self.limit, {}


class Running:
    """An adapter at work, of either kind, with NumPy arrays in and out."""

    spec: Spec

    def __init__(self, env, n: int = 2, seed: int = 0):
        self.env, self.spec, self.n = env, env.spec, n
        if isinstance(env, Autoreset):
            self.keys = iter(random.split(random.key(seed), 10_000))
            self._reset = jax.jit(lambda key: env.reset(key, n))
            self._step = jax.jit(env.step)
        else:
            self.host = env.open(n, seed)

    def reset(self) -> Step:
        if not isinstance(self.env, Autoreset):
            return self.host.reset()
        self.state, step = self._reset(next(self.keys))
        return jax.tree.map(np.asarray, step)

    def step(self, action) -> Step:
        if not isinstance(self.env, Autoreset):
            return self.host.step(action)
        self.state, step = self._step(self.state, jnp.asarray(action), next(self.keys))
        return jax.tree.map(np.asarray, step)

    def idle(self) -> np.ndarray:
        """The middle action, or action 0."""
        action = self.spec.action
        if isinstance(action, Box):
            return np.zeros((self.n, action.size), np.float32)
        return np.zeros(self.n, np.int32)


def tally(kind: str, n: int = 2, seed: int = 0, **options) -> Running:
    make = {"jax": lambda: Autoreset(Tally(**options)), "host": lambda: Gymnasium(host)}
    host = lambda: GymTally(**options)
    return Running(make[kind](), n, seed)
