"""Many copies of one JAX task under the library's contract: time limit, autoreset, bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, PyTree

from thespis.core import Box, Discrete, Key, Spec, Step, where
from thespis.errors import ThespisError, or_all

FPS = 30  # frames per second of tasks that do not set `fps`


@runtime_checkable
class Functions(Protocol):
    """The methods by which a task is recognised."""

    def start(self, key: Key) -> Any: ...
    def observe(self, state) -> PyTree: ...
    def step(self, state, action) -> tuple[Any, Array, Array]:
        """Returns the state, the reward, and whether the episode terminated."""
        ...


class Task(Functions, Protocol):
    """One environment as pure functions, with actions in its own units and without autoreset.

    It may have more attributes: see those of `Autoreset` that are `offered`.
    """

    obs: PyTree[jax.ShapeDtypeStruct]
    action: Box | Discrete | tuple[Box | Discrete, ...]
    limit: int  # steps after which an episode is truncated


@dataclass(frozen=True)
class TaskWrapper:
    """A task around another one, to which it delegates everything that it does not change."""

    task: Any

    @property
    def obs(self) -> Any:
        return self.task.obs

    @property
    def action(self) -> Any:
        return self.task.action

    @property
    def limit(self) -> int:
        return self.task.limit

    def start(self, key: Key) -> Any:
        return self.task.start(key)

    def observe(self, state) -> PyTree:
        return self.task.observe(state)

    def step(self, state, action) -> tuple[Any, Array, Array]:
        return self.task.step(state, action)


def offered(name: str, otherwise: Callable[[Any], Any]) -> Any:
    """Returns a property for an optional attribute of the task, with a default.

    This is the only place that looks for attributes of tasks.
    """

    def get(env: Autoreset) -> Any:
        task = env.task
        while isinstance(task, TaskWrapper):
            task = task.task
        return getattr(task, name, otherwise(task))

    return property(get)


class State(eqx.Module):
    """The states of n environments, leaves [n, ...]."""

    task: Any
    time: Array  # steps taken in this episode
    final: Array  # the episode is over: the next step starts a new one


@dataclass(frozen=True)
class Autoreset:
    """n environments that reset in the step after an episode's end (see `core.Step`)."""

    task: Any

    name = offered("name", lambda task: type(task).__name__)
    # Parts of the `Spec`:
    reward_dim = offered("reward_dim", lambda task: None)
    descriptor = offered("descriptor", lambda task: None)
    agents = offered("agents", lambda task: ())
    # Functions of a state: descriptors by name (descriptors.py), and an image [height, width, 3].
    descriptors = offered("descriptors", lambda task: {})
    picture = offered("picture", lambda task: None)
    # For videos: frames per second, and the goal to draw.
    fps = offered("fps", lambda task: FPS)
    goal = offered("goal", lambda task: (0.0, 0.0))

    @property
    def spec(self) -> Spec:
        more = self.reward_dim, self.descriptor, self.agents
        return Spec(self.task.obs, self.task.action, *more)

    @property
    def limit(self) -> int:
        return self.task.limit

    def with_attr(self, **values: Any) -> Autoreset:
        """Returns a copy with new values of some fields of the task, which must be a dataclass."""
        return Autoreset(with_fields(self.task, values))

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
        # A reset may cost as much as a step, so it is a branch. The key is passed as data, since
        # vmap turns the branch into a select, which would count as a use of the key.
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
        """Converts flat actions in [-1, 1] to the task's own units and shape."""
        return rescale(self.spec, action)


def with_fields(task: Any, values: dict[str, Any]) -> Any:
    """Returns a task with new values of its fields, or of those of the task inside wrappers."""
    if isinstance(task, TaskWrapper):
        return dataclasses.replace(task, task=with_fields(task.task, values))
    known = bool(dataclasses.is_dataclass(task))
    names = [f.name for f in dataclasses.fields(task)] if known else []
    for name in values:
        if name not in names:
            kind = type(task).__name__
            hint = or_all(name, names) if names else "; make it a dataclass with that field"
            raise ThespisError(f"{kind} has no field {name!r}{hint}")
    return dataclasses.replace(task, **values)


def strong(tree):
    """Removes weak types, so that a state always has the same types and programs compile once."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), tree)


def rescale(spec: Spec, action: Array) -> Array:
    """Converts actions [n, ...] to the environment's units; those of several agents stay flat."""
    kinds = spec.actions
    if not spec.agents:
        return kinds[0].to_env(action)
    if isinstance(kinds[0], Discrete):
        starts = jnp.array([kind.start for kind in kinds if isinstance(kind, Discrete)])
        return action + starts[None]
    boxes = [kind for kind in kinds if isinstance(kind, Box)]
    shape = len(boxes), max(box.size for box in boxes)
    fill = lambda bounds, rest: (*bounds, *[rest] * (shape[1] - len(bounds)))
    low = sum((fill(box.low, -1.0) for box in boxes), ())
    high = sum((fill(box.high, 1.0) for box in boxes), ())
    return Box(low, high, shape).to_env(action)
