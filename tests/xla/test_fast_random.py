"""Random numbers are those of `jax.random`, for any key and shape."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.xla import fast_random

SHAPES = [(1,), (7,), (256, 6), (2, 3, 5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_bits_uniform_and_normal_are_those_of_jax(seed, shape):
    key = lambda: random.key(seed)
    np.testing.assert_array_equal(
        fast_random.bits(key(), shape), random.bits(key(), shape, "uint32")
    )
    near = lambda a, b, rtol=1e-6: np.testing.assert_allclose(a, b, rtol, atol=1e-7)
    near(fast_random.uniform(key(), shape), random.uniform(key(), shape))
    near(
        fast_random.uniform(key(), shape, -1, 1), random.uniform(key(), shape, minval=-1, maxval=1)
    )
    near(fast_random.normal(key(), shape), random.normal(key(), shape), rtol=1e-5)


def test_the_inverse_of_erf_holds_from_end_to_end():
    x = np.r_[np.linspace(-1, 1, 4001)[1:-1], 0, fast_random.BELOW_ONE, -fast_random.BELOW_ONE]
    y = np.asarray(fast_random.erf_inv(jnp.asarray(x, jnp.float32)), np.float64)
    np.testing.assert_allclose(np.vectorize(math.erf)(y), np.float32(x), rtol=2e-6, atol=1e-7)


def test_members_draw_what_each_draws_alone():
    keys = jax.vmap(random.key)(np.arange(3))
    together = jax.vmap(lambda k: fast_random.normal(k, (4,)))(keys)
    for i in range(3):
        np.testing.assert_array_equal(together[i], fast_random.normal(random.key(i), (4,)))


def test_keys_of_other_generators_work():
    draw = fast_random.normal(random.key(0, impl="rbg"), (1000,))
    np.testing.assert_allclose([draw.mean(), draw.std()], [0, 1], atol=0.2)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("shape", [(100_001,), (3, 40_000)])
def test_chances_are_as_asked_and_draws_independent(p, shape):
    hits = np.asarray(fast_random.bernoulli(random.key(3), p, shape)).reshape(-1)
    assert hits.dtype == bool
    assert abs(hits.mean() - p) < 5 * np.sqrt(p * (1 - p) / hits.size) + 2**-16
    # Eight draws that are as far apart as there are blocks come from one block.
    for apart in (1, 2, 3, hits.size // 2, -(-hits.size // 8)):
        both = (hits[:-apart] & hits[apart:]).mean()
        spread = np.sqrt(p * p * (1 - p * p) / (hits.size - apart))
        assert abs(both - p * p) < 7 * spread + 2**-15


def test_chances_of_keys_of_other_generators_are_as_asked():
    hits = fast_random.bernoulli(random.key(0, impl="rbg"), 0.25, (9_999,))
    assert abs(float(hits.mean()) - 0.25) < 0.03
