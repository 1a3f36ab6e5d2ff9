"""Soft actor-critics begin with a temperature and with targets that are their critics."""

import jax
import numpy as np
from jax import random

from tests.algos import reference
from tests.algos.test_sac import HYPER, make, scalars


def test_temperature_is_part_of_the_state_and_starts_at_alpha():
    for form, value in (("exp", np.log(0.3)), ("log", np.log(0.3)), ("linear", 0.3)):
        state = make(temperature=form).init(random.key(0), scalars())
        np.testing.assert_allclose(state.temperature.params, value, rtol=1e-6)
        assert any(x is state.temperature.params for x in jax.tree.leaves(state))


def test_temperature_may_start_at_zero():
    for form in ("exp", "log", "linear", "fixed"):
        algo, hp = make(temperature=form), scalars(HYPER | {"alpha": 0.0})
        alpha = algo.alpha(algo.init(random.key(0), hp), hp)
        assert 0 <= alpha <= 1e-6


def test_the_target_starts_as_the_critic():
    state = make().init(random.key(0), scalars())
    assert reference.difference(state.target, state.critic.params) == 0
