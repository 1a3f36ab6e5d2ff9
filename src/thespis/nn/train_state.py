"""Parameters and the optimiser that trains them: Optax inside, the learning rate outside.

The rate is an argument of every step, so that it is data: traced, mapped over members, changed
mid-run. The optimiser gives the direction, the step is that direction times the rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import optax

from thespis.nn.networks import project


@dataclass(frozen=True)
class Adam:
    """Adam, Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, algorithm 1.

    An optimiser is a frozen dataclass of choices, which tells what is compiled, with a method
    `transform` that makes an Optax transformation of them.
    """

    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    max_norm: float | None = None
    """Length that gradients of all parameters together are cut to."""

    def transform(self) -> optax.GradientTransformation:
        adam = optax.scale_by_adam(self.b1, self.b2, self.eps)
        return adam if self.max_norm is None else optax.chain(self.clip, adam)

    @property
    def clip(self) -> optax.GradientTransformation:
        return optax.clip_by_global_norm(self.max_norm or math.inf)


class TrainState(eqx.Module):
    """Parameters, and what their optimiser remembers of past gradients."""

    params: Any
    opt_state: Any
    optimizer: Any = eqx.field(static=True, default=Adam())

    @classmethod
    def create(cls, params, optimizer: Any = None) -> TrainState:
        """Returns the state before any update; Adam trains it unless told otherwise."""
        optimizer = optimizer or Adam()
        return cls(params, optimizer.transform().init(params), optimizer)

    def apply_gradient(self, loss: Callable, lr, weight_decay=None) -> tuple[TrainState, Any]:
        """Takes one step down `loss(params) -> (loss, aux)`; returns the state and (loss, aux).

        `weight_decay` also draws weights, but no biases or norms, towards 0: with Adam this is
        AdamW, Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101.
        """
        out, gradient = jax.value_and_grad(loss, has_aux=True)(self.params)
        update = self.optimizer.transform().update
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            direction, opt_state = update(gradient, self.opt_state, self.params)
        if weight_decay is not None:
            decay = lambda p, d: d + weight_decay * p if p.ndim > 1 else d
            direction = jax.tree.map(decay, self.params, direction)
        params = jax.tree.map(lambda p, d: p - lr * d, self.params, direction)
        return TrainState(project(params), opt_state, self.optimizer), out
