"""Collectors far away: whole rows, weights that are not too old, and clean cuts after a loss."""

from contextlib import contextmanager
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests.cluster.dated import Dated
from tests.cluster.far import Deadly, FakeRay, Falling, Lives, Meeting
from tests.engine.clerks import Clerk, assert_equal, rows_of
from tests.small import arguments
from thespis.cluster import collectors
from thespis.cluster.collecting import Collecting
from thespis.cluster.collectors import LAG, LOST, WAIT, CollectorDriver
from thespis.engine.loop import Loop
from thespis.envs.gymnasium import Gymnasium
from thespis.errors import ThespisError
from thespis.runs.config import make
from thespis.tuning import hyper

ENVS, SYNC, AHEAD = 4, 5, 2
SEEDS = jnp.array([0], jnp.int32)


class Stage:
    """A driver on a Ray that is none, and the function that trains on it."""

    def __init__(self, env=Lives, deaths=(), count=2):
        self.ray, self.notes = FakeRay(deaths), []
        env = Gymnasium(env)
        loop = Loop(Dated(env.spec), env, ENVS, 60)
        self.driver = CollectorDriver(loop, SEEDS, count, SYNC, AHEAD, note=self.notes.append)
        self.hps = hyper.fill(Clerk.Hyper, {}, 1)

    def train(self, *lengths, learner=None, learn=True):
        learner = self.driver.init(SEEDS, self.hps) if learner is None else learner
        for length in lengths:
            given = self.hps, None, SEEDS, length, "explore", learn
            learner = self.driver.run(learner, *given)
        return learner


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    """Drivers use the Ray of their stage, if there is one."""
    real = collectors.connect

    @contextmanager
    def connect(address):
        if Stage.current is not None:
            yield Stage.current.ray
            return
        with real(address) as ray:
            yield ray

    monkeypatch.setattr(collectors, "connect", connect)
    monkeypatch.setattr(Stage, "current", None, raising=False)


def staged(*args, **options):
    Stage.current = Stage(*args, **options)
    return Stage.current


@pytest.fixture(scope="module")
def programs():
    """Learning is compiled once for all stages."""
    return {}


@pytest.fixture(autouse=True)
def kept(programs, monkeypatch):
    compile_ = CollectorDriver.compile_learning

    def keep(self, learn):
        key = learn, self.loop.algo, self.loop.capacity
        if key not in programs:
            programs[key] = compile_(self, learn)
        return programs[key]

    monkeypatch.setattr(CollectorDriver, "compile_learning", keep)
    act = Collecting.compile

    def kept_act(self):
        key = self.loop.algo, self.loop.envs, self.task.collectors
        if key not in programs:
            programs[key] = act(self)
        return programs[key]

    monkeypatch.setattr(Collecting, "compile", kept_act)


# --- rows -----------------------------------------------------------------------------------


def test_rows_of_all_slices_are_one_and_follow_each_other():
    stage = staged()
    rows = rows_of(stage.train(30))
    steps, name, shown = (rows.obs[..., i] for i in (0, 2, 3))
    final = rows.terminated | rows.truncated
    assert final.any()
    assert (steps[0] == 0).all()
    np.testing.assert_array_equal(steps[1:], np.where(final[:-1], 0, steps[:-1] + 1))
    heard = np.where(final[:-1], 0, 2 + 4 * rows.action[:-1, ..., 0])
    np.testing.assert_allclose(shown[1:], heard, atol=1e-5)
    np.testing.assert_array_equal(rows.extra["age"], steps)  # memories live at the collectors
    assert len(np.unique(name[0])) == ENVS  # each has a seed of its own
    assert len(np.unique(rows.action)) == rows.action.size  # and noise of its own
    times = np.arange(30)[:, None, None] * ENVS
    np.testing.assert_array_equal(rows.extra["step"], np.broadcast_to(times, name.shape))


def test_weights_are_those_of_the_learner_two_blocks_ago_and_no_older():
    stage = staged()
    learner = stage.train(30)
    block = np.arange(30) // SYNC
    made = ENVS * SYNC * np.maximum(block - AHEAD + 1, 0)
    rows = rows_of(learner)
    np.testing.assert_array_equal(rows.extra["made"][:, 0, 0], made)
    lag = ENVS * np.arange(30) - rows.extra["made"][:, 0, 0]
    assert lag.max() < AHEAD * SYNC * ENVS
    measures = stage.driver.measures()
    assert measures[LAG] == lag.mean()
    assert measures[LOST] == 0
    assert learner.clock.updates == 30 * ENVS
    assert stage.driver.measures().keys() == {*stage.driver.measured} - {LAG}  # no rows since then


def test_no_more_blocks_are_asked_for_than_that():
    stage = staged()
    stage.train(1)
    asked = [args for _, name, args in stage.ray.calls if name == "collect"]
    assert sorted(start for _, start, *_ in asked) == [0, 0, SYNC, SYNC]
    stage.train(3 * SYNC, learner=stage.train(1))


def test_epochs_of_any_length_give_the_same():
    whole, parts = staged().train(24), None
    stage = staged()
    parts = stage.train(1, 7, 2, 10, 4)
    assert_equal(whole, parts)


# --- losses ---------------------------------------------------------------------------------


def test_a_collector_that_is_lost_is_started_again_and_its_episodes_are_cut():
    """The sixth block is the third of the second collector."""
    stage = staged(deaths=[5])
    learner = stage.train(30)
    rows, whole = rows_of(learner), rows_of(staged().train(30))
    final = rows.terminated | rows.truncated
    cut = 2 * SYNC - 1
    assert final[cut, 0, 2:].all()
    assert not (rows.terminated & rows.truncated).any()
    steps = rows.obs[..., 0]
    np.testing.assert_array_equal(steps[1:], np.where(final[:-1], 0, steps[:-1] + 1))
    assert not set(rows.obs[cut + 1 :, 0, 2:, 2].flat) & set(rows.obs[: cut + 1, 0, 2:, 2].flat)
    assert_equal(rows.obs[:, :, :2], whole.obs[:, :, :2])  # the other goes on
    np.testing.assert_array_equal(rows.terminated[:cut], whole.terminated[:cut])
    assert stage.notes == [f"step {2 * SYNC * ENVS}: collector 1 is lost and started again"]
    assert stage.driver.measures()[LOST] == 1
    assert len(stage.ray.killed) == 1  # it may live on, out of reach
    view = learner.replay.view(jnp.int32(0))
    batch = jax.jit(lambda: view.transitions(random.key(0), 500, 0.9, n=3))()
    valid = np.asarray(batch.valid, bool)
    name, after = (np.asarray(x[..., 2])[valid] for x in (batch.obs, batch.next_obs))
    np.testing.assert_array_equal(name, after)


class FallsAfterLoss(Lives):
    """Raises at its third step, if a collector was lost before."""

    count = 0

    def step(self, action):
        self.count += 1
        if self.count == 3 and Stage.current.ray.killed:
            raise RuntimeError("the curtain fell")
        return super().step(action)


def test_faults_after_a_loss_name_the_step_of_the_run():
    """The second collector begins again with its third block."""
    with pytest.raises(ThespisError, match=f"environment 2, step {(2 * SYNC + 3) * ENVS}, seed 0"):
        staged(FallsAfterLoss, deaths=[5]).train(30)


def test_a_collector_that_is_lost_before_it_begins_is_started_again():
    stage = staged()
    stage.ray.unborn = 2
    rows = rows_of(stage.train(12))
    assert_equal(rows, rows_of(staged().train(12)))
    assert stage.notes == ["collector 0 is lost and started again"] * 2
    assert len(stage.ray.killed) == 2
    stage = staged()
    stage.ray.unborn = 3
    with pytest.raises(ThespisError, match="collector 0 cannot begin: the actor died"):
        stage.train(12)


def test_one_that_never_delivers_ends_the_run_in_one_line():
    with pytest.raises(ThespisError, match="collector 0 ended 3 times in a row .*: the actor died"):
        staged(deaths=range(100)).train(30)


def test_going_on_begins_new_episodes_and_cuts_the_old_ones():
    stage = staged()
    learner = stage.train(12)
    old = [part.actor for part in stage.driver.parts]
    learner = stage.train(12, learner=stage.driver.resume(learner))
    rows = rows_of(learner)
    assert (rows.terminated | rows.truncated)[11].all()
    assert (rows.obs[12, ..., 0] == 0).all()
    assert stage.ray.killed == old
    stage.driver.close()
    assert len(stage.ray.killed) == 4


# --- faults and attributes ------------------------------------------------------------------


def test_a_fault_is_told_with_its_environment_and_seed():
    with pytest.raises(ThespisError) as caught:
        staged(Falling).train(40)
    text = str(caught.value)
    assert text.endswith("RuntimeError: the curtain fell")
    assert text.startswith("Falling, environment ")
    assert ", seed 0: " in text


def test_attributes_reach_all_collectors():
    stage = staged()
    stage.driver.prepare()
    stage.driver.envs.set_attr("fault", "yes")
    for part in stage.driver.parts:
        assert [env.fault for env in part.actor.thing.work.envs.envs] == ["yes"] * 2
    with pytest.raises(ThespisError, match="Lives has no attribute 'faults'"):
        stage.driver.envs.set_attr("faults", "no")


def test_a_collector_that_is_lost_while_attributes_are_set_has_them_when_it_is_back():
    stage = staged()
    stage.driver.prepare()
    stage.driver.parts[1].actor.dead = True
    stage.driver.attributes["tempo"] = 2.0
    stage.driver.envs.set_attr("tempo", 2.0)
    stage.train(12)
    for part in stage.driver.parts:
        assert [env.tempo for env in part.actor.thing.work.envs.envs] == [2.0] * 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"envs": 3}, "collectors = 2 cannot share 3 environment"),
        ({"envs": 2, "seeds": (0, 1)}, "collectors = 2 are for one member"),
        ({"envs": 2, "env_workers": 2}, "collectors = 2 step the environments themselves"),
        ({"envs": 2, "sync_freq": 50, "max_lag": 40}, "max_lag = 40 is less than sync_freq = 50"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(given, text):
    with pytest.raises(ThespisError, match=text):
        make("sac", {"env": "Pendulum-v1", "collectors": 2} | given)


@pytest.mark.parametrize("name", ["sync_freq", "max_lag"])
def test_what_is_for_collectors_is_refused_without_them(name):
    with pytest.raises(ThespisError, match=f"{name} = 40 is for collectors: give collectors"):
        make("sac", {"env": "Pendulum-v1", name: 40})


def test_environments_in_jax_need_no_collectors(tmp_path):
    with pytest.raises(ThespisError, match="collectors = 1 are for environments of Gymnasium"):
        thespis.train("sac", out=tmp_path, **arguments(collectors=1))
    with pytest.raises(ThespisError, match="group and deadline are for groups on ray"):
        thespis.train("sac", "Pendulum-v1", out=tmp_path, collectors=1, ray=True, group=2)


def test_defaults_are_whole_iterations():
    config = make("sac", {"env": "Pendulum-v1", "collectors": 2, "envs": 4})
    assert (config.sync_freq, config.max_lag) == (40, 80)
    config = make("sac", {"env": "Pendulum-v1", "collectors": 2, "envs": 4, "sync_freq": 41})
    assert config.sync_freq == 44


# --- whole runs -----------------------------------------------------------------------------


def test_a_run_logs_what_collectors_do(tmp_path):
    Stage.current = SimpleNamespace(ray=FakeRay())
    given = arguments(env="Pendulum-v1", envs=2, collectors=2, steps=80, updates_per_step=0)
    given |= {"learning_starts": 40, "log_freq": 40, "checkpoint_freq": 80, "eval_freq": 1000}
    run = thespis.train("sac", out=tmp_path, **given | {"eval_episodes": 1, "hidden": (8, 8)})
    assert run.metrics["step"].tolist() == [40, 80]
    assert (run.metrics[LAG] < run.config.max_lag).all()
    assert run.metrics[LOST].tolist() == [0, 0]
    assert (run.metrics[WAIT] > 0).all()
    assert len(Stage.current.ray.killed) == 2


# --- on Ray itself --------------------------------------------------------------------------


@pytest.mark.posix
@pytest.mark.thorough  # as on a Ray that is none, above
def test_a_real_collector_that_is_killed_is_started_again(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("JAX_FAR_MARK", str(tmp_path / "mark"))
    before = rows_of(staged().train(10))
    stage, Stage.current = Stage(Deadly), None
    try:
        rows = rows_of(stage.train(30))
    finally:
        stage.driver.close()
    assert_equal(jax.tree.map(lambda x: x[:10], rows), before)  # wherever they are collected
    assert stage.driver.measures()[LOST] == 1
    assert len(stage.notes) == 1
    final, steps = rows.terminated | rows.truncated, rows.obs[..., 0]
    np.testing.assert_array_equal(steps[1:], np.where(final[:-1], 0, steps[:-1] + 1))


@pytest.mark.slow
@pytest.mark.posix
def test_real_collectors_train_though_one_is_killed(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("JAX_FAR_MARK", str(tmp_path / "mark"))
    given = arguments(env=Deadly, envs=4, collectors=2, steps=240, hidden=(8, 8), batch_size=16)
    given |= {"learning_starts": 80, "log_freq": 80, "checkpoint_freq": 240, "eval_freq": 240}
    run = thespis.train("sac", out=tmp_path, **given)
    assert run.status["state"] == "done"
    assert run.metrics[LOST][-1] == 1
    assert (run.metrics[LAG] < run.config.max_lag).all()
    assert run.metrics["train/n_updates"][-1] == 160
    run = thespis.resume(run.path, 320, env=Deadly, progress=False)
    assert run.metrics["train/n_updates"][-1] == 240


@pytest.mark.slow
@pytest.mark.posix
def test_real_collectors_step_at_the_same_time(tmp_path, monkeypatch):
    """No step of these ends before all four are in it."""
    pytest.importorskip("ray")
    monkeypatch.setenv("JAX_FAR_MARK", str(tmp_path))
    stage = Stage(Meeting, count=ENVS)
    try:
        learner = stage.train(10)
    finally:
        stage.driver.close()
    assert learner.clock.iteration == 10
    assert len(list(tmp_path.iterdir())) >= 9 * ENVS


@pytest.mark.slow
@pytest.mark.optimised
def test_sac_learns_from_four_real_collectors(tmp_path):
    pytest.importorskip("ray")
    given = {"env": "Pendulum-v1", "steps": 20_000, "envs": 4, "collectors": 4, "hidden": (64, 64)}
    run = thespis.train("sac", out=tmp_path, progress=False, **given)
    assert run.metrics["eval/mean_reward"][-1] > -180
