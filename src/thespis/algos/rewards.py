"""Rewards as critics learn from them: scalars, perhaps scaled by running statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Array, Float

from thespis.core import Spec, Transition
from thespis.nn.normalization import ReturnScale

REWARD_OPTIONS = ("reward_norm",)  # which algorithms with rewards of their own do not support


@dataclass(frozen=True)
class Rewards:
    """Weighs the dimensions of rewards, and scales them by statistics of returns."""

    spec: Spec
    reward_weights: tuple[float, ...] | None = None
    """Weights of the dimensions of a vector reward; by default 1 each."""
    reward_norm: Literal["none", "std", "bounded"] = "none"
    """Divide rewards by the running standard deviation of discounted returns (std), and also keep
    returns within value_bound (bounded); the replay buffer keeps them raw."""
    value_bound: float = 5.0
    """Bound of returns, with reward_norm = bounded and a categorical head."""

    @property
    def weights(self) -> np.ndarray:
        """Returns the weights of the reward's dimensions [d]; scalar rewards have one."""
        weights = self.reward_weights or (1.0,) * (self.spec.reward_dim or 1)
        return np.asarray(weights, np.float32)

    def scalar(self, reward):  # no annotation: the arrays of host environments are NumPy's
        """Returns the weighted sum of vector rewards [...]; scalar rewards stay as they are."""
        return reward if self.spec.reward_dim is None else reward @ self.weights

    def scalar_reward(self, reward, obs):
        """Returns the same for rewards that came with these observations, to sum returns."""
        return self.scalar(reward)

    @property
    def normalizes_rewards(self) -> bool:
        return self.reward_norm != "none"

    def make_reward_stats(self) -> ReturnScale | None:
        return ReturnScale.create() if self.normalizes_rewards else None

    def observe_returns(self, state, returns: Float[Array, "n"], valid: Float[Array, "n"]) -> Any:
        """Returns the state after it has seen these discounted returns."""
        return replace(state, reward_stats=state.reward_stats.update(returns, valid))

    def scale_rewards(self, state, b: Transition) -> Transition:
        """Returns a batch with scaled rewards, if `reward_norm` asks for it."""
        if not self.normalizes_rewards:
            return b
        bound = self.value_bound if self.reward_norm == "bounded" else None
        return replace(b, reward=state.reward_stats.factor(bound) * b.reward)
