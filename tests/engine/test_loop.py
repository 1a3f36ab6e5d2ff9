"""The training loop: what is stored, when it learns, and that members and epochs change nothing."""

import dataclasses
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.algos import SAC, TD3
from thespis.algos.actor_critic import ActorCritic
from thespis.core import Box, Mean, Spec, Step, ThespisError, mean
from thespis.engine import population
from thespis.engine.evaluation import Descriptor, play
from thespis.engine.loop import Clock, DeviceDriver, Loop
from thespis.engine.rollout import FrozenPolicy
from thespis.engine.streams import Stream, member_keys, population_key
from thespis.envs.autoreset import Autoreset
from thespis.replay.priorities import EPSILON, Rule
from thespis.tuning import hyper
from thespis.tuning.hyper import Uniform, prior

# --- a task and an algorithm that tell all --------------------------------------------------


@dataclass(frozen=True)
class Lives:
    """Episodes of random lengths, 1 to 7, of which those beyond the limit are cut.

    Observes [steps taken, length, name of the episode, first number of the last action]; the
    second number enters the reward.
    """

    limit: int = 5
    obs: ClassVar = jax.ShapeDtypeStruct((4,), jnp.float32)
    action: ClassVar = Box((-2.0, -1.0), (6.0, 1.0), (2,))

    def start(self, key):
        length, name = random.uniform(key, (2,))
        return jnp.stack([0.0, jnp.floor(1 + 7 * length), name, 0.0])

    def observe(self, state):
        return state

    def step(self, state, action):
        state = jnp.stack([state[0] + 1, state[1], state[2], action[0]])
        return state, state[1] + 0.1 * action[1], state[0] >= state[1]


@dataclass(frozen=True)
class Clerk:
    """Acts at random, follows the mean reward, and keeps books of all that it is asked to do."""

    spec: Spec

    class Hyper(eqx.Module):
        rate: float = prior(0.1, Uniform(0, 1), "how fast the guess follows")
        gamma: float = prior(0.9, Uniform(0, 1), "discount")
        bad_row: float = prior(-1, Uniform(-1, 99), "when the action of environment 1 is NaN")
        bad_part: float = prior(0, Uniform(0, 1), "and which of its numbers")
        bad_update: float = prior(-1, Uniform(-1, 99), "the update whose loss is NaN")

    def init(self, key, hp):
        zero = jnp.zeros((), jnp.int32)
        return {"guess": random.uniform(key), "rows": zero, "updates": zero, "punctual": zero}

    def memory(self, key, n):
        return {"age": jnp.zeros(n, jnp.int32), "skill": random.uniform(key, (n,))}

    def act(self, state, hp, memory, obs, key, step, mode):
        n = memory["age"].shape[0]
        action = random.uniform(key, (n, 2), minval=-1, maxval=1)
        if mode == "greedy":
            action = jnp.zeros_like(action)
        env, part = jnp.arange(n)[:, None], jnp.arange(2.0)[None]
        bad = (step.astype(float) == hp.bad_row) & (env == 1) & (part == hp.bad_part)
        extra = memory | {"step": jnp.full(n, step)}
        return jnp.where(bad, jnp.nan, action), memory | {"age": memory["age"] + 1}, extra

    def observe(self, state, rows):
        return state | {"rows": state["rows"] + rows.reward.size}

    def sample(self, replay, demos, hp, key, step):
        return replay.transitions(key, 4, hp.gamma)

    def update(self, state, hp, batch, key, step):
        error, time = batch.reward - state["guess"], step.astype(float)
        loss = mean(error**2, batch.valid) + jnp.where(time == hp.bad_update, jnp.nan, 0.0)
        even = (step % 2 == 0).astype(float)
        new = {
            "guess": state["guess"] + hp.rate * mean(error, batch.valid),
            "rows": state["rows"],
            "updates": state["updates"] + 1,
            "punctual": state["punctual"] + (step == state["updates"]).astype(int),
        }
        return new, {"loss": loss, "even": Mean(even * time, even)}, jnp.abs(error)


@dataclass(frozen=True)
class Keen(Clerk):
    """Draws what it misjudged more often."""

    class Hyper(Clerk.Hyper):
        priority_alpha: float = prior(0.7, Uniform(0, 1), "exponent of priorities")

    def rule(self, envs):
        return Rule(max_use=20)

    def beta(self, hp, step):
        return jnp.float32(0.5)


class Run:
    """A driver and what it needs; programs are compiled once for all tests that share it."""

    def __init__(self, loop, members, hp=None, seed=0):
        self.driver = DeviceDriver(loop, np.arange(members))
        self.first = jax.jit(self.driver.init)
        self.hps = hyper.fill(loop.algo.Hyper, hp or {}, members)
        self.seeds = np.arange(seed, seed + members, dtype=np.int32)

    def init(self):
        return self.first(self.seeds, self.hps)

    def train(self, *lengths, start=None, mode="explore", learn=True):
        """From the beginning, unless a learner is given."""
        learner = self.init() if start is None else start
        for length in lengths:
            learner = self.driver.run(learner, self.hps, None, self.seeds, length, mode, learn)
        return learner

    def but(self, hps=None, seeds=None):
        """The same programs with other hypers or seeds."""
        other = copy(self)
        other.hps, other.seeds = hps or self.hps, self.seeds if seeds is None else seeds
        return other


@cache
def clerks(members, envs, ratio, capacity, side_by_side=False, kind=Clerk):
    env = Autoreset(Lives())
    return Run(Loop(kind(env.spec), env, envs, capacity, Fraction(ratio), side_by_side), members)


MANY = 4, 3, "3/2", 64  # 4.5 updates per iteration
ONE = 1, 1, "1/3", 10


def rows_of(learner):
    """Rows [time, members, envs, ...] as NumPy arrays, oldest first."""
    size, head = int(learner.replay.size), int(learner.replay.head)
    order = (np.arange(size) + (head if size == learner.replay.capacity else 0)) % size
    return jax.tree.map(lambda x: np.asarray(x)[order], learner.replay.rows)


def member(learner, i):
    """The part of one member, as of a population of one."""
    one = lambda tree: jax.tree.map(lambda x: np.asarray(x)[i : i + 1], tree)
    second = lambda tree: jax.tree.map(lambda x: np.asarray(x)[:, i : i + 1], tree)
    return {
        "state": one(learner.state),
        "actors": one(learner.actors),
        "world": one(learner.world),
        "rows": second(learner.replay.rows),
        "priorities": priorities_of(learner, i),
        "metric_sums": second(learner.metric_sums),
        "clock": jax.tree.map(np.asarray, learner.clock),
    }


def priorities_of(learner, i):
    tree = learner.replay.priorities
    if tree is None:
        return None
    parts = tree.weight, tree.uses, tree.nodes, tree.highest
    return [np.asarray(x)[:, i : i + 1] for x in parts]


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@contextmanager
def compilations():
    """A list that grows by one for every program compiled meanwhile."""
    seen = []
    note = lambda event, *_, **__: seen.append(event) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


# --- what is stored -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done():
    """Four members with three environments each after 60 iterations."""
    return clerks(*MANY).train(60)


def test_rows_equal_a_simulation_of_single_environments(done):
    rows = rows_of(done)
    names = []
    for m, e in np.ndindex(4, 3):
        begin, steps = True, 0
        for t in range(60):
            obs, reward = rows.obs[t, m, e], rows.reward[t, m, e]
            terminated, truncated = rows.terminated[t, m, e], rows.truncated[t, m, e]
            if begin:
                _, length, name, _ = obs
                names.append(name)
                steps, own, expected = 0, 0.0, 0.0
            else:
                steps += 1
                shown, hidden = rows.action[t - 1, m, e]
                own, expected = -2 + 8 * (shown + 1) / 2, length + hidden / 10
            np.testing.assert_allclose(obs, [steps, length, name, own], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(reward, expected, rtol=1e-5, atol=1e-6)
            assert terminated == (steps >= length)
            assert truncated == (steps >= 5 and steps < length)
            begin = terminated or truncated
    assert len(set(names)) == len(names) > 120  # every episode has a start of its own
    assert rows.terminated.any()
    assert rows.truncated.any()


def test_memory_restarts_with_every_episode(done):
    rows = rows_of(done)
    np.testing.assert_array_equal(rows.extra["age"], rows.obs[..., 0])


def test_memory_is_drawn_anew_for_every_episode_and_kept_within(done):
    rows = rows_of(done)
    skill, name = rows.extra["skill"], rows.obs[..., 2]
    pairs = set(zip(skill.reshape(-1), name.reshape(-1)))
    assert len(pairs) == len(np.unique(skill)) == len(np.unique(name))


def test_acting_is_told_the_number_of_rows_so_far(done):
    steps = rows_of(done).extra["step"]
    np.testing.assert_array_equal(
        steps, np.broadcast_to(3 * np.arange(60)[:, None, None], (60, 4, 3))
    )


def test_every_row_is_observed_once(done):
    np.testing.assert_array_equal(done.state["rows"], [180] * 4)


def test_updates_are_told_how_many_there_were_before(done):
    np.testing.assert_array_equal(done.state["updates"], [270] * 4)
    np.testing.assert_array_equal(done.state["punctual"], [270] * 4)


def test_episode_statistics_equal_those_of_the_rows(done):
    rows = rows_of(done)
    final = rows.terminated | rows.truncated
    for m in range(4):
        returns, lengths = [], []
        for e in range(3):
            ends = np.flatnonzero(final[:, m, e])
            for a, b in zip([0, *(ends[:-1] + 1)], ends):
                returns.append(rows.reward[a : b + 1, m, e].sum())
                lengths.append(b - a)
        means = done.metric_sums.means(m)
        np.testing.assert_allclose(means["rollout/ep_rew_mean"], np.mean(returns), rtol=1e-5)
        np.testing.assert_allclose(means["rollout/ep_len_mean"], np.mean(lengths), rtol=1e-6)


def test_transitions_leave_first_rows_out(done):
    rows = rows_of(done)
    arrivals = (rows.obs[..., 0] > 0).sum((0, 2))
    np.testing.assert_array_equal(done.actors.transitions.sum(1), arrivals)


def test_metrics_are_means_over_the_updates_that_had_them(done):
    means = done.metric_sums.means(0)
    np.testing.assert_allclose(means["train/even"], np.arange(0, 270, 2).mean(), rtol=1e-6)
    assert np.isfinite(means["train/loss"])


# --- when it learns -------------------------------------------------------------------------


RATIOS = ["0", "1/4", "1/3", "1", "3/2", "2"]


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("ratio", RATIOS)
def test_the_clock_counts_every_update_that_is_due(ratio, envs):
    loop = Loop(None, None, envs, updates_per_step=Fraction(ratio))
    clock = Clock.zero()
    for done in range(1, 18):
        clock = loop.tick(clock, learn=True)
        assert clock.iteration == done
        assert clock.updates == int(Fraction(ratio) * envs * done)


def test_warm_up_leaves_no_debt_of_updates():
    loop, clock = Loop(None, None, updates_per_step=Fraction(1, 4)), Clock.zero()
    for learn in [True] + [False] * 7 + [True] * 2:
        clock = loop.tick(clock, learn)
    assert clock.updates == 0
    assert loop.tick(clock, learn=True).updates == 1


@pytest.mark.parametrize("kind", [MANY, ONE])
def test_the_update_ratio_is_exact(kind):
    run, (members, envs, ratio, _) = clerks(*kind), kind
    learner, done = run.init(), 0
    for length in (1, 6, 10):
        learner = run.train(length, start=learner)
        done += length
        expected = int(Fraction(ratio) * envs * done)
        assert learner.clock.updates == expected
        np.testing.assert_array_equal(learner.state["updates"], [expected] * members)
        np.testing.assert_array_equal(learner.state["punctual"], [expected] * members)


def test_without_updates_there_are_no_losses():
    run = clerks(1, 1, "0", 10)
    assert not any("train/" in name for name in jax.eval_shape(run.init).metric_sums.names)
    jax.eval_shape(lambda: run.train(3))


def test_a_full_replay_holds_the_newest_rows():
    rows = rows_of(clerks(*ONE).train(37))
    np.testing.assert_array_equal(rows.extra["step"][:, 0, 0], np.arange(27, 37))
    np.testing.assert_array_equal(rows.extra["age"], rows.obs[..., 0])


def test_warm_up_stores_rows_and_does_no_update():
    run = clerks(*MANY)
    before = jax.tree.map(np.asarray, run.init().state)
    learner = run.train(8, mode="random", learn=False)
    assert (learner.replay.size, learner.clock.iteration, learner.clock.updates) == (8, 8, 0)
    np.testing.assert_array_equal(learner.state["rows"], [24] * 4)  # statistics see them too
    np.testing.assert_array_equal(learner.state["updates"], [0] * 4)
    np.testing.assert_array_equal(learner.state["guess"], before["guess"])
    assert "train/loss" not in learner.metric_sums.means(0)


# --- randomness and time --------------------------------------------------------------------


class Witness:
    """An algorithm and an environment in one that do nothing but note their keys, as two numbers.

    Actions are the keys of acting; observations are the environment's key and the last action.
    Episodes end after two steps.
    """

    Hyper = Clerk.Hyper
    spec = Spec(jax.ShapeDtypeStruct((4,), jnp.uint32), Box((-1.0,), (1.0,), (1,)))
    name, limit = "witness", 4
    updates = 3  # of every iteration, each with a batch of its own

    def reset(self, key, n):
        return jnp.int32(0), self.seen(key, jnp.zeros((n, 2), jnp.uint32), 0)

    def step(self, time, action, key):
        time = (time + 1) % 3
        return time, self.seen(key, action, time)

    def seen(self, key, action, time):
        own = jnp.broadcast_to(random.key_data(key)[None], action.shape)
        over = jnp.broadcast_to(jnp.asarray(time == 2), action.shape[:1])
        obs = jnp.concatenate([own, action], -1)
        return Step(obs, jnp.zeros(action.shape[0]), over, jnp.zeros_like(over))

    def init(self, key, hp):
        return {"key": random.key_data(key), "batch": self.batch(key), "update": self.batch(key)}

    def batch(self, key):
        """The keys of an iteration, and the update that each was drawn for."""
        return {
            "key": jnp.zeros((self.updates, 2), jnp.uint32),
            "step": jnp.zeros(self.updates, int),
        }

    def memory(self, key, n):
        return jnp.broadcast_to(random.key_data(key)[None], (n, 2))

    def act(self, state, hp, memory, obs, key, step, mode):
        action = jnp.broadcast_to(random.key_data(key)[None], memory.shape)
        noted = jax.tree.map(lambda x: x[None], state)  # of the one environment there is
        return action, memory, {"memory": memory, **noted}

    def observe(self, state, rows):
        return state

    def sample(self, replay, demos, hp, key, step):
        return {"key": random.key_data(key), "step": step}

    def update(self, state, hp, batch, key, step):
        own = {"key": random.key_data(key), "step": step}
        push = lambda ring, new: jax.tree.map(
            lambda x, y: jnp.roll(x, -1, 0).at[-1].set(y), ring, new
        )
        new = {"batch": push(state["batch"], batch), "update": push(state["update"], own)}
        return state | new, {"loss": jnp.zeros(())}, jnp.zeros(1)


@cache
def witnessed():
    """Two members of a `Witness` after six iterations with three updates each, and its loop."""
    witness, seeds = Witness(), jnp.arange(2, dtype=jnp.int32)
    loop = Loop(witness, witness, envs=1, capacity=8, updates_per_step=Fraction(3))
    hps = hyper.fill(Witness.Hyper, {}, 2)
    train = jax.jit(lambda: loop.epoch(loop.init(seeds, hps), hps, None, seeds, 6, "explore", True))
    return loop, seeds, hps, train()


def test_batches_are_drawn_for_the_updates_that_learn_from_them():
    """Each at the time of its own update: schedules go on within an iteration."""
    state = jax.tree.map(np.asarray, witnessed()[3].state)
    for name in ("batch", "update"):
        np.testing.assert_array_equal(state[name]["step"], [[15, 16, 17]] * 2)


def test_every_use_of_randomness_has_a_stream_of_its_own():
    """No key is used for two things, in no member and at no time, nor is one made of another."""
    loop, seeds, hps, x = witnessed()
    then = 3  # an iteration that is noted, at which members are evaluated and replaced as well
    policies = FrozenPolicy(x.state, hps, jnp.full(2, then))
    every = Descriptor(reduce=lambda seen, stepped: seen)
    played = jax.jit(lambda: play(loop, loop.env, 1, "greedy", every, policies, seeds, then))()
    looked = np.asarray(played.descriptors)[:, :, 0]  # [members, rows, 4]
    earlier = dataclasses.replace(x, clock=Clock(jnp.array([then, 3 * then, 0])))
    restarted = population.restart(loop, earlier, seeds, jnp.ones(2, bool)).world.arrived.obs
    whole = [
        random.key_data(population_key(seeds, stream, time))
        for stream in (Stream.BEGIN, Stream.EXCHANGE, *range(Stream.HEAL, Stream.HEAL + 3))
        for time in (0, then)
    ]
    x = jax.tree.map(np.asarray, x)
    rows = jax.tree.map(lambda leaf: leaf[:6, :, 0], x.replay.rows)
    found = {
        "first state": x.state["key"],
        "environments": rows.obs[..., :2],
        "acting": rows.action,
        "memory": rows.extra["memory"],
        # Every row has noted the batches and updates of the iteration before.
        "sampling": rows.extra["batch"]["key"][1:],
        "updates": rows.extra["update"]["key"][1:],
        "environments of evaluations": looked[..., :2],
        "acting in evaluations": looked[:, 1:, 2:],
        "restarts": np.asarray(restarted)[..., :2],
        "exchanges": np.stack(whole),
    }
    names, keys = {}, []
    for name, data in found.items():
        for key in {tuple(k) for k in np.reshape(data, (-1, 2)).tolist()}:
            assert key not in names, f"{name} and {names[key]} share a key"
            names[key] = name
            keys.append(key)
    count = {name: list(names.values()).count(name) for name in found}
    assert count["acting"] == 2 * 6
    assert count["sampling"] == count["updates"] == 2 * 5 * 3
    assert count["environments"] == 2 * 6
    assert count["restarts"] == 2
    assert count["exchanges"] == len(whole)

    @jax.jit
    @jax.vmap
    def children(data):
        key = lambda: random.wrap_key_data(data)
        made = [random.split(key(), n) for n in (2, 3, 4)]
        made.append(jax.vmap(lambda i: random.fold_in(key(), i))(jnp.arange(6)))
        return random.key_data(jnp.concatenate(made))

    below = np.asarray(children(jnp.asarray(keys, jnp.uint32)))
    for parent, made in zip(keys, below.tolist(), strict=True):
        for child in {tuple(k) for k in made}:
            assert child not in names, (
                f"the key of {names[child]} is made of that of {names[parent]}"
            )


# --- members --------------------------------------------------------------------------------

RATES = {"gamma": [0.8, 0.95], "critic_lr": [1e-2, 1e-3]}


@cache
def agents(algorithm, members, side_by_side=False):
    env = Autoreset(Lives())
    algo = algorithm(env.spec, hidden=(8,), batch_size=8, n_step=2, normalize_observations=True)
    loop = Loop(algo, env, 2, 25, Fraction(3, 4), side_by_side)
    return Run(loop, members, RATES if members == 2 else {}, seed=3)


@pytest.fixture(scope="module", params=[TD3, pytest.param(SAC, marks=pytest.mark.slow)])
def algorithm(request):
    return request.param


@pytest.fixture(scope="module")
def pair(algorithm):
    """Two members trained together, until the replay has begun to forget."""
    return agents(algorithm, 2).train(40)


@pytest.mark.optimised
def test_a_member_equals_its_run_alone_bit_for_bit(algorithm, pair):
    for i in range(2):
        hps = hyper.fill(algorithm.Hyper, {k: v[i] for k, v in RATES.items()})
        alone = agents(algorithm, 1).but(hps, seeds=np.array([3 + i], np.int32)).train(40)
        assert_equal(member(pair, i), member(alone, 0))


def test_any_split_into_epochs_gives_the_same_bits(algorithm, pair):
    assert_equal(agents(algorithm, 2).train(1, 7, 0, 32), pair)


def test_another_seed_gives_another_run(algorithm, pair):
    other = agents(algorithm, 2).but(seeds=np.array([10, 11], np.int32)).train(40)
    assert (other.replay.rows.obs[0] != pair.replay.rows.obs[0]).any()
    weight = lambda x: x.state.actor.params.weights[0]
    assert (weight(other) != weight(pair)).all()


def test_members_of_one_seed_start_alike_and_part_by_their_hypers(algorithm):
    run = agents(algorithm, 2).but(seeds=np.array([5, 5], np.int32))
    assert_equal(*(member(run.init(), i) for i in range(2)))
    weight = run.train(40).state.actor.params.weights[0]
    assert (weight[0] != weight[1]).any()


def test_changing_hypers_seeds_or_epoch_length_compiles_nothing(algorithm):
    run = agents(algorithm, 2)
    learner = run.train(2)
    half = [
        eqx.tree_at(lambda h, name=name: getattr(h, name), run.hps, getattr(run.hps, name) / 2)
        for name in hyper.declared(algorithm.Hyper)
    ]
    seeds = run.seeds + 1
    with compilations() as seen:
        for i, hps in enumerate(half):
            learner = run.but(hps, seeds).train(i, start=learner)
    assert not seen


@pytest.mark.parametrize(
    "make", [partial(clerks, *MANY), pytest.param(partial(agents, TD3, 2), marks=pytest.mark.slow)]
)
def test_members_side_by_side_are_the_same_but_for_rounding(make):
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
    jax.tree.map(close, make().train(12), make(side_by_side=True).train(12))


def test_nothing_is_learned_while_there_is_no_whole_transition():
    run = agents(TD3, 1)
    critic = lambda x: jax.tree.map(np.asarray, x.state.critic.params)
    learner = run.train(2)  # of two steps, none fits into two rows
    assert learner.clock.updates == 3
    assert_equal(critic(learner), critic(run.init()))
    learner = run.train(2, start=learner)
    differs = jax.tree.map(lambda a, b: (a != b).any(), critic(learner), critic(run.init()))
    assert any(jax.tree.leaves(differs))


# --- priorities -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keen():
    """Two members, until their replay has forgotten some rows: 4.5 updates per iteration."""
    run = clerks(2, 3, "3/2", 40, kind=Keen)
    return run, run.train(60)


def test_priorities_are_given_back_and_only_legal_rows_have_one(keen):
    _, learner = keen
    tree, rows = learner.replay.priorities, learner.replay.rows
    head = int(learner.replay.head)
    legal = np.array(~rows.final)
    legal[head - 1] = False  # its successor is still to come
    legal &= np.asarray(tree.uses) < 20
    np.testing.assert_array_equal(np.asarray(tree.weight) > 0, legal)
    known = np.asarray(tree.uses) > 0
    entry = (np.asarray(tree.highest) + EPSILON)[..., None] ** 0.7
    assert (np.asarray(tree.weight) < 0.999 * entry)[known & legal].mean() > 0.9
    assert known.any()
    # Every draw of every update counts once: an update that was not due gives nothing back.
    learner = keen[0].train(12)
    assert learner.clock.updates == 54
    drawn = np.asarray(learner.replay.priorities.uses).sum((0, 2))
    fair = 4 * (54 - 9)  # batches of 4, but two iterations of early ones had none to draw
    assert (drawn >= fair).all()
    assert (drawn <= 4 * 54).all()


def test_a_member_with_priorities_equals_its_run_alone_bit_for_bit(keen):
    run, both = keen
    for i in range(2):
        hps = jax.tree.map(lambda x, i=i: x[i : i + 1], run.hps)
        one = clerks(1, 3, "3/2", 40, kind=Keen).but(hps, run.seeds[i : i + 1])
        assert_equal(member(one.train(60), 0), member(both, i))


def test_any_split_of_a_run_with_priorities_gives_the_same_bits(keen):
    run, both = keen
    assert_equal(run.train(1, 29, 30), both)


PRIORITY = {"priority_alpha": 0.1, "priority_beta": 1.0, "priority_anneal": 1.0}


@pytest.fixture(scope="module")
def eager():
    """Members of one seed, that differ from the first in one number of `PRIORITY` each."""
    env = Autoreset(Lives())
    limits = {"prioritized_replay": True, "max_use": 6, "max_staleness": 19}
    run = Run(Loop(TD3(env.spec, hidden=(4,), batch_size=4, **limits), env, 2, 25), 4)
    hps = reference.members(TD3.Hyper, {"priority_beta": 0.5}, PRIORITY)
    return run.but(hps, np.zeros(4, np.int32)).train(30)


def test_each_number_of_prioritised_replay_changes_what_is_learned(eager):
    assert PRIORITY.keys() == {n for n in hyper.declared(ActorCritic.Hyper) if "priority" in n}
    found = reference.effects({"critic": eager.state.critic}, PRIORITY)
    assert found == {name: {"critic"} for name in PRIORITY}
    # An exponent that is 1, and one that is so after the first update: that had no rows yet.
    assert_equal(*(member(eager, i) for i in (2, 3)))


def test_priorities_may_do_without_importance_weights(eager):
    """Then the same rows are drawn as often, and all count alike."""
    env = Autoreset(Lives())

    def drawn(**choice):
        algo = TD3(env.spec, hidden=(4,), batch_size=16, prioritized_replay=True, **choice)
        loop, seeds = Loop(algo, env, 2, 25), jnp.zeros(4, jnp.int32)
        hps, clock = hyper.fill(TD3.Hyper, {"priority_beta": 0.5}, 4), eager.clock
        draw = lambda: loop.draw(eager.replay, hps, None, member_keys(seeds, 1, 0), clock)
        return jax.tree.map(np.asarray, jax.jit(draw)())

    plain, weighed = drawn(importance_weights=False), drawn()
    assert_equal(plain.drawn, weighed.drawn)
    assert_equal(plain.weight, np.ones_like(plain.weight))
    assert (weighed.weight < 1).any()
    with pytest.raises(ThespisError, match="importance_weights = False needs prioritized_replay"):
        TD3(env.spec, importance_weights=False)


def test_rows_are_left_out_after_max_use_and_max_staleness(eager):
    tree, rows = eager.replay.priorities, eager.replay.rows
    uses, age = np.asarray(tree.uses), (int(eager.replay.head) - 1 - np.arange(25)) % 25
    young = (age > 0) & (age < 10)  # 19 steps of two environments
    legal = ~np.asarray(rows.final) & young[:, None, None] & (uses < 6)
    np.testing.assert_array_equal(np.asarray(tree.weight) > 0, legal)
    assert (uses[young] >= 6).any()


def test_without_priorities_nothing_of_them_is_there():
    learner = jax.eval_shape(clerks(*MANY).init)
    assert learner.replay.priorities is None
    assert "drawn" not in str(jax.tree.structure(learner))


# --- bounds of actions ----------------------------------------------------------------------


@dataclass(frozen=True)
class Seesaw:
    """Observes how often each number of an action was above zero; remembers the last action."""

    bound: float
    limit: int = 7
    obs: ClassVar = jax.ShapeDtypeStruct((2,), jnp.float32)

    @property
    def action(self):
        return Box((-self.bound,) * 2, (self.bound,) * 2, (2,))

    def start(self, key):
        return random.uniform(key, (2,)), jnp.zeros(2)

    def observe(self, state):
        return state[0]

    def step(self, state, action):
        above = (action > 0).astype(float)
        return (state[0] + above, action), above.sum(), jnp.zeros((), bool)


@pytest.mark.parametrize("Algorithm", [SAC, TD3])
def test_learning_does_not_depend_on_the_bounds_of_actions(Algorithm):
    def trained(bound):
        env = Autoreset(Seesaw(bound))
        algo = Algorithm(env.spec, hidden=(4,), batch_size=4)
        return Run(Loop(algo, env, capacity=20), 1).train(20)

    narrow, wide = trained(1.0), trained(100.0)
    parts = lambda x: (x.state, x.replay, x.metric_sums, x.world.arrived)
    assert_equal(parts(narrow), parts(wide))
    ours, heard = narrow.replay.rows.action[-1], wide.world.env.task[1]
    np.testing.assert_allclose(heard, 100 * ours, rtol=1e-5, atol=1e-4)


# --- memory ---------------------------------------------------------------------------------


def footprint(members, envs, ratio, capacity, kind=Clerk):
    run = clerks(members, envs, ratio, capacity, kind=kind)
    learner = jax.eval_shape(run.init)
    args = learner, run.hps, None, run.seeds, jax.ShapeDtypeStruct((), jnp.int32)
    epoch = run.driver.programs(jax.tree.structure(learner), "explore", True)
    compiled = epoch.lower(*args).compile()
    return compiled.memory_analysis(), learner.replay


@pytest.mark.parametrize(("kind", "who"), [(MANY, Clerk), (ONE, Clerk), (MANY, Keen)])
@pytest.mark.optimised
def test_a_larger_replay_needs_no_more_temporary_memory(kind, who):
    small, _ = footprint(*kind, kind=who)
    large, replay = footprint(*kind[:3], capacity=500 * kind[3], kind=who)
    assert large.temp_size_in_bytes <= small.temp_size_in_bytes
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(replay))
    assert large.temp_size_in_bytes < size / 10
    assert large.alias_size_in_bytes >= size  # written in place


def test_the_learner_is_used_up():
    run = clerks(*ONE)
    learner = run.init()
    run.train(1, start=learner)
    assert learner.replay.rows.obs.is_deleted()


# --- faults ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faulty(done):
    """Four members: a good one, and one each with a bad observation, reward and loss.

    Also when they should be noticed: in the row after the bad action, and in the iteration of
    update 20, which is the fifth.
    """
    final = rows_of(done).terminated | rows_of(done).truncated
    act = [np.flatnonzero(~final[5 + 2 * m :, m, 1])[0] + 5 + 2 * m for m in range(4)]
    hp = {
        "bad_row": [-1, 3 * act[1], 3 * act[2], -1],
        "bad_part": [0, 0, 1, 0],
        "bad_update": [-1, -1, -1, 20],
    }
    run = clerks(*MANY).but(hyper.fill(Clerk.Hyper, hp, 4))
    return run, run.train(30), [-1, act[1] + 1, act[2] + 1, 4]


def test_a_fault_is_found_in_the_iteration_of_its_first_sign(faulty):
    _, learner, expected = faulty
    np.testing.assert_array_equal(learner.metric_sums.fault[0], expected)


def test_a_fault_says_what_is_not_finite(faulty):
    _, learner, _ = faulty
    names = [learner.metric_sums.watched[what] for what in learner.metric_sums.fault[1, 1:]]
    assert names == ["observation", "reward", "train/loss"]


def test_a_fault_of_an_environment_says_which(faulty):
    np.testing.assert_array_equal(faulty[1].metric_sums.fault[2, 1:3], [1, 1])


def test_a_fault_of_one_member_leaves_the_others_as_they_were(faulty):
    good = clerks(*MANY).train(30)
    assert_equal(member(faulty[1], 0), member(good, 0))


def test_without_a_fault_none_is_named(done):
    np.testing.assert_array_equal(done.metric_sums.fault[0], [-1] * 4)


def test_a_fault_outlives_the_log_that_was_cleared(faulty):
    run, learner, expected = faulty
    learner = jax.tree.map(jnp.copy, learner)
    learner = eqx.tree_at(lambda x: x.metric_sums, learner, learner.metric_sums.clear())
    learner = run.train(5, start=learner)
    np.testing.assert_array_equal(learner.metric_sums.fault[0], expected)
    assert np.isfinite(learner.metric_sums.means(3)["train/loss"])
