"""Callbacks: who only watches changes nothing; what is changed is saved; faults are one line."""

import json
import sys
from dataclasses import dataclass
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests.report.test_tracking import Fake
from tests.small import arguments, differences, stop_at
from thespis.core import Box, ThespisError
from thespis.runs import checkpoint, metrics, trainer
from thespis.runs.callbacks import Callback, Training

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


class Clockwork(gymnasium.Env):
    """Episodes of ten steps that all begin alike: with their first row they take eleven."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    level = 1.0
    render_mode = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.time += 1
        reward = -self.level * float(action[0] ** 2) - 1
        return np.full(3, self.time, np.float32), reward, False, self.time == 10, {}


@dataclass(frozen=True)
class Slope:
    """Stay at zero; the slope pulls away from it."""

    slope: float = 0.0
    limit: int = 10

    name: ClassVar[str] = "slope"
    obs: ClassVar[jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct((3,), jnp.float32)
    action: ClassVar[Box] = Box(low=(-1.0,), high=(1.0,), shape=(1,))

    def start(self, key):
        return random.uniform(key, (3,), jnp.float32, -1.0, 1.0) + self.slope

    def observe(self, state):
        return state

    def step(self, state, action):
        state = state + 0.1 * action + self.slope
        return state, -jnp.abs(state).sum(), jnp.array(False)


OFTEN = {"steps": 330, "learning_starts": 66, "eval_freq": 110, "checkpoint_freq": 110}
OFTEN |= {"buffer_size": 500, "devices": 1}
JAX = {"env": Slope()}
HOST = {"env": Clockwork}
POPULATION = JAX | {"members": 3, "pbt": True, "pbt.interval": 110}
KINDS = pytest.mark.parametrize("kind", [JAX, HOST, POPULATION], ids=["jax", "host", "population"])


def train(out, kind, *callbacks, **changes):
    given = arguments(out=out, **OFTEN | kind | changes)
    return thespis.train("sac", callbacks=list(callbacks), **given)


def stopped(out, step, *rest, **changes):
    """A run that was stopped by a signal."""
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, step)
        run = train(out, *rest, **changes)
    assert run.status == {"state": "stopped", "step": step}
    return run


def same(a, b) -> None:
    assert differences(a, b) == []
    assert metrics.differences(a / "metrics.csv", b / "metrics.csv") == []
    read = lambda folder: [p.read_bytes() for p in folder.glob("lineage.csv")]
    assert read(a) == read(b)


class Watcher(Callback):
    """Looks at everything it is shown, and keeps when that was."""

    every = 37

    def __init__(self):
        self.seen = []

    def look(self, event: str, training: Training) -> None:
        self.seen.append((event, training.step))
        for member in range(training.members):
            policy = training.policy(member, stochastic=event == "step")
            assert policy(np.zeros((2, 3), np.float32)).shape == (2, 1)
        training.metrics[0]["made up"] = 1.0
        training.hypers["gamma"][:] = 0.0
        assert len(training.parents) == len(training.seeds) == len(training.metrics)
        assert (training.folder / "config.json").exists()

    def on_start(self, training):
        self.look("start", training)

    def on_step(self, training):
        self.look("step", training)

    def on_evaluation(self, training):
        self.look("evaluation", training)
        assert "eval/mean_reward" in training.metrics[-1]

    def on_checkpoint(self, training):
        self.look("checkpoint", training)

    def on_exchange(self, training):
        self.look("exchange", training)

    def on_end(self, training, state):
        self.look(state, training)

    def at(self, event: str) -> list[int]:
        return [step for name, step in self.seen if name == event]


# --- watching -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without callbacks."""
    return train(tmp_path_factory.mktemp("plain"), JAX)


@pytest.mark.cases(1)
@KINDS
def test_who_only_watches_changes_nothing(kind, plain, tmp_path, monkeypatch):
    watcher = Watcher()
    plain = plain if kind is JAX else train(tmp_path, kind)
    # How much is done at once follows the speed of the machine: here as little as can be.
    monkeypatch.setattr(trainer, "CHUNK_SECONDS", 0.0)
    same(plain.path, train(tmp_path, kind, watcher).path)
    assert watcher.at("start") == [0]
    assert watcher.at("step") == [37, 74, 111, 148, 185, 222, 259, 296]
    assert watcher.at("evaluation") == [110, 220, 330]
    assert watcher.at("checkpoint") == [0, 110, 220, 330]
    assert watcher.at("exchange") == ([110, 220] if "pbt" in kind else [])
    assert watcher.seen[-1] == ("done", 330)
    info = lambda run: checkpoint.manifest(checkpoint.latest(run.path / "checkpoints")[0])["info"]
    assert "callbacks" not in info(plain)


def test_steps_of_several_environments_are_those_of_the_member(tmp_path):
    watcher = Watcher()
    train(tmp_path, JAX, watcher, envs=4, updates_per_step=0)
    assert watcher.at("step") == [40 * i for i in range(1, 9)]  # 37 are ten of four


def test_a_policy_stays_what_it_was_and_is_what_is_saved(tmp_path):
    class Keeper(Callback):
        every = 110

        def __init__(self):
            self.policies = []

        def on_step(self, training):
            self.policies.append(training.policy())

    keeper = Keeper()
    run = train(tmp_path, JAX, keeper)
    obs = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
    first, _, last = (policy(obs) for policy in keeper.policies)
    assert np.array_equal(last, run.policy()(obs))
    assert not np.array_equal(first, last)


# --- logging --------------------------------------------------------------------------------


class Everything(Callback):
    """Logs, changes hyper-parameters and the environment, and remembers how often."""

    every = 55

    def __init__(self, levels=()):
        self.count, self.levels = 0, dict(levels)

    def on_start(self, training):
        training.set_hyper(tau=0.01)
        training.log("mine/starts", 1 + self.count)

    def on_step(self, training):
        self.count += 1
        training.log("mine/count", [self.count + 10 * m for m in range(training.members)])
        if self.count % 2:  # there is a row of another step
            training.log("mine/newest", training.metrics[0].get("mine/count", 0), member=0)
        if training.step >= 165:
            training.log("mine/late", training.step)
            training.set_hyper(gamma=0.9 - 0.1 * self.count)
        if training.step in self.levels:
            training.set_env(**self.levels[training.step])

    def on_exchange(self, training):
        rates = training.hypers["actor_lr"]
        training.set_hyper(actor_lr=rates / 2)
        training.log("mine/copies", training.parents)

    def state(self):
        return {"count": self.count}

    def restore(self, state):
        self.count = state["count"]


LEVELS = {"jax": {110: {"slope": 0.1}, 275: {"slope": 0.2}}, "host": {110: {"level": 2.0}}}
LEVELS |= {"population": {165: {"slope": 0.1}}}
STOPS = {"jax": 220, "host": 110, "population": 220}


@pytest.mark.cases(1)
@KINDS
def test_stop_and_continue_with_callbacks_equals_never_stopped(kind, tmp_path, request):
    """Host environments begin new episodes at these steps anyway."""
    levels, step = (x[request.node.callspec.id] for x in (LEVELS, STOPS))
    whole = train(tmp_path, kind, Everything(levels))
    run = stopped(tmp_path, step, kind, Everything(levels))
    again = Everything(levels)
    thespis.resume(run.path, env=kind["env"], callbacks=[again], progress=False)
    same(whole.path, run.path)
    assert again.count == 6

    table = whole.metrics
    first = table["member"] == 0
    assert table["mine/starts"][first][0] == 1
    assert np.isnan(table["mine/starts"][first][1:]).all()
    assert table["mine/count"][first].tolist() == [2, 4, 6]
    assert table["mine/newest"][first].tolist() == [0, 2, 4]
    assert table["mine/late"][first].tolist()[1:] == [220, 330]
    assert table["hparams/tau"][table["step"] == 110] == pytest.approx(0.01)
    # A row has what the updates before it used.
    assert table["hparams/gamma"][first].tolist()[1:] == pytest.approx([0.6, 0.4])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("eval/mean_reward", 1.0, "the run already has a metric of that name"),
        ("a,b", 1.0, "give a name without commas"),
        ("mine", [1.0, 2.0], "2 values for 1 members"),
        ("mine", "high", r"log\('mine'\): high is not a number, nor one per member"),
        ("mine", [[1.0, 2.0]], "is not a number, nor one per member; log_image and log_histogram"),
    ],
)
def test_what_cannot_be_logged_is_refused(name, value, message, tmp_path):
    class Wrong(Callback):
        def on_start(self, training):
            training.log(name, value)

    with pytest.raises(ThespisError, match=message):
        train(tmp_path, JAX, Wrong())


class Painter(Callback):
    every = 110

    def on_step(self, training):
        training.log_image("mine/image", np.full((4, 6, 3), training.step / 1000), member=1)
        training.log_histogram("mine/histogram", np.arange(10))

    def on_end(self, training, state):
        training.log_image("mine/last", np.eye(3))


def shown(folder) -> list[tuple[str, str, int]]:
    """What TensorBoard has beside numbers: folder, name, step."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.rglob("events*")):
        for record, _ in metrics.media_records(path):
            event = Event.FromString(record[12:-4])
            found += [(path.parent.name, value.tag, event.step) for value in event.summary.value]
    return sorted(found)


def test_images_and_histograms_are_shown_and_stay_when_a_run_goes_on(tmp_path, monkeypatch):
    fake = Fake()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    given = {"seeds": (0, 1), "updates_per_step": 0, "wandb": "stage"}
    run = train(tmp_path, JAX, Painter(), **given)
    both = lambda step: [
        ("member_0", "mine/histogram", step),
        ("member_1", "mine/image", step),
    ]
    whole = sorted([*both(110), *both(220), *both(330), ("member_0", "mine/last", 330)])
    assert shown(run.path) == whole
    _, second = fake.runs
    images = [row for row in second.rows if "mine/image" in row]
    assert [row["global_step"] for row in images] == [110, 220, 330]
    assert images[0]["mine/image"].shape == (4, 6, 3)
    assert (images[0]["mine/image"] == 28).all()

    run = stopped(tmp_path, 220, JAX, Painter(), **given)
    assert ("member_0", "mine/last", 220) in shown(run.path)
    again = [Painter()]
    thespis.resume(run.path, env=Slope(), callbacks=again, progress=False)
    assert shown(run.path) == sorted([*whole, ("member_0", "mine/last", 220)])


def test_images_at_a_checkpoint_between_two_rows_stay_when_a_run_goes_on(tmp_path):
    painter = Painter()
    painter.every = 70
    given = {"updates_per_step": 0, "seeds": (0, 1)}
    run = stopped(tmp_path, 140, JAX, painter, **given)
    assert 140 not in run.metrics["step"]
    thespis.resume(run.path, env=Slope(), callbacks=[painter], progress=False)
    steps = [step for _, name, step in shown(run.path) if name == "mine/image"]
    assert steps == [70, 140, 210, 280]


# --- stopping -------------------------------------------------------------------------------


class Stopper(Callback):
    every = 20

    def __init__(self, event="on_step"):
        self.ends = []
        setattr(self, event, lambda training, *rest: training.stop("enough"))

    def on_end(self, training, state):
        self.ends.append((training.step, state))


@pytest.mark.parametrize(
    ("event", "step"), [("on_start", 0), ("on_step", 20), ("on_evaluation", 110)]
)
def test_a_callback_ends_the_run_which_says_so_and_may_go_on(event, step, tmp_path, capsys):
    stopper = Stopper(event)
    run = train(tmp_path, JAX, stopper, updates_per_step=0)
    assert run.status == {"state": "done", "step": step, "reason": "Stopper: enough"}
    assert stopper.ends == [(step, "done")]
    assert f"step {step}: ended by Stopper: enough" in capsys.readouterr().err
    longer = thespis.resume(run.path, steps=330, env=Slope(), callbacks=[], progress=False)
    assert longer.status == {"state": "done", "step": 330}


# --- hyper-parameters -----------------------------------------------------------------------


def test_changes_of_a_population_are_in_the_lineage_and_can_be_run_again(tmp_path):
    class Cooler(Callback):
        every = 165

        def on_step(self, training):
            rates = training.hypers["actor_lr"]
            rates[0] = 1e-5
            training.set_hyper(actor_lr=rates)

    given = {"pbt.tuned": ("actor_lr",), "pbt.replaced": 0, "pbt.best": 1, "pbt.interval": 110}
    run = train(tmp_path, POPULATION, Cooler(), updates_per_step=0, **given)
    table = run.lineage
    mine = np.flatnonzero((table["step"] == 165) & (table["member"] == 0))
    assert table["after/actor_lr"][mine].tolist() == pytest.approx([1e-5])
    assert np.isnan(table["score"][mine]).all()
    assert table["parent"][mine].tolist() == [0]
    first = run.metrics["member"] == 0
    assert run.metrics["hparams/actor_lr"][first][1] == pytest.approx(1e-5)
    again = thespis.rerun(run.path, member=0, env=Slope(), out=tmp_path / "again", progress=False)
    rates = again.metrics["hparams/actor_lr"]
    assert rates.tolist() == run.metrics["hparams/actor_lr"][first].tolist()


def test_a_run_whose_changes_are_in_no_lineage_cannot_be_run_again(tmp_path):
    run = train(tmp_path, JAX, Everything(), updates_per_step=0)
    with pytest.raises(ThespisError, match="changed gamma, tau beside it: train anew with these"):
        thespis.rerun(run.path, env=Slope(), out=tmp_path, progress=False)


def test_a_change_compiles_nothing(tmp_path):
    class Counter(Everything):
        every = 110
        compiled: ClassVar[list[float]] = []

        def on_evaluation(self, training):
            self.compiled.append(training._trainer.ledger.programs.get("epoch", 0.0))

    run = train(tmp_path, JAX, Counter())
    assert run.metrics["hparams/gamma"].tolist() == pytest.approx([0.99, 0.99, 0.7])
    assert len({*Counter.compiled}) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gama": 0.9}, "unknown hyper-parameter 'gama'; did you mean gamma"),
        ({"gamma": 1.5}, "gamma = 1.5 is out of range"),
        ({"gamma": [0.9, 0.8]}, "gamma has 2 values for 1 members"),
    ],
)
def test_what_cannot_be_changed_is_refused(given, message, tmp_path):
    class Wrong(Callback):
        every = 10

        def on_step(self, training):
            training.set_hyper(**given)

    with pytest.raises(ThespisError, match=rf"callback Wrong, step 10: on_step .*{message}"):
        train(tmp_path, JAX, Wrong())


class Climber(Callback):
    every = 110

    def __init__(self, **attributes):
        self.attributes = attributes

    def on_step(self, training):
        if training.step == 110:
            training.set_env(**self.attributes)


# --- faults ---------------------------------------------------------------------------------


class Broken(Callback):
    every = 150

    def __init__(self):
        self.ends = []

    def on_step(self, training):
        json.loads("the\nprompter")  # raises an error elsewhere; the line of this file is told

    def on_end(self, training, state):
        self.ends.append((training.step, state))
        raise RuntimeError("again")


def test_an_error_is_one_line_that_names_the_callback_and_loses_nothing(plain, tmp_path, capsys):
    broken = Broken()
    with pytest.raises(ThespisError) as error:
        train(tmp_path, JAX, broken)
    text = str(error.value)
    assert "\n" not in text
    assert "callback Broken, step 150: on_step raised JSONDecodeError" in text
    assert f"(test_callbacks.py, line {Broken.on_step.__code__.co_firstlineno + 1})" in text
    assert "saved up to step 110: thespis.resume(" in text
    assert "callbacks=..." in text
    assert broken.ends == [(110, "failed")]
    assert "callback Broken: on_end raised RuntimeError: again" in capsys.readouterr().err
    (folder,) = (tmp_path / "sac").iterdir()
    assert thespis.load(folder, env=Slope()).status["state"] == "failed"
    with pytest.raises(ThespisError, match="has callbacks = Broken, which were given as objects"):
        thespis.resume(folder, env=Slope(), progress=False)
    thespis.resume(folder, env=Slope(), callbacks=[], progress=False)
    same(plain.path, folder)


@pytest.mark.parametrize("what", ["log", "stop", "set_hyper", "set_env"])
def test_what_would_not_be_saved_is_refused(what, tmp_path):
    class Late(Callback):
        def on_checkpoint(self, training):
            arguments = {"log": ("mine", 1.0), "stop": ()}.get(what)
            given = {} if arguments is not None else {"gamma": 0.5}
            getattr(training, what)(*arguments or (), **given)

    with pytest.raises(ThespisError, match=f"{what}.*: on_checkpoint may read, note"):
        train(tmp_path, JAX, Late())


@pytest.mark.slow
def test_one_member_goes_on_without_the_callbacks_of_all(tmp_path, capsys):
    levels = {110: {"slope": 0.1}}
    run = train(tmp_path, JAX, Everything(levels), seeds=(0, 1), updates_per_step=0)
    given = {"env": Slope(), "out": tmp_path / "one", "progress": False}
    one = thespis.resume(run.path, steps=440, member=1, **given)
    assert "stay behind (Everything): give callbacks" in capsys.readouterr().err
    both = run.metrics["mine/count"][run.metrics["member"] == 1]
    assert one.metrics["mine/count"][:3].tolist() == both.tolist()
    assert np.isnan(one.metrics["mine/count"][3])
