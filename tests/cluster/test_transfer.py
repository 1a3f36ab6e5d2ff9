"""Tests of members on their way: weights and rows arrive as they were, and others stay."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.cluster import transfer
from thespis.core import Row
from thespis.replay.priorities import Rule
from thespis.replay.ring import Replay


def group(members: int, seed: int, rule: Rule | None) -> SimpleNamespace:
    """Members with some weights, and three rows in rings of four."""
    r = np.random.default_rng(seed)
    numbers = lambda *shape: jnp.asarray(r.uniform(size=shape), jnp.float32)
    state = {"actor": numbers(members, 3), "count": jnp.arange(members)}
    none = jnp.zeros((members, 2), bool)
    row = Row(numbers(members, 2, 1), numbers(members, 2), none, none, numbers(members, 2, 1), ())
    replay = Replay.empty(4, row, rule)
    for _ in range(3):
        fresh = dataclasses.replace(row, reward=numbers(members, 2), obs=numbers(members, 2, 1))
        replay = replay.add(fresh, alpha=jnp.full(members, 0.6) if rule else None)
    if rule is not None:
        priorities = dataclasses.replace(replay.priorities, highest=numbers(1, members))
        replay = dataclasses.replace(replay, priorities=priorities)
    return SimpleNamespace(state=state, replay=replay)


def member(tree, place: int):
    """One member of a ring: leaves [rows, members, ...]."""
    return [np.asarray(x)[:, place] for x in jax.tree.leaves(tree)]


@pytest.mark.cases(1)
@pytest.mark.parametrize("rule", [None, Rule(), Rule(max_use=3)])
def test_a_replay_arrives_whole_and_others_stay(rule):
    donor, child = group(2, 0, rule), group(3, 1, rule)
    parcel = transfer.pack(donor.state, 1, donor.replay)
    new = transfer.graft(child.replay, {2: parcel["replay"]})
    same = lambda a, b: all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert same(member(new.rows, 2), member(donor.replay.rows, 1))
    for place in (0, 1):
        assert same(member(new.rows, place), member(child.replay.rows, place))
    if rule is not None:
        found, wanted = new.priorities, donor.replay.priorities
        assert same(member(found.nodes, 2), member(wanted.nodes, 1))
        assert same(member(found.highest, 2), member(wanted.highest, 1))
    assert transfer.graft(child.replay, {}) is child.replay


def test_states_of_parents_here_and_elsewhere():
    donor, child = group(2, 0, None), group(3, 1, None)
    states = transfer.states(child.state, [0, transfer.pack(donor.state, 1), 0])
    assert states["count"].tolist() == [0, 1, 0]
    assert np.array_equal(states["actor"][1], donor.state["actor"][1])
    assert np.array_equal(states["actor"][2], child.state["actor"][0])
    assert "replay" not in transfer.pack(donor.state, 0)
