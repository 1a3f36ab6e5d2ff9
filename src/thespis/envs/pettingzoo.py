"""Adapts PettingZoo's parallel environments, in which several agents act at once."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import math
import pkgutil
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import gymnasium
import jax
import numpy as np

from thespis import plugins
from thespis.core import AGENTS, ALIVE, ENDED, MASK, PAID, STATE, Discrete, Spec, Step
from thespis.envs import gymnasium as gym
from thespis.envs import stepping
from thespis.errors import ThespisError, one_line, or_all

FAMILIES = {  # packages whose tasks can be named without a module
    "mpe": "mpe2",
    "butterfly": "pettingzoo.butterfly",
    "sisl": "pettingzoo.sisl",
    "atari": "pettingzoo.atari",
    "classic": "pettingzoo.classic",
}
FLAT = "observation"  # key of observations that had to be flattened, next to MASK


class PettingZoo:
    """A parallel environment, by the function or class that creates it.

    `limit` is the number of steps after which an episode is truncated, None if unknown.
    """

    name: str
    spec: Spec
    limit: int | None

    def __init__(self, source: Callable[..., Any], name: str | None = None):
        self.source, self.name = source, getattr(source, "__name__", repr(source))
        env = self.instance()
        try:
            self.name = name or str(env)
            self.layout = Layout(env, self.name)
            self.spec = self.layout.spec
            self.limit = getattr(env.unwrapped, "max_cycles", None)
        finally:
            env.close()

    def __repr__(self) -> str:
        return f"PettingZoo({self.name!r})"

    def instance(self, render_mode: str | None = None) -> Any:
        """Creates one environment."""
        env = gym.create(self.source, self.name, render_mode)
        if not hasattr(env, "possible_agents"):
            raise ThespisError(
                f"{self.name} returned a {type(env).__name__} without possible_agents: return a "
                "parallel environment of PettingZoo"
            )
        return env

    def open(
        self, n: int, seed: int | Sequence[int], render_mode: str | None = None
    ) -> PettingZooEnvs:
        """Creates n environments, seeded at their first reset with seed, seed + 1, ...

        The seed may also be a sequence with one for each.
        """
        seeds = [seed + i for i in range(n)] if isinstance(seed, int) else list(seed)
        envs = [self.instance(render_mode) for _ in range(n)]
        return PettingZooEnvs(envs, seeds, self.name, self.layout)


class Layout:
    """How observations and actions of all agents are stacked [agents, ...].

    Observations of the same shape are stacked as they are; others are flattened and zero-padded.
    """

    def __init__(self, env: Any, name: str):
        self.keys = list(env.possible_agents)
        spaces = [env.observation_space(key) for key in self.keys]
        self.nodes = [gym.reader(space, name) for space in spaces]
        shapes = [gym.structs(node) for node in self.nodes]
        self.alike = all(shape == shapes[0] for shape in shapes)
        self.acts = [gym.rescaler(env.action_space(key), name) for key in self.keys]
        self.kinds = tuple(gym.action_spec(env.action_space(key), name) for key in self.keys)
        space = getattr(env, "state_space", None)
        self.state = None if space is None else gym.reader(space, name)

        agents, one_agent = len(self.keys), shapes[0]
        if not self.alike:
            rest = lambda one: [x for k, x in named_leaves(one) if k != MASK]
            size = max(sum(math.prod(x.shape) for x in rest(one)) for one in shapes)
            one_agent = {FLAT: jax.ShapeDtypeStruct((size,), np.float32)}
            if any(MASK in one for one in shapes if isinstance(one, dict)):
                most = max(kind.n for kind in self.kinds if isinstance(kind, Discrete))
                one_agent[MASK] = jax.ShapeDtypeStruct((most,), np.bool_)
        every = lambda x: jax.ShapeDtypeStruct((agents, *x.shape), x.dtype)
        flag = jax.ShapeDtypeStruct((agents,), np.bool_)
        obs = {AGENTS: jax.tree.map(every, one_agent), ALIVE: flag, ENDED: flag, PAID: flag}
        if self.state is not None:
            obs[STATE] = gym.structs(self.state)
        self.spec = Spec(obs, self.kinds, agents, agents=tuple(map(str, self.keys)))

    def empty(self, n: int) -> Any:
        """Returns blank observations of n environments, without any agent alive."""
        return jax.tree.map(lambda s: np.zeros((n, *s.shape), s.dtype), self.spec.obs)

    def write(self, out: Any, i: int, agent: int, obs: Any) -> None:
        """Writes an agent's observation to the row of its environment."""
        row = jax.tree.map(lambda x: x[i], out[AGENTS])  # views
        if self.alike:
            stepping.write(self.nodes[agent], row, agent, obs)
            return
        one: Any = stepping.empty(self.nodes[agent], 1)
        stepping.write(self.nodes[agent], one, 0, obs)
        flat = [x.reshape(-1) for k, x in named_leaves(one) if k != MASK]
        numbers = np.concatenate([x / 255 if x.dtype == np.uint8 else x for x in flat])
        row[FLAT][agent, : len(numbers)] = numbers
        if MASK in row:
            kind, mask = self.kinds[agent], one.get(MASK) if isinstance(one, dict) else None
            legal = np.ones(kind.n if isinstance(kind, Discrete) else 0, bool)
            row[MASK][agent, : len(legal)] = legal if mask is None else mask[0]

    def read(self, obs: dict[Any, Any]) -> Any:
        """Converts the observations that an environment returned to a batch of one."""
        out = self.empty(1)
        for agent, key in enumerate(self.keys):
            if key in obs:
                self.write(out, 0, agent, obs[key])
                out[ALIVE][0, agent] = True
        out[ENDED] = ~out[ALIVE]
        return out

    def action(self, agent: int, action: Any) -> Any:
        """Returns one agent's action in its own units and shape."""
        kind = self.kinds[agent]
        if isinstance(kind, Discrete):
            return self.acts[agent](action)
        return self.acts[agent](action[: kind.size].reshape(kind.shape))


class PettingZooEnvs(gym.GymnasiumEnvs):
    """n running environments that reset in the step after an episode's end (see `core.Step`).

    An episode ends when no agent is left. It is truncated if an agent was truncated then, and such
    agents count as alive in that last observation.
    """

    def __init__(self, envs: list[Any], seeds: Sequence[int], name: str, layout: Layout):
        self.envs, self.name, self.layout, self.n = envs, name, layout, len(envs)
        self.seeds: list[int | None] = list(seeds)
        self.over = [False] * self.n
        self.time = 0
        self.act = lambda actions: actions
        self.shape = (self.n, *layout.spec.action_shape)
        self.size = math.prod(self.shape)
        self.ended = np.zeros((self.n, len(layout.keys)), bool)

    def _advance(self, actions) -> Step:
        n, keys = self.n, self.layout.keys
        obs = self.layout.empty(n)
        rewards = np.zeros((n, len(keys)), np.float32)
        terminated, truncated = np.zeros(n, bool), np.zeros(n, bool)
        for i, env in enumerate(self.envs):
            try:
                if self.over[i]:
                    # Seeded only once, so that start states differ between episodes.
                    raw, _ = stepping.returned("reset", env.reset(seed=self.seeds[i]))
                    self.seeds[i], self.ended[i], paid = None, False, True
                    alive = np.array([key in env.agents for key in keys])
                else:
                    living = [(j, key) for j, key in enumerate(keys) if key in env.agents]
                    acts = {key: self.layout.action(j, actions[i, j]) for j, key in living}
                    raw, reward, ends, cuts, _ = stepping.returned("step", env.step(acts))
                    rewards[i] = [reward.get(key, 0.0) for key in keys]
                    paid = [key in reward for key in keys]
                    end = np.array([bool(ends.get(key, False)) for key in keys])
                    cut = np.array([bool(cuts.get(key, False)) for key in keys]) & ~end
                    self.ended[i] |= end
                    alive = np.array([key in env.agents for key in keys]) & ~end & ~cut
                    if not alive.any():
                        truncated[i], terminated[i] = cut.any(), not cut.any()
                        alive = cut
                for j, key in enumerate(keys):
                    if key in raw:
                        self.layout.write(obs, i, j, raw[key])
                if self.layout.state is not None:
                    stepping.write(self.layout.state, obs[STATE], i, env.state())
            except Exception as error:
                raise self.fault(i, stepping.cause(error)) from error
            obs[ALIVE][i], obs[ENDED][i], obs[PAID][i] = alive, self.ended[i], paid
        self._check_numbers(obs, rewards)
        self.over = (terminated | truncated).tolist()
        seen = obs[AGENTS]
        if isinstance(seen, dict) and MASK in seen:
            stuck = obs[ALIVE] & ~seen[MASK].any(-1) & ~np.array(self.over)[:, None]
            for i, j in np.argwhere(stuck).tolist():
                what = f"{keys[j]}: {MASK} allows no action; allow one, or end the agent's episode"
                raise self.fault(i, what)
        rest: Any = rewards, terminated, truncated
        return Step(obs, *rest)

    def _check_numbers(self, obs: Any, rewards: np.ndarray) -> None:
        for path, x in jax.tree_util.tree_leaves_with_path({"obs": obs, "reward": rewards}):
            if x.dtype == np.float32 and not np.isfinite(x).all():
                index = np.argwhere(~np.isfinite(x))[0].tolist()
                where = jax.tree_util.keystr(path, simple=True, separator="/")
                agent = self.layout.keys[index[1]] if STATE not in where else "the state"
                what = f"{agent}: {where} is {x[tuple(index)]}"
                raise self.fault(index[0], f"{what}; {stepping.FIX}")


def for_several(source: Any) -> bool:
    """Returns whether a class or function creates an environment of several agents."""
    if not callable(source) or (isinstance(source, type) and issubclass(source, gymnasium.Env)):
        return False
    with warnings.catch_warnings(), suppress(Exception):  # errors are reported when it is used
        warnings.simplefilter("ignore")
        env: Any = source()
        several = hasattr(env, "possible_agents")
        env.close()
        return several
    return False


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Returns leaves with the last parts of their paths."""
    name = lambda path: str(getattr(path[-1], "key", "")) if path else ""
    return [(name(path), x) for path, x in jax.tree_util.tree_leaves_with_path(tree)]


# --- by name --------------------------------------------------------------------------------


def named(text: str) -> PettingZoo:
    """Creates `NAME` of MPE or PettingZoo, or `MODULE:NAME`; `@ARGUMENT=VALUE,...` may follow."""
    spelled, _, arguments = text.partition("@")
    name, arguments = f"pettingzoo:{text}", options(arguments, text)
    module, colon, attribute = spelled.partition(":")
    if not installed():
        raise ThespisError(f"{name} needs PettingZoo: pip install 'thespis[pettingzoo]'")
    home = module if colon else tasks().get(module)
    if home is None or plugins.origin(home) is None:
        known = names()
        raise ThespisError(
            f"unknown environment {name!r}{or_all(name, known)}; those of another package are "
            "pettingzoo:MODULE:NAME"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            maker: Any = plugins.load(home) if colon else importlib.import_module(home)
            maker = getattr(maker, attribute) if colon else maker
            maker = maker.parallel_env if isinstance(maker, ModuleType) else maker
    except Exception as error:
        what = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(f"{name} cannot be loaded: {what}") from error
    return PettingZoo(partial(maker, **arguments), name)


def options(text: str, name: str) -> dict[str, Any]:
    """Parses arguments such as `N=4,continuous_actions=true`."""
    values = {}
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        if not equals:
            raise ThespisError(f"{name}: write arguments as @NAME=VALUE, not {word!r}")
        plain = {"true": True, "false": False, "none": None}
        try:
            values[key] = (
                plain[value.lower()] if value.lower() in plain else ast.literal_eval(value)
            )
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            values[key] = value
    return values


def exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def installed() -> bool:
    return exists("pettingzoo")


def names() -> list[str]:
    """Returns the names of MPE's tasks if it is installed; PettingZoo's other families work too."""
    return [f"pettingzoo:{name}" for name in modules_of(FAMILIES["mpe"])]


def tasks() -> dict[str, str]:
    """Returns {NAME or FAMILY.NAME: module} of all tasks."""
    modules = {}
    for family, package in FAMILIES.items():
        for name in modules_of(package):
            modules.setdefault(name, f"{package}.{name}")
            modules[f"{family}.{name}"] = f"{package}.{name}"
    return modules


def modules_of(package: str) -> list[str]:
    """Returns the modules of a package that are tasks, such as simple_spread_v3."""
    spec = importlib.util.find_spec(package) if exists(package) else None
    places = spec.submodule_search_locations if spec else None
    modules = [m.name for m in pkgutil.iter_modules(places)] if places else []
    return [name for name in modules if name.rpartition("_v")[2].isdigit()]
