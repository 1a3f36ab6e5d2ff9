"""The tanh-Gaussian policy distribution."""

from __future__ import annotations

import math
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jax import nn, random
from jaxtyping import Array, Float

from thespis.core import Key

Std = Literal["exp", "softplus"]  # exp(clip(raw, -20, 2)), or softplus(raw) + 0.001
LogDerivative = Literal["exact", "epsilon"]  # of tanh: stable form, or log(1 - a^2 + 1e-6)


class TanhGaussian(eqx.Module):
    """a = tanh(u), u ~ N(mean, exp(log_std)^2). Log-probabilities are taken at u, hence stable."""

    mean: Float[Array, "... n"]
    log_std: Float[Array, "... n"]
    log_derivative: LogDerivative = eqx.field(static=True, default="exact")

    @classmethod
    def of(cls, raw: Float[Array, "... raw"], std: Std, log_derivative: LogDerivative):
        """From a network's output: means first, then raw scales."""
        mean, scale = jnp.split(raw, 2, -1)
        if std == "exp":
            return cls(mean, jnp.clip(scale, -20, 2), log_derivative)
        return cls(mean, jnp.log(nn.softplus(scale) + 0.001), log_derivative)

    def sample(self, key: Key) -> tuple[Float[Array, "... n"], Float[Array, "..."]]:
        """A reparameterised action and its log-probability."""
        noise = random.normal(key, self.mean.shape)
        u = self.mean + jnp.exp(self.log_std) * noise
        action = jnp.tanh(u)
        log_normal = -0.5 * noise**2 - self.log_std - 0.5 * math.log(2 * math.pi)
        if self.log_derivative == "exact":
            log_det = 2 * (math.log(2) - u - nn.softplus(-2 * u))
        else:
            log_det = jnp.log(1 - action**2 + 1e-6)
        return action, (log_normal - log_det).sum(-1)

    def mode(self) -> Float[Array, "... n"]:
        return jnp.tanh(self.mean)
