"""TQC: a value head of one's own. Kuznetsov et al. 2020, https://arxiv.org/abs/2005.04269.

Every critic gives quantiles of the return. The target pools those of all critics and drops the
largest, which curbs overestimation more finely than a minimum. The library has it too
(`thespis train sac --preset tqc`). In this folder:

    thespis train tqc:TQC --env jax:pendulum --steps 20000 --hidden 64 64
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp

from thespis import SAC


@dataclass(frozen=True)
class Quantiles:
    """Outputs are quantiles of the return, learned by the quantile Huber loss."""

    outputs: int

    def value(self, out):
        return out.mean(-1)

    def smallest(self, out):
        critic = self.value(out).argmin(0)
        return jnp.take_along_axis(out, critic[None, ..., None], 0)[0]

    def average(self, out):
        return out.mean(0)

    def target(self, out, reward, discount, bonus=None):
        after = out if bonus is None else out + bonus[:, None]
        return reward[:, None] + discount[:, None] * after

    def loss(self, out, target):
        """E|tau - 1[u < 0]| huber(u) over all pairs of a quantile and an atom of the target."""
        u = target[None, :, None, :] - out[..., None]
        size = jnp.abs(u)
        huber = jnp.where(size <= 1, 0.5 * u**2, size - 0.5)
        tau = (jnp.arange(self.outputs, dtype=jnp.float32) + 0.5) / self.outputs
        below = (u < 0).astype(jnp.float32)
        losses = (jnp.abs(tau[None, None, :, None] - below) * huber).mean((-2, -1))
        return losses, self.value(out) - target.mean(-1)[None]

    def report(self, target):
        return {}


@dataclass(frozen=True)
class TQC(SAC):
    """SAC with truncated quantile critics."""

    critics: int = 5
    """Number of critics."""

    @cached_property
    def value_head(self) -> Quantiles:
        return Quantiles(self.quantiles)

    def reduce_target(self, out, then, key):
        critics, batch, quantiles = out.shape
        pooled = jnp.sort(jnp.moveaxis(out, 0, 1).reshape(batch, -1), -1)
        return pooled[:, : critics * (quantiles - self.dropped_quantiles)]

    def reduce_actor(self, out, key):
        return out.mean(0)
