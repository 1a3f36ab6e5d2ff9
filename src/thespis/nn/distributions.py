"""Distributions: the tanh-Gaussian, the categorical one with an action mask, and mixtures."""

from __future__ import annotations

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import nn, random
from jaxtyping import Array, Bool, Float, Int

from thespis.core import Key
from thespis.xla import fast_random

# exp(clip(raw, low, high)); the same with tanh, which has a gradient everywhere; or
# softplus(raw) + 0.001. Low and high are those of RANGE by default.
Std = Literal["exp", "tanh", "softplus"]
RANGE = (-20.0, 2.0)
LogDerivative = Literal["exact", "epsilon"]  # of tanh: stable form, or log(1 - a^2 + 1e-6)


class TanhGaussian(eqx.Module):
    """a = tanh(u) with u ~ N(mean, exp(log_std)^2).

    Log-probabilities are computed from u, which is numerically stable.
    """

    mean: Float[Array, "... n"]
    log_std: Float[Array, "... n"]
    log_derivative: LogDerivative = eqx.field(static=True, default="exact")
    used: Bool[Array, "agents n"] | None = None  # dimensions that count in log-probabilities

    @classmethod
    def from_outputs(
        cls,
        raw: Float[Array, "... raw"],
        std: Std,
        log_derivative: LogDerivative,
        used=None,
        log_stds: tuple[float, float] = RANGE,
    ):
        """Returns the distribution of a network's output: means first, then raw scales."""
        mean, scale = jnp.split(raw, 2, -1)
        low, high = log_stds
        if std == "exp":
            return cls(mean, jnp.clip(scale, low, high), log_derivative, used)
        if std == "tanh":
            log_std = low + 0.5 * (high - low) * (1 + jnp.tanh(scale))
            return cls(mean, log_std, log_derivative, used)
        return cls(mean, jnp.log(nn.softplus(scale) + 0.001), log_derivative, used)

    def sample(self, key: Key) -> tuple[Float[Array, "... n"], Float[Array, "..."]]:
        """Returns a reparameterised action and its log-probability."""
        draw = fast_random.normal(key, self.mean.shape)
        u = self.mean + jnp.exp(self.log_std) * draw
        return jnp.tanh(u), self._log_p(u, draw)

    def log_prob(self, action: Float[Array, "... n"], edge: float = 1e-3) -> Float[Array, "..."]:
        """Returns log-probabilities of given actions, clipped to `edge` from the bounds."""
        u = jnp.arctanh(jnp.clip(action, edge - 1, 1 - edge))
        return self._log_p(u, (u - self.mean) / jnp.exp(self.log_std))

    def _log_p(self, u, draw) -> Float[Array, "..."]:
        """Returns the log-probability of tanh(u), where u = mean + std * draw."""
        log_normal = -0.5 * draw**2 - self.log_std - 0.5 * math.log(2 * math.pi)
        if self.log_derivative == "exact":
            log_det = log_derivative_of_tanh(u)
        else:
            log_det = jnp.log(1 - jnp.tanh(u) ** 2 + 1e-6)
        log_p = log_normal - log_det
        if self.used is not None:
            log_p = jnp.where(self.used.reshape(*[1] * (u.ndim - 2), *self.used.shape), log_p, 0.0)
        return log_p.sum(-1)

    def mode(self) -> Float[Array, "... n"]:
        return jnp.tanh(self.mean)


@jax.custom_jvp
def log_derivative_of_tanh(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns log(1 - tanh(u)^2), for u of any size."""
    return 2 * (math.log(2) - jnp.abs(u) - jnp.log(1 + jnp.exp(-2 * jnp.abs(u))))


log_derivative_of_tanh.defjvps(lambda du, _, u: -2 * jnp.tanh(u) * du)


class Categorical(eqx.Module):
    """One of n actions. Illegal ones have probability 0, whatever their logits.

    Where none is legal, all probabilities are 0, and so are entropy and expectations.
    """

    logits: Float[Array, "... n"]
    legal: Bool[Array, "... n"]

    @classmethod
    def from_logits(cls, logits: Float[Array, "... n"], legal: Bool[Array, "... n"] | None = None):
        """Returns the distribution of logits; without a mask every action is legal."""
        return cls(logits, jnp.ones_like(logits, bool) if legal is None else legal)

    @property
    def log_p(self) -> Float[Array, "... n"]:
        """Returns log-probabilities, and 0 where they would be minus infinity."""
        log_p = nn.log_softmax(jnp.where(self.legal, self.logits, -1e30))
        return jnp.where(self.legal, log_p, 0.0)

    @property
    def p(self) -> Float[Array, "... n"]:
        return jnp.where(self.legal, jnp.exp(self.log_p), 0.0)

    def expect(self, values: Float[Array, "... n"]) -> Float[Array, "..."]:
        """Returns the exact expectation of values per action; those of illegal ones are ignored."""
        return (self.p * jnp.where(self.legal, values, 0.0)).sum(-1)

    def entropy(self) -> Float[Array, "..."]:
        return -(self.p * self.log_p).sum(-1)

    def sample(self, key: Key) -> Int[Array, "..."]:
        return random.categorical(key, jnp.where(self.legal, self.logits, -jnp.inf))

    def mode(self) -> Int[Array, "..."]:
        return jnp.where(self.legal, self.logits, -jnp.inf).argmax(-1)


class Mixture(eqx.Module):
    """A mixture of Gaussians with diagonal covariances."""

    logits: Float[Array, "... parts"]
    mean: Float[Array, "... parts n"]
    std: Float[Array, "... parts n"]

    @classmethod
    def from_outputs(cls, raw: Float[Array, "... raw"], parts: int, n: int, scale, learned: bool):
        """Returns the mixture of a network's output: logits, means, and raw scales if `learned`.

        Standard deviations are `scale`, or learned ones that are at least that.
        """
        logits, mean, *rest = jnp.split(raw, [parts, parts + parts * n], -1)
        mean = mean.reshape(*mean.shape[:-1], parts, n)
        std = jnp.broadcast_to(jnp.asarray(scale, jnp.float32), mean.shape)
        if learned:
            std = std + nn.softplus(rest[0]).reshape(mean.shape)
        return cls(logits, mean, std)

    def log_prob(self, x: Float[Array, "... n"]) -> Float[Array, "..."]:
        """Returns log sum_k w_k prod_i N(x_i; mean_ki, std_ki^2); leading axes broadcast."""
        deviation = (x[..., None, :] - self.mean) * (1.0 / self.std)
        log_normal = -0.5 * deviation**2 - jnp.log(self.std) - 0.5 * math.log(2 * math.pi)
        return nn.logsumexp(nn.log_softmax(self.logits) + log_normal.sum(-1), axis=-1)

    def expect(self) -> Float[Array, "... n"]:
        """Returns the mean."""
        return (nn.softmax(self.logits)[..., None] * self.mean).sum(-2)
