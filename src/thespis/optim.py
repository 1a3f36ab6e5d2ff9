"""Adam whose learning rate is an argument, so that it is data: traced, mapped, changed mid-run.

Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

B1, B2, EPSILON = 0.9, 0.999, 1e-8


class Learned(eqx.Module):
    """Parameters together with Adam's moments."""

    params: Any
    first: Any  # running mean of the gradient
    second: Any  # running mean of its square
    count: Int[Array, ""]

    @classmethod
    def of(cls, params) -> Learned:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return cls(params, zeros, zeros, jnp.zeros((), jnp.int32))

    def descend(self, loss: Callable, lr) -> tuple[Learned, Any]:
        """One step down `loss(params) -> (loss, aux)`; returns the learned and (loss, aux)."""
        out, gradient = jax.value_and_grad(loss, has_aux=True)(self.params)
        count = self.count + 1
        t = count.astype(jnp.float32)
        first = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, self.first, gradient)
        second = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g * g, self.second, gradient)
        unbias1, unbias2 = 1 / (1 - B1**t), 1 / (1 - B2**t)

        def step(p, m, v):
            return p - lr * (m * unbias1) / (jnp.sqrt(v * unbias2) + EPSILON)

        params = jax.tree.map(step, self.params, first, second)
        return Learned(params, first, second, count), out
