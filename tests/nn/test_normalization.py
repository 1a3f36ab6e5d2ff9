"""Running statistics equal those of all rows together, for ever."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thespis.nn.normalization import MOST, Running, normalise, statistics, update

update_running = jax.jit(Running.update)


def rows(n, seed=0, mean=3.0, std=2.0, shape=(3,)):
    return np.random.default_rng(seed).normal(mean, std, (n, *shape)).astype(np.float32)


def known(x):
    """Mean and variance by NumPy; the statistics start with one squared deviation of 1."""
    x = x.astype(np.float64).reshape(-1, *x.shape[-1:])
    mean = x.mean(0)
    return mean, (1 + ((x - mean) ** 2).sum(0)) / (len(x) + 1)


# --- update ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_mean_and_variance_equal_numpys(n):
    x = rows(n)
    found = update_running(Running.create((3,)), x)
    mean, var = known(x)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.var, var, rtol=1e-5)
    assert found.count == n


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.sampled_from([1, 2, 5, 30]), max_size=12), seed=st.integers(0, 99))
def test_any_split_into_batches_gives_the_same(sizes, seed):
    x = rows(sum(sizes), seed)
    found = Running.create((3,))
    for batch in np.split(x, np.cumsum(sizes)[:-1]) if sizes else []:
        found = update_running(found, batch)
    mean, var = known(x) if sizes else (np.zeros(3), np.ones(3))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.var, var, rtol=1e-4)
    assert found.count == sum(sizes)


def test_leading_axes_are_merged():
    x = rows(24)
    flat = update_running(Running.create((3,)), x)
    boxed = update_running(Running.create((3,)), x.reshape(2, 4, 3, 3))
    jax.tree.map(np.testing.assert_array_equal, flat, boxed)


def test_arrays_have_statistics_of_their_own_shape():
    x = rows(50, shape=(2, 4))
    found = update_running(Running.create((2, 4)), x)
    assert found.mean.shape == found.var.shape == (2, 4)
    np.testing.assert_allclose(found.mean, x.mean(0), rtol=1e-4)


def test_a_large_offset_does_not_spoil_the_variance():
    x = rows(2000, mean=1e4, std=0.5)
    found = Running.create((3,))
    for batch in np.split(x, 100):
        found = update_running(found, batch)
    np.testing.assert_allclose(found.mean, x.astype(np.float64).mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.var, known(x)[1], rtol=0.02)


def test_statistics_stand_steady_after_a_hundred_million_rows():
    """A sum of squares in single precision would stop growing here, and the variance shrink."""
    old = Running(jnp.full(3, 3.0), jnp.full(3, 4.0), jnp.int32(100_000_000))
    feed = jax.jit(lambda stats, x: jax.lax.scan(lambda s, row: (s.update(row), None), stats, x)[0])
    found = feed(old, rows(400_000))
    assert found.count == 100_400_000
    np.testing.assert_allclose(found.mean, old.mean, rtol=1e-3)
    np.testing.assert_allclose(found.var, old.var, rtol=1e-3)


def test_what_changed_is_still_noticed_after_many_rows():
    """An average that no longer moves has lost what came since."""
    found = Running(jnp.zeros(1), jnp.ones(1), jnp.int32(1_000_000))
    for _ in range(500):
        found = update_running(found, np.full((2000, 1), 3.0, np.float32))
    np.testing.assert_allclose(found.mean, 1.5, rtol=1e-3)
    np.testing.assert_allclose(found.var, 1 / 2 + 9 / 4, rtol=1e-3)


def test_rows_are_counted_up_to_a_number_that_fits():
    """After that older ones fade: a count that overflows would turn the statistics around."""
    found = Running(jnp.zeros(1), jnp.ones(1), jnp.int32(MOST - 4))
    for _ in range(3):
        found = update_running(found, np.full((8, 1), 3.0, np.float32))
        assert found.count == MOST


# --- use ------------------------------------------------------------------------------------


def test_before_any_row_normalising_changes_nothing_but_the_clip():
    x = jnp.array([[-7.0, 0.5, 5.0]])
    np.testing.assert_array_equal(Running.create((3,))(x), [[-5, 0.5, 5]])


def test_normalised_rows_have_mean_0_and_variance_1():
    x = rows(5000)
    y = np.asarray(update_running(Running.create((3,)), x)(jnp.asarray(x)))
    np.testing.assert_allclose(y.mean(0), np.zeros(3), atol=1e-3)
    np.testing.assert_allclose(y.std(0), np.ones(3), atol=1e-3)


def test_the_result_is_clipped_at_5():
    stats = Running(jnp.array([1.0]), jnp.array([4.0]), jnp.int32(9))
    y = stats(jnp.array([[-100.0], [-9.1], [-8.9], [5.0], [100.0]]))
    np.testing.assert_allclose(y, [[-5], [-5], [-4.95], [2], [5]], rtol=1e-6)


@pytest.mark.parametrize(("var", "std"), [(1e-12, 1e-3), (1e12, 1e3), (0.0, 1e-3)])
def test_the_variance_is_bounded(var, std):
    stats = Running(jnp.zeros(1), jnp.array([var]), jnp.int32(9))
    np.testing.assert_allclose(stats(jnp.array([[2 * std]])), [[2]], rtol=1e-6)


def test_without_a_clip_nothing_is_bounded():
    stats = Running(jnp.array([1.0]), jnp.array([1e-8]), jnp.int32(9))
    np.testing.assert_allclose(stats(jnp.array([[2.0]]), clip=None), [[1e4]], rtol=1e-5)


def test_any_leading_axes_are_normalised_alike():
    stats = update_running(Running.create((3,)), rows(20))
    x = jnp.asarray(rows(24, seed=1))
    np.testing.assert_array_equal(stats(x.reshape(2, 4, 3, 3)), stats(x).reshape(2, 4, 3, 3))


# --- observations of several parts ----------------------------------------------------------

SPEC = {
    "image": jax.ShapeDtypeStruct((2, 2), jnp.uint8),
    "vector": jax.ShapeDtypeStruct((3,), jnp.float32),
}


def test_images_are_left_as_they_are():
    obs = {"image": jnp.full((5, 2, 2), 200, jnp.uint8), "vector": jnp.asarray(rows(5))}
    stats = jax.jit(update)(statistics(SPEC), obs)
    assert stats["image"] is None
    seen = normalise(stats, obs)
    assert seen["image"].dtype == jnp.uint8
    np.testing.assert_array_equal(seen["image"], obs["image"])


def test_vectors_beside_an_image_are_normalised():
    obs = {"image": jnp.zeros((5, 2, 2), jnp.uint8), "vector": jnp.asarray(rows(5))}
    stats = jax.jit(update)(statistics(SPEC), obs)
    alone = update_running(Running.create((3,)), obs["vector"])
    jax.tree.map(np.testing.assert_array_equal, stats["vector"], alone)
    np.testing.assert_array_equal(normalise(stats, obs)["vector"], alone(obs["vector"]))


def test_a_lone_image_has_no_statistics():
    assert statistics(SPEC["image"]) is None


def test_rows_that_are_not_valid_count_as_if_not_there():
    x, valid = jnp.asarray(rows(20)), np.arange(20) % 3 > 0
    wild = jnp.where(jnp.asarray(valid)[:, None], x, jnp.nan)
    found = Running.create((3,)).update(wild, jnp.asarray(valid, jnp.float32))
    wanted = Running.create((3,)).update(x[valid])
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-5)
    np.testing.assert_allclose(found.var, wanted.var, rtol=1e-5)
    same = found.update(wild, jnp.zeros(20))
    np.testing.assert_array_equal(same.mean, found.mean)
    assert int(same.count) == int(valid.sum())


def test_without_a_prior_small_numbers_have_their_own_scale_at_once():
    x = jnp.asarray(rows(50, mean=0.001, std=1e-4))
    found = Running.create((3,), prior=0).update(x)
    np.testing.assert_allclose(found.var, np.var(x, 0), rtol=1e-3)
    assert abs(float(found(x, floor=1e-12).std()) - 1) < 0.01
