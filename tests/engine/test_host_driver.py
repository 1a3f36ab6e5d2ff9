"""Training around Python environments: nothing lost, nothing invented, and clean cuts."""

from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jax import random

from tests.engine.clerks import MANY, Clerk, assert_equal, clerks, rows_of
from thespis.engine import host_driver
from thespis.engine.host_driver import Bundle, HostDriver
from thespis.engine.loop import Loop
from thespis.envs.gymnasium import Gymnasium
from thespis.errors import ThespisError
from thespis.tuning import hyper

MEMBERS, ENVS, CAPACITY = 2, 3, 40


class Journal(gymnasium.Env):
    """Episodes of random lengths, up to 5 steps; writes down all that it was told and returned."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Box(np.float32([-2, -1]), np.float32([6, 1]))
    made: ClassVar[list] = []  # all instances

    def __init__(self):
        self.said, self.heard, self.seeds, self.closed = [], [], [], False
        Journal.made.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.steps, self.length = 0, int(self.np_random.integers(1, 8))
        self.name = self.np_random.uniform()
        return self.say(None, 0.0, 0.0, False, False)[0], {}

    def step(self, action):
        self.steps += 1
        reward = self.length + 0.1 * float(action[1])
        terminated = self.steps >= self.length
        return *self.say(action, action[0], reward, terminated, self.steps >= 5), {}

    def say(self, action, shown, reward, terminated, truncated):
        obs = np.float32([self.steps, self.length, self.name, shown])
        self.heard.append(action)
        self.said.append((obs, np.float32(reward), terminated, truncated and not terminated))
        return obs, reward, terminated, truncated

    def close(self):
        self.closed = True


def opened(seeds=(0, 1), capacity=CAPACITY):
    """A driver, and the function that trains from a learner or from the beginning."""
    Journal.made = []
    env = Gymnasium(Journal)  # which makes one to look at
    Journal.made = []
    hps = hyper.fill(Clerk.Hyper, {}, len(seeds))
    seeds = jnp.array(seeds, jnp.int32)
    driver = HostDriver(Loop(Clerk(env.spec), env, ENVS, capacity), seeds)

    def train(length, learner=None, mode="explore", learn=True):
        learner = driver.init(seeds, hps) if learner is None else learner
        return driver.run(learner, hps, None, seeds, length, mode, learn)

    return driver, train


def journal(envs):
    """What environments returned [time, members, envs]: obs, reward, terminated, truncated."""
    columns = zip(*(zip(*env.said, strict=True) for env in envs), strict=True)
    stack = lambda x: np.array(x).swapaxes(0, 1).reshape(-1, MEMBERS, ENVS, *np.shape(x)[2:])
    return tuple(stack(column) for column in columns)


def numpy(tree):
    return jax.tree.map(np.array, tree)


def final_of(rows):
    return rows.terminated | rows.truncated


# --- rows -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played():
    """A learner after 30 iterations, and the environments."""
    _, train = opened()
    return train(30), Journal.made


def test_rows_are_what_the_environments_returned(played):
    learner, envs = played
    rows, said = rows_of(learner), journal(envs)
    assert len(said[0]) == 31  # one more has arrived and is not stored yet
    stored = rows.obs, rows.reward, rows.terminated, rows.truncated
    assert_equal(stored, tuple(x[:30] for x in said))
    assert rows.terminated.any()
    assert rows.truncated.any()


def test_environments_hear_the_stored_actions_in_their_own_units(played):
    rows = rows_of(played[0])
    for i, env in enumerate(played[1]):
        m, e = divmod(i, ENVS)
        for t in range(30):
            if final_of(rows)[t, m, e]:
                assert env.heard[t + 1] is None  # a reset: the action was ignored
            else:
                a, b = rows.action[t, m, e]
                np.testing.assert_allclose(env.heard[t + 1], [2 + 4 * a, b], rtol=1e-5, atol=1e-6)


def test_memory_restarts_with_every_episode(played):
    rows = rows_of(played[0])
    np.testing.assert_array_equal(rows.extra["age"], rows.obs[..., 0])


def test_episode_statistics_equal_those_of_the_journal(played):
    learner, envs = played
    obs, reward, terminated, truncated = journal(envs)
    for m in range(MEMBERS):
        returns, lengths, total = [], [], np.zeros(ENVS)
        for t in range(30):
            total = np.where(obs[t, m, :, 0] == 0, 0, total) + reward[t, m]
            final = terminated[t, m] | truncated[t, m]
            returns += list(total[final])
            lengths += list(obs[t, m, final, 0])
        means = learner.metric_sums.means(m)
        np.testing.assert_allclose(means["rollout/ep_rew_mean"], np.mean(returns), rtol=1e-5)
        np.testing.assert_allclose(means["rollout/ep_len_mean"], np.mean(lengths), rtol=1e-6)


def test_transitions_leave_first_rows_out(played):
    learner, envs = played
    steps = journal(envs)[0][:30, ..., 0]
    np.testing.assert_array_equal(learner.actors.transitions.sum(1), (steps > 0).sum((0, 2)))


def test_actions_clock_and_books_are_those_of_the_device_driver(played):
    """Actions of a Clerk depend on seed and time alone, so they must agree bit for bit."""
    learner, other = played[0], clerks(*MANY).train(30)
    np.testing.assert_array_equal(rows_of(learner).action, rows_of(other).action[:, :MEMBERS])
    np.testing.assert_array_equal(learner.state["rows"], other.state["rows"][:MEMBERS])
    np.testing.assert_array_equal(learner.state["punctual"], [30 * ENVS] * MEMBERS)
    assert learner.clock.updates == 30 * ENVS
    assert learner.clock.iteration == 30


def test_warm_up_stores_rows_and_does_no_update():
    learner = opened()[1](8, mode="random", learn=False)
    assert (learner.replay.size, learner.clock.iteration, learner.clock.updates) == (8, 8, 0)
    np.testing.assert_array_equal(learner.state["updates"], [0] * MEMBERS)


def test_waiting_after_every_step_changes_nothing(played):
    _, train = opened()
    learner = None
    for _ in range(30):
        learner = jax.block_until_ready(train(1, learner))
    assert_equal(learner, played[0])


# --- seeds ----------------------------------------------------------------------------------


def names(seeds):
    """Of the first episodes [members * envs]."""
    opened(seeds)
    return [env.name for env in Journal.made]


def test_every_environment_has_a_seed_of_its_own_and_is_seeded_once(played):
    first = [env.seeds[0] for env in played[1]]
    assert len(set(first)) == MEMBERS * ENVS
    assert all(seed is None for env in played[1] for seed in env.seeds[1:])


def test_the_same_seeds_repeat_and_others_differ():
    assert names((0, 1)) == names((0, 1))
    assert not set(names((0, 1))) & set(names((2, 3)))


# --- going on after a stop ------------------------------------------------------------------


@pytest.fixture(scope="module")
def resumed(played):
    """A learner before and after a stop, after 10 more iterations, and its new environments.

    It stops where some environments are in mid-episode and others at their end.
    """
    final = final_of(rows_of(played[0]))[9:]
    length = 10 + int(np.flatnonzero(final.any((1, 2)) & ~final.all((1, 2)))[0])
    driver, train = opened()
    learner = train(length)
    before = numpy(learner)
    learner = driver.resume(learner)
    return before, numpy(learner), train(10, learner), Journal.made[MEMBERS * ENVS :]


def test_a_stop_truncates_the_newest_row_unless_it_is_terminal(resumed):
    old, new = rows_of(resumed[0]), rows_of(resumed[1])
    assert final_of(new)[-1].all()
    np.testing.assert_array_equal(new.terminated, old.terminated)
    assert not (new.terminated & new.truncated).any()


def test_a_stop_changes_nothing_else_of_the_learner(resumed):
    def rest(learner):
        learner = numpy(learner)
        learner.actors.begin[:] = False  # new episodes begin
        learner.replay.rows.truncated[int(learner.replay.head) - 1] = False
        return learner

    assert_equal(rest(resumed[0]), rest(resumed[1]))


def test_after_a_stop_new_episodes_begin(resumed):
    before, _, learner, envs = resumed
    old, rows = rows_of(before), rows_of(learner)
    cut = len(old.reward)
    assert_equal(rows.obs[cut:], journal(envs)[0][:10])
    np.testing.assert_array_equal(rows.obs[cut, ..., 0], np.zeros((MEMBERS, ENVS)))
    np.testing.assert_array_equal(rows.extra["age"], rows.obs[..., 0])
    assert not set(rows.obs[cut:, ..., 2].flat) & set(old.obs[..., 2].flat)


def test_no_transition_leads_across_a_stop(resumed):
    replay = resumed[2].replay
    draw = jax.jit(lambda m: replay.view(m).transitions(random.key(0), 500, 0.9, n=3))
    for m in range(MEMBERS):
        batch = draw(m)
        valid = np.asarray(batch.valid, bool)
        name, next_name = (np.asarray(x[..., 2])[valid] for x in (batch.obs, batch.next_obs))
        np.testing.assert_array_equal(name, next_name)


def test_statistics_go_on_after_a_stop(resumed):
    before, _, learner, _ = resumed
    steps = rows_of(learner).obs[..., 0]
    np.testing.assert_array_equal(learner.actors.transitions.sum(1), (steps > 0).sum((0, 2)))
    assert learner.clock.iteration == before.clock.iteration + 10


def test_a_stop_closes_the_old_environments():
    driver, train = opened()
    driver.resume(train(3))
    assert [env.closed for env in Journal.made] == [True] * 6 + [False] * 6


def test_a_stop_in_a_full_ring_cuts_the_newest_row():
    driver, train = opened()
    rows = rows_of(driver.resume(train(CAPACITY + 3)))
    assert final_of(rows)[-1].all()
    assert not final_of(rows)[:-1].all((1, 2)).any()


def test_a_stop_before_the_first_row_leaves_no_trace():
    driver, train = opened()
    learner = train(9, driver.resume(train(0)))
    assert not final_of(rows_of(learner))[0].any()
    assert not final_of(rows_of(learner)).all((1, 2)).any()


def test_an_environment_that_fails_is_told_by_the_steps_and_seeds_of_the_run():
    driver, train = opened(seeds=(5, 6))
    learner = driver.resume(train(7))

    def fail(action):
        raise RuntimeError("the curtain fell")

    Journal.made[-1].step = fail
    message = r"^Journal, environment 2, step 24, seed 6: RuntimeError: the curtain fell"
    with pytest.raises(ThespisError, match=message):
        train(1, learner)


def test_small_arrays_cross_into_compiled_code_as_one_of_each_type():
    rng = np.random.default_rng(0)
    numbers = lambda *shape: rng.normal(size=shape).astype(np.float32)
    tree = {
        "big": jnp.asarray(numbers(64, 64)),
        "counts": [jnp.int32(3), jnp.arange(4)],
        "small": (numbers(2, 3), jnp.float32(7), None, jnp.zeros((0, 2))),
    }
    bundle = Bundle.from_tree(tree, join=True)
    assert [x.shape for x in bundle.pack(tree)] == [(5,), (7,), (64, 64)]
    through = jax.jit(lambda leaves: bundle.pack(bundle.unpack(leaves)))
    for leaves in (bundle.pack(tree), through(bundle.pack(tree))):
        assert_equal(bundle.unpack(leaves), tree)
    apart = Bundle.from_tree(tree, join=False)
    assert_equal(apart.unpack(apart.pack(tree)), tree)
    assert len(apart.pack(tree)) == 6


@pytest.mark.thorough
def test_one_core_learns_what_two_do(monkeypatch):
    learners = []
    for n in (1, 2):
        monkeypatch.setattr(host_driver, "cores", lambda n=n: n)
        driver, train = opened()
        learners.append(jax.tree.map(np.array, train(20, train(20))))
        driver.close()
    assert_equal(*learners)


# --- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.optimised
def test_no_array_of_the_replay_is_copied(join):
    driver, _ = opened(capacity=100 * host_driver.SMALL)  # none is small
    driver.open(time=0)
    seeds, hps = jnp.arange(MEMBERS), hyper.fill(Clerk.Hyper, {}, MEMBERS)
    x = jax.eval_shape(driver.loop.init, seeds, hps, None, driver.arrived)
    trees = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), x), (hps, None, seeds)
    learner, rest = (Bundle.from_tree(tree, join) for tree in trees)
    act, store_and_learn = driver.programs(learner, rest, "explore", True)
    given = learner.pack(trees[0]), rest.pack(trees[1])
    answer = jax.eval_shape(act, *given, driver.arrived.obs)
    memory = store_and_learn.lower(*given, driver.arrived, answer).compile().memory_analysis()
    sizes = [leaf.nbytes for leaf in jax.tree.leaves(trees[0].replay.rows)]
    assert memory.temp_size_in_bytes < min(sizes)
    assert memory.alias_size_in_bytes >= sum(sizes)  # written in place
