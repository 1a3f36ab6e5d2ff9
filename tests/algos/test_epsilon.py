"""Straying from a policy by chance."""

import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.algos.epsilon import with_random_actions
from thespis.nn.distributions import Categorical


def test_every_entry_strays_for_itself_and_takes_no_illegal_action():
    logits = jnp.tile(jnp.array([99.0, 0.0, 0.0]), (4000, 1))
    legal = jnp.tile(jnp.array([True, True, False]), (4000, 1))
    p = np.asarray(with_random_actions(Categorical(logits, legal), 0.3, random.key(0)).p)
    strays = p[:, 0] < 0.9
    np.testing.assert_allclose(strays.mean(), 0.3, atol=0.03)
    np.testing.assert_allclose(p[strays], [[0.5, 0.5, 0]] * strays.sum(), atol=1e-6)
    np.testing.assert_allclose(p[~strays], [[1, 0, 0]] * (~strays).sum(), atol=1e-6)
