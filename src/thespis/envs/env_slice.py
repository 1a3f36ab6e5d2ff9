"""What a worker process steps: some environments as if they were one. It imports no JAX."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from contextlib import suppress
from multiprocessing import parent_process
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from thespis.envs.stepping import Failed, Leaf, Node, Stepped, advance, cause, quietly, set_attr
from thespis.errors import ThespisError


class Kind(NamedTuple):
    """What a worker must know of its environments."""

    name: str
    packed: bytes  # pickled: what makes one of them, and how its observations are read
    obs: dict[str, tuple[tuple[int, ...], str]]  # the shape and type of every leaf
    action: tuple[tuple[int, ...], str]
    reward_dim: int | None
    discrete: bool


class EnvSlice(gymnasium.Env):
    """Environments as one, of `size` rows; those that lack are left as they are.

    An action is {"over", "action"} [size, ...], an observation all that they returned. They are
    made with their first step, by the process that takes it.
    """

    def __init__(self, kind: Kind, seeds: list[int], size: int):
        self.kind, self.seeds, self.size = kind, list(seeds), size
        self.envs: list[gymnasium.Env] | None = None
        self.read: Node = []
        row = () if kind.reward_dim is None else (kind.reward_dim,)
        rest = {"reward": (row, "f8"), "terminated": ((), "u1"), "truncated": ((), "u1")}
        leaves = {f"obs.{name}": leaf for name, leaf in kind.obs.items()}
        whole: dict[str, Any] = {
            name: room((size, *shape), t) for name, (shape, t) in (leaves | rest).items()
        }
        self.observation_space = spaces.Dict(whole)
        action = room((size, *kind.action[0]), kind.action[1])
        self.action_space = spaces.Dict({"over": room((size,), "u1"), "action": action})
        self.blank = {name: np.zeros(space.shape, space.dtype) for name, space in whole.items()}

    def open(self) -> list[gymnasium.Env]:
        """Makes the environments, in a process that ends with its parent and ignores Ctrl-C."""
        if self.envs is None:
            with suppress(ValueError):  # not in the main thread
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
            threading.Thread(target=follow_parent, daemon=True).start()
            envs: list[gymnasium.Env] = []
            try:
                make, self.read = pickle.loads(self.kind.packed)
                for _ in self.seeds:
                    envs.append(quietly(make))
            except Exception as error:
                raise Failed(len(envs), cause(error)) from error
            self.envs = envs
        return self.envs

    def step(self, action: dict[str, np.ndarray]) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns what arrived; or in `info` which environment failed, and why."""
        try:
            envs, actions = self.open(), action["action"]
            rest = self.read, self.kind.reward_dim
            actions = actions.tolist() if self.kind.discrete else actions
            over = action["over"].astype(bool).tolist()
            new = advance(envs, self.seeds, over, actions, *rest)  # pyright: ignore
        except Failed as failed:
            text = {"failed": failed.environment, "what": failed.what}
            return self.blank, 0.0, False, False, text
        return self.packed(new), 0.0, False, False, {}

    def packed(self, new: Stepped) -> dict[str, np.ndarray]:
        """Returns what arrived in the rows of the slice."""
        n, obs = len(self.seeds), flat(self.read, new.obs)
        leaves = {f"obs.{name}": x for name, x in obs.items()} | new._asdict()
        for name, x in self.blank.items():
            x[:n] = leaves[name]
        return self.blank

    def put(self, name: str, value: Any) -> str:
        """Sets an attribute of all environments, and returns why that is impossible, if it is."""
        try:
            set_attr(self.open(), self.kind.name, name, value)
        except (Failed, ThespisError) as error:
            return error.what if isinstance(error, Failed) else str(error)
        return ""

    def close(self) -> None:
        for env in self.envs or ():
            env.close()


def room(shape: tuple[int, ...], dtype: Any) -> spaces.Box:
    """Returns a space of any numbers of a type: what is in shared memory has one."""
    kind = np.dtype(dtype)
    ends = np.iinfo(kind) if kind.kind in "iu" else None
    low, high = (ends.min, ends.max) if ends else (-np.inf, np.inf)
    return quietly(spaces.Box, low=low, high=high, shape=shape, dtype=kind.type)


def flat(node: Node, obs: Any, key: str = "") -> dict[str, Any]:
    """Returns the leaves of an observation by their paths, in the order of the node."""
    if isinstance(node, Leaf):
        return {key: obs}
    parts = [flat(child, obs[name], f"{key}/{name}") for name, _, child in node]
    return {path: x for part in parts for path, x in part.items()}


def follow_parent() -> None:
    """Ends this process when its parent has ended, also in the midst of a long step."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
