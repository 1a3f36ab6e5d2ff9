"""Every derivative of a layer is that of plain products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.flatten_util import ravel_pytree

from tests.algos import reference
from tests.nn.test_networks import make
from thespis.nn.layers import orthogonal
from thespis.nn.networks import MLP


@pytest.mark.parametrize("sizes", [(6, 1), (6, 2), (4, 4), (2, 6), (128, 129)])
@pytest.mark.parametrize("lead", [(5,), (2, 3)])
def test_gradients_of_wide_square_and_narrow_layers(sizes, lead):
    rng = np.random.default_rng(0)
    net, x = make(MLP, sizes), rng.normal(size=(*lead, sizes[0])).astype(np.float32)
    slope = rng.normal(size=(*lead, sizes[1])).astype(np.float32)
    total = lambda net, x: (net(x) * slope).sum()
    d_net, d_x = reference.quick(jax.grad(total, argnums=(0, 1)))(net, x)
    flat = lambda a: a.reshape(-1, a.shape[-1])
    np.testing.assert_allclose(d_net.weights[0], flat(x).T @ flat(slope), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(d_net.biases[0], flat(slope).sum(0), rtol=1e-5)
    np.testing.assert_allclose(d_x, slope @ np.asarray(net.weights[0]).T, rtol=1e-5, atol=1e-6)


MODES = {
    "jvp": lambda f, x, v: jax.jvp(f, (x,), (v,))[1],
    "jacfwd": lambda f, x, v: jax.jacfwd(f)(x) @ v,
    "jacrev": lambda f, x, v: jax.jacrev(f)(x) @ v,
    "forward over reverse": lambda f, x, v: jax.jvp(jax.grad(f), (x,), (v,))[1],
    "reverse over reverse": lambda f, x, v: jax.grad(lambda x: jax.grad(f)(x) @ v)(x),
    "reverse over forward": lambda f, x, v: jax.grad(lambda x: jax.jvp(f, (x,), (v,))[1])(x),
    "hessian": lambda f, x, v: jax.hessian(f)(x) @ v,
}


@pytest.mark.parametrize("mode", MODES)
def test_every_derivative_is_that_of_plain_products(mode):
    """Of layers that widen, stay and narrow, by the weights and inputs together, also mapped."""
    net, rng = make(MLP, (3, 5, 5, 2)), np.random.default_rng(0)
    inputs = rng.normal(size=(2, 4, 3)).astype(np.float32)
    flat, unflat = ravel_pytree((net, inputs))

    def plain(net, x):
        *hidden, (last, shift) = zip(net.weights, net.biases)
        for weight, bias in hidden:
            x = jax.nn.relu(jnp.einsum("...i,ij->...j", x, weight) + bias[None, None])
        return jnp.einsum("...i,ij->...j", x, last) + shift[None, None]

    loss = lambda f: lambda x: jnp.square(jnp.tanh(f(*unflat(x)))).sum()
    vectors = rng.normal(size=(3, flat.size)).astype(np.float32)
    found, wanted = (
        reference.quick(jax.vmap(lambda v, f=f: MODES[mode](loss(f), flat, v)))(vectors)
        for f in (MLP.__call__, plain)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "m"), [(6, 6), (9, 4), (4, 9)])
def test_orthogonal_weights_have_orthonormal_rows_or_columns(n, m):
    weight = np.asarray(orthogonal(random.key(0), n, m))
    square = weight.T @ weight if n >= m else weight @ weight.T
    np.testing.assert_allclose(square, np.eye(min(n, m)), atol=1e-6)
    other = np.asarray(orthogonal(random.key(1), n, m))
    assert np.abs(weight - other).max() > 0.1
