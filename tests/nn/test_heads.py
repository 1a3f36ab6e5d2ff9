"""Value heads: what the outputs of critics mean."""

import jax
import jax.numpy as jnp
import numpy as np

from thespis.nn.heads import Scalar, smallest


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
