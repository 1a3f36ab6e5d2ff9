"""Skills in use: one member of a run, told what to do, in copies of its environment."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.core import Step, longest
from thespis.envs import Autoreset
from thespis.errors import ThespisError


class Skilled:
    """One member of a run that learned skills; by default the one whose skills differ most."""

    def __init__(self, run: Any, member: int | str = "best", which: str = "last"):
        self.run, (loop, self.env) = run, run.parts
        self.algo = loop.algo
        if not hasattr(self.algo, "draw_skills"):
            raise ThespisError(f"{run.path} is a run of {run.config.algo}, which has no skills")
        self.member = run.member(member)
        self.policy = run.frozen(self.member, which)
        self.state, self.hp = self.policy.state, self.policy.hp
        self.limit = longest(self.env)
        self.describe = jax.jit(self.algo.describe)
        self.respond = jax.jit(self._respond)

    def skills(self, n: int, seed: int = 0) -> np.ndarray:
        """All skills that there are if they can be counted, else n of them [n, size]."""
        if self.algo.skill_kind == "one-hot":
            return np.eye(self.algo.skills, dtype=np.float32)
        return np.asarray(self.algo.draw_skills(random.key(seed), n))

    def skill(self, text: str) -> np.ndarray:
        """A skill as people write it: its number, or its coordinates such as 0.5,-1."""
        size, kind = self.algo.skills, self.algo.skill_kind
        try:
            numbers = [float(x) for x in text.replace(",", " ").split()]
        except ValueError:
            numbers = []
        if kind == "one-hot":
            if len(numbers) != 1 or numbers[0] not in range(size):
                raise ThespisError(f"skill = {text}: give a number from 0 to {size - 1}")
            return np.eye(size, dtype=np.float32)[int(numbers[0])]
        nowhere = self.algo.metra and not any(numbers)
        if len(numbers) != size or max(map(abs, numbers)) > 1 or nowhere:
            also = ", not all 0" if self.algo.metra else ""
            hint = f"give {size} numbers from -1 to 1{also}, such as 0.5,-1"
            raise ThespisError(f"skill = {text}: {hint}")
        return np.asarray(self.algo.nearest(jnp.array(numbers, jnp.float32)))

    def _respond(self, obs, skill):
        """Greedy actions [n, ...] of these skills [n, size], and what is stored of them."""
        memory = self.algo.memory(random.key(0), skill.shape[0])
        memory = dataclasses.replace(memory, skill=skill)
        return self.policy.act(self.algo, memory, obs, random.key(0), "greedy")[::2]


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
            step = stage.step(skilled.respond(step.obs, told)[0])
    finally:
        stage.close()
    fold = lambda rows: np.stack(rows, 1).reshape(
        len(skills), episodes, len(rows), *rows[0].shape[1:]
    )
    return Trajectories(
        skills, fold(places), fold(rewards), fold(diverse), ends.reshape(-1, episodes)
    )
