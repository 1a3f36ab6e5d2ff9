"""Rolls out skills in copies of the environment."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from thespis.engine.rollout import Copies, episode
from thespis.runs.skilled import Skilled


class Trajectories(NamedTuple):
    """Episodes of skills, leaves [skills, episodes, ...]; NaN after an episode's end."""

    skills: np.ndarray  # [skills, size]
    descriptors: np.ndarray  # [skills, episodes, rows, size]
    rewards: np.ndarray  # [skills, episodes, rows], those before each row: the first are 0
    diversity: np.ndarray  # [skills, episodes, rows], the intrinsic rewards
    ends: np.ndarray  # [skills, episodes]: the last row of the episode

    @property
    def returns(self) -> np.ndarray:
        return np.nansum(self.rewards, -1)

    @property
    def diversity_returns(self) -> np.ndarray:
        return np.nansum(self.diversity, -1)

    @property
    def end_points(self) -> np.ndarray:
        """The last descriptors of episodes [skills, episodes, size]."""
        skills, episodes = np.indices(self.ends.shape)
        return self.descriptors[skills, episodes, self.ends]


def rollout(
    skilled: Skilled,
    skills: np.ndarray,
    episodes: int = 1,
    seed: int = 0,
    steps: int | None = None,
) -> Trajectories:
    """Plays episodes of each of the skills [k, size], at most `steps` long."""
    repeated = jnp.asarray(np.repeat(skills, episodes, 0))
    n, limit = len(repeated), min(steps or skilled.limit, skilled.limit)
    judge = jax.jit(skilled.algo.diversity_between)
    places, rewards, diverse = [], [], []
    before, ends = None, np.zeros(n, int)
    hide = lambda x, over: np.where(over.reshape(-1, *(1,) * (np.ndim(x) - 1)), np.nan, x)
    act = lambda obs, t: skilled.act(obs, repeated)[0]
    with closing(Copies(skilled.env, n)) as copies:
        copies.open(seed)
        played = episode(copies.reset(), copies.step, act, limit)
        for t, (step, over, _) in enumerate(played):
            bonus = np.zeros(n)
            if before is not None:
                bonus = judge(skilled.state, skilled.hp, before, step.obs, repeated)
                bonus = np.where(np.asarray(step.terminated), 0.0, np.asarray(bonus))
            places.append(hide(np.asarray(skilled.describe(step.obs)), over))
            rewards.append(hide(np.asarray(step.reward), over))
            diverse.append(hide(bonus, over))
            before, ends = step.obs, np.where(over, ends, t)
    fold = lambda rows: np.stack(rows, 1).reshape(
        len(skills), episodes, len(rows), *rows[0].shape[1:]
    )
    return Trajectories(
        skills, fold(places), fold(rewards), fold(diverse), ends.reshape(-1, episodes)
    )
