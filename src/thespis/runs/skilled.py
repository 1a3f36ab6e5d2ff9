"""Acts by the skills of a trained run, each chosen by the caller."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.core import WithSkills, capability, longest
from thespis.errors import ThespisError


class Skilled:
    """One member of a run that learned skills; by default the best one."""

    def __init__(self, run: Any, member: int | str = "best", which: str = "last"):
        self.run, (loop, self.env) = run, run.parts
        self.algo: Any = capability(loop.algo, WithSkills)
        if self.algo is None:
            raise ThespisError(f"{run.path} is a run of {run.config.algo}, which has no skills")
        self.member = run.member(member)
        self.policy = run.frozen(self.member, which)
        self.state, self.hp = self.policy.state, self.policy.hp
        self.limit = longest(self.env)
        self.describe = jax.jit(self.algo.describe)
        self.act = jax.jit(self._act)

    def skills(self, n: int, seed: int = 0) -> np.ndarray:
        """Returns all skills if they are one-hot, else n random ones [n, size]."""
        if self.algo.skill_kind == "one-hot":
            return np.eye(self.algo.skills, dtype=np.float32)
        return np.asarray(self.algo.draw_skills(random.key(seed), n))

    def skill(self, text: str) -> np.ndarray:
        """Parses a skill that a user wrote: its number, or its coordinates such as 0.5,-1."""
        size, kind = self.algo.skills, self.algo.skill_kind
        try:
            numbers = [float(x) for x in text.replace(",", " ").split()]
        except ValueError:
            numbers = []
        if kind == "one-hot":
            if len(numbers) != 1 or numbers[0] not in range(size):
                raise ThespisError(f"skill = {text}: give a number from 0 to {size - 1}")
            return np.eye(size, dtype=np.float32)[int(numbers[0])]
        metra = self.algo.objective == "metra"
        no_direction = metra and not any(numbers)
        if len(numbers) != size or max(map(abs, numbers)) > 1 or no_direction:
            also = ", not all 0" if metra else ""
            hint = f"give {size} numbers from -1 to 1{also}, such as 0.5,-1"
            raise ThespisError(f"skill = {text}: {hint}")
        return np.asarray(self.algo.nearest(jnp.array(numbers, jnp.float32)))

    def _act(self, obs, skill):
        """Returns greedy actions [n, ...] of skills [n, size], and the extras stored with them."""
        memory = self.algo.follow(self.algo.memory(random.key(0), skill.shape[0]), skill)
        return self.policy.act(self.algo, memory, obs, random.key(0), "greedy")[::2]
