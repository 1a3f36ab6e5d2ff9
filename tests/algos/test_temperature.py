"""Temperatures settle where the wanted entropy is, and may start and end at zero."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from tests.algos.test_discrete_sac import HYPER, make, scalars
from thespis.algos.temperature import alpha_of, init_temperature, update_temperature


@pytest.mark.parametrize(("form", "fraction"), [("exp", 0.5), ("log", 0.9), ("linear", 0.5)])
def test_the_temperature_settles_where_the_wanted_entropy_is(form, fraction):
    """Values of 1 and -1 under softmax(q / alpha): the wanted entropy has one temperature."""
    p = np.linspace(0.5 + 1e-6, 1 - 1e-6, 100_000)
    wanted = p[np.argmin(abs(reference.entropies(np.stack([p, 1 - p], -1)) - fraction * np.log(2)))]
    alpha = 2 / np.log(wanted / (1 - wanted))

    algo = make(n=2, temperature=form, critics=1, hidden=())
    changed = {"critic_lr": 0.0, "tau": 0.0, "actor_lr": 0.03, "alpha_lr": 0.002}
    hp = scalars(HYPER | changed | {"target_entropy": fraction, "alpha": 1.0})
    batch = reference.choices(2)
    last = lambda s: [*s.critic.params.networks[0].weights, *s.critic.params.networks[0].biases]
    update = lambda i, s: algo.update(s, hp, batch, random.key(0), jnp.int32(i))[0]

    @reference.quick
    def settled():
        state = algo.init(random.key(0), hp)
        state = eqx.tree_at(last, state, [jnp.zeros((2, 2)), jnp.array([1.0, -1.0])])
        state = jax.lax.fori_loop(0, 4000, update, state)
        return alpha_of(form, state.temperature, None)

    np.testing.assert_allclose(settled(), alpha, rtol=0.03)


@pytest.mark.parametrize("form", ["exp", "log", "linear"])
def test_more_entropy_than_wanted_lowers_it_and_less_raises_it(form):
    start = init_temperature(form, 0.3)
    np.testing.assert_allclose(alpha_of(form, start, None), 0.3, rtol=1e-6)
    for surplus in (1.0, -1.0):
        moved, _ = update_temperature(form, start, jnp.float32(surplus), 0.01)
        assert (alpha_of(form, moved, None) < alpha_of(form, start, None)) == (surplus > 0)


def test_a_linear_one_stops_at_zero():
    moved, _ = update_temperature("linear", init_temperature("linear", 0.1), jnp.float32(9), 1.0)
    assert alpha_of("linear", moved, None) == 0


def test_a_fixed_one_stays_as_it_was_given():
    assert init_temperature("fixed", 0.3) is None
    assert update_temperature("fixed", None, jnp.float32(9), 1.0)[0] is None
    np.testing.assert_allclose(alpha_of("fixed", None, 0.3), 0.3, rtol=1e-6)
