"""Populations as data: what a copy takes over, what stays where it is, and what never meets."""

import dataclasses
from contextlib import suppress
from fractions import Fraction
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.engine.clerks import Clerk, Lives, rows_of
from thespis.algos import ALGORITHMS, SAC, TD3, DiscreteSAC
from thespis.core import ThespisError
from thespis.engine import population
from thespis.engine.loop import Loop
from thespis.engine.population import Population, inherit
from thespis.engine.streams import Stream, member_keys, population_key
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import CartPole, Catch, Pendulum
from thespis.envs.teams import Meeting
from thespis.nn.normalization import ReturnScale, Running
from thespis.nn.train_state import TrainState
from thespis.replay.priorities import Priorities, Rule
from thespis.replay.ring import Replay
from thespis.tuning import PBT, Inherit, NoTuning, hyper

PENDULUM = Autoreset(Pendulum(limit=20))
COPIES = jnp.array([2, 1, 2, 2], jnp.int32)  # 0 and 3 become copies of 2
NEW, STAY = [0, 3], [1, 2]
SCORES = np.float32([[3], [2], [4], [1]])


class Programs:
    """The functions of `population` for one loop, compiled once for all tests."""

    def __init__(self, loop, tuner, members=4, **options):
        self.loop, self.tuner = loop, tuner
        self.seeds = jnp.arange(members, dtype=jnp.int32)
        jit = partial(jax.jit, compiler_options=options)
        self.begin = jit(partial(population.begin, loop, tuner), static_argnames="fixed")
        train = partial(population.train, loop)
        self.train = jit(train)
        self.exchange = jit(partial(population.exchange, loop, tuner))

    def trained(self, iterations=22):
        return self.train(self.begin(self.seeds), iterations)


@cache
def sac():
    scaled = {"normalize_observations": True, "reward_norm": "bounded"}
    algo = SAC(PENDULUM.spec, hidden=(8,), batch_size=8, **scaled)
    return Programs(Loop(algo, PENDULUM, envs=2, capacity=64), PBT(best=1, replaced=3))


@cache
def td3(members=2):
    algo = TD3(PENDULUM.spec, hidden=(8,), batch_size=8)
    return Programs(Loop(algo, PENDULUM, capacity=64), NoTuning(), members)


@cache
def clerks():
    env = Autoreset(Lives())
    return Programs(Loop(Clerk(env.spec), env, envs=3, capacity=16), PBT(best=1, replaced=2))


@cache
def past() -> Population:
    return sac().trained()


@cache
def evaluation(env=None):
    return jax.jit(partial(population.evaluate, sac().loop, episodes=3, env=env))


def same(a, b, members=None):
    """Whether two trees [members, ...] are equal bit for bit, in all or some of their members."""
    pick = lambda x: np.asarray(x) if members is None else np.asarray(x)[members]
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(pick(x).tobytes() == pick(y).tobytes() for x, y in pairs)


def at(tree, i):
    return jax.tree.map(lambda x: np.asarray(x)[i], tree)


def parts(state, kind):
    """All networks, moments or statistics in a state."""
    whole = lambda x: isinstance(x, TrainState | Running | ReturnScale)
    found = []
    for x in jax.tree.leaves(state, is_leaf=whole):
        if isinstance(x, TrainState):
            found.append({"networks": x.params, "moments": x.opt_state}.get(kind))
        elif isinstance(x, Running | ReturnScale) == (kind == "statistics"):
            found.append(x if kind != "moments" else None)
    return found


# --- a life ---------------------------------------------------------------------------------


def test_members_begin_with_states_and_replays_of_their_own():
    p = sac().begin(sac().seeds)
    assert p.learner.replay.rows.reward.shape == (64, 4, 2)
    networks = p.learner.state.actor.params.weights[0]
    assert len(np.unique(np.asarray(networks)[:, 0, 0])) == 4
    assert len(np.unique(p.hps.gamma)) == 4
    np.testing.assert_array_equal(p.age, [0] * 4)


@pytest.mark.thorough
def test_given_hypers_are_everybodys():
    make = jax.jit(lambda seeds: population.begin(sac().loop, PBT(), seeds, {"tau": 0.5}).hps)
    hps = make(sac().seeds)
    np.testing.assert_array_equal(hps.tau, [0.5] * 4)
    assert len(np.unique(hps.gamma)) == 4


def test_given_hypers_stay_with_a_members_place():
    given = {"gamma": [0.9, 0.92, 0.94, 0.96]}
    p = jax.jit(lambda seeds: population.begin(sac().loop, sac().tuner, seeds, given))(sac().seeds)
    q, parents = sac().exchange(p, SCORES)
    np.testing.assert_array_equal(parents, [2, 2, 2, 2])
    np.testing.assert_array_equal(q.hps.gamma, np.float32(given["gamma"]))
    assert len(np.unique(q.hps.tau)) == 4
    assert not same(q.hps.tau, p.hps.tau)


def test_training_is_that_of_the_loop_and_ages_the_members():
    p, loop = clerks().trained(14), clerks().loop
    q = clerks().train(p, 3)
    np.testing.assert_array_equal(q.age, [(14 + 3) * 3] * 4)
    x = jax.jit(partial(loop.epoch, mode="explore", learn=True))(p.learner, p.hps, None, p.seeds, 3)
    assert same(x, q.learner)


@pytest.mark.thorough
def test_evaluation_also_in_another_environment_changes_nothing():
    p, other = past(), Autoreset(Pendulum(limit=7))
    before = jax.tree.map(np.array, p)
    for env, length in ((None, 20), (other, 7)):
        (returns, lengths), again = evaluation(env)(p), evaluation(env)(p)
        assert returns.shape == (4, 3)
        np.testing.assert_array_equal(lengths, np.full((4, 3), length))
        np.testing.assert_array_equal(returns, again[0])
    assert same(before, p)  # the normaliser too


def test_quality_and_descriptors_of_every_member():
    p = past()
    found = jax.jit(partial(population.evaluate_qd, sac().loop, episodes=3))(p)
    assert found.descriptors.shape == (4, 3, 3)
    circle = np.asarray(found.descriptors)[..., :2]
    np.testing.assert_allclose(np.square(circle).sum(-1), 1, rtol=1e-4)
    plain, _ = evaluation()(p)
    np.testing.assert_array_equal(found.returns, plain)


# --- hypers that are in effect --------------------------------------------------------------


def pair(name, values):
    """Two members of the same seed that differ in one hyper-parameter, after some updates."""
    programs = td3()
    p = programs.begin(jnp.asarray(np.zeros(2, np.int32)))
    p = dataclasses.replace(p, hps=hyper.fill(TD3.Hyper, {name: values}, 2))
    return programs.train(p, 14)


def test_every_member_learns_with_its_own_discount():
    critics = pair("gamma", [0.9, 0.9]).learner.state.critic
    assert same(at(critics, 0), at(critics, 1))
    critics = pair("gamma", [0.9, 0.99]).learner.state.critic
    assert not same(at(critics, 0), at(critics, 1))


def test_every_member_explores_with_its_own_noise():
    learner = pair("noise", [0.0, 0.2]).learner
    action = rows_of(learner).action
    assert (action[:, 0] != action[:, 1]).all()


# --- exchange -------------------------------------------------------------------------------


def test_a_round_replaces_the_worst_and_lets_the_others_be():
    p = past()
    q, parents = sac().exchange(p, SCORES)
    np.testing.assert_array_equal(parents, [2, 2, 2, 2])
    np.testing.assert_array_equal(q.age, [0, 0, np.asarray(p.age)[2], 0])
    assert same(q.learner.state, p.learner.state, [2])
    assert same(q.hps, p.hps, [2])
    for member in (0, 1, 3):
        assert same(at(q.learner.state, member), at(p.learner.state, 2))
        assert np.asarray(q.hps.gamma)[member] != np.asarray(p.hps.gamma)[2]


def test_copies_and_their_parent_have_random_streams_of_their_own():
    """So they part at once, even where their hypers are the same."""
    p = past()
    q, _ = sac().exchange(p, SCORES)
    alike = lambda x: jnp.asarray(np.repeat(np.asarray(x)[2], 4))
    q = dataclasses.replace(q, hps=jax.tree.map(alike, q.hps))
    q = sac().train(q, 1)
    newest = int(q.learner.replay.head) - 1
    actions = np.asarray(q.learner.replay.rows.action)[newest]
    assert len(np.unique(actions)) == actions.size
    critics = np.asarray(q.learner.state.critic.params.networks[0].weights[0])
    assert len(np.unique(critics[:, 0, 0])) == 4


def test_twins_stay_apart_for_good():
    q, _ = sac().exchange(past(), SCORES)
    q = sac().train(q, 8)
    for a in range(4):
        for b in range(a):
            assert not same(at(q.learner.state, a), at(q.learner.state, b))
            assert not same(at(q.hps, a), at(q.hps, b))


def test_rounds_at_other_times_have_other_keys():
    seeds = jnp.arange(4, dtype=jnp.int32)
    keys = [population_key(seeds, Stream.EXCHANGE, time) for time in (0, 1, 2)]
    keys.append(population_key(seeds, Stream.BEGIN, 0))
    assert len({random.key_data(key).tobytes() for key in keys}) == 4

    class Curious(NoTuning):
        def exchange(self, memory, key, hps, scores, age):
            return random.bits(key), jnp.arange(4, dtype=jnp.int32), hps

    exchange = jax.jit(partial(population.exchange, clerks().loop, Curious()))
    now = clerks().trained(14)
    later = clerks().train(now, 1)
    given = [int(exchange(p, SCORES)[0].memory) for p in (now, now, later)]
    assert given[0] == given[1] != given[2]


def test_no_transition_leads_from_one_life_to_another():
    """In every member's replay each row is followed by what its own action led to."""
    programs = clerks()
    p = programs.trained(14)
    for i in range(4):
        scores = np.random.default_rng(i).normal(size=(4, 1)).astype(np.float32)
        p, parents = programs.exchange(p, scores)
        assert (np.asarray(parents) != np.arange(4)).sum() == 2
        p = programs.train(p, 2)
        rows = rows_of(p.learner)
        going = ~(rows.terminated | rows.truncated)[:-1]
        now, after = rows.obs[:-1][going], rows.obs[1:][going]
        assert len(now) > 50
        np.testing.assert_array_equal(after[:, 0], now[:, 0] + 1)  # steps taken
        np.testing.assert_array_equal(after[:, 2], now[:, 2])  # name of the episode
        own = -2 + 8 * (rows.action[:-1][going][:, 0] + 1) / 2
        np.testing.assert_allclose(after[:, 3], own, atol=1e-5)


def test_where_a_life_is_cut_off_an_end_stays_an_end():
    """As a time limit it would be left out of some losses, and bootstrapped from in none."""
    replay = clerks().trained(14).learner.replay
    newest = int(replay.head - 1) % replay.capacity
    over = np.zeros(replay.rows.terminated.shape[1:], bool)
    over[:, 0] = True
    flags = {"terminated": over, "truncated": np.zeros_like(over)}
    flags = {name: getattr(replay.rows, name).at[newest].set(x) for name, x in flags.items()}
    replay = dataclasses.replace(replay, rows=dataclasses.replace(replay.rows, **flags))
    who = jnp.array([True, False, True, False])
    rows = population.cut(replay, who).rows
    np.testing.assert_array_equal(rows.terminated[newest], over)
    np.testing.assert_array_equal(rows.truncated[newest], np.asarray(who)[:, None] & ~over)


def test_a_copy_begins_episodes_of_its_own():
    """It neither ends what the one before began, nor reports a return that is partly another's."""
    programs = clerks()
    p = programs.trained(14)
    q, parents = programs.exchange(p, np.float32([[1], [2], [3], [4]]))
    new = np.asarray(parents) != np.arange(4)
    assert new.tolist() == [True, True, False, False]
    arrived = q.learner.world.arrived
    np.testing.assert_array_equal(np.asarray(arrived.obs)[new][..., 0], 0)
    assert (np.asarray(q.learner.actors.begin)[new]).all()
    assert same(q.learner.world, p.learner.world, ~new)
    assert same(q.learner.actors, p.learner.actors, ~new)
    end = programs.train(q, 1).learner.actors
    np.testing.assert_array_equal(np.asarray(end.ep_return)[new], 0)
    np.testing.assert_array_equal(np.asarray(end.ep_length)[new], 0)


# --- inheritance ----------------------------------------------------------------------------

PARENT = {"networks": "parent", "optimizer": "parent", "normalizer": "parent"}
ALONE = {"networks": "own", "optimizer": "own", "normalizer": "own"}


@cache
def heirs(**choices):
    return jax.jit(partial(inherit, what=Inherit(**choices)))(past().learner, COPIES)


def test_by_default_a_copy_has_all_of_its_parent_but_its_own_replay():
    x, y = past().learner, heirs()
    for member in NEW:
        assert same(at(y.state, member), at(x.state, 2))
    assert same(y.state, x.state, STAY)
    assert same(y.replay, x.replay)
    assert same((y.actors, y.world, y.clock), (x.actors, x.world, x.clock))


@pytest.mark.parametrize(
    ("choice", "kind"),
    [("networks", "networks"), ("optimizer", "moments"), ("normalizer", "statistics")],
)
def test_each_part_is_inherited_or_not(choice, kind):
    x = past().learner.state
    takes, keeps = (
        heirs(**ALONE | {choice: "parent"}).state,
        heirs(**PARENT | {choice: "own"}).state,
    )
    for member in NEW:
        assert not same(at(parts(x, kind), member), at(parts(x, kind), 2))
        assert same(at(parts(takes, kind), member), at(parts(x, kind), 2))
        assert same(at(parts(keeps, kind), member), at(parts(x, kind), member))
        for other in {"networks", "moments", "statistics"} - {kind}:
            assert same(at(parts(takes, other), member), at(parts(x, other), member))
            assert same(at(parts(keeps, other), member), at(parts(x, other), 2))


def test_moments_may_be_fresh():
    """Where a rate jumps, its old moments may mislead."""
    x, y = past().learner.state, heirs(optimizer="fresh").state
    for member in NEW:
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(at(parts(y, "moments"), member)))
        assert same(at(parts(y, "networks"), member), at(parts(x, "networks"), 2))
    assert same(y, x, STAY)


def test_a_replay_may_be_inherited():
    x, y = past().learner.replay, heirs(replay="parent").replay
    newest = int(x.head) - 1
    second = lambda rows, i: jax.tree.map(lambda leaf: np.asarray(leaf)[:, i], rows)
    for member in NEW:
        expected = second(x.rows, 2)
        assert not same(second(x.rows, member), expected)
        found = second(y.rows, member)
        for name in ("obs", "reward", "terminated", "action"):
            assert same(getattr(found, name), getattr(expected, name))
        # What comes next is not what its parent did last: the newest row ends its episode.
        assert (found.truncated | found.terminated)[newest].all()
        np.testing.assert_array_equal(found.truncated[:newest], expected.truncated[:newest])
    for member in STAY:
        assert same(second(y.rows, member), second(x.rows, member))
    assert same((y.head, y.size), (x.head, x.size))


@pytest.mark.slow  # what others take over, with more leaves
def test_members_that_see_images_take_over_eyes_and_frames():
    env = Autoreset(Catch())
    conv = {"conv_channels": (2,), "conv_kernels": (4,), "conv_strides": (3,)}
    algo = DiscreteSAC(env.spec, hidden=(4,), batch_size=4, **conv)
    loop, tuner = Loop(algo, env, capacity=30), PBT(best=1, replaced=1, replay="parent")
    pixels = Programs(loop, tuner, 2, xla_backend_optimization_level=0)
    p = pixels.train(pixels.begin(pixels.seeds), 12)
    eyes = lambda p: (p.learner.state.critic.params.encoder, p.learner.state.target.encoder)
    assert all(not same(at(x, 0), at(x, 1)) for x in eyes(p))
    new, parents = pixels.exchange(p, jnp.array([[1.0], [0.0]]))
    assert parents.tolist() == [0, 0]
    assert same(at(eyes(new), 1), at(eyes(p), 0))
    frames = np.asarray(new.learner.replay.rows.obs)
    assert frames.dtype == np.uint8
    assert (frames[:, 1] == np.asarray(p.learner.replay.rows.obs)[:, 0]).all()
    assert not same(*(at(eyes(pixels.train(new, 2)), i) for i in (0, 1)))


@pytest.mark.parametrize("capacity", [3, 7, 64])
def test_a_replay_of_any_size_is_copied_whole(monkeypatch, capacity):
    """Also where a parent is itself replaced: it gives what it had before the round."""
    monkeypatch.setattr(population, "CHUNK", 7)
    whole = past().learner.replay
    rows = jax.tree.map(lambda x: np.asarray(x)[:capacity], whole.rows)
    shape = capacity, 4, 2
    own = np.arange(1, np.prod(shape) + 1).reshape(shape)

    @jax.jit
    def filled():
        none = Priorities.none(shape, Rule(max_use=9))
        weight, uses = jnp.asarray(own, jnp.float32), jnp.asarray(own, jnp.int32)
        return dataclasses.replace(none, weight=weight, uses=uses).rebuilt()

    priorities = filled()
    ring = Replay(jax.tree.map(jnp.asarray, rows), whole.head, whole.size, priorities)
    adopt = jax.jit(population.adopt)
    of_members = lambda replay: (
        replay.rows,
        [getattr(replay.priorities, name) for name in ("weight", "uses", "nodes", "highest")],
    )
    for parents in np.int32([[2, 1, 2, 2], [1, 2, 3, 3]]):  # the second is a chain
        expected = jax.tree.map(lambda x, of=parents: np.asarray(x)[:, of], of_members(ring))
        found = adopt(ring, parents, parents != np.arange(4))
        assert same(of_members(found), expected)
        assert same(jax.jit(Priorities.rebuilt)(found.priorities).nodes, found.priorities.nodes)
    assert same(adopt(ring, parents, np.zeros(4, bool)), ring)


@pytest.mark.parametrize("replay", ["own", "parent", "shared"])
def test_there_is_never_a_second_replay(replay):
    learner = past().learner
    wide = lambda x: jax.ShapeDtypeStruct((100_000, *x.shape[1:]), x.dtype)
    rows = jax.tree.map(wide, learner.replay.rows)
    learner = eqx.tree_at(lambda x: x.replay.rows, learner, rows)
    program = jax.jit(partial(inherit, what=Inherit(replay=replay)), donate_argnums=0)
    used = program.lower(learner, COPIES, sick=jnp.zeros(4, bool)).compile().memory_analysis()
    ring = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(learner.replay))
    assert used.temp_size_in_bytes < 0.1 * ring
    assert used.alias_size_in_bytes > ring  # it is the same memory


@pytest.mark.parametrize("shared", [False, True])
def test_a_replay_may_be_shared(shared):
    """Every member learns from the rows of all, which are not copied for that."""
    x, rows = clerks().trained(14).learner, 10_000
    owner = jnp.broadcast_to(jnp.arange(4.0)[None, :, None], (rows, 4, 3))
    ring = Replay.empty(rows, jax.tree.map(lambda x: x[0], x.replay.rows))
    ring = dataclasses.replace(
        ring, rows=dataclasses.replace(ring.rows, reward=owner), size=jnp.array(rows)
    )
    loop = dataclasses.replace(clerks().loop, shared=shared, updates_per_step=Fraction(10))
    keys, hps = member_keys(clerks().seeds, 1, 0), hyper.fill(Clerk.Hyper, {}, 4)
    draw = jax.jit(loop.draw).lower(ring, hps, None, keys, x.clock).compile()
    seen = np.asarray(draw(ring, hps, None, keys, x.clock).reward).reshape(4, -1)
    assert [sorted(set(s)) for s in seen.tolist()] == [
        [0, 1, 2, 3] if shared else [m] for m in range(4)
    ]
    assert draw.memory_analysis().temp_size_in_bytes < 0.1 * sum(
        v.nbytes for v in jax.tree.leaves(ring)
    )


def test_a_shared_replay_needs_a_loop_that_shares():
    with pytest.raises(ThespisError, match=r"Loop\(..., shared=True\)"):
        population.begin(clerks().loop, PBT(replay="shared"), clerks().seeds)


@pytest.mark.parametrize("replay", ["own", "parent", "shared"])
def test_the_sick_take_over_all_that_may_have_broken_them(replay):
    x = past().learner

    def spoilt(leaf, where=np.s_[:, 3], by=np.nan):
        leaf = np.array(leaf)
        if leaf.dtype == np.float32 or by == 1:
            leaf[where] = by
        return jnp.asarray(leaf)

    rows = jax.tree.map(spoilt, x.replay.rows)
    x = dataclasses.replace(
        x,
        state=jax.tree.map(partial(spoilt, where=3), x.state),
        replay=dataclasses.replace(x.replay, rows=rows),
        metric_sums=dataclasses.replace(
            x.metric_sums,
            fault=spoilt(x.metric_sums.fault, by=1),
            total=spoilt(x.metric_sums.total),
        ),
    )
    heal = jax.jit(partial(inherit, what=Inherit(replay=replay)))
    y = heal(x, COPIES, sick=np.array([False, False, False, True]))
    for leaf in jax.tree.leaves((y.state, y.replay, y.metric_sums)):
        assert np.isfinite(leaf).all()
    np.testing.assert_array_equal(np.asarray(y.metric_sums.fault)[:, 3], -1)
    obs = np.asarray(y.replay.rows.obs)
    source = 2 if replay == "parent" else 0  # the other copy is healthy
    np.testing.assert_array_equal(obs[:, 0], np.asarray(rows.obs)[:, source])


def test_what_was_counted_of_the_replaced_is_forgotten():
    x, y = jax.tree.map(np.asarray, (past().learner.metric_sums, heirs().metric_sums))
    assert (x.count[:, NEW] > 0).any()
    np.testing.assert_array_equal(y.count[:, NEW], 0)
    np.testing.assert_array_equal(y.total[:, STAY], x.total[:, STAY])


# --- memory that can be made again ----------------------------------------------------------


@pytest.mark.parametrize("programs", [sac, td3])
def test_a_state_without_moments_and_targets_can_be_rebuilt(programs):
    p = programs().trained()
    state = p.learner.state
    bare = population.empty(state)
    size = lambda tree: sum(x.nbytes for x in jax.tree.leaves(tree))
    assert size(bare) < 0.4 * size(state)
    new = jax.jit(population.rebuild)(bare)
    shape = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
    assert shape(new) == shape(state)
    for name, part in vars(new).items():
        old = getattr(state, name)
        if isinstance(part, TrainState):
            assert same(part.params, old.params)
            assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(part.opt_state))
        elif name.startswith("target"):
            online = getattr(state, name.partition("_")[2] or "critic")
            assert same(part, online.params)
            assert not same(part, old)
        else:
            assert same(part, old)
    learner = dataclasses.replace(p.learner, state=new)
    programs().train(dataclasses.replace(p, learner=learner), 2)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_every_algorithm_has_targets_that_can_be_found(algorithm):
    """`empty` and `rebuild` go by their names."""
    for env in (PENDULUM, Autoreset(CartPole()), Autoreset(Meeting())):
        with suppress(ThespisError):  # these are not its actions, or not one agent's
            algo = algorithm(dataclasses.replace(env.spec, descriptor="0"))
            state = jax.eval_shape(algo.init, random.key(0), algo.Hyper())
    assert population.targets(state)
    for followed in population.targets(state).values():
        assert isinstance(getattr(state, followed), TrainState)
