"""Gymnasium environments that are stepped by several processes: `--env-workers`.

Gymnasium's AsyncVectorEnv starts them and moves the numbers, through shared memory. Each steps a
slice of the environments as this process would, so all numbers are the same, bit for bit.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import connection
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv

from thespis.core import Discrete
from thespis.envs.env_slice import EnvSlice, Kind, flat
from thespis.envs.gymnasium import Gymnasium, GymnasiumEnvs
from thespis.envs.stepping import Failed, Leaf, Node, Stepped
from thespis.errors import ThespisError, one_line

SECONDS = 5  # that a process has to end by itself


class WorkerEnvs(GymnasiumEnvs):
    """n running environments, each in one of several processes (see `core.Step`)."""

    def __init__(self, env: Gymnasium, seeds: Sequence[int], workers: int):
        super().__init__(env, [], seeds)
        kind = kind_of(env)
        parts = [part.tolist() for part in np.array_split(np.arange(self.n), workers)]
        rows = len(parts[0])  # of every slice; the last may need one less
        self.first = [part[0] for part in parts]
        self.last = [part[-1] for part in parts]
        # Where every environment is in [workers * rows].
        self.place = np.concatenate([w * rows + np.arange(len(p)) for w, p in enumerate(parts)])
        self.over_rows = np.zeros((workers, rows), np.uint8)
        self.action_rows = np.zeros((workers, rows, *kind.action[0]), kind.action[1])
        slices = [partial(EnvSlice, kind, [int(seeds[i]) for i in part], rows) for part in parts]
        self.waiting = False  # for an answer of the workers
        start_server()
        try:
            with quiet_main():
                self.vector = AsyncVectorEnv(slices, copy=False, context=method())
        except (EOFError, OSError) as error:
            text = f"{type(error).__name__} {one_line(error)}".strip()
            raise ThespisError(
                f"{self.name}: worker processes cannot start ({text}): see what they printed, or "
                "leave env_workers out"
            ) from error

    def advance(self, actions: Any) -> Stepped:
        self.over_rows.reshape(-1)[self.place] = self.over
        if actions[0] is not None:
            flat_rows = self.action_rows.reshape(-1, *self.action_rows.shape[2:])
            flat_rows[self.place] = actions
        with self.answering():
            inputs: Any = {"over": self.over_rows, "action": self.action_rows}
            arrived, _, _, _, info = self.vector.step(inputs)
        for w in np.flatnonzero(info.get("_failed", [])):
            raise Failed(self.first[w] + int(info["failed"][w]), info["what"][w])
        # These are copies: the memory is written again by the next step.
        mine = {k: x.reshape(-1, *x.shape[2:])[self.place] for k, x in arrived.items()}  # type: ignore
        ends = (mine[name].astype(bool).tolist() for name in ("terminated", "truncated"))
        return Stepped(unflat(self.read, mine), mine["reward"], *ends)

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of every environment, or of a wrapper around it that has it."""
        try:
            with self.answering():
                answers = self.vector.call("put", name, value)
        except Failed as failed:
            raise self.fault(failed.environment, failed.what) from failed.__cause__
        for text in filter(None, answers):
            raise ThespisError(text)

    def render(self) -> list[Any]:
        raise ThespisError(f"{self.name} does not draw in workers: leave env_workers out")

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turns the end of a worker into a failure of its environments."""
        self.waiting = True
        try:
            yield
        except (EOFError, OSError) as error:
            raise Failed(*self.lost()) from error
        self.waiting = False

    def lost(self) -> tuple[int, str]:
        """Returns the first environment of a worker that has ended, and what is known of that."""
        processes = self.vector.processes
        connection.wait([process.sentinel for process in processes], SECONDS)
        w = next((w for w, process in enumerate(processes) if process.exitcode is not None), 0)
        code = processes[w].exitcode
        how = f"exited with code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        which = f"environments {self.first[w]} to {self.last[w]}"
        return self.first[w], (
            f"the worker process of {which} {how}; see what it printed, and the memory that is "
            "left, or leave env_workers out"
        )

    def close(self) -> None:
        """Ends the workers, one way or another."""
        vector = self.vector
        if vector.closed:
            return
        if not self.waiting:
            with suppress(EOFError, OSError):
                vector.close()
                return
        for process in vector.processes:
            process.terminate()
        for process in vector.processes:
            process.join(SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in vector.parent_pipes:
            pipe.close()
        vector.closed = True


def kind_of(env: Gymnasium) -> Kind:
    """Returns what workers need to know, if it can be sent to them."""
    import cloudpickle

    try:
        packed = cloudpickle.dumps((env.maker(), env.node))
    except Exception as error:  # pickling may raise anything
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(
            f"{env.name} cannot be sent to other processes: {text}; give a class or a function of "
            "a module, or leave env_workers out"
        ) from error
    stored = lambda leaf: "u1" if leaf.dtype == np.bool_ else np.dtype(leaf.dtype).str
    leaves = flat(env.node, blank(env.node))
    obs = {path: (leaf.shape, stored(leaf)) for path, leaf in leaves.items()}
    discrete = isinstance(env.spec.single, Discrete)
    action = np.int64 if discrete else env.action_space.dtype
    shape = env.action_space.shape or ()
    return Kind(env.name, packed, obs, (shape, np.dtype(action).str), env.spec.reward_dim, discrete)


def blank(node: Node) -> Any:
    """Returns an observation whose leaves are how they are read."""
    return node if isinstance(node, Leaf) else {name: blank(child) for name, _, child in node}


def unflat(node: Node, leaves: dict[str, np.ndarray], key: str = "obs.") -> Any:
    """Returns the observation of which `flat` made these leaves."""
    if isinstance(node, Leaf):
        return leaves[key].astype(node.dtype, copy=False)
    return {name: unflat(child, leaves, f"{key}/{name}") for name, _, child in node}


# --- how processes start --------------------------------------------------------------------


def method() -> str:
    """Returns how processes start. They are never forks of this one, in which JAX has threads."""
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def start_server() -> None:
    """Starts the process that workers are forks of, with what they all import."""
    if method() == "forkserver":
        from multiprocessing import forkserver  # which not every system has

        multiprocessing.set_forkserver_preload(["thespis.envs.env_slice"])
        with uninterrupted():
            forkserver.ensure_running()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Lets processes that are started here ignore Ctrl-C, which all of a terminal's get."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def quiet_main() -> Iterator[None]:
    """Keeps workers from running the user's script again: what they need of it is sent to them."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
