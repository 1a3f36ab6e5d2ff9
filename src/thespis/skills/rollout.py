"""What skills do: rollouts of each in copies of the environment."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.core import Step
from thespis.envs import Autoreset
from thespis.runs.skilled import Skilled


class Stage:
    """n copies of an environment, of JAX or of Python, that begin an episode together."""

    def __init__(self, env: Any, n: int, seed: int):
        self.jax = isinstance(env, Autoreset)
        if self.jax:
            self.begin = jax.jit(lambda: env.reset(random.key(seed), n))
            # The key is used by resets alone, and nobody looks at what follows an episode.
            self.advance = jax.jit(lambda world, action: env.step(world, action, random.key(0)))
        else:
            self.envs = env.open(n, seed)

    def reset(self) -> Step:
        if not self.jax:
            return self.envs.reset()
        self.world, step = self.begin()
        return step

    def step(self, action: Any) -> Step:
        if not self.jax:
            return self.envs.step(np.asarray(action))
        self.world, step = self.advance(self.world, action)
        return step

    def close(self) -> None:
        if not self.jax:
            self.envs.close()


class Trajectories(NamedTuple):
    """What skills did, leaves [skills, episodes, ...]; NaN after an episode's end."""

    skills: np.ndarray  # [skills, size]
    descriptors: np.ndarray  # [skills, episodes, rows, size]
    rewards: np.ndarray  # [skills, episodes, rows]: with each row, so the first are 0
    diversity: np.ndarray  # the same: what the algorithm rewards itself with
    ends: np.ndarray  # [skills, episodes]: the last row of the episode

    @property
    def returns(self) -> np.ndarray:
        return np.nansum(self.rewards, -1)

    @property
    def diversity_returns(self) -> np.ndarray:
        return np.nansum(self.diversity, -1)

    @property
    def end_points(self) -> np.ndarray:
        """Where episodes ended [skills, episodes, size]."""
        skills, episodes = np.indices(self.ends.shape)
        return self.descriptors[skills, episodes, self.ends]


def rollout(
    skilled: Skilled,
    skills: np.ndarray,
    episodes: int = 1,
    seed: int = 0,
    steps: int | None = None,
) -> Trajectories:
    """Episodes of each of the skills [k, size], at most `steps` long."""
    told = jnp.asarray(np.repeat(skills, episodes, 0))
    n, limit = len(told), min(steps or skilled.limit, skilled.limit)
    judge = jax.jit(skilled.algo.diversity_between)
    stage = Stage(skilled.env, n, seed)
    places, rewards, diverse = [], [], []
    over, ends = np.zeros(n, bool), np.zeros(n, int)
    hide = lambda x, over: np.where(over.reshape(-1, *(1,) * (np.ndim(x) - 1)), np.nan, x)
    try:
        step, before = stage.reset(), None
        for t in range(limit + 1):
            bonus = np.zeros(n)
            if before is not None:
                given = skilled.state, skilled.hp, before, step.obs, told
                bonus = np.where(np.asarray(step.terminated), 0.0, np.asarray(judge(*given)))
            places.append(hide(np.asarray(skilled.describe(step.obs)), over))
            rewards.append(hide(np.asarray(step.reward), over))
            diverse.append(hide(bonus, over))
            ends = np.where(over, ends, t)
            over = over | np.asarray(step.final)
            if over.all() or t == limit:
                break
            before = step.obs
            step = stage.step(skilled.act(step.obs, told)[0])
    finally:
        stage.close()
    fold = lambda rows: np.stack(rows, 1).reshape(
        len(skills), episodes, len(rows), *rows[0].shape[1:]
    )
    return Trajectories(
        skills, fold(places), fold(rewards), fold(diverse), ends.reshape(-1, episodes)
    )
