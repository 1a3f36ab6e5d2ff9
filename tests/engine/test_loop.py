"""The training loop: what is stored, when it learns, and that members and epochs change nothing."""

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
from tests.engine.clerks import (
    MANY,
    ONE,
    Clerk,
    Keen,
    Lives,
    Run,
    assert_equal,
    clerks,
    compilations,
    member,
    rows_of,
)
from thespis.algos import SAC, TD3
from thespis.algos.actor_critic import ActorCritic
from thespis.core import Box, ThespisError
from thespis.engine.loop import Clock, Loop
from thespis.engine.streams import member_keys
from thespis.envs.autoreset import Autoreset
from thespis.nn.networks import Network
from thespis.replay.priorities import EPSILON
from thespis.tuning import hyper

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


@pytest.mark.optimised
def test_orthogonal_weights_of_a_member_are_those_of_its_run_alone():
    """They are made of matrix products, which would round otherwise for several members at once."""
    env, network = Autoreset(Lives()), Network(hidden=(4, 4, 64, 64), init="orthogonal")
    loop = Loop(SAC(env.spec, actor_network=network), env, 2, 25)
    pair = Run(loop, 2, {}).but(seeds=np.array([3, 4], np.int32)).init()
    for i in range(2):
        alone = Run(loop, 1, {}).but(seeds=np.array([3 + i], np.int32)).init()
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
    "make",
    [
        pytest.param(partial(clerks, *MANY), id="clerks"),
        pytest.param(partial(agents, TD3, 2), id="TD3"),
        pytest.param(partial(agents, SAC, 2), id="SAC", marks=pytest.mark.thorough),
    ],
)
def test_members_side_by_side_are_the_same_but_for_rounding(make):
    """As on accelerators: a dozen steps, of which each has its updates."""
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
    jax.tree.map(close, make().train(12), make(side_by_side=True).train(12))


def test_nothing_is_learned_while_there_is_no_whole_transition():
    run = agents(TD3, 2)
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


def test_learning_does_not_depend_on_the_bounds_of_actions():
    def trained(bound):
        env = Autoreset(Seesaw(bound))
        algo = TD3(env.spec, hidden=(4,), batch_size=4)
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
