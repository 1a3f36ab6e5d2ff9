"""Value heads: what the outputs of critics mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.nn.heads import Categorical, Quantile, Scalar, bitonic_sort, smallest


def test_the_smallest_is_chosen_with_its_gradient():
    x = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=50), jnp.float32)
    value, slope = jax.jit(jax.value_and_grad(lambda x: smallest(x) @ weights))(jnp.asarray(x))
    np.testing.assert_allclose(value, x.min(0) @ np.asarray(weights), rtol=1e-5)
    wanted = np.where(np.arange(3)[:, None] == x.argmin(0)[None], np.asarray(weights)[None], 0)
    np.testing.assert_array_equal(slope, wanted)


def test_the_smallest_of_equals_has_one_gradient_and_nothing_hides_a_nan():
    slope = jax.grad(lambda x: smallest(x).sum())(jnp.ones((3, 2)))
    np.testing.assert_array_equal(np.asarray(slope).sum(0), 1)
    for at in range(3):
        x = jnp.asarray(np.arange(3.0, dtype=np.float32)).at[at].set(jnp.nan)
        assert np.isnan(smallest(x))


@pytest.mark.parametrize("rows", [1, 2, 8, 64])
def test_columns_are_sorted_by_a_network(rows):
    x = np.random.default_rng(rows).integers(-3, 3, (rows, 7)).astype(np.float32)  # with equals
    x[0, 0] = np.inf
    np.testing.assert_array_equal(jax.jit(bitonic_sort)(x), np.sort(x, 0))
    x[-1, 3] = np.nan
    assert np.isnan(jax.jit(bitonic_sort)(x)).any(0).tolist() == [i == 3 for i in range(7)]


@pytest.mark.parametrize(("critics", "dropped"), [(2, 0), (3, 2), (5, 1)])
def test_the_truncated_mixture_drops_the_largest_quantiles_of_all_critics(critics, dropped):
    out = np.random.default_rng(0).normal(size=(critics, 4, 6)).round(1).astype(np.float32)
    kept = jax.jit(Quantile(6, dropped).truncated)(out)
    pooled = np.sort(np.concatenate(list(out), -1), -1)
    np.testing.assert_array_equal(kept, pooled[:, : critics * (6 - dropped)])


def test_a_scalar_head_is_the_bellman_equation_and_squared_errors():
    head, out = Scalar(), jnp.asarray([[[2.0], [5.0]], [[3.0], [4.0]]])  # two critics, two entries
    np.testing.assert_array_equal(head.value(out), [[2, 5], [3, 4]])
    after = head.smallest(out)
    np.testing.assert_array_equal(after, [[2], [4]])
    given = jnp.asarray([10.0, 20.0]), jnp.asarray([0.5, 0.0])
    np.testing.assert_array_equal(head.target(after, *given), [11, 20])
    target = head.target(after, *given, jnp.asarray([4.0, 4.0]))
    np.testing.assert_array_equal(target, [13, 20])
    losses, error = head.loss(out, target)
    np.testing.assert_array_equal(error, [[-11, -15], [-10, -16]])
    np.testing.assert_array_equal(losses, np.square(error))


# --- distributions of returns ---------------------------------------------------------------


def logits(batch: int = 6, n: int = 11, seed: int = 0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(batch, n)), jnp.float32)


def test_projection_conserves_mass_and_inside_the_bounds_the_mean():
    head = Categorical(11, 5.0)
    out, reward, discount = logits(), jnp.full(6, 0.3), jnp.full(6, 0.5)
    target = np.asarray(head.target(out, reward, discount, jnp.full(6, 0.4)))
    assert (target >= 0).all()
    np.testing.assert_allclose(target.sum(-1), 1, rtol=1e-5)
    wanted = 0.3 + 0.5 * (np.asarray(head.value(out)) + 0.4)
    np.testing.assert_allclose(target @ head.atoms, wanted, rtol=1e-4)


def test_returns_beyond_the_bounds_stay_there_and_are_reported():
    head = Categorical(11, 5.0)
    target = head.target(logits(), jnp.full(6, 50.0), jnp.full(6, 0.5))
    np.testing.assert_allclose(target[:, -1], 1, rtol=1e-5)
    np.testing.assert_allclose(head.report(target)["clip_share"], 1, rtol=1e-5)
    inside = head.target(logits(), jnp.zeros(6), jnp.zeros(6))
    np.testing.assert_allclose(head.report(inside)["clip_share"], 0, atol=1e-6)


@pytest.mark.parametrize("form", ["two-hot", "hl-gauss"])
def test_a_class_of_returns_has_the_expected_value(form):
    head = Categorical(21, 5.0, form)
    reward = jnp.asarray([-9.0, -4.9, -0.2, 0.0, 1.234, 9.0])
    target = np.asarray(head.target(logits(n=21), reward, jnp.zeros(6)))
    np.testing.assert_allclose(target.sum(-1), 1, rtol=1e-5)
    edge = 0 if form == "two-hot" else 0.4  # at a bound half of a Gaussian is cut off
    inner = slice(2, 5)
    wanted = np.clip(np.asarray(reward), -5, 5)
    np.testing.assert_allclose((target @ head.atoms)[inner], wanted[inner], atol=2e-3)
    np.testing.assert_allclose(target @ head.atoms, wanted, atol=edge + 2e-3)
    nonzero = (target > 1e-6).sum(-1)
    assert (nonzero <= 2).all() if form == "two-hot" else (nonzero > 2).all()


def test_the_mean_of_critics_is_that_of_their_values():
    out = jnp.stack([logits(seed=0), logits(seed=1), logits(seed=2)])
    for head in (Categorical(11, 5.0), Quantile(11), Scalar()):
        values = np.asarray(head.value(out)).mean(0)
        np.testing.assert_allclose(head.value(head.average(out)), values, rtol=1e-4, atol=1e-5)


def test_the_smallest_of_distributions_is_one_whole():
    out = jnp.stack([logits(seed=0), logits(seed=1)])
    for head in (Categorical(11, 5.0), Quantile(11)):
        least, values = np.asarray(head.smallest(out)), np.asarray(head.value(out))
        for row in range(6):
            np.testing.assert_array_equal(least[row], out[values[:, row].argmin(), row])
