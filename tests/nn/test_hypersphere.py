"""Networks on the unit sphere stay on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.core import ThespisError
from thespis.nn.hypersphere import Hypersphere, Scaler, unit
from thespis.nn.networks import Network


def test_networks_on_the_sphere_have_no_half_precision():
    with pytest.raises(ThespisError, match="simbav2 computes in float32 alone: leave bfloat16 out"):
        Network(body="simbav2", dtype="bfloat16")


@reference.quick
def outcome(key, x):
    """A network, the same after a step that made its weights longer, and what it returns."""
    net = Hypersphere.create(key, inputs=2, width=4, outputs=1, blocks=1, expansion=2)
    longer = jax.tree.map(lambda w: 3 * w if w.ndim == 2 else w, net)
    return net, longer.projected(), net(x)


def test_weights_are_of_unit_length_again_after_every_step():
    net, projected, _ = outcome(random.key(0), np.ones((2, 2), np.float32))
    for weight, as_before in zip(jax.tree.leaves(projected), jax.tree.leaves(net), strict=True):
        np.testing.assert_allclose(weight, as_before, rtol=1e-5, atol=1e-6)
        assert weight.ndim == 1 or np.allclose(np.linalg.norm(weight, axis=0), 1, rtol=1e-5)


def test_the_length_of_an_input_is_not_lost():
    x = np.float32([[3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(reference.quick(unit)(x), [[0.6, 0.8]] * 2, rtol=1e-6)
    long, short = np.asarray(outcome(random.key(0), x)[2])
    assert abs(long - short) > 1e-4


def test_factors_begin_as_they_should_whatever_scale_they_are_learned_at():
    scaler = Scaler.create(3, initial=0.5, scale=0.01)
    np.testing.assert_allclose(scaler(jnp.ones((2, 3))), 0.5, rtol=1e-6)
    np.testing.assert_allclose(scaler.factors, 0.01, rtol=1e-6)
