"""Value heads: what the outputs of a critic mean, and how they are learned.

A head is a frozen dataclass of an algorithm. Its input is what critics return: [critics, batch,
outputs].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Literal, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax import nn
from jax.lax import stop_gradient
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from thespis.nn.losses import huber, quantile_huber

CategoricalTarget = Literal["projected", "two-hot", "hl-gauss"]


def smallest(x: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """Returns the minimum over the first axis by pairwise selection; NaN if there is one.

    The gradient of `x.min(0)` looks for the entries that equal the result, and is NaN where the
    compiler has recomputed one of the two and rounded it differently. A selection is safe.
    """
    return reduce(lambda a, b: jnp.where((b < a) | jnp.isnan(b), b, a), x)


def bitonic_sort(x: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Returns x with every column sorted, for a power of two of rows; NaN spreads.

    Batcher's network compares whole rows at once, which on a CPU takes a fifteenth of the time of
    `top_k` for the 125 quantiles of TQC.
    """
    rows, columns = x.shape
    for run in (2**i for i in range(1, rows.bit_length())):  # length of the runs to make
        for apart in (2**i for i in reversed(range(run.bit_length() - 1))):
            one, other = jnp.moveaxis(x.reshape(-1, 2, apart, columns), 1, 0)
            low, high = jnp.minimum(one, other), jnp.maximum(one, other)
            rises = (np.arange(len(one)) * 2 * apart // run % 2 == 0)[:, None, None]
            pair = [jnp.where(rises, low, high), jnp.where(rises, high, low)]
            x = jnp.stack(pair, 1).reshape(rows, columns)
    return x


@runtime_checkable
class Head(Protocol):
    """What `CriticLearning.learn_critics` asks of a head."""

    @property
    def outputs(self) -> int:
        """Returns the number of outputs of a critic for one value."""
        ...

    def value(self, out: Float[Array, "... outputs"]) -> Float[Array, "..."]:
        """Returns the values that outputs stand for."""
        ...

    def smallest(self, out: Float[Array, "critics ... outputs"]) -> Float[Array, "... outputs"]:
        """Returns the outputs of the critic whose value is the smallest."""
        ...

    def average(self, out: Float[Array, "critics ... outputs"]) -> Float[Array, "... outputs"]:
        """Returns outputs that stand for the mean over the critics."""
        ...

    def target(self, out: Float[Array, "batch _"], reward, discount, bonus=None) -> Any:
        """Returns the target, reward + discount (value + bonus), from the outputs for s'."""
        ...

    def loss(
        self, out: Float[Array, "critics batch outputs"], target: Any
    ) -> tuple[Float[Array, "critics batch"], Float[Array, "critics batch"]]:
        """Returns the loss of every entry, and the error of its value."""
        ...

    def report(self, target: Any) -> dict[str, Float[Array, "batch"]]:
        """Returns further metrics of targets."""
        ...


@dataclass(frozen=True)
class Scalar:
    """One output, the value, with the squared error as its loss."""

    @property
    def outputs(self) -> int:
        return 1

    def value(self, out):
        return out[..., 0]

    def smallest(self, out):
        return smallest(out)

    def average(self, out):
        return out.mean(0)

    def target(self, out, reward, discount, bonus=None):
        value = self.value(out)
        return reward + discount * (value if bonus is None else value + bonus)

    def loss(self, out, target):
        error = self.value(out) - target[None]
        return error**2, error

    def report(self, target):
        return {}


@dataclass(frozen=True)
class Huber(Scalar):
    """One output, the value, with the Huber loss: squared errors up to 1, linear beyond."""

    def loss(self, out, target):
        error = self.value(out) - target[None]
        return huber(error, 1.0), error


@dataclass(frozen=True)
class Quantile:
    """Quantiles of the return, with the quantile Huber loss.

    Dabney et al. 2018, https://arxiv.org/abs/1710.10044; pooled over the critics and truncated in
    the target: Kuznetsov et al. 2020, https://arxiv.org/abs/2005.04269.
    """

    outputs: int = 25
    dropped: int = 2
    """Number of largest quantiles per critic that `truncated` drops."""

    def value(self, out):
        return out.mean(-1)

    def smallest(self, out):
        return select_smallest(self.value(out), out)

    def average(self, out):
        return out.mean(0)

    def truncated(self, out: Float[Array, "critics batch outputs"]) -> Float[Array, "batch _"]:
        """Returns the quantiles of all critics in one, without the largest."""
        critics, batch, n = out.shape
        pooled = jnp.moveaxis(out, 1, -1).reshape(-1, batch)
        missing = 2 ** (len(pooled) - 1).bit_length() - len(pooled)
        pooled = jnp.pad(pooled, ((0, missing), (0, 0)), constant_values=jnp.inf)
        return bitonic_sort(pooled)[: critics * (n - self.dropped)].T

    def target(self, out, reward, discount, bonus=None):
        after = out if bonus is None else out + bonus[:, None]
        return reward[:, None] + discount[:, None] * after

    def loss(self, out, target):
        losses = quantile_huber(out, stop_gradient(target))
        return losses, self.value(out) - target.mean(-1)[None]

    def report(self, target):
        return {}


def softmax(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Returns probabilities in proportion to exp(x). A product, as in `core.mean`."""
    raised = jnp.exp(x - stop_gradient(x.max(-1, keepdims=True)))
    return raised * (1.0 / raised.sum(-1, keepdims=True))


@dataclass(frozen=True)
class Categorical:
    """Probabilities of evenly spaced returns, with the cross-entropy as the loss.

    Bellemare et al. 2017, https://arxiv.org/abs/1707.06887 (target `projected`); as a
    classification of the expected return: Farebrother et al. 2024,
    https://arxiv.org/abs/2403.03950 (`two-hot`, `hl-gauss`).
    """

    outputs: int = 101
    bound: float = 5.0
    """Returns lie between -bound and bound."""
    form: CategoricalTarget = "projected"

    @cached_property
    def atoms(self) -> np.ndarray:
        return np.linspace(-self.bound, self.bound, self.outputs, dtype=np.float32)

    @property
    def spacing(self) -> float:
        return 2 * self.bound / (self.outputs - 1)

    def value(self, out):
        return softmax(out) @ self.atoms

    def smallest(self, out):
        return select_smallest(self.value(out), out)

    def average(self, out):
        return nn.logsumexp(nn.log_softmax(out), axis=0) - math.log(len(out))

    def target(self, out, reward, discount, bonus=None):
        """Returns the probabilities of atoms in the target: [batch, outputs]."""
        if self.form == "projected":
            after = jnp.asarray(self.atoms)[None] + (0.0 if bonus is None else bonus[:, None])
            shifted = reward[:, None] + discount[:, None] * after
            return self.project(softmax(out), self.inside(shifted))
        value = self.value(out) if bonus is None else self.value(out) + bonus
        y = self.inside(reward + discount * value)[:, None]
        atoms = jnp.asarray(self.atoms)[None]
        if self.form == "two-hot":
            return jnp.maximum(0.0, 1.0 - jnp.abs(y - atoms) / self.spacing)
        std, half = 0.75 * self.spacing, 0.5 * self.spacing
        mass = ndtr((atoms + half - y) / std) - ndtr((atoms - half - y) / std)
        return mass * (1.0 / mass.sum(-1, keepdims=True))

    def inside(self, value: Array) -> Array:
        return jnp.clip(value, -self.bound, self.bound)

    def project(
        self, p: Float[Array, "batch n"], returns: Float[Array, "batch n"]
    ) -> Float[Array, "batch n"]:
        """Projects probabilities of other returns onto the atoms, split between neighbours."""
        position = (returns + self.bound) / self.spacing
        below = jnp.clip(jnp.floor(position), 0, self.outputs - 2)
        share, below = position - below, below.astype(jnp.int32)
        rows = jnp.arange(len(p))[:, None]
        # By scatter: a product with all pairs of atoms would take ten times as long.
        return (
            jnp.zeros_like(p)
            .at[rows, below]
            .add(p * (1 - share))
            .at[rows, below + 1]
            .add(p * share)
        )

    def loss(self, out, target):
        losses = -(target[None] * nn.log_softmax(out)).sum(-1)
        return losses, self.value(out) - (target @ self.atoms)[None]

    def report(self, target):
        """Returns the probability of the outermost atoms; if it is large, raise the bound."""
        return {"clip_share": target[:, 0] + target[:, -1]}


def select_smallest(
    value: Float[Array, "critics ..."], out: Float[Array, "critics ... n"]
) -> Float[Array, "... n"]:
    """Returns the outputs of the critic with the smallest value, entry by entry."""
    best, chosen = value[0], out[0]
    for v, o in zip(value[1:], out[1:], strict=True):
        smaller = (v < best) | jnp.isnan(v)
        best, chosen = jnp.where(smaller, v, best), jnp.where(smaller[..., None], o, chosen)
    return chosen
