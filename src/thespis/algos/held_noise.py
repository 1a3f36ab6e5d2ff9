"""Exploration noise that is held for several steps, so that it reaches further.

The number of steps follows a zeta distribution, as in Dabney et al. 2021,
https://arxiv.org/abs/2006.01782, where whole actions are repeated.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Float, Int

from thespis.core import Key, where
from thespis.xla import fast_random


class Held(eqx.Module):
    """The noise of n environments, and for how many more steps it is held."""

    draw: Float[Array, "n size"]
    left: Int[Array, "n"]

    @classmethod
    def none(cls, n: int, size: int) -> Held:
        """Returns noise that is used up, so that the next step draws it."""
        return cls(jnp.zeros((n, size)), jnp.zeros(n, jnp.int32))

    def next(self, key: Key, longest: int, draw: Callable = fast_random.normal) -> Held:
        """Returns the noise of the next step; k steps share it, with probability ~ 1 / k^2."""
        k_draw, k_steps = random.split(key)
        fresh = draw(k_draw, self.draw.shape)
        steps = lengths(fast_random.uniform(k_steps, self.left.shape), longest)
        holding = self.left > 0
        return Held(where(holding, self.draw, fresh), jnp.where(holding, self.left, steps) - 1)


def lengths(uniform: Float[Array, "n"], longest: int) -> Int[Array, "n"]:
    """Returns for how many steps draws are held, 1 .. longest, from numbers in [0, 1)."""
    chance = 1.0 / np.arange(1, longest + 1) ** 2
    cumulative = jnp.asarray(np.cumsum(chance / chance.sum())[:-1], jnp.float32)
    return 1 + (uniform[:, None] >= cumulative[None]).sum(-1).astype(jnp.int32)
