"""The Gaussian process against a plain one in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.tuning import gp

ENTRY = np.float32([0.3, 0.1, 0.05])
posterior, fit, kernel = map(jax.jit, (gp.posterior, gp.fit, gp.kernel))


def data(n=12, d=2, known=None, seed=0):
    rng = np.random.default_rng(seed)
    known = np.ones(n, bool) if known is None else known
    x, time, y = rng.uniform(size=(n, d)), rng.integers(0, 5, n), rng.normal(size=n)
    as_float = lambda a: jnp.asarray(a, jnp.float32)
    return gp.Data(as_float(x), as_float(time), as_float(np.where(known, y, 0)), jnp.asarray(known))


def by_hand(a, b):
    square = ((np.asarray(a.x)[:, None] - np.asarray(b.x)[None]) ** 2).sum(-1)
    apart = np.abs(np.asarray(a.time)[:, None] - np.asarray(b.time)[None])
    return np.exp(-square / (2 * 0.3**2)) * 0.9 ** (apart / 2)


def test_mean_and_deviation_are_those_of_the_book():
    past, at = data(), data(5, seed=1)
    noisy = by_hand(past, past) + (0.05 + 1e-4) * np.eye(12)
    cross = by_hand(past, at)
    mean = cross.T @ np.linalg.solve(noisy, past.y)
    variance = 1 - (cross * np.linalg.solve(noisy, cross)).sum(0)
    found = posterior(past, at, ENTRY)
    np.testing.assert_allclose(found[0], mean, atol=2e-4)
    np.testing.assert_allclose(found[1], np.sqrt(variance), atol=2e-4)


def test_what_is_not_known_has_no_influence():
    known = np.arange(12) < 7
    some, at = data(known=known), data(5, seed=1)
    fewer = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[:7]), some)
    for a, b in zip(posterior(some, at, ENTRY), posterior(fewer, at, ENTRY), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_array_equal(fit(some), fit(fewer))


def test_knowing_nothing_it_expects_nothing():
    nothing = data(known=np.zeros(12, bool))
    mean, deviation = posterior(nothing, data(5, seed=1), ENTRY)
    np.testing.assert_array_equal(mean, 0)
    np.testing.assert_allclose(deviation, 1, atol=1e-6)


@pytest.mark.parametrize(("scale", "drift"), [(0.1, 0.0), (0.8, 0.0), (0.4, 0.2)])
def test_the_fit_finds_how_smooth_and_how_fleeting_a_function_is(scale, drift):
    rng, n = np.random.default_rng(1), 150
    x, time = rng.uniform(size=(n, 1)), np.repeat(np.arange(15), 10)
    as_float = lambda a: jnp.asarray(a, jnp.float32)
    blank = gp.Data(as_float(x), as_float(time), jnp.zeros(n), jnp.ones(n, bool))
    covariance = np.asarray(kernel(blank, blank, scale, drift)) + 0.01 * np.eye(n)
    y = np.linalg.cholesky(np.asarray(covariance, float)) @ rng.normal(size=n)
    found = fit(gp.Data(blank.x, blank.time, as_float(y), blank.known))
    np.testing.assert_allclose(found[0], scale)
    np.testing.assert_allclose(found[1], drift)
