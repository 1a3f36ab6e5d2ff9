"""Training from start to finish: phases, evaluations, logs, checkpoints, and going on later."""

from __future__ import annotations

import dataclasses
import fcntl
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from thespis import envs, hyper, machine
from thespis.core import Box, Spec
from thespis.errors import ThespisError, or_all
from thespis.evaluate import Evaluator
from thespis.host import HostDriver
from thespis.loop import INIT, DeviceDriver, Learner, Loop
from thespis.replay import Replay
from thespis.runs import checkpoint
from thespis.runs.config import Config
from thespis.runs.directory import find, write_json
from thespis.runs.metrics import MetricsLog, read

CHUNK_SECONDS = 0.5  # how long a program may run before signals and the progress bar are served


@runtime_checkable
class Reporter(Protocol):
    """Somebody who watches; nothing depends on what it does."""

    def advance(self, step: int, total: int, elapsed: float, compiling: float) -> None: ...
    def row(self, step: int, rows: list[dict[str, float]]) -> None: ...
    def note(self, text: str) -> None: ...


# --- the pieces of a run --------------------------------------------------------------------


def build(config: Config, env: Any = None, eval_env: Any = None) -> tuple[Loop, Any]:
    """The loop and the environment of evaluations. `env`, `eval_env` stand in for the config's."""
    env = envs.make(config.env if env is None else env)
    eval_env = config.eval_env if eval_env is None else eval_env
    eval_env = env if eval_env is None else envs.make(eval_env)
    if shapes(eval_env.spec) != shapes(env.spec):
        raise ThespisError(
            f"eval_env = {envs.label(eval_env)} has {shapes(eval_env.spec)}, but env = "
            f"{envs.label(env)} has {shapes(env.spec)}: give one of the same shapes"
        )
    loop = Loop(
        algo=config.Algorithm(env.spec, **config.options),
        env=env,
        envs=config.envs,
        capacity=-(-min(config.buffer_size, config.steps) // config.envs),
        updates_per_step=Fraction(config.updates_per_step).limit_denominator(10**6),
        side_by_side=jax.default_backend() != "cpu",
    )
    require_memory(config, loop)
    return loop, eval_env


def shapes(spec: Spec) -> str:
    """What another environment must share to be played by the same networks."""
    text = lambda x: f"{np.dtype(x.dtype).name}{list(x.shape)}"
    obs = jax.tree_util.tree_leaves_with_path(spec.obs)
    parts = [f"{jax.tree_util.keystr(path)} {text(x)}".strip() for path, x in obs]
    kind = spec.action
    action = f"box{list(kind.shape)}" if isinstance(kind, Box) else f"one of {kind.n}"
    return f"observations {', '.join(parts)} and actions {action}"


def require_memory(config: Config, loop: Loop) -> None:
    """Refuse a replay that this machine can never hold, rather than fail after hours."""
    sizes = [
        math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(loop.env.spec.obs)
    ]
    need = sum(sizes) * loop.capacity * loop.envs * len(config.seeds) / 2**30
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if need > have and jax.default_backend() == "cpu":
        raise ThespisError(
            f"buffer_size = {config.buffer_size} of {len(config.seeds)} member(s) needs "
            f"{need:,.0f} GiB and this machine has {have:,.0f}: lower it"
        )


def state_shapes(config: Config, loop: Loop) -> Any:
    """Shapes and types of the algorithm's state, leaves [members, ...]."""
    hps = hyper.fill(config.Algorithm.Hyper, config.hp, len(config.seeds))
    keys = loop.keys(jnp.asarray(config.seeds, jnp.int32), INIT, 0)
    return jax.eval_shape(jax.vmap(loop.algo.init), keys, hps)


# --- a run on its way -----------------------------------------------------------------------


class Trainer:
    """A run on its way: `start`, `restore` or `adopt`, then `run`."""

    def __init__(self, config: Config, pieces: tuple[Loop, Any], folder: Path, reporter: Reporter):
        self.config, self.folder, self.reporter = config, folder, reporter
        self.loop, eval_env = pieces
        self.seeds = jnp.asarray(config.seeds, jnp.int32)
        self.hps = hyper.fill(config.Algorithm.Hyper, config.hp, len(config.seeds))
        self.evaluate = Evaluator(self.loop, eval_env, config.eval_episodes)
        driver = HostDriver if hasattr(self.loop.env, "open") else DeviceDriver
        self.driver = driver(self.loop, self.seeds)
        self.ledger = machine.Ledger()
        self.elapsed = self.compiled = 0.0  # in earlier sessions
        self.began = time.monotonic()
        self.saved = -1  # the step of the newest checkpoint, once there is one

    # --- beginnings -------------------------------------------------------------------------

    def start(self) -> None:
        self.learner = self.driver.init(self.seeds, self.hps)
        if self.config.init_from:
            state = transplant(self.learner.state, self.config.init_from, self.reporter.note)
            self.learner = dataclasses.replace(self.learner, state=state)
        self.best = Best.none(self.learner.state)
        self.open_log()
        self.save()

    def restore(self) -> None:
        """Go on from the newest checkpoint that is whole."""
        self.load(self.folder, len(self.config.seeds))
        self.saved = self.step
        self.best.write(self.folder / "best")
        self.open_log()
        self.cut_log()

    def adopt(self, folder: Path, members: int, member: int) -> None:
        """Begin as one member of another run, with its past."""
        self.load(folder, members, member)
        self.best.write(self.folder / "best")
        self.open_log()
        past = read(folder / "metrics.csv")
        for i in np.flatnonzero((past["member"] == member) & (past["step"] <= self.step)):
            row = {k: v[i] for k, v in past.items() if k in self.columns and np.isfinite(v[i])}
            self.log.append(int(past["step"][i]), 0, row)
        self.cut_log()
        self.save()

    def load(self, folder: Path, members: int, member: int | None = None) -> None:
        """The newest whole checkpoint of a run of `members`: all of them, or one."""
        learner = jax.eval_shape(self.driver.init, self.seeds, self.hps)
        template = split(learner, self.hps, Best.none(learner.state))
        widen = lambda x, axis: resize(x, axis, members)

        def of_size(manifest: dict[str, Any]) -> dict[str, Any]:
            wanted = by_member(widen, template)
            cut = lambda x: resize(x, 0, manifest["info"]["rows"])
            rows = jax.tree.map(cut, wanted["replay"]["rows"])
            return wanted | {"replay": wanted["replay"] | {"rows": rows}}

        path, found = checkpoint.load_newest(folder / "checkpoints", of_size, self.reporter.note)
        if member is not None:
            found = by_member(lambda x, axis: np.take(x, [member], axis), found)
        info = checkpoint.manifest(path)["info"]
        label = envs.label(self.loop.env)
        if info["env"] != label:
            raise ThespisError(
                f"{path} was saved on env = {info['env']}, not {label}: resume with that one"
            )
        self.elapsed, self.compiled = info["elapsed"], info["compiled"]
        self.best = found.pop("best")
        # Copies, since the loop reuses the memory of what it is given.
        found = jax.tree.map(jnp.array, found)
        self.hps = found["hyper"]
        self.learner = self.driver.resume(
            Learner(
                state=found["state"],
                replay=grow(Replay(**found["replay"]), self.loop.capacity),
                **found["actors"],
                **found["progress"],
            )
        )

    def open_log(self) -> None:
        self.log = MetricsLog(self.folder, self.columns, len(self.config.seeds))
        self.logged = self.step, self.spent - self.compile_seconds

    def cut_log(self) -> None:
        """Back to this step, without a row that only closed a shorter run."""
        self.log.cut(self.step if self.due("log_freq", "eval_freq") else self.step - 1)

    # --- time -------------------------------------------------------------------------------

    @property
    def iteration(self) -> int:
        return int(self.learner.clock.iteration)

    @property
    def step(self) -> int:
        """Rows of each member so far."""
        return self.iteration * self.config.envs

    def iterations(self, steps: int) -> int:
        return max(1, -(-steps // self.config.envs))

    def due(self, *names: str) -> bool:
        """Whether one of these frequencies falls on this iteration."""
        every = (self.iterations(getattr(self.config, name)) for name in names)
        return any(self.iteration % n == 0 for n in every)

    @property
    def spent(self) -> float:
        return self.elapsed + time.monotonic() - self.began

    @property
    def compile_seconds(self) -> float:
        return self.compiled + self.ledger.seconds

    # --- running ----------------------------------------------------------------------------

    def run(self, stop: list[int]) -> str:
        """Train until the end, or until `stop` is not empty -> "done" or "stopped"."""
        c = self.config
        total, start = self.iterations(c.steps), self.iterations(c.learning_starts or 1)
        reached, chunk = False, 1
        while self.iteration < total and not stop and not reached:
            learn = self.iteration >= start
            length = min(chunk, self.until_next(total if learn else min(start, total)))
            mode = "explore" if learn or c.warm_up == "policy" else "random"
            begin, compiled = time.monotonic(), self.ledger.seconds
            given = self.learner, self.hps, None, self.seeds
            self.learner = self.driver.run(*given, length, mode, learn)
            self.check()
            busy = time.monotonic() - begin - (self.ledger.seconds - compiled)
            chunk = max(1, min(4 * length, int(CHUNK_SECONDS * length / max(busy, 1e-6))))
            self.reporter.advance(self.step, total * c.envs, self.spent, self.compile_seconds)
            if self.due("log_freq", "eval_freq"):
                reached = self.record(self.due("eval_freq") or self.iteration == total)
            if self.due("checkpoint_freq"):
                self.save()
        if self.saved != self.step:
            self.save()
        if self.iteration >= total and not self.due("log_freq", "eval_freq"):
            self.record(evaluate=True)  # after saving: it is no part of a longer run
        state = "done" if reached or self.iteration >= total else "stopped"
        status(self.folder, state, self.step)
        return state

    def until_next(self, end: int) -> int:
        """Iterations until something is due, at most until `end`."""
        every = (getattr(self.config, f"{name}_freq") for name in ("eval", "log", "checkpoint"))
        ends = (n - self.iteration % n for n in map(self.iterations, every))
        return min(end - self.iteration, *ends)

    def record(self, evaluate: bool) -> bool:
        """Write a row of metrics per member -> whether the wanted reward is reached."""
        x, members = self.learner, range(len(self.config.seeds))
        tally, transitions = jax.device_get(x.tally), np.asarray(x.actors.transitions).sum(1)
        now = self.step, self.spent - self.compile_seconds
        steps, seconds = (b - a for a, b in zip(self.logged, now, strict=True))
        common = {
            "time/fps": steps / max(seconds, 1e-9),
            "time/elapsed_s": self.spent,
            "time/compile_s": self.compile_seconds,
            "train/n_updates": int(x.clock.updates),
            "replay/size": int(x.replay.size) * self.config.envs,
        }
        rows: list[dict[str, Any]] = [
            {
                **common,
                "time/transitions": transitions[m],
                **tally.means(m),
                **{f"hparams/{k}": np.asarray(v)[m] for k, v in vars(self.hps).items()},
            }
            for m in members
        ]
        reached = False
        if evaluate:
            returns, lengths = self.evaluate(x.state, self.hps, self.seeds, x.clock.iteration)
            for m in members:
                rows[m]["eval/mean_reward"] = returns[m].mean()
                rows[m]["eval/std_reward"] = returns[m].std()
                rows[m]["eval/mean_ep_length"] = lengths[m].mean()
            reward = returns.mean(1).astype(np.float32)
            if (reward > self.best.reward).any():
                self.best = self.best.challenge(reward, self.step, x.state)
                self.best.write(self.folder / "best")
            goal = self.config.stop_reward
            reached = goal is not None and bool((reward >= goal).all())
        for m in members:
            self.log.append(self.step, m, rows[m])
        self.reporter.row(self.step, rows)
        self.learner = dataclasses.replace(x, tally=x.tally.clear())
        self.logged = now
        return reached

    @property
    def columns(self) -> list[str]:
        return [
            *(f"time/{k}" for k in ("transitions", "fps", "elapsed_s", "compile_s")),
            *(f"eval/{k}" for k in ("mean_reward", "std_reward", "mean_ep_length")),
            *sorted([*self.learner.tally.names, "train/n_updates", "replay/size"]),
            *(f"hparams/{k}" for k in vars(self.hps)),
        ]

    def check(self) -> None:
        """Stop at the first number that is not finite."""
        iteration, what, env = np.asarray(self.learner.tally.fault)
        for m in np.flatnonzero(iteration >= 0):
            name, step = self.learner.tally.watched[what[m]], iteration[m] * self.config.envs
            if name in ("observation", "reward"):
                where = f"{envs.label(self.loop.env)}, environment {env[m]}"
                advice = "mend the environment, or end the episode before its state diverges"
            else:
                where, advice = self.config.algo, "try smaller learning rates or rewards"
            seed = self.config.seeds[m]
            raise ThespisError(
                f"{where}, step {step}, seed {seed}: the {name} is not finite; {advice}"
            )

    def save(self) -> None:
        """A checkpoint of everything; the one before is kept."""
        x = self.learner
        for path, leaf in jax.tree_util.tree_leaves_with_path(x.state):
            if not np.isfinite(leaf).all():
                name = jax.tree_util.keystr(path, simple=True, separator=".")
                raise ThespisError(
                    f"{self.config.algo}, step {self.step}: {name} is not finite and not saved; "
                    "try smaller learning rates or rewards"
                )
        parts = split(x, self.hps, self.best)
        filled = lambda rows: np.asarray(rows)[: int(x.replay.size)]
        parts["replay"]["rows"] = jax.tree.map(filled, x.replay.rows)
        info = {
            "rows": int(x.replay.size),
            "elapsed": self.spent,
            "compiled": self.compile_seconds,
            "env": envs.label(self.loop.env),
        }
        self.log.sync()
        checkpoints = self.folder / "checkpoints"
        checkpoint.save(checkpoints, self.step, parts, info)
        checkpoint.prune(checkpoints)
        self.saved = self.step
        status(self.folder, "running", self.step)

    def close(self) -> None:
        self.driver.close()
        self.ledger.close()


# --- what a checkpoint holds ----------------------------------------------------------------


class Best(eqx.Module):
    """The policy of every member at its best evaluation so far, NumPy leaves [members, ...]."""

    state: Any
    reward: np.ndarray
    step: np.ndarray

    @classmethod
    def none(cls, state: Any) -> Best:
        """Before the first evaluation; `state` gives the shapes."""
        members = jax.tree.leaves(state)[0].shape[0]
        reward, step = np.full(members, -np.inf, np.float32), np.zeros(members, np.int32)
        return cls(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), state), reward, step)

    def challenge(self, reward: np.ndarray, step: int, state: Any) -> Best:
        """Take the place of those who did worse."""
        better = reward > self.reward
        new = Best(state, reward, np.full_like(self.step, step))
        pick = lambda x, y: np.where(better.reshape(-1, *(1,) * (x.ndim - 1)), x, y)
        return jax.tree.map(pick, new, self)

    def write(self, folder: Path) -> None:
        """Make the folder hold this one alone, also if it knows a later one that was lost."""
        there = checkpoint.latest(folder)
        kept = None
        if (self.reward > -np.inf).any():
            info = {"reward": self.reward.tolist(), "step": self.step.tolist()}
            kept = next((path for path in there if about(path) == info), None)
            kept = kept or checkpoint.save(
                folder, int(self.step.max()), {"state": self.state}, info
            )
        for path in there:
            if path != kept:
                shutil.rmtree(path, ignore_errors=True)


def about(path: Path) -> dict[str, Any] | None:
    try:
        return checkpoint.manifest(path)["info"]
    except checkpoint.Damaged:
        return None


def split(x: Learner, hps: Any, best: Best) -> dict[str, Any]:
    """The files of a checkpoint: playing needs only the state, and the replay is the largest."""
    return {
        "state": x.state,
        "actors": {"actors": x.actors, "world": x.world},
        "replay": dict(vars(x.replay)),
        "progress": {"tally": x.tally, "clock": x.clock},
        "hyper": hps,
        "best": best,
    }


def by_member(f: Callable, parts: dict[str, Any]) -> dict[str, Any]:
    """`f(leaf, axis)` for every leaf of a checkpoint that has an axis of members."""
    at = lambda axis, tree: jax.tree.map(lambda x: f(x, axis), tree)
    replay, progress = parts["replay"], parts["progress"]
    return {
        **{part: at(0, parts[part]) for part in ("state", "actors", "hyper", "best")},
        "replay": replay | {"rows": at(1, replay["rows"])},
        "progress": progress | {"tally": at(1, progress["tally"])},
    }


def resize(x: Any, axis: int, size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


def grow(replay: Replay, capacity: int) -> Replay:
    """Stored rows in a ring of `capacity`, which is larger only if none was overwritten yet."""

    def place(x):
        return jnp.zeros((capacity, *x.shape[1:]), x.dtype).at[: x.shape[0]].set(x)

    head = replay.head if replay.capacity == capacity else replay.size % capacity
    return Replay(jax.tree.map(place, replay.rows), head, replay.size)


# --- parts of another run -------------------------------------------------------------------


def transplant(state: Any, source: str, note: Callable[[str], None]) -> Any:
    """`state` [members, ...] with parts of another run's newest: RUN, or RUN:PART[,PART]."""
    path, _, wanted = (source, "", "") if Path(source).is_dir() else source.rpartition(":")
    donor = arrays(find(path or source), note)
    parts = wanted.split(",") if wanted else sorted({name.split(".")[0] for name in donor})
    for part in parts:
        if not any(inside(name, part) for name in donor):
            tops = dict.fromkeys(name.split(".")[0] for name in donor)
            raise ThespisError(f"init_from = {source} has no part {part!r}{or_all(part, tops)}")

    leaves = jax.tree_util.tree_leaves_with_path(state)
    own = {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}
    given = {name: x for name, x in donor.items() if any(inside(name, part) for part in parts)}
    for name, x in given.items():
        there, here = shape_of(x), shape_of(own[name]) if name in own else "absent"
        if there != here:
            raise ThespisError(
                f"init_from = {source}: {name} is {there} there and {here} here; choose parts "
                f"that fit, such as {path}:actor"
            )
    members = jax.tree.leaves(state)[0].shape[0]
    one = best_member(find(path))
    # Member by member if there are as many, else all from the best.
    take = lambda x: x if len(x) == members else np.broadcast_to(x[one], (members, *x.shape[1:]))
    own |= {name: jnp.array(take(x)) for name, x in given.items()}
    return jax.tree.unflatten(jax.tree.structure(state), list(own.values()))


def arrays(folder: Path, note: Callable[[str], None]) -> dict[str, np.ndarray]:
    """The newest state of a run by the names of its leaves [members, ...], whatever it is."""

    def template(manifest: dict[str, Any]) -> dict[str, Any]:
        leaves = manifest["parts"]["state"]["leaves"].items()
        struct = lambda about: jax.ShapeDtypeStruct(tuple(about["shape"]), about["dtype"])
        return {"state": {name: struct(about) for name, about in leaves}}

    return checkpoint.load_newest(folder / "checkpoints", template, note)[1]["state"]


def best_member(folder: Path) -> int:
    """The member with the best evaluation so far; the first if there was none."""
    best = checkpoint.latest(folder / "best")
    return int(np.argmax(checkpoint.manifest(best[0])["info"]["reward"])) if best else 0


def inside(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def shape_of(x: Any) -> str:
    """Of one member."""
    return f"{x.dtype}{list(x.shape[1:])}"


# --- what is written beside -----------------------------------------------------------------


def status(folder: Path, state: str, step: int, **more: Any) -> None:
    write_json(folder / "status.json", {"state": state, "step": step, **more})


# --- alone, and interruptible ---------------------------------------------------------------


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No second process trains in this folder; the lock ends with its owner, however it ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ThespisError(
            f"{folder} is being trained by another process: wait for it, or stop it first"
        ) from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are noted in the list, once; a second one has its usual effect."""
    caught: list[int] = []
    before: dict[int, Any] = {}

    def back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number, frame):
        caught.append(number)
        back()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    except ValueError:  # not in the main thread: signals are somebody else's
        before.clear()
    try:
        yield caught
    finally:
        back()
