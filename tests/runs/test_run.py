"""A run on disk: its metrics, its policies in the environment's units, and their evaluation."""

import re
import shutil
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests.small import RUN, Toy, arguments
from thespis.algos import SAC
from thespis.core import ThespisError
from thespis.engine.rollout import FrozenPolicy
from thespis.runs import checkpoint, directory
from thespis.runs.build import build
from thespis.runs.config import make
from thespis.runs.run import Policy

pytestmark = pytest.mark.usefixtures("kept")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return thespis.train("sac", out=tmp_path_factory.mktemp("one"), **arguments())


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return thespis.train("sac", out=tmp_path_factory.mktemp("two"), **arguments(seeds=(0, 7)))


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """On an environment that was given as a class."""
    return thespis.train(
        "sac", out=tmp_path_factory.mktemp("toy"), **arguments(env=Toy, updates_per_step=0)
    )


def test_a_run_is_found_again_by_its_path(run):
    again = thespis.load(run.path)
    assert again.config == run.config
    assert again.status == {"state": "done", "step": 400}
    assert again.metrics.keys() == run.metrics.keys()
    assert repr(again) == f"Run({str(run.path)!r})"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_metrics_are_a_data_frame_with_a_row_per_step_and_member(pair, library):
    pytest.importorskip(library)
    frame, table = pair.frame(library), pair.metrics
    assert type(frame).__module__.startswith(library)
    assert list(frame.columns) == ["step", "member", "seed", *list(table)[2:]]
    assert list(frame["step"]) == [100, 100, 200, 200, 300, 300, 400, 400]
    assert list(frame["seed"]) == [0, 7] * 4
    assert np.array_equal(frame["eval/mean_reward"], table["eval/mean_reward"])
    before = frame["train/critic_loss"][0]  # the first update
    assert np.isnan(before) if library == "pandas" else before is None


def test_who_has_no_library_of_frames_is_told_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(
        ThespisError, match=r"^frame\('polars'\) .*: pip install 'thespis\[polars\]'$"
    ):
        run.frame("polars")
    with pytest.raises(ThespisError, match=r"^frame\(excel\): give pandas or polars$"):
        run.frame("excel")


# --- policies -------------------------------------------------------------------------------


def test_a_loaded_policy_acts_like_the_one_that_was_trained(run):
    obs = np.array([0.5, -0.5, 1.0], np.float32)
    assert np.array_equal(run.policy()(obs), thespis.load(run.path).policy()(obs))


def test_actions_are_in_the_environments_units_and_shape(run):
    policy = run.policy(stochastic=True)
    batch = np.random.default_rng(0).normal(size=(500, 3))
    actions = policy(batch)
    assert actions.shape == (500, 1)
    assert actions.dtype == np.float32
    assert 1.5 < np.abs(actions).max() <= 2.0  # Pendulum's torque
    assert policy(batch[0]).shape == (1,)


def test_a_greedy_policy_repeats_itself_and_a_stochastic_one_repeats_its_seed(run):
    obs = np.array([1.0, 0.0, 0.0])
    greedy, noisy = run.policy(), run.policy(stochastic=True)
    assert np.array_equal(greedy(obs), greedy(obs))
    first, second = noisy(obs), noisy(obs)
    assert not np.array_equal(first, second)
    noisy.reset()
    assert np.array_equal(noisy(obs), first)
    noisy.reset(seed=1)
    assert not np.array_equal(noisy(obs), first)


def test_a_policy_plays_in_a_plain_gymnasium_loop(toy):
    env, policy = Toy(), toy.policy()
    obs, _ = env.reset(seed=0)
    policy.reset()
    for _ in range(15):
        action = policy(obs)
        assert env.action_space.contains(action)
        obs, *_, truncated, _ = env.step(action)
    assert truncated


class Parts(gymnasium.Env):
    """Observations of several kinds, each of which networks see in another form."""

    observation_space = gymnasium.spaces.Dict(
        {
            "where": gymnasium.spaces.Box(-1, 1, (2,), np.float64),
            "mode": gymnasium.spaces.Discrete(3, start=1),
            "pair": gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 1, (), np.float32)]),
        }
    )
    action_space = gymnasium.spaces.Box(np.float32([0, -4]), np.float32([1, 4]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}


def test_observations_are_taken_as_the_environment_gives_them():
    loop, _ = build(make("sac", RUN | {"env": Parts}))
    hp = loop.algo.Hyper()
    state = jax.jit(loop.algo.init)(jax.random.key(0), hp)
    policy = Policy(loop, FrozenPolicy(state, hp, jnp.int32(0)))
    several = [Parts.observation_space.sample() for _ in range(4)]
    one_by_one = np.stack([policy(obs) for obs in several])
    assert one_by_one.shape == (4, 2)
    batch = {
        "where": np.stack([x["where"] for x in several]),
        "mode": np.array([x["mode"] for x in several]),
        "pair": (np.array([x["pair"][0] for x in several]),),
    }
    assert np.allclose(policy(batch), one_by_one, atol=1e-6)
    other = several[0] | {"mode": 1 + several[0]["mode"] % 3}
    assert not np.allclose(policy(other), one_by_one[0])


TASK = "give only the observation that reset returns: obs, info = env.reset()"


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (np.zeros(4), "on shape (4,): jax:pendulum has (3,), and a batch has one more axis"),
        (np.zeros((5, 4)), "on shape (5, 4): jax:pendulum has (3,)"),
        (np.zeros((2, 5, 3)), "on shape (2, 5, 3): jax:pendulum has (3,)"),
        (np.float32(0), "on shape (): jax:pendulum has (3,)"),
        ({"where": np.zeros(3)}, "on where: shape (3,): jax:pendulum has (3,)"),
        ("x", "on x: jax:pendulum has (3,)"),
        (None, "jax:pendulum has (3,)"),
        ((np.zeros(3), {}), TASK),
    ],
)
def test_an_observation_of_another_shape_is_refused(run, obs, message):
    with pytest.raises(ThespisError, match=re.escape(message)):
        run.policy()(obs)


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (np.zeros(9), "on shape (9,): Toy has (3,)"),
        (np.zeros((5, 9)), "on shape (5, 9): Toy has (3,)"),
        (np.zeros((2, 5, 3)), "on shape (2, 5, 3): Toy has (3,)"),
        ({"where": np.zeros(3)}, "on where: shape (3,): Toy has (3,)"),
        ((np.zeros(3), {}), TASK),
        (None, "Toy has (3,)"),
    ],
)
def test_so_is_one_in_python(toy, obs, message):
    policy = thespis.load(toy.path, env=Toy).policy()
    with pytest.raises(ThespisError, match=re.escape(message)):
        policy(obs)


# --- the training clock ---------------------------------------------------------------------


@pytest.fixture
def timed(monkeypatch):
    """Policies whose actions are thousandths of their training clock."""

    def act(self, state, hp, memory, obs, key, step, mode):
        size = len(jax.tree.leaves(obs)[0]), self.box.size
        return jnp.broadcast_to(step / 1000, size).astype(jnp.float32), memory, None

    monkeypatch.setattr(SAC, "act", act)


def clock(action):
    """Of actions of Pendulum."""
    return np.unique(np.round(1000 * np.asarray(action) / 2)).tolist()


@pytest.mark.parametrize("stochastic", [True, False])
def test_a_policy_acts_at_the_training_clock_it_was_saved_at(pair, timed, stochastic):
    best = checkpoint.manifest(checkpoint.latest(pair.path / "best")[0])["info"]["step"]
    for m, which, step in [(0, "last", 400), (1, "last", 400), (0, "best", best[0])]:
        policy = pair.policy(m, which, stochastic)
        assert [clock(policy(np.zeros(3))) for _ in range(3)] == [[step]] * 3
    for episode in pair.record(2, 1, "best", stochastic):
        assert clock(episode.action) == [best[1]]


def test_the_best_policy_of_each_member_has_a_clock_of_its_own(pair, tmp_path):
    copy = shutil.copytree(pair.path, tmp_path / "copy")
    path = checkpoint.latest(copy / "best")[0]
    again = thespis.load(copy)
    before = again.policies("best")
    parts = {"state": before.state, "hyper": before.hp}
    checkpoint.save(copy / "best", int(path.name) + 1, parts, {"reward": [0, 1], "step": [7, 9]})
    assert again.policies("best").step.tolist() == [7, 9]
    assert again.policies("last").step.tolist() == [400, 400]
    for wrong in ("soon", None, [1, 2, 3], [10**40, 1]):
        checkpoint.save(copy / "best", int(path.name) + 1, parts, {"reward": [0, 1], "step": wrong})
        with pytest.raises(ThespisError, match="is damaged: the step of a policy"):
            again.policies("best")


def test_demonstrations_on_the_host_are_at_the_training_clock(toy, timed):
    low, high = Toy().action_space.low, Toy().action_space.high
    wanted = low + (high - low) * (1 + 0.4) / 2
    for episode in toy.record(2, stochastic=True):
        np.testing.assert_allclose(episode.action, wanted[None].repeat(len(episode.action), 0))


# --- evaluation -----------------------------------------------------------------------------


def test_an_evaluation_tells_every_episode(run):
    result = run.evaluate(episodes=2)
    assert set(result) == {"mean_reward", "std_reward", "returns", "lengths"}
    assert len(result["returns"]) == 2
    assert result["lengths"] == [200] * 2
    assert result["mean_reward"] == pytest.approx(np.mean(result["returns"]))
    assert result["std_reward"] == pytest.approx(np.std(result["returns"]))
    assert run.evaluate(episodes=2) == result
    assert run.evaluate(episodes=2, seed=1) != result


def test_several_members_are_evaluated_side_by_side_or_alone(pair):
    both = pair.evaluate(episodes=2)
    assert np.shape(both["returns"]) == (2, 2)
    assert pair.evaluate(episodes=2, member=1)["returns"] == both["returns"][1]
    assert pair.evaluate(episodes=2, member="best")["returns"] in both["returns"]
    assert pair.evaluate(episodes=2, member="all") == both


def test_the_best_policy_reproduces_its_state(pair):
    info = checkpoint.manifest(checkpoint.latest(pair.path / "best")[0])["info"]
    assert pair.member("best", "best") == np.argmax(info["reward"])
    assert pair.member("best") == np.argmax(pair.metrics["eval/mean_reward"][-2:])
    obs = np.array([1.0, 0.0, 0.0])
    for m in (0, 1):
        same = np.array_equal(pair.policy(m, "best")(obs), pair.policy(m, "last")(obs))
        assert same == (info["step"][m] == 400)


@pytest.mark.parametrize("member", [2, -1, "two", "1.0", "²"])
def test_a_member_that_is_not_there_is_refused(pair, member):
    with pytest.raises(ThespisError, match=rf"member = {member}: .* has members 0 to 1; or give"):
        pair.policy(member)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"episodes": 0}, "episodes = 0: give at least 1"),
        ({"seed": -1}, "seed = -1: give a number from 0"),
        ({"which": "worst"}, "which = worst: give last or best"),
    ],
)
def test_evaluations_that_make_no_sense_are_refused(run, given, message):
    with pytest.raises(ThespisError, match=message):
        run.evaluate(**given)


def test_evaluating_writes_nothing(run):
    before = {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}
    thespis.load(run.path).evaluate(episodes=2)
    assert {p: p.stat().st_mtime_ns for p in run.path.rglob("*")} == before


# --- what may be missing --------------------------------------------------------------------


def test_an_environment_without_a_name_must_be_passed_again(toy):
    again = thespis.load(toy.path)
    assert len(again.metrics["step"]) == 4  # reading needs no environment
    with pytest.raises(
        ThespisError, match="env = Toy, which was given as an object: pass it as env"
    ):
        again.policy()
    obs = np.zeros(3, np.float32)
    assert np.array_equal(thespis.load(toy.path, env=Toy).policy()(obs), toy.policy()(obs))


def test_a_policy_may_be_evaluated_elsewhere(toy):
    longer = lambda: gymnasium.wrappers.TimeLimit(Toy(), 5)
    assert thespis.load(toy.path, Toy, longer).evaluate(episodes=2)["lengths"] == [5, 5]
    with pytest.raises(ThespisError, match="eval_env = jax-cartpole has observations float32"):
        thespis.load(toy.path, Toy, "jax:cartpole").evaluate(episodes=2)


def test_a_run_that_was_never_evaluated_has_no_best_policy(run, tmp_path):
    copy = shutil.copytree(run.path, tmp_path / "run")
    shutil.rmtree(copy / "best")
    again = thespis.load(copy)
    assert again.member("best") == 0
    assert len(again.evaluate(episodes=2)["returns"]) == 2
    with pytest.raises(ThespisError, match="has no best policy: it was never evaluated"):
        again.policy(which="best")


def test_a_damaged_checkpoint_is_passed_over_aloud(run, tmp_path, capsys):
    copy = shutil.copytree(run.path, tmp_path / "run")
    state = checkpoint.latest(copy / "checkpoints")[0] / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-8])
    thespis.load(copy).policy()
    told = capsys.readouterr()
    assert "state.safetensors is damaged" in told.err
    assert told.out == ""
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(ThespisError, match="no checkpoint to load in .*: there is none"):
        thespis.load(copy).policy()


def test_something_else_is_no_run(run, tmp_path):
    with pytest.raises(ThespisError, match="no run at"):
        thespis.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ThespisError, match="is not valid JSON"):
        thespis.load(tmp_path)
    directory.write_json(tmp_path / "config.json", {"algo": "sac"})
    with pytest.raises(ThespisError, match="is not the config of a run"):
        thespis.load(tmp_path)


def test_a_policy_is_used_where_there_is_no_memory_to_train_it(run, monkeypatch):
    """A replay of millions of rows is nothing that playing, evaluating or exporting needs."""
    monkeypatch.setattr("thespis.runs.sizes.memory", lambda: 0)
    again = thespis.load(run.path)
    assert np.isfinite(again.policy(0)(np.zeros(3, np.float32))).all()
    with pytest.raises(ThespisError, match="needs .* GiB and this machine has"):
        thespis.resume(run.path, steps=10**6, progress=False)
