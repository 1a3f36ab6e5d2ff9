"""An algorithm that acts by its age alone."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import random

from thespis.core import Spec
from thespis.engine.rollout import FrozenPolicy
from thespis.tuning import hyper


@dataclass(frozen=True)
class Elder:
    """Acts by its age: a tenth of the steps since the episode's start. Must not observe."""

    spec: Spec

    class Hyper(eqx.Module):
        pass

    def init(self, key, hp):
        return {"scale": jnp.float32(0.1)}

    def memory(self, key, n):
        return jnp.zeros(n, jnp.int32)

    def act(self, state, hp, memory, obs, key, step, mode):
        action = state["scale"] * jnp.repeat(memory[:, None].astype(float), 2, 1)
        if mode == "explore":
            action = action + random.uniform(key, action.shape, minval=-0.1, maxval=0.1)
        return action, memory + 1, {"age": memory}

    def observe(self, state, rows):
        raise AssertionError("statistics stand still in evaluation")


class Timed(Elder):
    """Its actions are thousandths of the training clock."""

    def act(self, state, hp, memory, obs, key, step, mode):
        action = jnp.broadcast_to(step / 1000, (obs.shape[0], 2)).astype(jnp.float32)
        return action, memory, None


def frozen(members=1, step=0):
    """Elders of those steps."""
    state, hps = {"scale": jnp.full(members, 0.1)}, hyper.fill(Elder.Hyper, {}, members)
    return FrozenPolicy(state, hps, jnp.broadcast_to(jnp.int32(step), members))
