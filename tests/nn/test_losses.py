"""Losses are what their papers say, with the gradients that follow."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.algos import reference
from thespis.nn.losses import explained_variance, huber, quantile_huber


def test_hubers_loss_is_square_near_zero_and_straight_beyond():
    both = reference.quick(jax.vmap(jax.value_and_grad(lambda error: huber(error, 2.0))))
    loss, slope = both(np.float32([-4.0, -0.5, 0.0, 0.5, 4.0]))
    np.testing.assert_allclose(loss, [6, 0.125, 0, 0.125, 6])
    np.testing.assert_allclose(slope, [-2, -0.5, 0, 0.5, 2])


def plain(out, target):
    """Every pair of a quantile and an atom, one by one; differentiated as it stands."""
    n = out.shape[-1]
    losses = []
    for i in range(n):
        u = target[None] - out[..., i : i + 1]
        tau = (i + 0.5) / n
        losses.append(jnp.where(u < 0, 1 - tau, tau) * huber(u, 1.0))
    return jnp.stack(losses).mean((0, -1))


def test_quantile_regression_and_its_gradient_are_those_of_all_pairs():
    rng = np.random.default_rng(0)
    given = (np.float32(rng.normal(0, 2, shape)) for shape in ((2, 4, 3), (4, 5), (2, 4)))

    @reference.quick
    def results(out, target, weights):
        total = lambda f: lambda out: (weights * f(out, target)).sum()
        return [(f(out, target), jax.grad(total(f))(out)) for f in (quantile_huber, plain)]

    for found, wanted in zip(*results(*given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_what_predictions_explain_counts_valid_entries_alone():
    column = lambda *numbers: np.float32(numbers)[None, :, None]
    program, valid = reference.quick(explained_variance), np.float32([[1, 1, 1, 0]])
    explained = lambda *numbers: program(column(1, 3, 5, 999), column(*numbers), valid)
    np.testing.assert_allclose(explained(1, 3, 5, -7), [1], rtol=1e-6)
    np.testing.assert_allclose(explained(3, 3, 3, 3), [0], atol=1e-6)
    np.testing.assert_allclose(explained(2, 6, 10, 0), [0], atol=1e-6)  # off by all there is
