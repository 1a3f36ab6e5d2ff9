"""Parameters with their optimiser: an Optax transformation, and the learning rate as data.

The rate is an argument of every step, so it can be traced, mapped over members, and changed in a
run. The optimiser returns a direction, and a step is that direction times the rate.
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

    An optimiser is a frozen dataclass of static choices with a method `transform`, which returns
    an Optax transformation.
    """

    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    max_norm: float | None = None
    """Maximum global norm of gradients."""

    def transform(self) -> optax.GradientTransformation:
        adam = optax.scale_by_adam(self.b1, self.b2, self.eps)
        return adam if self.max_norm is None else optax.chain(self.clip, adam)

    @property
    def clip(self) -> optax.GradientTransformation:
        return optax.clip_by_global_norm(self.max_norm or math.inf)


class TrainState(eqx.Module):
    """Parameters, and the state of their optimiser."""

    params: Any
    opt_state: Any
    optimizer: Any = eqx.field(static=True, default=Adam())

    @classmethod
    def create(cls, params, optimizer: Any = None) -> TrainState:
        """Returns the state before any update, by default with Adam."""
        optimizer = optimizer or Adam()
        return cls(params, optimizer.transform().init(params), optimizer)

    def apply_gradient(self, loss: Callable, lr, weight_decay=None) -> tuple[TrainState, Any]:
        """Takes one gradient step on `loss(params) -> loss, aux`; returns the state and both.

        `weight_decay` shrinks weights, but no biases or norms: with Adam this is AdamW,
        Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101.
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
