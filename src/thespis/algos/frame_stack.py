"""Frame stacks: any algorithm, on the last few observations of an episode at once.

The replay stores each observation once; stacks are gathered when a batch is drawn. For acting,
the memory of every environment holds its previous observations.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from thespis.core import (
    MASK,
    Key,
    Metrics,
    Mode,
    Prioritised,
    Row,
    SelfRewarding,
    Spec,
    ThespisError,
    capability,
    has_mask,
    privileged,
    where,
)
from thespis.replay.priorities import Rule


class Frames(eqx.Module):
    """The memory of n environments."""

    past: PyTree  # previous observations, leaves [n, frames - 1, ...], oldest first
    fresh: Bool[Array, "n"]  # the next observation is the first of an episode
    memory: Any  # of the algorithm itself


@dataclass(frozen=True)
class FrameStack:
    """Wraps an algorithm whose observations are stacks, leaves [frames, ...], oldest first.

    At the start of an episode its first observation is repeated. Action masks are not stacked.
    """

    algo: Any
    spec: Spec
    frames: int

    @classmethod
    def wrap(cls, Algorithm: type, spec: Spec, frames: int, **options: Any) -> FrameStack:
        if spec.agents:
            raise ThespisError(
                f"frame_stack = {frames} is for one agent, and there are {len(spec.agents)}: "
                "leave it out"
            )
        if capability(Algorithm, SelfRewarding):  # from descriptors of one time step (dads.py)
            raise ThespisError(
                f"frame_stack = {frames}: {Algorithm.__name__} describes single observations; "
                "leave it out"
            )
        stack = lambda s: jax.ShapeDtypeStruct((frames, *s.shape), s.dtype)
        stacked = dataclasses.replace(spec, obs=map_frames(stack, spec.obs))
        return cls(Algorithm(stacked, **options), spec, frames)

    @property
    def Hyper(self) -> Any:
        return self.algo.Hyper

    def offered(self, kind: type) -> Any:
        """Returns the algorithm; stacks only change which rows a prioritised replay may draw."""
        prioritised = capability(self.algo, Prioritised) if kind is Prioritised else None
        return StackedPriorities(prioritised, self.frames) if prioritised else self.algo

    def init(self, key: Key, hp) -> Any:
        return self.algo.init(key, hp)

    def memory(self, key, n: int) -> Frames:
        blank = lambda s: jnp.zeros((n, self.frames - 1, *s.shape), s.dtype)
        past = map_frames(blank, self.without_privileged(self.spec.obs), mask=None)
        return Frames(past, jnp.ones(n, bool), self.algo.memory(key, n))

    def without_privileged(self, obs: PyTree) -> PyTree:
        """Returns an observation without the keys that only critics see."""
        hidden = privileged(self.algo)
        return {k: x for k, x in obs.items() if k not in hidden} if hidden else obs

    def act(self, state, hp, memory: Frames, obs, key, step, mode: Mode):
        obs = self.without_privileged(obs)
        repeat = lambda x: jnp.repeat(x[:, None], self.frames - 1, 1)
        past = where(memory.fresh, map_frames(repeat, obs, mask=None), memory.past)
        append = lambda x, before: jnp.concatenate([before, x[:, None]], 1)
        stack = map_frames(append, obs, past)
        action, inner, extra = self.algo.act(state, hp, memory.memory, stack, key, step, mode)
        past = map_frames(lambda x: x[:, 1:], stack, mask=None)
        return action, Frames(past, jnp.zeros_like(memory.fresh), inner), extra

    def observe(self, state, rows: Row) -> Any:
        """Updates statistics by stacks of copies: each observation is once in every position."""
        axis = rows.reward.ndim if self.spec.reward_dim is None else rows.reward.ndim - 1
        copies = lambda x: jnp.repeat(jnp.expand_dims(x, axis), self.frames, axis)
        return self.algo.observe(state, dataclasses.replace(rows, obs=map_frames(copies, rows.obs)))

    def sample(self, replay, demos, hp, key, step) -> Any:
        demos = demos and demos.stacked(self.frames)
        return self.algo.sample(replay.stacked(self.frames), demos, hp, key, step)

    def update(self, state, hp, batch, key, step) -> tuple[Any, Metrics, Array]:
        return self.algo.update(state, hp, batch, key, step)


@dataclass(frozen=True)
class StackedPriorities:
    """Leaves out rows whose stack is no longer complete in the replay."""

    algo: Prioritised
    frames: int

    def rule(self, envs: int) -> Rule | None:
        rule = self.algo.rule(envs)
        return rule and dataclasses.replace(rule, behind=self.frames - 1)

    def beta(self, hp, step: Array) -> Array:
        return self.algo.beta(hp, step)


def map_frames(f, obs: PyTree, *rest: PyTree, mask: Any = ...) -> PyTree:
    """Maps f over all leaves but the action mask, which stays as it is unless one is given."""
    if not has_mask(obs):
        return jax.tree.map(f, obs, *rest)
    frames = lambda tree: {k: x for k, x in tree.items() if k != MASK}
    return jax.tree.map(f, *map(frames, (obs, *rest))) | {MASK: obs[MASK] if mask is ... else mask}
