"""What keeps the compiler from reordering or merging changes no number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.xla.ordering import no_inline, order_after


@pytest.mark.parametrize("first", [0.0, 1.0, -1.0, np.inf, np.nan, 1e-40])
def test_a_number_that_waits_for_others_stays_what_it_is(first):
    """Whatever their bits are, also those of keys, flags and integers."""
    read = {"x": jnp.float32([first, 2.0]), "key": jax.random.key(3), "on": jnp.array([True])}
    for x in (0, 1, 7, 2**31 - 2):
        assert order_after(jnp.int32(x), read) == x


def test_it_depends_on_what_was_read():
    wait = lambda x, read: order_after(x, read)
    (equation,) = jax.make_jaxpr(wait)(jnp.int32(1), jnp.ones(3)).jaxpr.eqns[-1:]
    assert equation.primitive.name == "min"  # and not the number itself
    assert "ENTRY" in (text := jax.jit(wait).lower(1, jnp.ones(3)).compile().as_text())
    assert "parameter(1)" in text  # the compiler has not dropped it


def test_what_is_compiled_by_itself_computes_and_differentiates_the_same():
    f = lambda x, y: jnp.sin(x) @ y
    x, y = jnp.arange(6.0).reshape(2, 3), jnp.arange(3.0)
    alone = no_inline(f)
    np.testing.assert_allclose(jax.jit(alone)(x, y), f(x, y), rtol=1e-6)
    of = lambda f: jax.grad(lambda x: f(x, y).sum())(x)
    np.testing.assert_allclose(of(alone), of(f), rtol=1e-6)
