"""Steps Gymnasium environments one after another: here, or in worker processes.

Workers import this module and not JAX, which would cost each of them a second and 150 MB.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from thespis.errors import ThespisError, one_line

FIX = "fix the environment, or end the episode before its state diverges"
FORMS = {"reset": "obs, info", "step": "obs, reward, terminated, truncated, info"}


class Failed(Exception):
    """An environment of several could not be stepped."""

    def __init__(self, environment: int, what: str):
        super().__init__(environment, what)
        self.environment, self.what = environment, what


class Stepped(NamedTuple):
    """What n environments returned, leaves [n, ...]; the rewards are as precise as they came."""

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any


def advance(
    envs: list[gymnasium.Env],
    seeds: list[int | None],
    over: Sequence[bool],
    actions: Any,
    read: Node,
    reward_dim: int | None,
) -> Stepped:
    """Begins a new episode in those that are over, and steps the others.

    A seed is used once, and then None. `read` tells how to read observations, `reward_dim` the
    number of numbers in a reward, None if it is one number.
    """
    # The arrays are new each time: JAX may keep using those it was handed.
    n = len(envs)
    obs: Any = empty(read, n)
    zero: Any = 0.0 if reward_dim is None else [0.0] * reward_dim
    rewards, terminated, truncated = [zero] * n, [False] * n, [False] * n
    for i, env in enumerate(envs):
        try:
            if over[i]:
                # Seeded only once, so that start states differ between episodes.
                raw, _ = returned("reset", env.reset(seed=seeds[i]))
                seeds[i] = None
            else:
                raw, reward, ended, cut, _ = returned("step", env.step(actions[i]))
                rewards[i] = read_reward(reward, reward_dim)
                terminated[i] = bool(ended)
                truncated[i] = bool(cut) and not ended
            write(read, obs, i, raw)
        except Exception as error:
            raise Failed(i, cause(error)) from error
        if not math.isfinite(rewards[i] if reward_dim is None else math.fsum(rewards[i])):
            raise Failed(i, f"the reward is {rewards[i]}; {FIX}")
    return Stepped(obs, rewards, terminated, truncated)


def read_reward(reward: Any, dim: int | None) -> Any:
    """Returns one number, or a list of them."""
    if reward is None:
        raise ThespisError("the reward is None; return a number")
    if dim is None:
        return reward.item() if isinstance(reward, np.ndarray) else float(reward)
    numbers = np.asarray(reward, np.float64).tolist()
    if len(numbers) != dim:
        raise ValueError(f"the reward has {len(numbers)} numbers, not {dim}")
    return numbers


def set_attr(envs: list[Any], task: str, name: str, value: Any) -> None:
    """Sets an attribute of every environment, or of a wrapper around it that has it."""
    for env in envs:
        owner = next((e for e in layers(env) if owns(e, name)), None)
        if owner is None or name.startswith("__"):
            kind = type(env.unwrapped).__name__
            raise ThespisError(f"{task} has no attribute {name!r}: give {kind} one")
        try:
            setattr(owner, name, value)
        except Exception as error:  # of a property
            raise ThespisError(f"{task}: {name} cannot be set: {cause(error)}") from error


def quietly(make: Callable[..., Any], **options: Any) -> Any:
    """Creates an environment, without its warnings about precision, spaces and versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(**options)


def layers(env: Any) -> Iterator[Any]:
    """Yields an environment's wrappers from the outside, and last the environment itself."""
    yield env
    while env is not env.unwrapped:
        env = env.env
        yield env


def owns(env: Any, name: str) -> bool:
    """Returns whether this layer itself has an attribute: some wrappers forward inner ones."""
    return name in vars(env) or hasattr(type(env), name)


def returned(method: str, values: Any) -> Any:
    """Returns the values of `reset` or `step`, and refuses a wrong number of them."""
    form = FORMS[method]
    if isinstance(values, tuple | list) and len(values) == form.count(",") + 1:
        return values
    many = f"{len(values)} values" if isinstance(values, tuple | list) else type(values).__name__
    raise ThespisError(f"{method} returned {many}; return {form}")


def cause(error: Exception) -> str:
    """Returns an error as one line: our own message, or the type and message."""
    kind = "" if isinstance(error, ThespisError) else f"{type(error).__name__}: "
    return f"{kind}{one_line(error)}"


# --- observations ---------------------------------------------------------------------------


class Leaf(NamedTuple):
    """How one array is read: `encode` converts an environment's value to `shape` and `dtype`.

    `choices` has the sizes and first values of discrete spaces, which become one-hot; else None.
    """

    shape: tuple[int, ...]
    dtype: Any
    encode: Callable[[Any], np.ndarray]
    choices: tuple[np.ndarray, np.ndarray] | None = None


# Each child has the name under which it is stored, and its key in the environment's observation.
Node = Leaf | list[tuple[str, Any, Any]]


def array(shape: tuple[int, ...], dtype) -> Leaf:
    """Returns how to read an array as it is."""
    stored = shape or (1,)  # a scalar becomes a vector of one number
    return Leaf(stored, dtype, partial(as_array, shape, dtype))


def as_array(shape: tuple[int, ...], dtype: Any, obs: Any) -> np.ndarray:
    x = np.asarray(obs, dtype)
    if x.shape != shape:
        raise ValueError(f"the observation has shape {x.shape}, but its space has {shape}")
    return x


def one_hot(sizes: np.ndarray, starts: np.ndarray) -> Leaf:
    """Returns how to read discrete values as concatenated one-hot vectors."""
    total = int(sizes.sum())
    offsets = np.cumsum(sizes) - sizes - starts
    return Leaf((total,), np.float32, partial(as_one_hot, total, offsets), (sizes, starts))


def as_one_hot(total: int, offsets: np.ndarray, obs: Any) -> np.ndarray:
    x = np.zeros(total, np.float32)
    x[offsets + np.reshape(obs, -1)] = 1.0
    return x


def empty(node: Node, n: int):
    if isinstance(node, Leaf):
        return np.empty((n, *node.shape), node.dtype)
    return {name: empty(child, n) for name, _, child in node}


def write(node: Node, out, i: int, obs) -> None:
    """Writes the observation of environment i into its row."""
    if isinstance(node, Leaf):
        out[i] = node.encode(obs)
    else:
        for name, key, child in node:
            write(child, out[name], i, obs[key])
