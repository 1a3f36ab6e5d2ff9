"""The temperature of maximum-entropy agents: fixed, or learned to hold the entropy at a target.

Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905, eq. 18.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from thespis.nn.train_state import TrainState

# What is learned, and what its loss is linear in: log alpha and alpha, log alpha and log alpha,
# alpha and alpha, or nothing.
Form = Literal["exp", "log", "linear", "fixed"]


def init_temperature(form: Form, alpha) -> TrainState | None:
    """Returns the train state of log alpha, or of alpha if linear; None if fixed.

    `alpha` may also be several temperatures [n], each of which gets a surplus of its own.
    """
    if form == "fixed":
        return None
    alpha = jnp.asarray(alpha, jnp.float32)
    return TrainState.create(alpha if form == "linear" else jnp.log(jnp.maximum(alpha, 1e-8)))


def alpha_of(form: Form, temperature: TrainState | None, fixed) -> Array:
    """Returns the temperature; `fixed` is its value if it is not learned."""
    if temperature is None:
        return jnp.asarray(fixed, jnp.float32)
    return temperature.params if form == "linear" else jnp.exp(temperature.params)


def update_temperature(
    form: Form, temperature: TrainState | None, surplus, lr
) -> tuple[TrainState | None, Array]:
    """Takes one step, which lowers it if there is a surplus of entropy -> temperature, loss."""
    if temperature is None:
        return None, jnp.zeros(())

    def loss(x):
        return ((jnp.exp(x) if form == "exp" else x) * surplus).sum(), None

    temperature, (value, _) = temperature.apply_gradient(loss, lr)
    if form == "linear":
        positive = jnp.maximum(temperature.params, 0.0)
        temperature = eqx.tree_at(lambda t: t.params, temperature, positive)
    return temperature, value
