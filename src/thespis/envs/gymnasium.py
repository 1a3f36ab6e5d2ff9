"""Adapts Gymnasium environments to the library's contract, in NumPy on the host."""

from __future__ import annotations

import copy
import importlib.util
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from thespis.core import MASK, Box, Discrete, Spec, Step
from thespis.envs import stepping
from thespis.envs.stepping import FIX, Failed, Leaf, Node, array, one_hot, quietly
from thespis.errors import Fault, ThespisError, did_you_mean, one_line
from thespis.errors import shown as cut

OF_MAKE = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker")  # wrappers that an id brings along
EXTRAS = {  # Gymnasium's extras -> those of Thespis
    "mujoco": "mujoco",
    "box2d": "box2d",
    "classic-control": "classic",
    "toy-text": "classic",
}
PACKAGES = {  # modules that register ids, and the prefixes of these
    "ale_py": ("ALE/",),
    "gymnasium_robotics": ("Fetch", "Hand", "AntMaze_", "PointMaze_", "Adroit", "FrankaKitchen"),
    "minigrid": ("MiniGrid-", "BabyAI-"),
    "miniworld": ("MiniWorld-",),
    "panda_gym": ("Panda",),
    "highway_env": ("highway-", "parking-", "merge-", "roundabout-", "intersection-", "racetrack-"),
    "shimmy": ("dm_control/",),
    "metaworld": ("Meta-World/",),
}


class Unsuitable(ThespisError):
    """Raised for an environment that exists but is not supported."""


class Gymnasium:
    """An environment by its id, its `gymnasium.Env` class, or a function that creates one.

    `limit` is the number of steps after which an episode is truncated, None if unknown.
    """

    name: str
    spec: Spec
    limit: int | None
    node: Node  # how observations are read
    workers: int | None = None  # processes that step those which are opened; None: this one

    def __init__(self, source: Any):
        if not isinstance(source, str) and not callable(source):
            raise ThespisError(instead_of(source))
        self.source = source
        env = self.instance()
        try:
            known = env.spec
            self.name = known.id if known else type(env.unwrapped).__name__
            self.limit = time_limit(env)
            for space in ("observation_space", "action_space"):
                if getattr(env, space, None) is None:
                    raise Unsuitable(f"{self.name} has no {space}: set self.{space} in __init__")
            self.observation_space, self.action_space = env.observation_space, env.action_space
            self.node = reader(env.observation_space, self.name)
            action = action_spec(env.action_space, self.name, finite_bounds(env))
            self.spec = Spec(structs(self.node), action, reward_dim(env))
        finally:
            env.close()

    def __repr__(self) -> str:
        return f"Gymnasium({self.name!r})"

    def instance(self, render_mode: str | None = None) -> gymnasium.Env:
        """Creates one environment."""
        source, name = self.source, getattr(self.source, "__name__", str(self.source))
        if isinstance(source, str):
            source = partial(gymnasium.make, source, disable_env_checker=True)
        env = create(source, name, render_mode)
        if not isinstance(env, gymnasium.Env):
            raise ThespisError(
                f"{name} returned a {type(env).__name__}, not a gymnasium.Env: return an instance"
            )
        return env

    def maker(self) -> Callable[..., Any]:
        """Returns what makes instances in another process, which does not know our registry."""
        if isinstance(self.source, str):
            return partial(gymnasium.make, gymnasium.spec(self.source), disable_env_checker=True)
        return self.source

    def in_workers(self, workers: int | None) -> Gymnasium:
        """Returns the same environment, whose copies are stepped by that many processes.

        None means this process.
        """
        new = copy.copy(self)
        new.workers = workers
        return new

    def open(
        self, n: int, seed: int | Sequence[int], render_mode: str | None = None
    ) -> GymnasiumEnvs:
        """Creates n environments, seeded at their first reset with seed, seed + 1, ...

        The seed may also be a sequence with one for each.
        """
        seeds = [seed + i for i in range(n)] if isinstance(seed, int) else list(seed)
        if self.workers is not None and render_mode is None:
            from thespis.envs.env_workers import WorkerEnvs

            return WorkerEnvs(self, seeds, min(self.workers, n))
        return GymnasiumEnvs(self, [self.instance(render_mode) for _ in range(n)], seeds)


class GymnasiumEnvs:
    """n running environments that reset in the step after an episode's end (see `core.Step`)."""

    def __init__(self, env: Gymnasium, envs: list[gymnasium.Env], seeds: Sequence[int]):
        self.envs, self.name, self.n = envs, env.name, len(seeds)
        self.seeds: list[int | None] = list(seeds)
        self.over = [False] * self.n  # the next step starts a new episode
        self.time = 0  # calls of `step`
        self.read, self.reward_dim = env.node, env.spec.reward_dim
        self.masked = isinstance(self.read, list) and any(key == MASK for _, key, _ in self.read)
        self.act = rescaler(env.action_space, env.name)
        self.shape = (self.n, *(env.action_space.shape or ()))
        self.size = math.prod(self.shape)

    def reset(self) -> Step:
        """Starts a new episode everywhere."""
        self.over = [True] * self.n
        return self._advance([None] * self.n)

    def step(self, action: ArrayLike) -> Step:
        """Takes actions [n, ...] in [-1, 1], flat or in the shape of the space, or [n] integers."""
        action = np.asarray(action)
        if action.size != self.size or len(action) != self.n:
            raise ThespisError(f"{self.name}: actions of shape {action.shape}, not {self.shape}")
        self.time += 1
        return self._advance(self.act(action.reshape(self.shape)))

    def end(self, which: np.ndarray) -> None:
        """Makes the next step start a new episode in these [n] as well."""
        self.over = np.logical_or(self.over, which).tolist()

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of every environment, or of a wrapper around it that has it."""
        stepping.set_attr(self.envs, self.name, name, value)

    def render(self) -> list[Any]:
        """Returns one frame per environment."""
        if self.envs[0].render_mode is None:
            raise ThespisError(f"{self.name} does not render: open it with render_mode='rgb_array'")
        try:
            return [env.render() for env in self.envs]
        except Exception as error:
            raise ThespisError(why_not(self.name, error)) from error

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def advance(self, actions: Any) -> stepping.Stepped:
        """Begins new episodes where the old ones are over, and steps all others."""
        rest = self.read, self.reward_dim
        return stepping.advance(self.envs, self.seeds, self.over, actions, *rest)

    def _advance(self, actions: Any) -> Step:
        try:
            obs, rewards, terminated, truncated = self.advance(actions)
        except Failed as failed:
            raise self.fault(failed.environment, failed.what) from failed.__cause__
        self._check(self.read, obs)
        self.over = [a or b for a, b in zip(terminated, truncated, strict=True)]
        if self.masked:
            for i in np.flatnonzero(~obs[MASK].any(-1) & ~np.array(self.over)):
                what = f"obs[{MASK!r}] allows no action; allow one, or end the episode"
                raise self.fault(int(i), what)
        rest: Any = np.array(rewards, np.float32), np.array(terminated), np.array(truncated)
        return Step(obs, *rest)

    def _check(self, node: Node, obs, key: str = "") -> None:
        """Refuses observations that are not finite."""
        if isinstance(node, list):
            for name, _, child in node:
                self._check(child, obs[name], f"{key}/{name}" if key else name)
        elif obs.dtype != np.uint8 and not math.isfinite(np.vdot(obs, obs)):
            # The square of a large number may overflow, so check the numbers themselves.
            for i, index in zip(*np.nonzero(~np.isfinite(obs.reshape(len(obs), -1))), strict=True):
                where = f"obs[{key!r}]" if key else "obs"
                what = f"{where} is {obs[i].reshape(-1)[index]} at index {index}"
                raise self.fault(int(i), f"{what}; {FIX}")

    def fault(self, i: int, what: str) -> Fault:
        return Fault(self.name, i, self.time, what)


# --- observations ---------------------------------------------------------------------------


@runtime_checkable
class Encoded(Protocol):
    """An environment with a description of how its observations are read."""

    node: Node


def reader(space: spaces.Space, name: str) -> Node:
    """Returns how to read a space: as float32, images as uint8, discrete ones as one-hot."""
    if isinstance(space, spaces.Dict):
        read = lambda key, child: mask(child, name) if key == MASK else reader(child, name)
        return [(str(key), key, read(key, child)) for key, child in space.items()]
    if isinstance(space, spaces.Tuple):
        return [(str(i), i, reader(child, name)) for i, child in enumerate(space)]
    if isinstance(space, spaces.Box):
        image = space.dtype == np.uint8 and len(space.shape) >= 2
        return array(space.shape, np.uint8 if image else np.float32)
    if isinstance(space, spaces.MultiBinary):
        return array(space.shape, np.float32)
    if isinstance(space, spaces.Discrete):
        return one_hot(np.array([space.n]), np.array([space.start]))
    if isinstance(space, spaces.MultiDiscrete):
        return one_hot(space.nvec.reshape(-1), space.start.reshape(-1))
    raise Unsuitable(
        f"{name}: observations of {shown(space)} are not supported; wrap the environment in"
        " gymnasium.wrappers.TransformObservation to give a Box, a Discrete or a Dict of them"
    )


def mask(space: spaces.Space, name: str) -> Leaf:
    """Returns how to read a mask of legal actions, as bool."""
    if not isinstance(space, spaces.Box | spaces.MultiBinary):
        kind = type(space).__name__
        raise Unsuitable(f"{name}: {MASK} is a {kind}; make it a MultiBinary or a Box of 0 and 1")
    return array(space.shape, np.bool_)


def structs(node: Node):
    """Returns the shapes and types of one observation."""
    if isinstance(node, Leaf):
        return jax.ShapeDtypeStruct(node.shape, node.dtype)
    return {name: structs(child) for name, _, child in node}


# --- actions --------------------------------------------------------------------------------


def action_spec(
    space: spaces.Space, name: str, finite: str = "give its action_space finite ones"
) -> Box | Discrete:
    """Returns the actions of a space; `finite` is advice for infinite bounds."""
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        for i in np.flatnonzero(~(np.isfinite(low) & np.isfinite(high))):
            raise Unsuitable(
                f"{name}: action dimension {i} has the bounds [{low[i]}, {high[i]}], but actions"
                f" need finite ones; {finite}"
            )
        return Box(tuple(low.tolist()), tuple(high.tolist()), space.shape)
    raise Unsuitable(
        f"{name}: actions of {shown(space)} are not supported, only a Box of floats or Discrete;"
        " wrap the environment in gymnasium.wrappers.TransformAction"
    )


def finite_bounds(env: gymnasium.Env) -> str:
    """Returns advice on how to get finite bounds."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.ClipAction):
            return (
                "remove the wrapper ClipAction, which makes them infinite: policies keep to the"
                " bounds of the environment without it"
            )
        env = env.env
    return (
        "give its action_space finite ones, or wrap it in gymnasium.wrappers.TransformAction(env,"
        " lambda a: a, gymnasium.spaces.Box(-1, 1, env.action_space.shape))"
    )


def shown(space: Any) -> str:
    """Returns a space as one line of text."""
    return " ".join(repr(space).split())


def rescaler(space: spaces.Space, name: str) -> Callable:
    """Returns a function that converts actions [n, ...] in [-1, 1] to the environment's units."""
    kind = action_spec(space, name)
    if isinstance(kind, Discrete):
        return lambda action: kind.to_env(action).tolist()
    return kind.rescaler(space.dtype)


# --- making ---------------------------------------------------------------------------------


def create(make: Callable[..., Any], name: str, render_mode: str | None) -> Any:
    """Creates an environment, without its warnings about precision, spaces and versions."""
    options = {} if render_mode is None else {"render_mode": render_mode}
    try:
        return quietly(make, **options)
    except Exception as error:
        if render_mode and isinstance(error, TypeError) and "render_mode" in str(error):
            raise ThespisError(
                f"{name} cannot be rendered: it must accept the argument render_mode"
            ) from error
        raise ThespisError(why_not(name, error)) from error


def instead_of(instance: Any) -> str:
    """Returns a message that says what to pass instead of an instance."""
    many = getattr(instance, "num_envs", None)
    if not isinstance(instance, gymnasium.Env) and many is None:
        return (
            f"env = {cut(instance)} is not an environment: give an id such as Pendulum-v1, a class,"
            " or a function that creates one"
        )
    known = getattr(instance, "spec", None)
    name = type(getattr(instance, "unwrapped", instance)).__name__
    created = f'gymnasium.make("{known.id}", ...)' if known else f"{name}(...)"
    if many is not None:
        what = f'env="{known.id}"' if known else 'an id such as env="Pendulum-v1"'
        what += f" and envs={many}"
    elif isinstance(instance, gymnasium.Wrapper) and type(instance).__name__ not in OF_MAKE:
        what = (
            f"a function that creates it, such as env=lambda: {type(instance).__name__}({created})"
        )
    else:
        what = f'env="{known.id}"' if known else f"the class, env={name}"
        what += f", or a function that creates it, such as env=lambda: {created}"
    return f"env = {cut(instance)} is an instance, but copies are needed: give {what}"


def reward_dim(env: gymnasium.Env) -> int | None:
    """Returns the size of a vector reward, if the environment has a `reward_space`."""
    space = getattr(env.unwrapped, "reward_space", None)
    return None if space is None or not space.shape else math.prod(space.shape)


def time_limit(env: gymnasium.Env) -> int | None:
    """Returns the shortest time limit of the wrappers, or None."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min(limits, default=None)


def of_package(name: str) -> str:
    """Returns a hint about the package of an id, if its prefix is known."""
    for module, begins in PACKAGES.items():
        if name.startswith(begins) or (module == "ale_py" and "NoFrameskip" in name):
            package, installed = module.replace("_", "-"), importlib.util.find_spec(module)
            first = "" if installed else f"pip install {package}, then "
            return f", which is an id of the package {package}: {first}give {module}:{name}"
    return ""


def why_not(name: str, error: Exception) -> str:
    """Returns one line: what went wrong, and what to do."""
    text = one_line(error)
    known = gymnasium.registry.get(name)
    if isinstance(error, gymnasium.error.DependencyNotInstalled | ModuleNotFoundError):
        family = str(known.entry_point).split(".")[2:3] if known else []
        asked = re.search(r"gymnasium\[([\w-]+)\]", text)
        extra = EXTRAS.get((asked[1] if asked else "".join(family)).replace("_", "-"))
        return f"{name} needs a missing library: " + (
            f"pip install 'thespis[{extra}]'" if extra else text
        )
    if isinstance(error, gymnasium.error.Error) and not known:
        hint = of_package(name) or did_you_mean(name, gymnasium.registry)
        return f"unknown environment {name!r}{hint or '; ids of another package are PACKAGE:ID'}"
    later = ""
    if known and isinstance(error, ImportError):  # as of MuJoCo's versions 2 and 3
        same = [x for x in gymnasium.registry.values() if x.name == known.name]
        newest = max(same, key=lambda x: x.version or 0)
        later = f"; use {newest.id}" if newest is not known else ""
    return f"{name}: {type(error).__name__}: {text}{later}"
