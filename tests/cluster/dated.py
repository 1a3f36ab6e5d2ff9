"""An algorithm for collectors. Their processes import this module."""

from dataclasses import dataclass

import jax.numpy as jnp

from tests.engine.clerks import Clerk


@dataclass(frozen=True)
class Dated(Clerk):
    """Remembers in every row after how many rows its weights were made."""

    def act(self, state, hp, memory, obs, key, step, mode):
        action, memory, extra = super().act(state, hp, memory, obs, key, step, mode)
        return action, memory, extra | {"made": jnp.full(action.shape[:1], state["rows"])}
