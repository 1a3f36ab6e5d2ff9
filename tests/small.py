"""The smallest runs that do everything, environments that misbehave, and when runs are equal.

Compiled programs are kept between the runs of one file: a test that trains ten times traces
once. What is kept depends on the programs alone, so the runs are the same.
"""

import dataclasses
import signal
import time
from pathlib import Path

import gymnasium
import jax
import numpy as np
from safetensors.numpy import load_file

from thespis.engine.evaluation import Evaluator
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import DeviceDriver
from thespis.report import progress
from thespis.runs import (
    build,
    checkpoint,
    dump,
    faults,
    resets,
    run,
    session,
    snapshot,
    trainer,
    tuning_rounds,
)
from thespis.xla.program_cache import compiled

RUN = {
    "env": "jax:pendulum",
    "steps": 400,
    "buffer_size": 200,
    "hidden": (8,),
    "batch_size": 16,
    "learning_starts": 100,
    "eval_freq": 100,
    "eval_episodes": 2,
    "checkpoint_freq": 100,
}


def words(**changes) -> list[str]:
    """The same on the command line."""
    text = lambda x: " ".join(map(str, x)) if isinstance(x, tuple) else str(x)
    given = {k: v for k, v in (RUN | changes).items() if v is not None}
    return [w for k, v in given.items() for w in (f"--{k.replace('_', '-')}", *text(v).split())]


def arguments(**changes) -> dict:
    """For `thespis.train`."""
    return RUN | {"progress": False} | changes


# --- equality -------------------------------------------------------------------------------


def arrays(folder: Path) -> dict[str, np.ndarray]:
    """Everything in the newest checkpoint of a run."""
    newest = checkpoint.latest(Path(folder) / "checkpoints")[0]
    files = sorted(newest.glob("*.safetensors"))
    return {f"{f.stem}.{name}": x for f in files for name, x in load_file(f).items()}


def differences(a: Path, b: Path, member: int | None = None) -> list[str]:
    """The arrays of the newest checkpoints that are not equal bit for bit.

    With a member, what `a` holds of it, against all of `b`.
    """
    left, right = arrays(a), arrays(b)
    assert left.keys() == right.keys()
    if member is not None:
        left = {name: part_of(name, x, member) for name, x in left.items()}
    equal = lambda x, y: x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()
    return [name for name in left if not equal(left[name], right[name])]


def part_of(name: str, x: np.ndarray, member: int) -> np.ndarray:
    shared = ("progress.clock", "replay.head", "replay.size", "replay.priorities.written")
    if name.startswith((*shared, "tuning.memory")):
        return x
    axis = 1 if name.startswith(("replay.", "progress.metric_sums")) else 0
    return np.take(x, [member], axis)


# --- interruptions --------------------------------------------------------------------------


def stop_at(monkeypatch, step: int, number: int = signal.SIGINT) -> None:
    """This process gets a signal when a run has come to this step, and no sooner or later.

    How many steps a run takes at once follows the speed of the machine: here never beyond that.
    """
    advance, until_next = progress.Silent.advance, trainer.Trainer.until_next

    def tell(self, now, *rest):
        advance(self, now, *rest)
        if now >= step:
            monkeypatch.setattr(progress.Silent, "advance", advance)
            signal.raise_signal(number)

    def until(self, end):
        left = self.iterations(step) - self.iteration
        return min(until_next(self, end), left if left > 0 else end)

    monkeypatch.setattr(progress.Silent, "advance", tell)
    monkeypatch.setattr(trainer.Trainer, "until_next", until)


def wait_for(condition, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


# --- environments ---------------------------------------------------------------------------


class Toy(gymnasium.Env):
    """15 steps that observe [episode, time, start].

    It misbehaves as `fault` says, at the step number `at` of its life.
    """

    render_mode = None
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, fault: str = "", at: int = 20, render_mode=None):
        self.fault, self.at, self.episode, self.count = fault, at, 0, 0
        self.render_mode = render_mode
        high = np.inf if fault == "bounds" else 2.0
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gymnasium.spaces.Box(-2.0, high, (1,), np.float32)
        if fault == "discrete":
            self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        self.start = self.np_random.uniform()
        if self.fault == "reset":
            raise RuntimeError("the curtain\nis stuck")
        return self.seen(), {}

    def seen(self):
        return np.array([self.episode, self.time, self.start], np.float32)

    def step(self, action):
        self.time += 1
        self.count += 1
        now = self.count == self.at
        if now and self.fault == "raise":
            raise RuntimeError("the curtain\nfell")
        obs, reward = self.seen(), -float(action[0] ** 2)
        if now and self.fault == "obs":
            obs[1] = np.nan
        reward = np.nan if now and self.fault == "reward" else reward
        return obs, reward, False, self.time == 15, {}

    def render(self):
        return np.full((24, 32, 3), 10 * self.time, np.uint8)


FAULTS = ("", "bounds", "discrete", "reset", "raise", "obs", "reward")
for fault in FAULTS:
    name = f"Toy{fault.capitalize()}-v0"  # `tests.small:ToyObs-v0` on the command line
    if name not in gymnasium.registry:
        gymnasium.register(name, Toy, kwargs={"fault": fault})


# --- programs are kept ----------------------------------------------------------------------

_kept: dict = {}


def keep(key, make):
    if key not in _kept:
        _kept[key] = make()
    return _kept[key]


def forget():
    _kept.clear()


def key_of(loop):
    env = "host" if hasattr(loop.env, "open") else loop.env
    algo = dataclasses.replace(loop.algo, resets=()) if hasattr(loop.algo, "resets") else loop.algo
    return algo, env, loop.envs, loop.capacity, loop.updates_per_step, loop.mesh, loop.shared


class Device(DeviceDriver):
    def __init__(self, loop, seeds):
        super().__init__(loop, seeds)
        compile_ = self.compile
        self.programs = lambda *x: keep(("epoch", key_of(loop), *x), lambda: compile_(*x))
        self.first = keep(("init", key_of(loop)), lambda: compiled(loop.init, loop))

    def init(self, seeds, hps, demos=None):
        return self.loop.place(self.first(seeds, hps, demos))


class Host(HostDriver):
    def __init__(self, loop, seeds):
        super().__init__(loop, seeds)
        compile_ = self.compile
        self.programs = lambda *x: keep(("host", key_of(loop), *x), lambda: compile_(*x))
        made_of = dataclasses.replace(loop, env=None)
        self.first = keep(("init", key_of(loop)), lambda: compiled(loop.init, made_of))

    def init(self, seeds, hps, demos=None):
        self.open(time=0)
        return self.loop.place(self.first(seeds, hps, demos, self.arrived))


def evaluator(loop, env, episodes):
    new = Evaluator(loop, env, episodes)
    if not hasattr(env, "open"):
        return keep(("evaluate", key_of(loop), env, episodes), lambda: new)
    vars(new)["act"] = keep(("act", key_of(loop)), lambda: new.act)
    return new


class Programs(tuning_rounds.Programs):
    @property
    def decide(self):
        return keep("decide", lambda: super(Programs, self).decide)

    @property
    def copy(self):
        return keep(("copy", key_of(self.loop)), lambda: super(Programs, self).copy)


class Resets(resets.Resets):
    @property
    def program(self):
        return keep(("reset", key_of(self.loop)), lambda: super(Resets, self).program)


class Tracer(dump.Tracer):
    @property
    def follow(self):
        return keep(("follow", key_of(self.loop)), lambda: super(Tracer, self).follow)

    @property
    def moment(self):
        return keep(("moment", key_of(self.loop)), lambda: super(Tracer, self).moment)


def blank(config, loop):
    made = lambda: build.blank(config, loop)
    return keep(("blank", key_of(loop), config.Algorithm, config.members), made)


def program(loop, name):
    return keep((name, loop.algo), lambda: jax.jit(getattr(loop.algo, name)))


session.DeviceDriver, session.HostDriver, session.Resets = Device, Host, Resets
tuning_rounds.HostDriver, tuning_rounds.Programs, faults.Tracer = Host, Programs, Tracer
dump.program = program
snapshot.blank = tuning_rounds.blank = dump.blank = blank
session.Evaluator = run.Evaluator = evaluator
