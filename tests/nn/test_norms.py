"""Norms: which rows count, what they remember, and what a gradient step leaves alone."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.nn.networks import Critics, Network, fold, project
from thespis.nn.norms import BatchNorm, along, batch_norms, layer_norm, with_statistics

BATCH = Network((4, 5), norm="batch", input_norm="batch")
X = np.random.default_rng(0).normal(2, 3, size=(6, 3)).astype(np.float32)
VALID = np.array([1, 1, 0, 1, 0, 1], np.float32)

train = reference.quick(lambda net, x, valid: net.train(x, valid))
call = reference.quick(lambda net, x: net(x))


@pytest.fixture(scope="module")
def network():
    return reference.quick(lambda key: BATCH.build(key, 3, 2))(random.key(0))


def test_rows_that_are_not_valid_count_in_no_statistics(network):
    strange = np.where(VALID[:, None] > 0, X, np.float32(np.nan))
    out, after = train(network, strange, VALID)
    alone, same = train(network, X[VALID > 0], np.ones(4, np.float32))
    np.testing.assert_allclose(out[VALID > 0], alone, rtol=1e-4, atol=1e-5)
    reference_close(batch_norms(after), batch_norms(same))


def reference_close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), a, b)


def test_running_statistics_follow_those_of_batches(network):
    _, after = train(network, X, VALID)
    rows, norm = X[VALID > 0], after.input_norm
    np.testing.assert_allclose(norm.mean, 0.01 * rows.mean(0), rtol=1e-4)
    np.testing.assert_allclose(norm.var, 0.99 + 0.01 * rows.var(0), rtol=1e-4)
    assert [float(n.updates) for n in batch_norms(after)] == [1.0, 1.0, 1.0]


def test_a_batch_without_a_valid_row_teaches_nothing(network):
    out, after = train(network, X, np.zeros(6, np.float32))
    assert np.isfinite(out).all()
    statistics = lambda net: [(n.mean, n.var) for n in batch_norms(net)]
    reference_close(statistics(after), statistics(network))


def test_outside_of_training_running_statistics_count_and_rows_stand_alone(network):
    _, after = train(network, X, VALID)
    whole = np.asarray(call(after, X))
    np.testing.assert_allclose(whole[2:3], call(after, X[2:3]), rtol=1e-4, atol=1e-5)
    assert not np.allclose(whole, call(network, X), atol=1e-3)


def test_batch_norm_in_training_has_mean_zero_and_deviation_one():
    out, _ = train(BatchNormOnly.create(3, epsilon=0.0), X, np.ones(6, np.float32))
    np.testing.assert_allclose(np.asarray(out).mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(np.asarray(out).std(0), 1, rtol=1e-5)


class BatchNormOnly(BatchNorm):
    def train(self, x, valid):
        return self(x, valid)


def test_renormalisation_gives_what_running_statistics_would():
    """Within its bounds, the training pass of a renorm equals the pass by running statistics."""
    norm = BatchNorm.create(3, renorm=5)
    near = replace(norm, mean=jnp.asarray(X.mean(0)), var=jnp.asarray(X.var(0) * 1.5))
    late = replace(near, updates=jnp.float32(5))
    x, ones = jnp.asarray(X), jnp.ones(6)
    by_running, _ = late(x)
    np.testing.assert_allclose(late(x, ones)[0], by_running, rtol=1e-4, atol=1e-5)
    assert not np.allclose(near(x, ones)[0], by_running, atol=1e-2)  # not before its time


def test_statistics_pass_from_one_network_to_another_and_nothing_else(network):
    _, after = train(network, X, VALID)
    other = jax.tree.map(lambda x: x + 1, network)
    new = with_statistics(other, batch_norms(after))
    assert reference.difference(new.weights, other.weights) == 0
    assert reference.difference(new.norms[0].scale, other.norms[0].scale) == 0
    assert reference.difference(new.norms[0].mean, after.norms[0].mean) == 0


@pytest.mark.parametrize("unit", ["hidden", "weights", "all"])
def test_weights_keep_unit_length(unit):
    network = Network((4, 5), norm="batch", input_norm="batch", final_norm="rms", unit=unit)
    make = reference.quick(lambda key: Critics(key, 2, (3, 2), build=network.build))
    critics = make(random.key(0))
    moved = reference.quick(lambda c: project(jax.tree.map(lambda x: 1.7 * x + 0.1, c)))(critics)
    for tree in (critics, moved):
        for net in tree.networks:
            *hidden, output = (np.linalg.norm(weight, axis=0) for weight in net.weights)
            np.testing.assert_allclose(np.concatenate(hidden), 1, rtol=1e-5)
            assert np.allclose(output, 1, rtol=1e-5) == (unit != "hidden")
            assert net.biases[:-1] == [None, None]
    norm, final = moved.networks[0].norms[0], moved.networks[0].final_norm
    length = np.sqrt((norm.scale**2).sum() + (norm.shift**2).sum())
    assert (abs(length - 2) < 1e-5) == (unit == "all")
    assert (abs(np.linalg.norm(final.scale) - np.sqrt(5)) < 1e-5) == (unit == "all")


@pytest.mark.parametrize(
    "network",
    [
        BATCH,
        Network((4, 5), norm="batch", norm_place="after"),
        Network((4, 5), norm="batch", norm_place="after", input_norm="batch", unit="all"),
        Network((4,), norm="layer", input_norm="batch"),
        Network((4,), body="simba", norm="batch", final_norm="layer"),
        Network((4,), body="flash", norm="batch", input_norm="batch", final_norm="rms"),
        Network((4,), norm="batch", norm_place="after", final_norm="rms"),
    ],
    ids=lambda network: f"{network.body}-{network.norm}-{network.norm_place}",
)
def test_batch_norms_fold_into_weights(network):
    @reference.quick
    def outputs(key):
        made = network.build(key, 3, 2)
        for _ in range(3):
            made = made.train(jnp.asarray(X), jnp.asarray(VALID))[1]
        folded = fold({"a": made})["a"]
        return made(jnp.asarray(X)), folded(jnp.asarray(X)), folded

    normed, folded, network_folded = outputs(random.key(0))
    np.testing.assert_allclose(normed, folded, rtol=1e-4, atol=1e-5)
    kept = network.norm_place == "after" and network.final_norm != "none"
    assert bool(batch_norms(network_folded)) == kept


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 5)])
@pytest.mark.parametrize("centred", [True, False])
def test_gradients_of_layer_and_rms_norm_are_those_of_their_definition(shape, centred):
    def definition(x, scale, shift):
        x = x - x.mean(-1, keepdims=True) if centred else x
        std = jnp.sqrt((x**2).mean(-1, keepdims=True) + (1e-5 if centred else 1e-6))
        y = x / std * along(scale, x)
        return y + along(shift, x) if centred else y

    rng = np.random.default_rng(0)
    x, gradient = rng.normal(2, 3, shape), rng.normal(size=shape)
    scale, shift = rng.normal(size=(2, 5))
    args = [jnp.float32(part) for part in (x, scale, shift)]
    args[2] = args[2] if centred else None
    (out, pull), (expected, pull_expected) = (jax.vjp(f, *args) for f in (layer_norm, definition))
    gradient = jnp.float32(gradient)
    reference_close((out, pull(gradient)), (expected, pull_expected(gradient)))
