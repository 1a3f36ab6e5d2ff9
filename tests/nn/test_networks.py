"""Networks compute what NumPy does, start where they should and read every observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.flatten_util import ravel_pytree

from tests.algos import reference
from thespis.core import ThespisError
from thespis.nn.networks import MLP, Critics, Network


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


# --- half precision -------------------------------------------------------------------------

BODIES = [{}, {"norm": "layer"}, {"body": "simba", "norm": "rms"}, {"norm": "batch"}]


def program(net: Network) -> str:
    """Its training pass and gradients, as JAX writes them."""
    loss = lambda net, x: (net.train(x, jnp.ones(5), random.key(0))[0] ** 2).sum()
    made = jax.eval_shape(lambda key: net.build(key, 3, 2), random.key(0))
    return str(jax.make_jaxpr(jax.grad(loss))(made, jnp.ones((5, 3))))


@pytest.mark.parametrize("choices", BODIES)
def test_half_precision_is_of_the_products_of_hidden_layers_alone(choices):
    """A network of float32 has no trace of it; norms and the last layer have none either."""
    net = Network((8, 8), **choices)
    assert "bf16" not in program(net)
    if net.norm != "batch":  # which asks whether any row counts
        assert "convert_element_type" not in program(net)
    half = program(Network((8, 8), dtype="bfloat16", **choices))
    lines = [line for line in half.splitlines() if "bf16" in line.partition("=")[0]]
    kinds = {line.partition("= ")[2].partition("[")[0].split(" ")[0] for line in lines}
    assert kinds <= {"convert_element_type", "dot_general", "transpose", "jit", "custom_jvp_call"}
    assert "f32[5,2] = dot_general" in half  # the last layer


def test_networks_of_half_precision_are_near_those_of_float32_and_kept_in_it():
    def both(dtype):
        net = Network((32, 32), dtype=dtype, norm="layer").build(random.key(0), 3, 2)
        loss = lambda net, x: (net(x) ** 2).sum()
        return net, net(X), jax.grad(loss)(net, X)

    X = jnp.asarray(np.random.default_rng(0).normal(size=(20, 3)), jnp.float32)
    (net, out, gradient), (_, rounded, about) = both("float32"), both("bfloat16")
    assert rounded.dtype == jnp.float32
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves((net, about)))
    assert 0 < abs(out - rounded).max() < 0.03 * abs(out).max()
    (wanted, _), (got, _) = ravel_pytree(gradient), ravel_pytree(about)
    assert jnp.linalg.norm(wanted - got) < 0.03 * jnp.linalg.norm(wanted)


def test_networks_that_cannot_be_are_refused():
    for line, choices in {
        "dropout disturbs batch norm": {"dropout": 0.1, "norm": "batch"},
        "dropout = 1.0": {"dropout": 1.0},
        "needs a width": {"body": "simba", "hidden": ()},
        "normalises by itself": {"body": "simbav2", "norm": "layer"},
    }.items():
        with pytest.raises(ThespisError, match=line):
            Network(**choices)


def test_dropout_leaves_out_the_share_that_it_says():
    network = Network((1000,), dropout=0.25).build(random.key(0), 2, 1)
    x = jnp.ones((3, 2))
    hidden = np.asarray(network.linear(0, x, random.key(1)))
    assert 0.2 < (hidden == 0).mean() < 0.3
    whole = np.asarray(network.linear(0, x, None))
    left = hidden != 0
    np.testing.assert_allclose(hidden[left], whole[left] / 0.75, rtol=1e-5)
    assert (hidden[0] != hidden[1]).any()
