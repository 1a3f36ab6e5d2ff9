"""METRA beyond one update, which test_dads.py compares with NumPy: directions and their lengths."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from tests.algos.test_dads import make, scalars, steps_of
from thespis.algos import metra
from thespis.core import ThespisError
from thespis.nn.networks import MLP
from thespis.nn.train_state import TrainState
from thespis.tuning.hyper import fill


def test_skills_are_directions_in_which_none_is_preferred():
    skill = np.asarray(make(objective="metra", skills=3).memory(random.key(0), 4000).skill)
    np.testing.assert_allclose(np.linalg.norm(skill, axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(skill.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(skill.T @ skill / 4000, np.eye(3) / 3, atol=0.03)


def test_numbers_become_the_nearest_skill():
    numbers = jnp.array([[3.0, -4.0], [0.0, 0.0]])
    np.testing.assert_allclose(make(objective="metra").nearest(numbers), [[0.6, -0.8], [0, 0]])
    np.testing.assert_allclose(make().nearest(numbers), [[1, -1], [0, 0]])
    np.testing.assert_allclose(make(skill_kind="one-hot").nearest(numbers), [[1, 0], [1, 0]])


def test_what_skills_are_worth_does_not_depend_on_the_length_of_steps():
    """A representation that breaks its constraint is paid more, and worth the same."""
    algo = make(objective="metra")
    state, now, after = steps_of(algo)
    grow = lambda s: eqx.tree_at(
        lambda s: (s.dynamics.params.weights[-1], s.dynamics.params.biases[-1]),
        s,
        replace_fn=lambda x: 3 * x,
    )
    paid = reference.quick(lambda state: algo.diversity_reward(state, scalars(), now, after))
    terms = reference.quick(lambda state: algo.dependence_terms(state, scalars(), now, after))
    np.testing.assert_allclose(paid(grow(state)), 3 * paid(state), rtol=1e-4, atol=1e-6)
    worth, sums = algo.dependence(terms(state)), np.asarray(terms(state))
    np.testing.assert_allclose(algo.dependence(terms(grow(state))), worth, rtol=1e-4, atol=1e-6)
    unit = np.sqrt(sums[:, 1].sum() / (len(sums) - 1))  # the last step ended its episode for good
    np.testing.assert_allclose(worth, np.asarray(paid(state)) / unit, rtol=1e-4, atol=1e-6)


def test_the_representation_sees_the_descriptor_and_needs_to_see_something():
    algo = make(objective="metra", dynamics_hidden=(7,), skills=5)
    state = jax.eval_shape(algo.init, random.key(0), algo.Hyper())
    assert [w.shape for w in state.dynamics.params.weights] == [(2, 7), (7, 5)]
    assert (state.change_stats, algo.views.size("policy_sees")) == (None, 1)
    with pytest.raises(ThespisError, match="dynamics_sees = none"):
        make(objective="metra", dynamics_sees="none")


def test_steps_become_as_long_as_allowed_and_skills_go_their_way():
    """A line with steps of 0.1 either way, as the skill says: phi becomes 10 times the place."""
    rng = np.random.default_rng(0)
    hp = jax.tree.map(lambda x: x[0], fill(make().Hyper, {"dynamics_lr": [0.01]}, 1))
    before = jnp.asarray(rng.uniform(-1, 1, (64, 1)), jnp.float32)
    towards = jnp.asarray(rng.choice([-1, 1], (64, 1)), jnp.float32)
    steps, all_ = (before, before + 0.1 * towards, towards), jnp.ones(64)

    @jax.jit
    def learned(phi, multiplier):
        def one(carry, _):
            phi, multiplier, told = metra.learn(*carry, hp, steps, all_, all_)
            return (phi, multiplier), told

        return jax.lax.scan(one, (phi, multiplier), length=2000)

    start = (
        TrainState.create(MLP(random.key(0), (1, 16, 1))),
        TrainState.create(jnp.log(hp.multiplier)),
    )
    (phi, multiplier), told = learned(*start)
    reward, squared = metra.gain(phi.params, *steps)
    np.testing.assert_allclose(reward.mean(), 1, atol=0.1)
    np.testing.assert_allclose(squared.mean(), 1, atol=0.1)
    assert told["multiplier"][0] == pytest.approx(30)
    assert float(jnp.exp(multiplier.params)) < 5  # a constraint that is kept costs less and less
