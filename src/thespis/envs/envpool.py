"""Adapts EnvPool, which steps many environments in C++ threads; the extra `envpool`."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from thespis.core import Spec, Step
from thespis.envs.gymnasium import Unsuitable, action_spec, reader, rescaler, structs
from thespis.envs.stepping import Leaf, Node
from thespis.errors import ThespisError, did_you_mean


class EnvPool:
    """An environment of EnvPool by its name, such as Pendulum-v1 or HalfCheetah-v4.

    EnvPool resets as this library does: the step after an end ignores the action and returns the
    first observation of the next episode.
    """

    def __init__(self, environment: str):
        if environment not in library().list_all_envs():
            every = [f"envpool:{name}" for name in library().list_all_envs()]
            hint = did_you_mean(f"envpool:{environment}", every)
            raise ThespisError(f"unknown environment 'envpool:{environment}'{hint}")
        self.environment, self.name = environment, f"envpool:{environment}"
        pool = self.pool([0])
        self.observation_space, self.action_space = pool.observation_space, pool.action_space
        self.node = reader(self.observation_space, self.name)
        if not arrays_only(self.node):
            raise Unsuitable(f"{self.name}: discrete observations are not supported")
        self.spec = Spec(structs(self.node), action_spec(self.action_space, self.name))
        self.limit = int(pool.spec.config.max_episode_steps)
        pool.close()

    def __repr__(self) -> str:
        return f"EnvPool({self.environment!r})"

    def pool(self, seeds: list[int]) -> Any:
        options: Any = {"num_envs": len(seeds), "env_seed": seeds, "env_type": "gymnasium"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about precision, on first access to spaces
            pool = library().make(self.environment, **options)
            _ = pool.observation_space, pool.action_space
        return pool

    def open(
        self, n: int, seed: int | Sequence[int], render_mode: str | None = None
    ) -> EnvPoolEnvs:
        """Creates n environments, with seeds seed, seed + 1, ..., or a sequence of them."""
        if render_mode is not None:
            raise ThespisError(f"{self.name} cannot be rendered: play it as an id of Gymnasium")
        seeds = [seed + i for i in range(n)] if isinstance(seed, int) else list(seed)
        return EnvPoolEnvs(self, seeds)


class EnvPoolEnvs:
    """n running environments (see `core.Step`)."""

    def __init__(self, env: EnvPool, seeds: list[int]):
        self.env, self.n = env, len(seeds)
        self.pool = env.pool(seeds)
        self.act = rescaler(env.action_space, env.name)
        self.shape = (self.n, *(env.action_space.shape or ()))
        self.over = np.zeros(self.n, bool)  # episodes that `end` ended, not the pool

    def reset(self) -> Step:
        self.over[:] = False
        none = np.zeros(self.n, bool)
        return self.checked(self.pool.reset()[0], np.zeros(self.n), none, none)

    def step(self, action: ArrayLike) -> Step:
        """Takes actions [n, ...] in [-1, 1], flat or in the shape of the space, or [n] integers."""
        actions = np.asarray(self.act(np.asarray(action).reshape(self.shape)))
        actions = actions.astype(self.env.action_space.dtype)
        obs, reward, terminated, truncated, _ = self.pool.step(actions)
        step = self.checked(obs, reward, terminated, truncated & ~terminated)
        return self.restarted(step) if self.over.any() else step

    def end(self, which: np.ndarray) -> None:
        """Makes the next step start a new episode in these [n] as well."""
        self.over = self.over | which

    def restarted(self, step: Step) -> Step:
        """Returns the step with first observations of the episodes after those that `end` ended."""
        ids = np.flatnonzero(self.over).astype(np.int32)
        self.over[:] = False
        none = np.zeros(ids.size, bool)
        first = self.checked(self.pool.reset(ids)[0], np.zeros(ids.size), none, none)
        for x, new in zip(jax.tree.leaves(step), jax.tree.leaves(first), strict=True):
            x[ids] = new
        return step

    def checked(self, obs: Any, reward: Any, terminated: Any, truncated: Any) -> Step:
        """Returns a step, copied since the pool may reuse memory; refuses non-finite numbers."""
        same = lambda s, x: np.array(x, s.dtype).reshape(-1, *s.shape)
        obs = jax.tree.map(same, self.env.spec.obs, obs)
        rest: Any = np.array(reward, np.float32), np.array(terminated), np.array(truncated)
        step = Step(obs, *rest)
        for x in jax.tree.leaves((step.obs, step.reward)):
            if not np.isfinite(x).all():
                raise ThespisError(f"{self.env.name}: an observation or reward is not finite")
        return step

    def render(self) -> list[Any]:
        raise ThespisError(f"{self.env.name} cannot be rendered: play it as an id of Gymnasium")

    def close(self) -> None:
        self.pool.close()


named = EnvPool  # `envpool:NAME`


def arrays_only(node: Node) -> bool:
    """Returns whether no part must be one-hot encoded, which would be slow here."""
    if isinstance(node, Leaf):
        return node.choices is None
    return all(arrays_only(child) for _, _, child in node)


def installed() -> bool:
    return importlib.util.find_spec("envpool") is not None


def library() -> Any:
    if not installed():
        raise ThespisError("envpool: needs EnvPool: pip install 'thespis[envpool]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import envpool  # pyright: ignore[reportMissingImports]
    return envpool
