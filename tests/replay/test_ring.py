"""The ring of rows, against a slow and obvious model: a list of rows, oldest first."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jax import random

from thespis.core import Row
from thespis.replay.priorities import Rule
from thespis.replay.ring import Index, Replay

CAPACITY, MEMBERS, ENVS, BATCH, MOST = 7, 2, 3, 48, 20
GOING, TERMINATED, TRUNCATED = range(3)

at = jax.jit(lambda r, m, index: r.view(m).at(index))
draw = jax.jit(lambda r, m, key, n, k: r.view(m).draw(key, n, k), static_argnums=(3, 4))
windows = jax.jit(lambda r, m, key, n, k: r.view(m).windows(key, n, k), static_argnums=(3, 4))
transitions = jax.jit(
    lambda r, m, key, gamma, n, batch=BATCH: r.view(m).transitions(key, batch, gamma, n),
    static_argnums=(4, 5),
)


def history(kinds) -> Row:
    """Rows [time, members, envs, ...] of these kinds; every number tells when and where it was."""
    when = 100 * np.arange(len(kinds))[:, None, None]
    name = when + 10 * np.arange(MEMBERS)[None, :, None] + np.arange(ENVS)[None, None]
    return Row(
        obs={"name": jnp.asarray(name), "image": jnp.asarray(name[..., None] % 251, jnp.uint8)},
        reward=jnp.asarray(name / 7 - 30, jnp.float32),
        terminated=jnp.asarray(kinds == TERMINATED),
        truncated=jnp.asarray(kinds == TRUNCATED),
        action=jnp.asarray(-name[..., None], jnp.float32),
        extra={"skill": jnp.asarray(name + 1)},
    )


def going(rows: int) -> np.ndarray:
    return np.full((rows, MEMBERS, ENVS), GOING)


EXAMPLE = jax.tree.map(lambda x: x[0], history(going(1)))


@jax.jit
def fill(rows: Row, count) -> Replay:
    put = lambda i, replay: replay.add(jax.tree.map(lambda x: x[i], rows))
    return jax.lax.fori_loop(0, count, put, Replay.empty(CAPACITY, EXAMPLE))


def stored(kinds) -> tuple[Replay, Row]:
    """A replay after rows of these kinds, and what it should hold: the last of them."""
    rows = history(np.concatenate([kinds, going(MOST - len(kinds))]))
    kept = slice(max(0, len(kinds) - CAPACITY), len(kinds))
    return fill(rows, len(kinds)), jax.tree.map(lambda x: np.asarray(x)[kept], rows)


def place(model: Row, found, member: int) -> tuple[np.ndarray, ...]:
    """Where these observations lie in the model: (time, member, env), each [...]."""
    name = np.asarray(found["name"])
    assert (name // 10 % 10 == member).all()
    time = name // 100 - model.obs["name"][0, 0, 0] // 100
    assert ((time >= 0) & (time < len(model.reward))).all()
    return time, np.full_like(time, member), name % 10


def pick(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def walk(model: Row, time, member, env, n, gamma):
    """Go on from a row until its episode ends or n steps are done -> reward, steps."""
    reward, steps = 0.0, 0
    while True:
        steps += 1
        then = time + steps, member, env
        reward += gamma ** (steps - 1) * float(model.reward[then])
        if steps == n or model.terminated[then] or model.truncated[then]:
            return reward, steps


histories = st.integers(0, MOST).flatmap(
    lambda rows: arrays(
        np.int8, (rows, MEMBERS, ENVS), elements=st.sampled_from([GOING, TERMINATED, TRUNCATED])
    )
)
properties = settings(max_examples=20, deadline=None)


# --- the ring -------------------------------------------------------------------------------


@properties
@given(kinds=histories, env=st.integers(0, ENVS - 1))
def test_holds_the_newest_rows_in_order(kinds, env):
    replay, model = stored(kinds)
    held = len(model.reward)
    assert replay.size == held
    index = Index(jnp.arange(CAPACITY), jnp.full(CAPACITY, env))
    for member in range(MEMBERS):
        same(pick(at(replay, member, index), slice(held)), pick(model, np.s_[:, member, env]))


def test_the_oldest_row_is_overwritten():
    replay, _ = stored(going(CAPACITY + 2))
    names = np.asarray(replay.rows.obs["name"])[:, 0, 0]
    assert sorted(names // 100) == list(range(2, CAPACITY + 2))
    assert replay.size == CAPACITY


def test_types_are_kept():
    replay, _ = stored(going(3))
    assert jax.tree.map(lambda x: x.dtype, replay.rows) == jax.tree.map(lambda x: x.dtype, EXAMPLE)
    batch = transitions(replay, 0, random.key(0), 0.9, 1)
    assert batch.obs["image"].dtype == batch.next_obs["image"].dtype == jnp.uint8
    assert batch.obs["name"].dtype == jnp.int32


def test_each_observation_is_stored_once():
    """The memory of a replay is that of its rows, and a row holds one observation."""
    image = Row(
        obs=jnp.zeros((1, 2, 84, 84), jnp.uint8),
        reward=jnp.zeros((1, 2)),
        terminated=jnp.zeros((1, 2), bool),
        truncated=jnp.zeros((1, 2), bool),
        action=jnp.zeros((1, 2, 3)),
    )
    replay = jax.eval_shape(partial(Replay.empty, 1000), image)
    bytes_of = lambda tree: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
    assert bytes_of(replay) == 1000 * 2 * (84 * 84 + 4 + 1 + 1 + 3 * 4) + 8


def test_a_hundred_thousand_frames_need_little_more_than_their_bytes():
    """Also with priorities and in stacks of four: within a tenth of the frames themselves."""
    zeros = lambda *shape, dtype: jnp.zeros((1, 1, *shape), dtype)
    number, flag = zeros(dtype=jnp.float32), zeros(dtype=bool)
    row = Row(zeros(84, 84, dtype=jnp.uint8), number, flag, flag, zeros(dtype=jnp.int32))
    bytes_of = lambda tree: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
    for rule in (None, Rule(ahead=3, max_use=8, behind=3)):
        replay = jax.eval_shape(partial(Replay.empty, 100_000, rule=rule), row)
        assert bytes_of(replay) < 1.01 * 100_000 * 84 * 84


def test_capacity_is_the_rows_it_was_made_for():
    replay = Replay.empty(CAPACITY, EXAMPLE)
    assert replay.capacity == CAPACITY
    assert replay.size == 0


# --- reading --------------------------------------------------------------------------------


def test_an_index_may_have_any_shape():
    replay, model = stored(going(CAPACITY + 3))
    time, env = np.array([[0, 6], [3, 2], [1, 1]]), np.array([[2, 1], [0, 0], [1, 2]])
    found = at(replay, 1, Index(jnp.asarray(time), jnp.asarray(env)))
    same(found, pick(model, (time, 1, env)))
    assert found.action.shape == (3, 2, 1)


def test_a_single_leaf_may_be_read():
    replay, _ = stored(going(3))
    index = Index(jnp.array([2]), jnp.array([1]))
    reward, image = replay.view(jnp.int32(1)).at(
        index, lambda rows: (rows.reward, rows.obs["image"])
    )
    assert image.tolist() == [[211]]
    np.testing.assert_allclose(reward, [211 / 7 - 30], rtol=1e-5)


def test_later_and_window_move_in_time_and_stay_in_the_environment():
    index = Index(jnp.array([0, 4]), jnp.array([2, 1]))
    later = index.later(jnp.array([3, 1]))
    assert (later.time.tolist(), later.env.tolist()) == ([3, 5], [2, 1])
    window = index.window(1, 4)
    assert window.time.tolist() == [[1, 5], [2, 6], [3, 7]]
    assert window.env.tolist() == [[2, 1]] * 3


# --- windows --------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5])
@properties
@given(kinds=histories.filter(lambda k: len(k) >= 5), seed=st.integers(0, 1000))
def test_windows_are_consecutive_rows_of_one_environment(length, kinds, seed):
    replay, model = stored(kinds)
    found = windows(replay, 1, random.key(seed), BATCH, length)
    index = place(model, found.obs, 1)
    assert index[0].shape == (length, BATCH)
    assert (np.diff(index[0], axis=0) == 1).all()
    assert (np.diff(index[2], axis=0) == 0).all()
    same(found, pick(model, index))


@pytest.mark.parametrize("rows", [3, CAPACITY, 12])
@pytest.mark.parametrize("length", [1, 3])
def test_every_window_that_fits_is_drawn_equally_often(rows, length):
    replay, model = stored(going(rows))
    index = draw(replay, 0, random.key(0), 20_000, length)
    starts = len(model.reward) - length + 1
    counts = np.zeros((starts, ENVS))
    np.add.at(counts, (np.asarray(index.time), np.asarray(index.env)), 1)  # no start but these
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    freedom = counts.size - 1
    assert chi_square < freedom + 4 * np.sqrt(2 * freedom)


def test_a_key_fixes_the_draw_and_another_changes_it():
    replay, _ = stored(going(6))
    a, b, c = (draw(replay, 0, random.key(k), 64, 1) for k in (5, 5, 6))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert (a.time != c.time).any()


# --- transitions ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@properties
@given(kinds=histories, seed=st.integers(0, 1000), gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_transitions_equal_a_walk_through_the_rows(n, kinds, seed, gamma):
    replay, model = stored(kinds)
    for member in range(MEMBERS):
        batch = transitions(replay, member, random.key(seed), gamma, n)
        if len(model.reward) <= n:  # too few rows for even one: nothing may be learned
            assert not batch.valid.any()
            continue
        index = place(model, batch.obs, member)
        same(
            (batch.obs, batch.action, batch.extra),
            pick((model.obs, model.action, model.extra), index),
        )
        final = (model.terminated | model.truncated)[index]
        np.testing.assert_array_equal(batch.valid, ~final)
        # What an invalid entry says of a successor is nobody's business.
        index = tuple(x[~final] for x in index)
        walked = [walk(model, *i, n, gamma) for i in zip(*index)]
        reward, steps = np.array(walked, float).reshape(-1, 2).T
        then = (index[0] + steps.astype(int), *index[1:])
        found = pick(jax.tree.map(np.asarray, batch), ~final)
        np.testing.assert_array_equal(found.steps, steps)
        np.testing.assert_allclose(found.reward, reward, rtol=1e-5, atol=1e-4)
        same(found.next_obs, pick(model.obs, then))
        same((found.terminated, found.truncated), pick((model.terminated, model.truncated), then))


def test_a_transition_has_the_reward_and_flags_that_came_with_its_successor():
    kinds = going(2)
    kinds[1, 0] = [TERMINATED, TRUNCATED, GOING]
    replay, model = stored(kinds)
    batch = transitions(replay, 0, random.key(0), 0.9, 1)
    env = np.asarray(batch.obs["name"]) % 10
    assert set(env) == {0, 1, 2}
    np.testing.assert_array_equal(batch.reward, model.reward[1, 0][env])
    np.testing.assert_array_equal(batch.terminated, env == 0)
    np.testing.assert_array_equal(batch.truncated, env == 1)
    assert batch.valid.all()


@pytest.mark.parametrize("kind", [TERMINATED, TRUNCATED])
def test_an_end_stops_the_sum_at_the_true_final_observation(kind):
    """Rows 0 1 2 | 3 4: from row 1, five steps are cut to one, and row 3 is never a successor."""
    kinds = going(7)
    kinds[2] = kind
    replay, _ = stored(kinds)
    batch = transitions(replay, 0, random.key(1), 1.0, 5)
    start, end = (np.asarray(x["name"]) // 100 for x in (batch.obs, batch.next_obs))
    assert set(start) == {0, 1}
    np.testing.assert_array_equal(end, np.full(BATCH, 2))
    np.testing.assert_array_equal(batch.steps, 2 - start)
    np.testing.assert_array_equal(batch.terminated, np.full(BATCH, kind == TERMINATED))
    np.testing.assert_array_equal(batch.truncated, np.full(BATCH, kind == TRUNCATED))


def test_a_final_row_is_an_invalid_entry_and_not_its_neighbour():
    """Six rows of which the third ends an episode: each of the first five is drawn as often."""
    kinds = going(6)
    kinds[2] = TERMINATED
    replay, _ = stored(kinds)
    batch = transitions(replay, 0, random.key(2), 0.9, 1, 20_000)
    time = np.asarray(batch.obs["name"]) // 100
    counts = np.bincount(time, minlength=6)
    assert counts[5] == 0  # the newest row has no successor yet
    np.testing.assert_allclose(counts[:5], 4000, rtol=0.07)
    np.testing.assert_array_equal(batch.valid, time != 2)


def test_weights_are_one():
    replay, _ = stored(going(4))
    np.testing.assert_array_equal(transitions(replay, 0, random.key(0), 0.9, 1).weight, [1] * BATCH)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_too_few_rows_give_nothing_to_learn_from_and_no_nan(rows):
    replay, _ = stored(going(rows))
    batch = transitions(replay, 0, random.key(0), 0.9, 3)
    assert not batch.valid.any()
    for leaf in jax.tree.leaves(batch):
        assert np.isfinite(leaf).all()


def test_members_read_rows_of_their_own_only():
    replay, _ = stored(going(9))
    both = jax.jit(jax.vmap(lambda m, key: replay.view(m).transitions(key, BATCH, 0.9, 2)))
    batch = both(jnp.arange(MEMBERS), random.split(random.key(0), MEMBERS))
    for x in (batch.obs, batch.next_obs):
        np.testing.assert_array_equal(x["name"] // 10 % 10, [[0] * BATCH, [1] * BATCH])


def test_recent_rows_are_drawn_alone():
    """Starts of the last three rows that have a successor, all of them, in every environment."""
    replay, _ = stored(going(12))
    draw = jax.jit(lambda key: replay.view(jnp.asarray(0)).draw(key, 400, 2, recent=3))
    index = draw(random.key(0))
    assert set(np.asarray(index.time).tolist()) == {CAPACITY - 4, CAPACITY - 3, CAPACITY - 2}
    assert set(np.asarray(index.env).tolist()) == set(range(ENVS))
    few, _ = stored(going(3))
    index = few.view(jnp.asarray(0)).draw(random.key(0), 100, 2, recent=3)
    assert set(np.asarray(index.time).tolist()) == {0, 1}


EVERY_WAY = [(False, 0.0), (True, 0.0), (False, 0.5), (True, 0.5)]  # evenly or not, share of recent


def spread(replay, member, batch, evenly, share, frames=1):
    """Where windows of two rows start, and the names of what is seen there."""

    def read(replay, key):
        view = replay.view(None if member is None else jnp.int32(member)).stacked(frames)
        start = view.spread(key, batch, 2, evenly, share, recent=2)
        return start, view.at(start).obs["name"]

    return jax.tree.map(np.asarray, jax.jit(read)(replay, random.key(0)))


def test_windows_are_spread_evenly_over_the_environments_of_all_members():
    replay, _ = stored(going(12))
    pairs = MEMBERS * ENVS
    index, name = spread(replay, None, pairs * 6 + 2, evenly=True, share=0.0)
    even = name[: pairs * 6]
    who, counts = np.unique(even % 100, return_counts=True)
    assert len(who) == pairs
    assert set(counts) == {6}
    assert len(set(even)) == pairs * 6  # every start of every environment once
    assert set(index.time) == set(range(CAPACITY - 1))


@pytest.mark.parametrize(("evenly", "share"), EVERY_WAY)
@pytest.mark.parametrize("member", [None, 1])
def test_windows_of_stacks_start_where_no_frame_is_lost(evenly, share, member):
    replay, _ = stored(going(12))
    index, name = spread(replay, member, 240, evenly, share, frames=3)
    np.testing.assert_array_equal(np.diff(name, axis=1), 100)  # the frames before, none repeated
    assert set(index.time) == set(range(2, CAPACITY - 1))
    who = set((name[:, 0] % 100).tolist())
    members = range(MEMBERS) if member is None else [member]
    assert who == {10 * m + e for m in members for e in range(ENVS)}


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("member", [None, 1])
def test_the_last_of_a_spread_batch_are_recent(member, frames):
    replay, _ = stored(going(12))
    index, _ = spread(replay, member, 240, evenly=True, share=0.25, frames=frames)
    late = slice(180, None)
    assert set(index.time[late]) == {CAPACITY - 3, CAPACITY - 2}
    envs = MEMBERS * ENVS if member is None else ENVS
    assert set(index.env[late]) == set(range(envs))
    assert set(index.time[:180]) == set(range(frames - 1, CAPACITY - 1))


def test_windows_that_follow_priorities_are_not_spread_otherwise():
    rows = history(going(12))
    replay = Replay.empty(CAPACITY, EXAMPLE, Rule())
    add = jax.jit(lambda replay, row: replay.add(row, alpha=jnp.ones(MEMBERS)))
    for i in range(12):
        replay = add(replay, pick(rows, i))
    index, _ = spread(replay, 1, 30, evenly=True, share=0.5)
    same(index, draw(replay, 1, random.key(0), 30, 2))


def test_every_dimension_of_a_vector_reward_is_summed_alike():
    kinds = going(7)
    kinds[2, 0, 1], kinds[4, 0, 2] = TERMINATED, TRUNCATED
    replay, _ = stored(kinds)
    rows, reward = replay.rows, replay.rows.reward
    vectors = Row(
        rows.obs,
        jnp.stack([reward, -2 * reward], -1),
        *(rows.terminated, rows.truncated),
        rows.action,
    )
    both = Replay(vectors, replay.head, replay.size)
    one = transitions(replay, 0, random.key(0), 0.9, 3).reward
    found = transitions(both, 0, random.key(0), 0.9, 3).reward
    np.testing.assert_allclose(found, np.stack([one, -2 * one], -1), rtol=1e-5)


def test_without_a_member_rows_of_all_are_drawn_with_their_own_successors():
    replay, kept = stored(going(10))
    everyone = jax.jit(
        lambda r, key: (r.view(None).draw(key, 200, 2), r.view(None).windows(key, 200, 2))
    )
    index, rows = everyone(replay, random.key(3))
    member, env = np.divmod(np.asarray(index.env), ENVS)
    assert {*zip(member.tolist(), env.tolist(), strict=True)} == {*np.ndindex(MEMBERS, ENVS)}
    time = np.asarray(index.time)
    for later in (0, 1):
        expected = kept.obs["name"][time + later, member, env]
        assert np.array_equal(rows.obs["name"][later], expected)
