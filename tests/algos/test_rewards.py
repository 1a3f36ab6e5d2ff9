"""Rewards are weighed and scaled as critics learn from them."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests.algos import reference
from tests.algos.test_switches import midway
from tests.small import arguments, arrays
from thespis.algos import SAC
from thespis.algos.rewards import Rewards
from thespis.nn.normalization import ReturnScale


def test_rewards_are_scaled_by_the_returns_that_they_make():
    """Of rows by hand: G = r + gamma G until an episode ends; first rows have none."""
    algo = SAC(reference.spec(), hidden=(3,), reward_norm="std")
    hp = reference.scalars(SAC.Hyper, reference.HYPER)
    state = midway(algo, hp)
    scale = ReturnScale.create()
    returns, valid = jnp.asarray([2.0, -8.0, 100.0]), jnp.asarray([1.0, 1.0, 0.0])
    scale = scale.update(returns, valid)
    # One row of variance 1 about 0 is counted beforehand.
    var = (1 + np.var([2, -8]) * 2) / 3
    np.testing.assert_allclose(scale.factor(), 1 / np.sqrt(var), rtol=1e-4)
    np.testing.assert_allclose(scale.factor(0.5), 0.5 / 8, rtol=1e-4)
    state = dataclasses.replace(state, reward_stats=scale)
    batch = reference.transitions()
    scaled = algo.scale_rewards(state, batch)
    np.testing.assert_allclose(scaled.reward, batch.reward / np.sqrt(var), rtol=1e-4)
    assert SAC(reference.spec()).scale_rewards(state, batch) is batch


@pytest.mark.usefixtures("undrawn")
def test_the_loop_keeps_discounted_returns(tmp_path):
    """The statistics of a run equal those of its replay, episode by episode, in NumPy."""
    given = arguments(steps=450, reward_norm="bounded", learning_starts=440, out=tmp_path)
    run = thespis.train("sac", **given | {"hidden": (4,), "buffer_size": 450, "gamma": 0.9})
    saved = arrays(run.path)
    rows = {n: x[:450, 0, 0] for n, x in saved.items() if n.startswith("replay.rows.")}
    reward = rows["replay.rows.reward"]
    final = rows["replay.rows.terminated"] | rows["replay.rows.truncated"]
    returns, g, first = [], 0.0, True
    for r, end in zip(reward, final, strict=True):
        g = r if first else r + 0.9 * g
        if not first:
            returns.append(g)
        first = bool(end)
        g = 0.0 if first else g
    stats = {n.rpartition("reward_stats.")[2]: x for n, x in saved.items() if "reward_stats" in n}
    assert int(stats["returns.count"][0]) == len(returns)
    np.testing.assert_allclose(stats["returns.mean"][0], np.mean(returns), rtol=1e-4)
    np.testing.assert_allclose(stats["largest"][0], np.abs(returns).max(), rtol=1e-5)
    assert np.isfinite(run.metrics["train/critic_loss"][-1])


def test_dimensions_of_a_reward_are_weighed():
    spec = dataclasses.replace(reference.spec(), reward_dim=2)
    reward = np.float32([[1.0, 10.0], [2.0, -3.0]])
    np.testing.assert_allclose(Rewards(spec).scalar(reward), [11, -1])
    weighed = Rewards(spec, reward_weights=(0.5, -2.0))
    np.testing.assert_allclose(weighed.scalar(reward), [-19.5, 7])
    np.testing.assert_allclose(weighed.scalar_reward(reward, obs=None), [-19.5, 7])
    one = np.float32([3.0])
    assert Rewards(reference.spec()).scalar(one) is one
