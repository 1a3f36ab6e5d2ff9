"""What every environment promises, whoever wrote it and wherever it runs."""

import gymnasium
import jax
import numpy as np
import pytest

from tests.envs.toys import HIGH, LOW, Running, tally
from thespis.core import Box
from thespis.envs import label, make
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import Acrobot, CartPole, Catch, MountainCar, Pendulum, PointMass
from thespis.envs.gymnasium import Gymnasium

both = pytest.mark.parametrize("kind", ["jax", "host"])


# --- on a task whose observations tell all --------------------------------------------------


@both
def test_the_last_observation_of_an_episode_is_its_true_one(kind):
    env = tally(kind, end=3)
    env.reset()
    steps = [env.step(env.idle()) for _ in range(3)]
    np.testing.assert_array_equal([s.obs[:, 0] for s in steps], [[1, 1], [2, 2], [3, 3]])
    np.testing.assert_array_equal([s.reward for s in steps], [[1, 1], [2, 2], [3, 3]])
    np.testing.assert_array_equal([s.terminated.any() for s in steps], [False, False, True])


@both
def test_the_step_after_an_end_starts_anew_and_is_no_transition(kind):
    env = tally(kind, end=1)
    env.reset()
    assert env.step(env.idle()).terminated.all()
    fresh = env.step(np.ones((2, 2), np.float32))
    np.testing.assert_array_equal(fresh.obs[:, [0, 2, 3]], np.zeros((2, 3)))  # action ignored
    np.testing.assert_array_equal(fresh.reward, [0, 0])
    assert not (fresh.terminated | fresh.truncated).any()
    assert env.step(env.idle()).terminated.all()  # and that new episode goes on as usual


@both
def test_every_episode_has_a_start_state_of_its_own(kind):
    env = tally(kind, n=3, end=1)
    starts = [env.reset().obs[:, 1]]
    for _ in range(5):
        env.step(env.idle())
        starts.append(env.step(env.idle()).obs[:, 1])
    assert len(np.unique(starts)) == 18


@both
def test_only_the_environment_that_ended_starts_anew(kind):
    env = tally(kind, limit=4)
    env.reset()
    if kind == "jax":  # put the second environment one step behind
        behind = env.state.time.at[1].set(-1)
        env.state = type(env.state)(env.state.task, behind, env.state.final)
    else:
        env.host.envs[1].limit = 5
    ends = [env.step(env.idle()).truncated.tolist() for _ in range(6)]
    assert ends[3:] == [[True, False], [False, True], [False, False]]


@both
def test_a_time_limit_truncates_and_does_not_terminate(kind):
    env = tally(kind, limit=2)
    env.reset()
    assert not env.step(env.idle()).truncated.any()
    cut = env.step(env.idle())
    assert cut.truncated.all()
    assert not cut.terminated.any()
    np.testing.assert_array_equal(cut.obs[:, 0], [2, 2])


@both
def test_an_end_at_the_time_limit_is_a_termination(kind):
    env = tally(kind, end=2, limit=2)
    env.reset()
    env.step(env.idle())
    end = env.step(env.idle())
    assert end.terminated.all()
    assert not end.truncated.any()


@both
@pytest.mark.parametrize(
    ("given", "received"),
    [
        (-1.0, LOW),
        (1.0, HIGH),
        (0.0, (-1.0, 0.4)),
        (0.5, (0.0, 0.55)),
        (-7.0, LOW),
        (np.inf, HIGH),
    ],
)
def test_actions_are_rescaled_to_the_bounds_of_each_dimension(kind, given, received):
    env = tally(kind)
    env.reset()
    obs = env.step(np.full((2, 2), given, np.float32)).obs
    np.testing.assert_allclose(obs[:, 2:], [received] * 2, rtol=1e-6)
    if abs(given) >= 1:  # bounds are met exactly, so that no environment complains
        np.testing.assert_array_equal(obs[:, 2:], np.float32([received] * 2))


@both
def test_random_actions_cover_the_whole_range_of_the_environment(kind):
    env = tally(kind, n=200)
    env.reset()
    action = np.random.default_rng(0).uniform(-1, 1, (200, 2)).astype(np.float32)
    received = env.step(action).obs[:, 2:]
    assert ((received >= np.float32(LOW)) & (received <= np.float32(HIGH))).all()
    width = np.subtract(HIGH, LOW)
    np.testing.assert_allclose(received.min(0), LOW, atol=0.05 * width.max())
    np.testing.assert_allclose(received.max(0), HIGH, atol=0.05 * width.max())


@both
def test_a_seed_fixes_everything_and_environments_differ(kind):
    def play(seed):
        env = tally(kind, end=2, seed=seed)
        return np.array([env.reset().obs, *(env.step(env.idle()).obs for _ in range(8))])

    np.testing.assert_array_equal(play(3), play(3))
    assert (play(3)[0] != play(4)[0]).any()
    assert (play(3)[:, 0] != play(3)[:, 1]).any()


@both
def test_what_was_returned_is_never_changed_later(kind):
    env = tally(kind)
    first = env.reset()
    before = jax.tree.map(np.copy, first)
    env.step(np.ones((2, 2), np.float32))
    jax.tree.map(np.testing.assert_array_equal, first, before)


# --- on real ones ---------------------------------------------------------------------------

REAL = {
    "pendulum": lambda: Autoreset(Pendulum(limit=7)),
    "mountain-car": lambda: Autoreset(MountainCar(limit=7)),
    "cartpole": lambda: Autoreset(CartPole(limit=30)),
    "acrobot": lambda: Autoreset(Acrobot(limit=7)),
    "pointmass": lambda: Autoreset(PointMass(limit=7)),
    "catch": lambda: Autoreset(Catch()),
    "Pendulum-v1": lambda: Gymnasium("Pendulum-v1"),
    "MountainCarContinuous-v0": lambda: Gymnasium("MountainCarContinuous-v0"),
    "CartPole-v1": lambda: Gymnasium("CartPole-v1"),
    "FrozenLake-v1": lambda: Gymnasium("FrozenLake-v1"),
    "Blackjack-v1": lambda: Gymnasium("Blackjack-v1"),
}


@pytest.mark.cases(5)
@pytest.mark.parametrize("name", REAL)
def test_real_environments_keep_the_contract(name):
    keeps_the_contract(REAL[name]())


def test_mujoco_keeps_the_contract():
    pytest.importorskip("mujoco")
    pytest.importorskip("imageio")
    keeps_the_contract(Gymnasium(lambda: gymnasium.make("Hopper-v5", max_episode_steps=60)))


def test_brax_keeps_the_contract():
    pytest.importorskip("brax")
    from thespis.envs.brax import Brax

    keeps_the_contract(Autoreset(Brax("inverted_pendulum", limit=7)))


@pytest.mark.parametrize("name", ["Pendulum-v1", "CartPole-v1", "HalfCheetah-v4"])
def test_envpool_keeps_the_contract(name):
    pytest.importorskip("envpool")
    keeps_the_contract(make(f"envpool:{name}"))


def keeps_the_contract(env):
    run = Running(env, n=2)
    step = run.reset()
    rng = np.random.default_rng(0)
    starts, over, ends = [step.obs], np.zeros(2, bool), 0
    for _ in range(3 * env.limit if env.limit else 300):
        if isinstance(env.spec.action, Box):
            action = rng.uniform(-1, 1, (2, env.spec.action.size)).astype(np.float32)
        else:
            action = rng.integers(0, env.spec.action.n, 2).astype(np.int32)
        step = run.step(action)

        expected = jax.tree.map(lambda s: ((2, *s.shape), s.dtype), env.spec.obs)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), step.obs) == expected
        assert (step.reward.shape, step.reward.dtype) == ((2,), np.float32)
        assert step.terminated.dtype == step.truncated.dtype == np.bool_
        assert not (step.terminated & step.truncated).any()
        assert not (over & (step.terminated | step.truncated)).any()
        assert (step.reward[over] == 0).all()
        if over.any():
            starts.append(step.obs)
        over = step.terminated | step.truncated
        ends += over.sum()
    assert ends >= 2
    few_starts = ("FrozenLake-v1", "Blackjack-v1", "jax-catch")
    if label(env) not in few_starts:
        first = np.concatenate([np.reshape(x, (2, -1)) for x in starts])
        assert len(np.unique(first, axis=0)) == len(first)
