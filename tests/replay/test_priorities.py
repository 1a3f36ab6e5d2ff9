"""Priorities of rows, against a slow and obvious model: an array of weights and a sorted list."""

import dataclasses
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
from thespis.replay.priorities import EPSILON, Drawn, Priorities, Rule
from thespis.replay.ring import Replay

CAPACITY, MEMBERS, ENVS, MOST, BATCH = 5, 2, 3, 12, 8
ALPHA = np.array([0.6, 1.0], np.float32)
properties = settings(max_examples=20, deadline=None)


def row(time, final) -> Row:
    """Every number tells when and where it was."""
    name = 100 * time + jnp.asarray(10 * np.arange(MEMBERS)[:, None] + np.arange(ENVS)[None])
    x = name.astype(jnp.float32)
    return Row(x, x, final, jnp.zeros_like(final), x)


@partial(jax.jit, static_argnums=0)
def live(rule: Rule, finals, rows, envs, priority, count) -> Replay:
    """A replay after `count` rows with these ends, between which priorities are given back."""
    alpha = jnp.asarray(ALPHA)

    def one(time, replay):
        replay = replay.add(row(time, finals[time]), alpha=alpha)
        drawn = Drawn(jnp.maximum(time - rows[time], -1), envs[time])
        new = replay.priorities.update(drawn, priority[time], alpha)
        return dataclasses.replace(replay, priorities=new)

    return jax.lax.fori_loop(0, count, one, Replay.empty(CAPACITY, row(0, finals[0]), rule))


class Model:
    """The weights as a dict {(row, member, env): weight}, kept by going through all of it."""

    def __init__(self, rule: Rule):
        self.rule, self.final, self.weight, self.uses = rule, [], {}, {}
        self.highest = np.ones(MEMBERS)

    def add(self, final):
        self.final.append(final)
        last, enters = len(self.final) - 1, len(self.final) - 1 - self.rule.ahead
        for m, e in np.ndindex(MEMBERS, ENVS):
            if enters >= 0 and not self.final[enters][m, e]:
                self.weight[enters, m, e] = (self.highest[m] + EPSILON) ** ALPHA[m]
        oldest = last - min(CAPACITY - 1, (self.rule.max_age or CAPACITY) - 1)
        self.weight = {k: w for k, w in self.weight.items() if k[0] >= oldest}

    def back(self, rows, envs, priority):
        known = dict(self.weight)
        for m in range(MEMBERS):
            given = [(rows[m, i], m, envs[m, i]) for i in range(BATCH)]
            for k in set(given) & known.keys():
                p = max(priority[m, i] for i in range(BATCH) if given[i] == k)
                self.weight[k] = (p + EPSILON) ** ALPHA[m]
                self.highest[m] = max(self.highest[m], p)
                self.uses[k] = self.uses.get(k, 0) + given.count(k)
                if self.uses[k] >= (self.rule.max_use or np.inf):
                    del self.weight[k]

    @property
    def ring(self):
        found = np.zeros((CAPACITY, MEMBERS, ENVS))
        for (time, m, e), w in self.weight.items():
            found[time % CAPACITY, m, e] = w
        return found


def lived(rule: Rule, count: int, finals, rows, envs, priority) -> tuple[Replay, Model]:
    """The replay and the model after the same."""
    model = Model(rule)
    for time in range(count):
        model.add(finals[time])
        model.back(time - rows[time], envs[time], priority[time])
    return live(rule, finals, rows, envs, priority, count), model


def some(low, high, kind=np.int32):
    elements = st.integers(low, high) if kind is np.int32 else st.floats(low, high, width=32)
    return arrays(kind, (MOST, MEMBERS, BATCH), elements=elements)


# Rows are given as how long ago they were: before the first one, or long since overwritten, too.
lives = st.tuples(
    st.integers(0, MOST),
    arrays(bool, (MOST, MEMBERS, ENVS), elements=st.sampled_from([False, False, True])),
    some(0, CAPACITY + 2),
    some(0, ENVS - 1),
    some(0, 4, np.float32),
)
RULES = [Rule(), Rule(ahead=2), Rule(max_use=3), Rule(max_age=3), Rule(2, max_use=2, max_age=4)]


@pytest.mark.parametrize("rule", RULES, ids=str)
@properties
@given(life=lives)
def test_weights_are_those_of_a_slow_model(rule, life):
    """What enters and with which weight, what is given back to whom, and what leaves."""
    replay, model = lived(rule, *life)
    p = replay.priorities
    np.testing.assert_allclose(p.weight, model.ring, rtol=1e-5)
    np.testing.assert_allclose(p.highest[0], model.highest, rtol=1e-6)
    # The tree is that of the weights, and one built anew is the same bit for bit.
    weight = np.moveaxis(np.asarray(p.weight), 1, 0).reshape(MEMBERS, -1)
    least = np.where(weight > 0, weight, np.inf).min(1)
    np.testing.assert_allclose(p.nodes[1], np.stack([weight.sum(1), least], 1), rtol=1e-6)
    np.testing.assert_array_equal(rebuilt(p).nodes, p.nodes)


# --- draws ----------------------------------------------------------------------------------

WIDE, MANY = 13, 4000  # rows whose tree has leaves to spare, and draws


def test_a_row_that_takes_the_place_of_a_used_one_is_new():
    """Every row may be used twice, and is: also those that are written over others."""
    add = jax.jit(lambda replay, time: replay.add(row(time, none), alpha=jnp.asarray(ALPHA)))
    back = jax.jit(
        lambda tree, drawn: tree.update(drawn, jnp.ones((MEMBERS, 1)), jnp.asarray(ALPHA))
    )
    none, first = jnp.zeros((MEMBERS, ENVS), bool), jnp.zeros((MEMBERS, 1), jnp.int32)
    replay = add(Replay.empty(CAPACITY, row(0, none), Rule(max_use=2)), 0)
    for time in range(1, 3 * CAPACITY):
        replay = add(replay, time)
        newest, tree = time - 1, replay.priorities  # of those that have a successor
        for use in range(2):
            assert (np.asarray(tree.weight)[newest % CAPACITY, :, 0] > 0).all(), (time, use)
            tree = back(tree, Drawn(first + newest, first))
        assert (np.asarray(tree.weight)[newest % CAPACITY, :, 0] == 0).all()
        replay = dataclasses.replace(replay, priorities=tree)


def test_rows_whose_stack_has_been_overwritten_leave_the_draw():
    """With two older rows that must be there, of a full ring only those with both are drawn."""
    add = jax.jit(lambda replay, time: replay.add(row(time, none), alpha=jnp.asarray(ALPHA)))
    none = jnp.zeros((MEMBERS, ENVS), bool)
    replay = Replay.empty(CAPACITY, row(0, none), Rule(behind=2))
    for time in range(3 * CAPACITY):
        replay = add(replay, time)
    newest = 3 * CAPACITY - 1
    weight = np.asarray(replay.priorities.weight)[:, 0, 0]
    drawn = [age for age in range(CAPACITY) if weight[(newest - age) % CAPACITY] > 0]
    assert drawn == list(range(1, CAPACITY - 2))  # the newest has no successor yet


@jax.jit
def weighted(weight) -> Priorities:
    """Of one member with these weights [capacity, envs]."""
    none = Priorities.none((weight.shape[0], 1, weight.shape[1]), Rule())
    return dataclasses.replace(none, weight=weight[:, None]).rebuilt()


rebuilt = jax.jit(Priorities.rebuilt)
draw = jax.jit(lambda p, seed: p.draw(random.key(seed), MANY, jnp.int32(0)))
weights = arrays(
    np.float32, (WIDE, ENVS), elements=st.sampled_from([0, 0, 1e-6, 0.1, 1, 3.5, 1000])
).filter(lambda w: w.sum() > 0)


@properties
@given(weight=weights, seed=st.integers(0, 1000))
def test_rows_are_drawn_in_proportion_to_their_weights(weight, seed):
    """Stratified: each row at most one time more or less than its share, or two at its borders."""
    slot, env = draw(weighted(weight), seed)
    counts = np.zeros((WIDE, ENVS))
    np.add.at(counts, (np.asarray(slot), np.asarray(env)), 1)
    assert (counts[weight == 0] == 0).all()
    assert (abs(counts - MANY * weight / weight.sum()) <= 2.01).all()


def test_single_draws_follow_the_weights():
    """Without strata to help: one draw each of many keys."""
    weight = np.arange(1, 1 + WIDE * ENVS, dtype=np.float32).reshape(WIDE, ENVS)
    p = weighted(weight)
    one = jax.vmap(lambda seed: p.draw(random.key(seed), 1, jnp.int32(0)))
    slot, env = jax.jit(one)(jnp.arange(20_000))
    counts = np.zeros((WIDE, ENVS))
    np.add.at(counts, (np.asarray(slot)[:, 0], np.asarray(env)[:, 0]), 1)
    expected = 20_000 * weight / weight.sum()
    freedom = counts.size - 1
    assert ((counts - expected) ** 2 / expected).sum() < freedom + 4 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("tiny", [0.0, 1e-30])
def test_rounding_never_leads_to_a_row_that_must_not_be_drawn(tiny):
    """Sums of numbers of very different size are inexact; still none of weight 0 is drawn."""
    weight = np.zeros((WIDE, ENVS), np.float32)
    weight[2::4] = 1 / 3
    weight[5, 1], weight[12, 2] = 1e7, tiny
    slot, env = draw(weighted(weight), 3)
    assert (weight[np.asarray(slot), np.asarray(env)] > 0).all()


def test_importance_weights_undo_the_favour():
    weight = np.array([[1.0, 4.0, 0.0], [2.0, 0.5, 9.0]], np.float32)
    p, member = weighted(weight), jnp.int32(0)
    slot, env = jnp.array([0, 0, 0, 1, 1, 1]), jnp.array([0, 1, 2, 0, 1, 2])
    for beta in (0.0, 0.4, 1.0):
        found = p.importance(slot, env, member, jnp.float32(beta))
        flat = weight.reshape(-1)
        chance = flat / flat.sum()
        legal = chance > 0
        expected = np.where(legal, (5 * np.where(legal, chance, 1)) ** -beta, 0)  # Schaul's form
        np.testing.assert_allclose(found, expected / expected.max(), rtol=1e-5)
    expectation = (chance * found)[legal]  # with beta = 1, every row counts alike
    np.testing.assert_allclose(expectation, expectation[0], rtol=1e-5)


def test_nothing_is_valid_while_no_row_may_be_drawn():
    none = row(0, jnp.zeros((MEMBERS, ENVS), bool))
    replay = Replay.empty(CAPACITY, none, Rule()).add(none, alpha=jnp.asarray(ALPHA))
    batch = sample(replay, jnp.int32(0), jnp.float32(0.4), 0, 1)
    assert not batch.valid.any()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(batch))


# --- batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2])
@properties
@given(life=lives, seed=st.integers(0, 99))
def test_batches_hold_legal_transitions_and_tell_which(n, life, seed):
    """Never one that begins at an end, or that lacks its successor; with weights and rows."""
    replay, model = lived(Rule(n), *life)
    beta = jnp.float32(0.5)
    for m in range(MEMBERS):
        batch = sample(replay, jnp.int32(m), beta, seed, n)
        if not (model.ring[:, m] > 0).any():
            assert not batch.valid.any()
            continue
        assert batch.valid.all()
        name = np.asarray(batch.obs).astype(int)
        np.testing.assert_array_equal(name // 100, batch.drawn.row)
        np.testing.assert_array_equal(name % 10, batch.drawn.env)
        weight = np.array([model.weight[t, m, e] for t, e in zip(name // 100, name % 10)])
        least = min(w for k, w in model.weight.items() if k[1] == m)
        np.testing.assert_allclose(batch.weight, (least / weight) ** 0.5, rtol=1e-4)
        ahead = np.asarray(batch.next_obs).astype(int) // 100 - name // 100
        np.testing.assert_array_equal(ahead, batch.steps)


@partial(jax.jit, static_argnums=4)
def sample(replay, member, beta, seed, n):
    return replay.view(member, beta).transitions(random.key(seed), BATCH, 0.9, n)


# --- cost -----------------------------------------------------------------------------------


def test_the_work_grows_with_the_logarithm_of_the_rows():
    """A thousand times the rows: ten levels more, and no copy of the tree."""

    def program(capacity):
        p = jax.eval_shape(lambda: Priorities.none((capacity, 1, 1), Rule()))

        def both(p, key):
            slot, env = p.draw(key, 64, jnp.int32(0))
            return p.update(Drawn(slot[None], env[None]), jnp.ones((1, 64)), jnp.ones(1))

        key = jax.eval_shape(lambda: random.key(0))
        trips = [e.params["length"] for e in loops(jax.make_jaxpr(both)(p, key))]
        return trips, jax.jit(both, donate_argnums=0).lower(p, key).compile().memory_analysis()

    (few, small), (many, large) = program(2**10), program(2**20)
    assert (few, many) == ([9, 9], [19, 19])
    assert large.temp_size_in_bytes == small.temp_size_in_bytes


def loops(jaxpr):
    """The loops of a program, also those in what it calls."""
    found = [e for e in jaxpr.eqns if e.primitive.name == "scan"]
    inner = [e.params["jaxpr"] for e in jaxpr.eqns if e.primitive.name in ("jit", "pjit")]
    return found + [loop for sub in inner for loop in loops(sub)]
