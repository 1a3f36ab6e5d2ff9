"""Frozen skills as actions: a task, or a Gymnasium environment, in which an action is a skill.

An agent chooses a skill, which then acts for some steps. So any algorithm can learn on top of a
run's skills: SAC if skills are continuous, Discrete SAC if they are one-hot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import nn

from thespis import envs
from thespis.core import Box, Discrete, where
from thespis.envs.autoreset import Autoreset, TaskWrapper, strong
from thespis.envs.gymnasium import Gymnasium, reader, rescaler
from thespis.envs.stepping import empty as blank
from thespis.envs.stepping import write
from thespis.errors import ThespisError
from thespis.runs.skilled import Skilled


def over_skills(env: Any, run: Any, hold: int) -> Any:
    """Returns an environment whose actions are skills of a run, each of which acts `hold` steps."""
    skilled = Skilled(run)
    there, here = envs.label(skilled.env), envs.label(env)
    if there != here:
        raise ThespisError(
            f"skills_from = {run.path} was trained on {there}, not on {here}: give env = {there}"
        )
    if isinstance(skilled.env, Autoreset):
        return Autoreset(SkillTask(skilled.env.task, skilled, hold))
    return Gymnasium(lambda **options: SkillEnv(skilled.env.instance(**options), skilled, hold))


def actions(skilled: Skilled) -> Box | Discrete:
    n = skilled.algo.skills
    if skilled.algo.skill_kind == "one-hot":
        return Discrete(n)
    return Box((-1.0,) * n, (1.0,) * n, (n,))


@dataclass(frozen=True, eq=False)
class SkillTask(TaskWrapper):
    """A JAX task of which a step is `hold` steps of the inner task, with their rewards summed."""

    skilled: Skilled
    hold: int

    @property
    def action(self) -> Box | Discrete:
        return actions(self.skilled)

    @property
    def limit(self) -> int:
        return -(-self.task.limit // self.hold)

    def step(self, state: Any, action: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        task, n = self.task, self.skilled.algo.skills
        one_hot = self.skilled.algo.skill_kind == "one-hot"
        skill = nn.one_hot(action, n) if one_hot else self.skilled.algo.nearest(action)

        def one(carry, _):
            state, total, over = carry
            obs = jax.tree.map(lambda x: x[None], task.observe(state))
            moved, reward, ended = task.step(
                state, Autoreset(task).rescale(self.skilled.act(obs, skill[None])[0])[0]
            )
            total = jnp.where(over, total, total + reward)
            return strong((where(over, state, moved), total, over | ended)), None

        start = strong((state, jnp.zeros(()), jnp.zeros((), bool)))
        return jax.lax.scan(one, start, length=self.hold)[0]


class SkillEnv(gymnasium.Wrapper):
    """The same for a Gymnasium environment; it ends when the inner one does."""

    def __init__(self, env: gymnasium.Env, skilled: Skilled, hold: int):
        super().__init__(env)
        self.skilled, self.hold, kind = skilled, hold, actions(skilled)
        self.node = reader(env.observation_space, skilled.env.name)
        self.rescale = rescaler(env.action_space, skilled.env.name)
        if isinstance(kind, Discrete):
            self.action_space = spaces.Discrete(kind.n)
        else:
            self.action_space = spaces.Box(-1, 1, kind.shape, np.float32)

    def reset(self, **options):
        self.obs, info = self.env.reset(**options)
        return self.obs, info

    def step(self, action):
        one_hot = isinstance(self.action_space, spaces.Discrete)
        n = self.skilled.algo.skills
        skill = np.eye(n)[action] if one_hot else np.asarray(action)
        total, skill_now = 0.0, self.skilled.algo.nearest(jnp.asarray(skill[None], jnp.float32))
        ended, cut, info = False, False, {}
        for _ in range(self.hold):
            obs: Any = blank(self.node, 1)
            write(self.node, obs, 0, self.obs)
            action = np.asarray(self.skilled.act(obs, skill_now)[0])[0]
            action = self.rescale(action.reshape(self.env.action_space.shape))
            self.obs, reward, ended, cut, info = self.env.step(action)
            total += float(reward)
            if ended or cut:
                break
        return self.obs, total, ended, cut, info
