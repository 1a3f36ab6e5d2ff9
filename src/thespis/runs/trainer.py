"""Training from start to finish: phases, evaluations, logs, checkpoints, and going on after a stop."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from thespis import envs, hyper, machine
from thespis.core import Spec, ThespisError
from thespis.evaluate import Evaluator
from thespis.host import HostDriver
from thespis.loop import DeviceDriver, Fault, Learner, Loop
from thespis.replay import Replay
from thespis.runs import checkpoint
from thespis.runs.config import Config
from thespis.runs.directory import read_json, versions, write_json
from thespis.runs.metrics import MetricsLog, read

CHUNK_SECONDS = 0.5  # how long a program may run before signals and the progress bar are served


class Reporter(Protocol):
    """Somebody who watches; nothing depends on what it does."""

    def advance(self, step: int, total: int, elapsed: float, compiling: float) -> None: ...
    def row(self, step: int, rows: list[dict[str, float]]) -> None: ...
    def note(self, text: str) -> None: ...


# --- the pieces of a run --------------------------------------------------------------------


def build(config: Config, env=None) -> tuple[Loop, Any]:
    """The loop and the environment of evaluations. `env` stands in for one that has no name."""
    env = envs.make(config.env if env is None else env)
    eval_env = env if config.eval_env is None else envs.make(config.eval_env)
    if _shape(eval_env.spec) != _shape(env.spec):
        raise ThespisError(
            f"eval_env {envs.label(eval_env)} has other observations or actions than env "
            f"{envs.label(env)}: {eval_env.spec} against {env.spec}"
        )
    algo = config.Algorithm(env.spec, **config.options)
    loop = Loop(
        algo=algo,
        env=env,
        envs=config.envs,
        capacity=-(-min(config.buffer_size, config.steps) // config.envs),
        updates_per_step=Fraction(config.updates_per_step).limit_denominator(1000),
        side_by_side=jax.default_backend() != "cpu",
    )
    return loop, eval_env


def _shape(spec: Spec):
    action = (
        dataclasses.replace(spec.action, low=(), high=())
        if hasattr(spec.action, "low")
        else spec.action
    )
    return Spec(spec.obs, action)


class Trainer:
    """One run on its way: `start` or `restore`, then `run`."""

    def __init__(self, config: Config, pieces: tuple[Loop, Any], folder: Path, reporter: Reporter):
        self.config, self.folder, self.reporter = config, folder, reporter
        self.ledger = machine.Ledger()
        self.loop, eval_env = pieces
        self.seeds = jnp.asarray(config.seeds, jnp.int32)
        self.hps = hyper.fill(config.Algorithm.Hyper, config.hp, len(config.seeds))
        self.evaluate = Evaluator(self.loop, eval_env, config.eval_episodes)
        driver = HostDriver if hasattr(self.loop.env, "open") else DeviceDriver
        self.driver = driver(self.loop, self.seeds)
        self.elapsed = self.compiled = 0.0  # in earlier sessions
        self.began = time.monotonic()
        self.best = Best(folder / "best", len(config.seeds))
        self.logged_step, self.logged_at = 0, 0.0

    # --- beginnings -------------------------------------------------------------------------

    def start(self) -> None:
        self.learner = self.driver.init(self.seeds, self.hps)
        if self.config.init_from:
            from thespis.runs.run import transplant

            state = transplant(self.learner.state, self.config.init_from)
            self.learner = eqx.tree_at(lambda x: x.state, self.learner, state)
        self.log = MetricsLog(self.folder, self.columns, len(self.config.seeds))
        self.save()

    def restore(self) -> None:
        """Go on from the newest checkpoint that is whole."""
        self.fetch()
        self.learner = self.driver.resume(self.learner)
        self.best.load(self.learner.state)
        self.log = MetricsLog(self.folder, self.columns, len(self.config.seeds))
        self.log.cut(self.step)
        self.logged_step, self.logged_at = self.step, self.spent

    def fetch(self) -> None:
        """Read the newest checkpoint that is whole."""
        template = jax.eval_shape(self.driver.init, self.seeds, self.hps)

        def parts(manifest):
            rows = manifest["info"]["rows"]
            cut = lambda x: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype)
            filled = dataclasses.replace(
                template.replay, rows=jax.tree.map(cut, template.replay.rows)
            )
            return split(dataclasses.replace(template, replay=filled), self.hps)

        path, found = checkpoint.load_newest(self.folder / "checkpoints", parts, self.reporter.note)
        found = jax.tree.map(jnp.array, found)
        info = checkpoint.manifest(path)["info"]
        self.elapsed, self.compiled, self.hps = (
            info["elapsed"],
            info["compiled"],
            found.pop("hyper"),
        )
        replay = grow(found.pop("replay"), self.loop.capacity)
        self.learner = Learner(**found.pop("progress"), **found, replay=replay)

    def adopt(self, source: Trainer, member: int) -> None:
        """Begin as one member of another run, with its past."""
        source.fetch()
        self.learner = self.driver.resume(member_of(source.learner, member))
        self.elapsed, self.compiled = source.elapsed, source.compiled
        self.log = MetricsLog(self.folder, self.columns, 1)
        past = read(source.folder / "metrics.csv")
        for i in np.flatnonzero((past["member"] == member) & (past["step"] <= self.step)):
            row = {k: v[i] for k, v in past.items() if k in self.columns and np.isfinite(v[i])}
            self.log.append(int(past["step"][i]), 0, row)
        self.logged_step, self.logged_at = self.step, self.spent
        self.save()

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

    @property
    def spent(self) -> float:
        return self.elapsed + time.monotonic() - self.began

    # --- running ----------------------------------------------------------------------------

    def run(self) -> str:
        """Train to the end -> "done" or "stopped"."""
        c = self.config
        total, start = self.iterations(c.steps), self.iterations(c.learning_starts)
        every = {
            name: self.iterations(getattr(c, name))
            for name in ("eval_freq", "log_freq", "checkpoint_freq")
        }
        status(self.folder, "running", self.step)
        due = lambda name: self.iteration % every[name] == 0 or self.iteration == total
        chunk = 1
        with stoppable() as stop:
            while self.iteration < total:
                i = self.iteration
                learn = i >= start
                ends = [total] if learn else [start, total]
                length = min(chunk, min(ends) - i, *(n - i % n for n in every.values()))
                mode = "explore" if learn or c.warm_up == "policy" else "random"
                begin, compiled = time.monotonic(), self.ledger.seconds
                self.learner = self.driver.run(
                    self.learner, self.hps, None, self.seeds, length, mode, learn
                )
                self.check()
                busy = time.monotonic() - begin - (self.ledger.seconds - compiled)
                chunk = max(1, min(4 * length, int(CHUNK_SECONDS * length / max(busy, 1e-6))))
                self.tell()
                reached = False
                if due("log_freq") or due("eval_freq"):
                    reached = self.record(due("eval_freq"))
                if due("checkpoint_freq") or reached or stop:
                    self.save()
                if reached or stop:
                    break
        state = "stopped" if stop and self.iteration < total else "done"
        status(self.folder, state, self.step)
        return state

    def record(self, evaluate: bool) -> bool:
        """Write a row of metrics per member -> whether the wanted reward is reached."""
        x, members = self.learner, len(self.config.seeds)
        tally = jax.device_get(x.tally)
        common = {
            "time/fps": (self.step - self.logged_step) / max(self.spent - self.logged_at, 1e-9),
            "time/elapsed_s": self.spent,
            "time/compile_s": self.compiled + self.ledger.seconds,
            "train/n_updates": int(x.clock.updates),
            "replay/size": int(x.replay.size) * self.config.envs,
        }
        transitions = np.asarray(x.actors.transitions).sum(1)
        rows: list[dict[str, float]] = [
            {**common, "time/transitions": transitions[m]} for m in range(members)
        ]
        for m, row in enumerate(rows):
            row |= {k: v.total[m] / v.count[m] for k, v in tally.items() if v.count[m] > 0}
            row |= {f"hparams/{k}": np.asarray(v)[m] for k, v in vars(self.hps).items()}
        reached = False
        if evaluate:
            returns, lengths = self.evaluate(x.state, self.hps, self.seeds, x.clock.iteration)
            for m, row in enumerate(rows):
                row["eval/mean_reward"] = returns[m].mean()
                row["eval/std_reward"] = returns[m].std()
                row["eval/mean_ep_length"] = lengths[m].mean()
            self.best.offer(self.step, returns.mean(1), x.state)
            goal = self.config.stop_reward
            reached = goal is not None and bool((returns.mean(1) >= goal).all())
        for m, row in enumerate(rows):
            self.log.append(self.step, m, row)
        self.reporter.row(self.step, rows)
        self.learner = dataclasses.replace(x, tally=jax.tree.map(jnp.zeros_like, x.tally))
        self.logged_step, self.logged_at = self.step, self.spent
        return reached

    @property
    def columns(self) -> list[str]:
        return [
            *(f"time/{k}" for k in ("transitions", "fps", "elapsed_s", "compile_s")),
            *(f"eval/{k}" for k in ("mean_reward", "std_reward", "mean_ep_length")),
            *sorted([*self.learner.tally, "train/n_updates", "replay/size"]),
            *(f"hparams/{k}" for k in vars(self.hps)),
        ]

    def tell(self) -> None:
        total = self.iterations(self.config.steps) * self.config.envs
        self.reporter.advance(self.step, total, self.spent, self.compiled + self.ledger.seconds)

    def check(self) -> None:
        """Stop at the first number that is not finite; what was saved before stays good."""
        fault: Fault = jax.device_get(self.learner.fault)
        for m in np.flatnonzero(fault.iteration >= 0):
            what = Loop.watched(self.learner)[fault.what[m]]
            where = f" of environment {fault.env[m]}" if what in ("observation", "reward") else ""
            saved = checkpoint.latest(self.folder / "checkpoints")[0]
            raise ThespisError(
                f"{what}{where} is not finite at step {fault.iteration[m] * self.config.envs} of "
                f"seed {self.config.seeds[m]}; the last good checkpoint is {saved}"
            )

    def save(self) -> None:
        """A checkpoint of everything; the one before is kept."""
        x = self.learner
        for path, leaf in jax.tree_util.tree_leaves_with_path(x.state):
            if not np.isfinite(leaf).all():
                raise ThespisError(
                    f"{jax.tree_util.keystr(path)} is not finite at step {self.step}: not saved; "
                    f"go on from an earlier checkpoint in {self.folder / 'checkpoints'}"
                )
        rows = int(x.replay.size)
        filled = jax.tree.map(lambda v: np.asarray(v)[:rows], x.replay.rows)
        info = {
            "rows": rows,
            "elapsed": self.spent,
            "compiled": self.compiled + self.ledger.seconds,
        }
        parts = split(
            dataclasses.replace(x, replay=dataclasses.replace(x.replay, rows=filled)), self.hps
        )
        self.log.sync()
        checkpoint.save(self.folder / "checkpoints", self.step, parts, info)
        checkpoint.prune(self.folder / "checkpoints")

    def close(self) -> None:
        self.driver.close()
        self.ledger.close()


def split(x: Learner, hps) -> dict[str, Any]:
    """The files of a checkpoint: playing needs only the state, and the replay is the largest."""
    progress = {"tally": x.tally, "fault": x.fault, "clock": x.clock}
    return {
        "state": x.state,
        "actors": x.actors,
        "replay": x.replay,
        "progress": progress,
        "hyper": hps,
    }


def grow(replay: Replay, capacity: int) -> Replay:
    """Stored rows in a ring of `capacity`, which is larger only if none was overwritten yet."""

    def place(x):
        return jnp.zeros((capacity, *x.shape[1:]), x.dtype).at[: x.shape[0]].set(x)

    rows = jax.tree.map(place, replay.rows)
    full = replay.capacity == capacity
    return Replay(rows, replay.head if full else replay.size % capacity, replay.size)


def member_of(x: Learner, member: int) -> Learner:
    """One member's part of everything, still with a leading axis."""
    one = lambda tree: jax.tree.map(lambda v: jnp.array(v[member : member + 1]), tree)
    rows = jax.tree.map(lambda v: jnp.array(v[:, member : member + 1]), x.replay.rows)
    replay = dataclasses.replace(x.replay, rows=rows)
    return Learner(one(x.state), one(x.actors), replay, one(x.tally), one(x.fault), x.clock)


class Best:
    """The policy of every member at its best evaluation so far."""

    def __init__(self, folder: Path, members: int):
        self.folder = folder
        self.reward, self.step = np.full(members, -np.inf), np.zeros(members, int)
        self.state: Any = None

    def offer(self, step: int, reward: np.ndarray, state) -> None:
        better = reward > self.reward
        if not better.any():
            return
        new = jax.tree.map(np.asarray, state)
        pick = lambda x, y: np.where(better.reshape(-1, *(1,) * (x.ndim - 1)), x, y)
        self.state = new if self.state is None else jax.tree.map(pick, new, self.state)
        self.reward, self.step = (
            np.where(better, reward, self.reward),
            np.where(better, step, self.step),
        )
        info = {"reward": self.reward.tolist(), "step": self.step.tolist()}
        checkpoint.save(self.folder, step, {"state": self.state}, info)
        checkpoint.prune(self.folder, keep=1)

    def load(self, template) -> None:
        for path in checkpoint.latest(self.folder)[:1]:
            info = checkpoint.manifest(path)["info"]
            self.state = checkpoint.load(path, {"state": template})["state"]
            self.reward, self.step = np.array(info["reward"]), np.array(info["step"])


# --- what is written beside -----------------------------------------------------------------


def write_config(folder: Path, config: Config, command: str) -> None:
    """Enough to run it again."""
    fields = dataclasses.asdict(config)
    known = hyper.declared(config.Algorithm.Hyper)
    fields["hp"] = {name: config.hp.get(name, d.default) for name, d in known.items()}
    for name in ("env", "eval_env"):
        if fields[name] is not None and not isinstance(fields[name], str):
            fields[name], fields[f"{name}_given"] = envs.label(getattr(config, name)), True
    write_json(folder / "config.json", fields | {"command": command, "versions": versions()})


def read_config(folder: Path) -> tuple[Config, dict[str, Any]]:
    """The config, and all that was written with it."""
    saved = read_json(folder / "config.json")
    names = {f.name for f in dataclasses.fields(Config)}
    fields = {name: value for name, value in saved.items() if name in names}
    lists = lambda x: tuple(x) if isinstance(x, list) else x
    fields["seeds"] = tuple(fields["seeds"])
    fields["options"] = {name: lists(value) for name, value in fields["options"].items()}
    return Config(**fields), saved


def status(folder: Path, state: str, step: int) -> None:
    write_json(folder / "status.json", {"state": state, "step": step})


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are noted in the list, once; a second one has its usual effect."""
    caught: list[int] = []

    def note(number, frame):
        caught.append(number)
        for s, handler in before.items():
            signal.signal(s, handler)

    before: dict[int, Any] = {}
    try:
        for s in (signal.SIGINT, signal.SIGTERM):
            before[s] = signal.signal(s, note)
    except ValueError:  # not in the main thread: signals are somebody else's
        before.clear()
    try:
        yield caught
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
