"""Networks compute what NumPy does, start where they should and read every observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.nets import MLP, Critics, features, width


def forward(net, x):
    return reference.forward(reference.plain(net), x)


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_mlp_over_any_leading_axes(lead):
    net = MLP(random.key(0), (3, 4, 4, 2))
    x = np.random.default_rng(0).normal(size=(*lead, 3))
    out = net(jnp.asarray(x, jnp.float32))
    assert out.shape == (*lead, 2)
    np.testing.assert_allclose(out, forward(net, x), atol=1e-5)


@pytest.mark.parametrize(("init", "reach"), [("torch", 1 / 10), ("lecun", np.sqrt(3) / 10)])
def test_initial_weights_fill_their_range(init, reach):
    """1/sqrt(n) with biases alike, or sqrt(3/n) without, for n inputs: here 100, then 50."""
    net = MLP(random.key(0), (100, 50, 2), init)
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
    critics = Critics(random.key(0), 3, (4, 4, 4))
    leaves = [x for x in jax.tree.leaves(critics) if x.shape == (4, 4)]
    assert len(leaves) == 6
    assert len({x.tobytes() for x in map(np.asarray, leaves)}) == 6


def test_critics_are_independent_networks_of_one_input():
    critics = Critics(random.key(0), 3, (3, 4, 1))
    rng = np.random.default_rng(0)
    obs, action = (jnp.asarray(rng.normal(size=(5, n)), jnp.float32) for n in (2, 1))
    out = critics(obs, action)
    assert out.shape == (3, 5, 1)
    for network, q in zip(critics.networks, out):
        wanted = forward(network, np.concatenate([np.float64(obs), np.float64(action)], -1))
        np.testing.assert_allclose(q, wanted, atol=1e-5)
    gradient = jax.grad(lambda c: c(obs, action)[1].sum())(critics)
    moved = [any(x.any() for x in jax.tree.leaves(n)) for n in gradient.networks]
    assert moved == [False, True, False]


def test_last_layer_can_be_redrawn():
    net = MLP(random.key(0), (3, 8, 4))
    new = net.with_last(random.key(1), 0.01)
    last = np.append(new.weights[-1], new.biases[-1])
    assert 0.005 < abs(last).max() <= 0.01
    np.testing.assert_array_equal(new.weights[0], net.weights[0])
    np.testing.assert_array_equal(new.biases[0], net.biases[0])


def test_every_leaf_of_a_network_is_an_array():
    """So that states can be mapped, compiled and saved without a filter."""
    nets = (MLP(random.key(0), (2, 3, 1)), Critics(random.key(1), 2, (2, 3, 1)))
    assert all(isinstance(x, jax.Array) and x.dtype == jnp.float32 for x in jax.tree.leaves(nets))


def test_features_of_a_dict_of_vectors_and_images():
    floats, image = jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((2, 2, 1), "u1")
    spec = {"vector": floats, "image": image, "time": jax.ShapeDtypeStruct((), jnp.int32)}
    obs = {
        "vector": jnp.asarray([[1.0, -2.0, 300.0], [0.0, 0.5, 0.0]]),
        "image": jnp.asarray([[[[0], [51]], [[102], [255]]]] * 2, jnp.uint8),
        "time": jnp.asarray([7, 9], jnp.int32),
    }
    out = features(spec, obs)
    assert width(spec) == 8
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out[0], [0, 0.2, 0.4, 1, 7, 1, -2, 300], rtol=1e-6)
    one = jax.tree.map(lambda x: x[1], obs)
    np.testing.assert_array_equal(features(spec, one), out[1])
    batch = jax.tree.map(lambda x: x[None], obs)
    np.testing.assert_array_equal(features(spec, batch), out[None])


@pytest.mark.parametrize("sizes", [(6, 2), (4, 4), (2, 6)])
@pytest.mark.parametrize("lead", [(5,), (2, 3)])
def test_gradients_of_wide_square_and_narrow_layers(sizes, lead):
    rng = np.random.default_rng(0)
    net, x = MLP(random.key(0), sizes), rng.normal(size=(*lead, sizes[0])).astype(np.float32)
    slope = rng.normal(size=(*lead, sizes[1])).astype(np.float32)
    d_net, d_x = jax.grad(lambda net, x: (net(x) * slope).sum(), argnums=(0, 1))(net, x)
    flat = lambda a: a.reshape(-1, a.shape[-1])
    np.testing.assert_allclose(d_net.weights[0], flat(x).T @ flat(slope), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(d_net.biases[0], flat(slope).sum(0), rtol=1e-5)
    np.testing.assert_allclose(d_x, slope @ np.asarray(net.weights[0]).T, rtol=1e-5, atol=1e-6)
