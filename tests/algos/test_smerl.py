"""Which skills are near the best, by the returns of the last episodes."""

import dataclasses
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.algos import DADS
from thespis.algos.smerl import EPISODES, Returns
from thespis.core import ThespisError
from thespis.engine.loop import DeviceDriver, Loop
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import PointMass
from thespis.tuning import hyper

add, near_best = jax.jit(Returns.add), jax.jit(Returns.near_best)
HOT = jnp.eye(3)


def test_the_last_episodes_are_remembered_and_running_ones_are_not():
    """As a Python list of all that ended, of which the last count."""
    rng = np.random.default_rng(0)
    returns, ended = Returns.none(1), []
    for n in (7, 7, 7, 2 * EPISODES, 7):
        over, total = rng.random(n) < 0.6, rng.normal(size=n).astype(np.float32)
        skill = total[:, None] / 2
        returns = add(returns, skill, total, over)
        ended += total[over].tolist()
    assert int(returns.count) == len(ended)
    last = sorted(ended[-EPISODES:])
    np.testing.assert_allclose(sorted(returns.total), last)
    np.testing.assert_allclose(returns.skill[:, 0], returns.total / 2)


def test_skills_are_near_the_best_by_their_mean_return():
    """Skill 0 has 10 and 8, skill 1 has 9, skill 2 has 3; 7.2 is enough of 9."""
    skills, totals = HOT[jnp.array([0, 1, 2, 0])], jnp.array([10.0, 9.0, 3.0, 8.0])
    returns = add(Returns.none(3), skills, totals, jnp.ones(4, bool))
    np.testing.assert_allclose(returns.expected(HOT), [9, 9, 3], rtol=1e-5)
    np.testing.assert_array_equal(near_best(returns, HOT, 0.2), [1, 1, 0])
    np.testing.assert_array_equal(near_best(returns, HOT, 0.7), [1, 1, 1])
    np.testing.assert_array_equal(near_best(returns, HOT, 0.0, 9.5), [0, 0, 0])
    worse = add(Returns.none(3), skills, -totals, jnp.ones(4, bool))
    np.testing.assert_array_equal(near_best(worse, HOT, 0.2), [0, 0, 1])


def test_none_is_near_the_best_before_an_episode_has_ended():
    np.testing.assert_array_equal(near_best(Returns.none(3), HOT, 0.5), [0, 0, 0])
    np.testing.assert_array_equal(near_best(Returns.none(3), HOT, 0.5, -1e6), [0, 0, 0])


@pytest.mark.thorough
def test_the_loop_tells_whole_returns():
    """Those of the rewards that the replay holds, for every member of its own."""
    env = Autoreset(PointMass(limit=5))
    algo = DADS(env.spec, hidden=(4,), with_reward=True)
    loop = Loop(algo, env, envs=2, capacity=32, updates_per_step=Fraction(1))
    seeds, hps = jnp.arange(2), hyper.fill(DADS.Hyper, {}, 2)
    driver = DeviceDriver(loop, seeds)
    x = driver.run(driver.init(seeds, hps), hps, None, seeds, 15, "random", False)
    rows = jax.tree.map(np.asarray, x.replay.rows)
    assert np.asarray(x.state.returns.count).tolist() == [4, 4]  # two environments, two episodes
    for member in range(2):
        wanted = [
            (
                rows.reward[first + 1 : first + 6, member, env].sum(),
                rows.extra.skill[first, member, env],
            )
            for first in (0, 6)
            for env in range(2)
        ]
        total, skill = x.state.returns.total[member], x.state.returns.skill[member]
        np.testing.assert_allclose(total[:4], [r for r, _ in wanted], rtol=1e-5)
        np.testing.assert_array_equal(skill[:4], [z for _, z in wanted])


def test_a_best_return_is_of_use_only_with_rewards():
    spec = Autoreset(PointMass()).spec
    with pytest.raises(ThespisError, match="best_return = 5.0 needs with_reward"):
        DADS(spec, best_return=5.0)
    algo = DADS(spec, hidden=(4,))
    state = jax.eval_shape(algo.init, random.key(0), algo.Hyper())
    assert state.returns is None
    assert dataclasses.replace(algo, with_reward=True, best_return=5.0).best_return == 5
