"""Many copies of one JAX task under the library's contract: time limit, autoreset, bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, PyTree

from thespis.core import Box, Discrete, Key, Spec, Step, where


class Task(Protocol):
    """One environment as pure functions, actions in its own units. No limit, no autoreset."""

    obs: PyTree[jax.ShapeDtypeStruct]
    action: Box | Discrete
    limit: int  # steps after which an episode is truncated

    def start(self, key: Key) -> Any: ...
    def observe(self, state) -> PyTree: ...
    def step(self, state, action) -> tuple[Any, Array, Array]:
        """-> state, reward, terminated."""
        ...


class State(eqx.Module):
    """Leaves [n, ...]."""

    task: Any
    time: Array  # steps taken in this episode
    final: Array  # the episode is over: the next step starts a new one


@dataclass(frozen=True)
class Autoreset:
    """n environments that reset in the step after an episode's end (see `core.Step`)."""

    task: Any

    @property
    def spec(self) -> Spec:
        more = {name: getattr(self.task, name, None) for name in ("reward_dim", "descriptor")}
        return Spec(self.task.obs, self.task.action, **more)

    @property
    def limit(self) -> int:
        return self.task.limit

    def reset(self, key: Key, n: int) -> tuple[State, Step]:
        task = strong(jax.vmap(self.task.start)(random.split(key, n)))
        no = jnp.zeros(n, bool)
        dim = self.spec.reward_dim
        reward = jnp.zeros(n if dim is None else (n, dim))
        step = Step(jax.vmap(self.task.observe)(task), reward, no, no)
        return State(task, jnp.zeros(n, jnp.int32), no), step

    def step(self, state: State, action: Array, key: Key) -> tuple[State, Step]:
        moved = jax.vmap(self.task.step)(state.task, self.rescale(action))
        task, reward, terminated = strong(moved)
        time = state.time + 1
        # A reset may cost as much as a step, so it is a branch. Start states are always new.
        # The key enters as data, since vmap makes a branch a select, which takes a key for used.
        data, kind = random.key_data(key), random.key_impl(key)

        def fresh():
            keys = random.split(random.wrap_key_data(data, impl=kind), time.size)
            return strong(jax.vmap(self.task.start)(keys))

        again = jax.lax.cond(state.final.any(), fresh, lambda: task)
        task = where(state.final, again, task)

        time = jnp.where(state.final, 0, time)
        reward = where(state.final, jnp.zeros_like(reward), reward)
        terminated = terminated & ~state.final
        truncated = (time >= self.limit) & ~terminated
        step = Step(jax.vmap(self.task.observe)(task), reward, terminated, truncated)
        return State(task, time, step.final), step

    def rescale(self, action: Array) -> Array:
        """From flat vectors in [-1, 1] to the task's own units and shape."""
        if isinstance(self.task.action, Discrete):
            return action + self.task.action.start
        action = action.reshape(-1, *self.task.action.shape)
        low, high = (
            jnp.asarray(x, jnp.float32).reshape(self.task.action.shape)
            for x in (self.task.action.low, self.task.action.high)
        )
        action = jnp.clip(action, -1, 1)
        # Exact at -1 and 1, which low + (action + 1) / 2 * (high - low) is not.
        return 0.5 * ((1 - action) * low[None] + (1 + action) * high[None])


def strong(tree):
    """No weak types, so that a state has one type for ever and programs compile once."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), tree)
