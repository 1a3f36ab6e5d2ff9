"""Evaluation: whole episodes, each counted once whatever its length, and nothing else changes."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from tests.engine.clerks import Lives
from tests.engine.elders import Elder, Timed, frozen
from thespis import core
from thespis.core import Row
from thespis.engine.evaluation import Descriptor, Evaluator, average, final, first_episode, outcome
from thespis.engine.loop import Loop
from thespis.envs.autoreset import Autoreset
from thespis.envs.gymnasium import Gymnasium
from thespis.errors import ThespisError


class Turns(gymnasium.Env):
    """Short and long episodes by turns: rewards the second number of the action, and 1 per step."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Box(np.float32([-2, -1]), np.float32([6, 1]))
    lengths = (2, 9)
    starts = None  # a list, to write down all start states

    def __init__(self):
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        name = self.np_random.uniform()
        if self.starts is not None:
            self.starts.append(name)
        return np.float32([0, 0, name, 0]), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.lengths[self.episode % len(self.lengths)]
        return np.zeros(4, np.float32), 1 + float(action[1]), over, False, {}


class Endless(Turns):
    """Rewards how long ago it was reset."""

    lengths = (10**9,)

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, self.steps, *rest


class Broken(Turns):
    def step(self, action):
        raise RuntimeError("the curtain fell")


def by_age(steps):
    """What the actions of an Elder add to the return of an episode."""
    return 0.1 * np.sum(np.arange(steps))


def evaluator(env, members=1, episodes=12, mode="greedy", descriptor=None):
    """A function of seeds and time -> returns, lengths [members, episodes], and descriptors."""
    loop, policies = Loop(Elder(env.spec), env), frozen(members)
    play = Evaluator(loop, env, episodes, mode, descriptor)
    play = play if descriptor is None else play.play
    return lambda seed=0, time=0: play(
        policies, jnp.arange(seed, seed + members, dtype=jnp.int32), time
    )


# --- rows and their outcome -----------------------------------------------------------------


def flags(*columns):
    return jnp.array(columns, bool).T


def test_the_first_episode_includes_its_last_row():
    final = flags([0, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1])
    expected = flags([1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1])
    np.testing.assert_array_equal(first_episode(final), expected)


def test_the_outcome_counts_rewards_and_steps_of_the_first_episode():
    reward = jnp.array([[0.0, 1, 2, 0, 50], [0, 3, 4, 5, 6]]).T
    terminated, truncated = flags([0, 0, 1, 0, 1], [0] * 5), flags([0] * 5, [0, 0, 0, 0, 1])
    rows = Row(jnp.zeros((5, 2)), reward, terminated, truncated, jnp.zeros((5, 2)))
    returns, lengths = outcome(rows)
    np.testing.assert_array_equal(returns, [3, 18])
    np.testing.assert_array_equal(lengths, [2, 4])


def test_what_follows_the_first_episode_does_not_matter_even_if_it_is_nan():
    reward = jnp.array([[0.0, 1, jnp.nan]]).T
    rows = Row(reward, reward, flags([0, 1, 0]), flags([0, 0, 0]), reward)
    np.testing.assert_array_equal(outcome(rows)[0], [1])


# --- JAX environments -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_device():
    return evaluator(Autoreset(Lives()), members=2, episodes=40)


def test_episodes_that_end_early_or_at_the_limit_have_their_return(on_device):
    returns, lengths = on_device()
    assert returns.shape == lengths.shape == (2, 40)
    assert set(lengths.reshape(-1)) == {1, 2, 3, 4, 5}
    for steps in range(1, 6):
        # A length beyond the limit of 5 steps shows in the reward alone.
        per_step = (returns[lengths == steps] - 0.1 * by_age(steps)) / steps
        allowed = {steps} if steps < 5 else {5, 6, 7}
        assert set(np.round(per_step, 3)) <= allowed


def test_evaluation_depends_on_the_seeds_and_the_time_alone(on_device):
    a, b = on_device(seed=3, time=7), on_device(seed=3, time=7)
    np.testing.assert_array_equal(a, b)


def test_another_time_or_seed_has_other_episodes(on_device):
    returns = on_device(seed=3, time=7)[0]
    assert (returns != on_device(seed=3, time=8)[0]).any()
    assert (returns != on_device(seed=9, time=7)[0]).any()


def test_members_play_episodes_of_their_own(on_device):
    together, shifted = on_device(seed=3)[0], on_device(seed=4)[0]
    assert (together[0] != together[1]).any()
    np.testing.assert_array_equal(together[1], shifted[0])  # by its own seed, whoever is beside


def test_exploring_actions_are_evaluated_when_asked_for(on_device):
    explore = evaluator(Autoreset(Lives()), members=2, episodes=40, mode="explore")
    (greedy, lengths), (noisy, same) = on_device(), explore()
    np.testing.assert_array_equal(lengths, same)
    assert (greedy != noisy).all()
    np.testing.assert_allclose(greedy, noisy, atol=5 * 0.1 * 0.1)


# --- host environments ----------------------------------------------------------------------


def test_every_environment_plays_its_share_so_that_short_episodes_count_no_more():
    """Of 14 episodes ten are first ones, which are short, and four second ones, which are long."""
    _, lengths = evaluator(Gymnasium(Turns), members=2, episodes=14)()
    np.testing.assert_array_equal(lengths, [[2] * 10 + [9] * 4] * 2)


def test_returns_on_the_host_are_summed_by_hand_alike_and_memory_restarts():
    returns, _ = evaluator(Gymnasium(Turns), episodes=14)()
    expected = [2 + by_age(2)] * 10 + [9 + by_age(9)] * 4
    np.testing.assert_allclose(returns, [expected], rtol=1e-5)


def test_a_time_limit_ends_an_episode_on_the_host():
    limited = lambda: gymnasium.wrappers.TimeLimit(Turns(), 4)
    returns, lengths = evaluator(Gymnasium(limited), episodes=14)()
    np.testing.assert_array_equal(lengths, [[2] * 10 + [4] * 4])
    np.testing.assert_allclose(returns[0, -1], 4 + by_age(4), rtol=1e-6)


def test_an_environment_without_an_end_is_stopped_and_begins_anew(monkeypatch):
    monkeypatch.setattr(core, "LIMIT", 7)
    returns, lengths = evaluator(Gymnasium(Endless), episodes=14)()
    np.testing.assert_array_equal(lengths, [[7] * 14])
    np.testing.assert_array_equal(returns, [[1 + 2 + 3 + 4 + 5 + 6 + 7] * 14])


def test_an_environment_that_fails_on_the_host_is_told_to_be_in_an_evaluation():
    with pytest.raises(
        ThespisError,
        match=r"^Broken, environment 0, step 1 of an evaluation, seed 3: RuntimeError: the curtain",
    ):
        evaluator(Gymnasium(Broken), episodes=3)(seed=3)


@pytest.mark.parametrize("episodes", [1, 3, 25])
def test_any_number_of_episodes_is_played(episodes):
    returns, lengths = evaluator(Gymnasium(Turns), episodes=episodes)()
    assert returns.shape == lengths.shape == (1, episodes)
    expected = ([2] * 10 + [9] * 10 + [2] * 10)[:episodes]
    np.testing.assert_array_equal(lengths, [expected])


def starts(play, **options):
    Turns.starts = []
    try:
        play(**options)
        return list(Turns.starts)
    finally:
        Turns.starts = None


def test_start_states_on_the_host_depend_on_the_seeds_and_the_time_alone():
    play = evaluator(Gymnasium(Turns), episodes=3)
    first = starts(play, seed=3, time=7)
    assert len(set(first)) == len(first)
    assert starts(play, seed=3, time=7) == first
    for other in ({"seed": 3, "time": 8}, {"seed": 4, "time": 7}):
        assert not set(starts(play, **other)) & set(first)


def test_exploring_on_the_host_is_random_and_repeatable():
    play = evaluator(Gymnasium(Turns), episodes=3, mode="explore")
    greedy = evaluator(Gymnasium(Turns), episodes=3)()[0]
    assert (play(time=1)[0] != greedy).all()
    assert (play(time=1)[0] != play(time=2)[0]).all()
    np.testing.assert_array_equal(play(time=1)[0], play(time=1)[0])


def test_environments_are_closed_even_if_one_fails():
    closed = []

    class Broken(Turns):
        def step(self, action):
            raise RuntimeError("broken")

        def close(self):
            closed.append(self)

    play = evaluator(Gymnasium(Broken), episodes=3)
    closed.clear()
    with pytest.raises(Exception, match="broken"):
        play()
    assert len(closed) == 3


# --- descriptors ----------------------------------------------------------------------------


class Steps(Turns):
    """Observes the number of steps taken."""

    def step(self, action):
        _, *rest = super().step(action)
        return np.float32([self.steps, 0, 0, 0]), *rest


STEPS = lambda obs, env_state: obs[..., :1]


def test_the_final_descriptor_is_that_after_the_last_action():
    seen = jnp.arange(10.0).reshape(5, 2, 1)
    stepped = flags([0, 1, 1, 0, 0], [0, 1, 1, 1, 1])
    np.testing.assert_array_equal(final(seen, stepped), [[4], [9]])


def test_a_mean_descriptor_counts_the_steps_of_the_episode_alone():
    seen = jnp.array([[50.0, 1, 0, jnp.nan, jnp.nan], [50, 1, 1, 0, 0]]).T[..., None]
    stepped = flags([0, 1, 1, 0, 0], [0, 1, 1, 1, 1])
    np.testing.assert_array_equal(average(seen, stepped), [[0.5], [0.5]])


@pytest.mark.parametrize("env", [Autoreset(Lives()), Gymnasium(Steps)], ids=["device", "host"])
def test_episodes_that_end_early_have_their_descriptors(env):
    """An episode of n steps observes 0, 1, ... n."""
    at = {}
    for reduce in (final, average):
        play = evaluator(env, members=2, episodes=14, descriptor=Descriptor(reduce, STEPS))
        at[reduce] = play()
        assert at[reduce].descriptors.shape == (2, 14, 1)
    lengths = at[final].lengths
    assert len(set(lengths.reshape(-1))) > 1
    np.testing.assert_array_equal(at[final].descriptors[..., 0], lengths)
    np.testing.assert_allclose(at[average].descriptors[..., 0], (lengths + 1) / 2, rtol=1e-6)
    plain = evaluator(env, members=2, episodes=14)()
    np.testing.assert_array_equal(at[final].returns, plain[0])
    np.testing.assert_array_equal(at[final].lengths, plain[1])


def test_without_a_look_the_observation_describes():
    play = evaluator(Autoreset(Lives()), episodes=5, descriptor=Descriptor())
    assert play().descriptors.shape == (1, 5, 4)


def test_a_descriptor_may_look_into_the_environment_and_be_reduced_at_will():
    furthest = lambda seen, stepped: jnp.where(stepped[..., None], seen, -1.0).max(0)
    time = lambda obs, env_state: env_state.time[:, None].astype(jnp.float32)
    play = evaluator(Autoreset(Lives()), episodes=20, descriptor=Descriptor(furthest, time))()
    np.testing.assert_array_equal(play.descriptors[..., 0], play.lengths)


# --- the training clock ---------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: Autoreset(Lives()), lambda: Gymnasium(Turns)])
@pytest.mark.parametrize("mode", ["explore", "greedy"])
def test_members_are_evaluated_each_at_its_own_clock(make, mode):
    """What actions add to the return tells the clock, at every step of every episode."""
    env, seeds = make(), jnp.zeros(3, jnp.int32)  # the same episodes
    play = Evaluator(Loop(Timed(env.spec), env), env, 4, mode)
    returns, lengths = play(frozen(3, [0, 200, 700]), seeds, 5)
    np.testing.assert_array_equal(lengths, np.broadcast_to(lengths[0], lengths.shape))
    added = (returns - returns[0]) / lengths
    worth = 0.1 if isinstance(env, Autoreset) else 1.0
    wanted = np.broadcast_to([[0.0], [0.2], [0.7]], added.shape)
    np.testing.assert_allclose(added, worth * wanted, atol=1e-5)
