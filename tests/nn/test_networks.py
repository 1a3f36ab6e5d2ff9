"""Networks compute what NumPy does, start where they should and read every observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.flatten_util import ravel_pytree

from tests.algos import reference
from thespis.nn.networks import MLP, Critics


def make(Network, *sizes, key=0, **options):
    return reference.quick(lambda key: Network(key, *sizes, **options))(random.key(key))


run = reference.quick(lambda net, *inputs: net(*inputs))


def forward(net, x):
    return reference.forward(reference.plain(net), x)


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_mlp_over_any_leading_axes(lead):
    net = make(MLP, (3, 4, 4, 2))
    x = np.random.default_rng(0).normal(size=(*lead, 3))
    out = run(net, np.float32(x))
    assert out.shape == (*lead, 2)
    np.testing.assert_allclose(out, forward(net, x), atol=1e-5)


@pytest.mark.parametrize(("init", "reach"), [("torch", 1 / 10), ("lecun", np.sqrt(3) / 10)])
def test_initial_weights_fill_their_range(init, reach):
    """1/sqrt(n) with biases alike, or sqrt(3/n) without, for n inputs: here 100, then 50."""
    net = jax.tree.map(np.asarray, make(MLP, (100, 50, 2), init))
    weight = net.weights[0]
    assert 0.99 * reach < weight.max() <= reach
    assert -reach <= weight.min() < -0.99 * reach
    np.testing.assert_allclose(weight.std(), reach / np.sqrt(3), rtol=0.03)
    assert len(np.unique(weight)) > 0.9 * weight.size
    assert 0.95 < abs(net.weights[1]).max() / (reach * np.sqrt(2)) <= 1
    if init == "torch":
        assert 0.9 * reach < abs(net.biases[0]).max() <= reach
    else:
        assert not any(b.any() for b in net.biases)


def test_layers_and_critics_start_apart():
    critics = make(Critics, 3, (4, 4, 4))
    leaves = [x for x in jax.tree.leaves(critics) if x.shape == (4, 4)]
    assert len(leaves) == 6
    assert len({x.tobytes() for x in map(np.asarray, leaves)}) == 6


def test_critics_are_independent_networks_of_one_input():
    critics = make(Critics, 3, (3, 4, 1))
    rng = np.random.default_rng(0)
    obs, action = (rng.normal(size=(5, n)).astype(np.float32) for n in (2, 1))
    out = np.asarray(run(critics, obs, action))
    assert out.shape == (3, 5, 1)
    for network, q in zip(critics.networks, out):
        wanted = forward(network, np.concatenate([np.float64(obs), np.float64(action)], -1))
        np.testing.assert_allclose(q, wanted, atol=1e-5)
    second = lambda c, *inputs: c(*inputs)[1].sum()
    gradient = reference.quick(jax.grad(second))(critics, obs, action)
    moved = [any(np.asarray(x).any() for x in jax.tree.leaves(n)) for n in gradient.networks]
    assert moved == [False, True, False]


def test_last_layer_can_be_redrawn():
    net = make(MLP, (3, 8, 4))
    new = reference.quick(lambda net, key: net.with_last(key, 0.01))(net, random.key(1))
    last = np.append(new.weights[-1], new.biases[-1])
    assert 0.005 < abs(last).max() <= 0.01
    np.testing.assert_array_equal(new.weights[0], net.weights[0])
    np.testing.assert_array_equal(new.biases[0], net.biases[0])


def test_every_leaf_of_a_network_is_an_array():
    """So that states can be mapped, compiled and saved without a filter."""
    nets = (make(MLP, (2, 3, 1)), make(Critics, 2, (2, 3, 1), key=1))
    assert all(isinstance(x, jax.Array) and x.dtype == jnp.float32 for x in jax.tree.leaves(nets))


@pytest.mark.parametrize("sizes", [(6, 2), (4, 4), (2, 6)])
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


# --- every mode of differentiation ----------------------------------------------------------

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
    inputs = rng.normal(size=(2, 3, 3)).astype(np.float32)
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
