"""Value heads: what the outputs of a critic mean, and how they are learned.

A head is a frozen dataclass that an algorithm holds. Critics give it [critics, batch, outputs].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float


def smallest(x: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """Returns the smallest along the first axis, chosen one by one; NaN if there is one.

    The gradient of `x.min(0)` looks for the entries that equal the result, and is NaN where the
    compiler has computed one of the two anew and rounded it differently. A choice is a choice.
    """
    return reduce(lambda a, b: jnp.where((b < a) | jnp.isnan(b), b, a), x)


class Head(Protocol):
    """What `ActorCritic.learn_critics` asks of a head."""

    @property
    def outputs(self) -> int:
        """Numbers that a critic gives for one value."""
        ...

    def value(self, out: Float[Array, "... outputs"]) -> Float[Array, "..."]:
        """Returns the values that outputs stand for."""
        ...

    def smallest(self, out: Float[Array, "critics ... outputs"]) -> Float[Array, "... outputs"]:
        """Returns the outputs of the critic whose value is the smallest."""
        ...

    def target(self, out: Float[Array, "batch _"], reward, discount, bonus=None) -> Any:
        """Returns what to learn: reward + discount (value + bonus), of outputs for s'."""
        ...

    def loss(
        self, out: Float[Array, "critics batch outputs"], target: Any
    ) -> tuple[Float[Array, "critics batch"], Float[Array, "critics batch"]]:
        """Returns the loss of every entry, and how far its value is from that of the target."""
        ...


@dataclass(frozen=True)
class Scalar:
    """One number, learned by squared errors."""

    @property
    def outputs(self) -> int:
        return 1

    def value(self, out):
        return out[..., 0]

    def smallest(self, out):
        return smallest(out)

    def target(self, out, reward, discount, bonus=None):
        value = self.value(out)
        return reward + discount * (value if bonus is None else value + bonus)

    def loss(self, out, target):
        error = self.value(out) - target[None]
        return error**2, error
