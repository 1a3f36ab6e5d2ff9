"""Metrics summed on the device, and the first number that is not finite."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.engine.clerks import (
    MANY,
    Clerk,
    assert_equal,
    clerks,
    member,
    rows_of,
)
from thespis.tuning import hyper


@pytest.fixture(scope="module")
def done():
    """Four members with three environments each after 60 iterations."""
    return clerks(*MANY).train(60)


def test_metrics_are_means_over_the_updates_that_had_them(done):
    means = done.metric_sums.means(0)
    np.testing.assert_allclose(means["train/even"], np.arange(0, 270, 2).mean(), rtol=1e-6)
    assert np.isfinite(means["train/loss"])


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
    learner = jax.tree.map(lambda x: jnp.asarray(np.array(x)), learner)
    learner = eqx.tree_at(lambda x: x.metric_sums, learner, learner.metric_sums.clear())
    learner = run.train(5, start=learner)
    np.testing.assert_array_equal(learner.metric_sums.fault[0], expected)
    assert np.isfinite(learner.metric_sums.means(3)["train/loss"])
