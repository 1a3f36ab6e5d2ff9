"""Optimisers, whose rate is an argument."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import ScaleByAdamState

from thespis.nn.train_state import Adam, TrainState

START = {"a": np.array([[1.0, -2.0], [0.5, 3.0]]), "b": [np.array(0.7)]}


def learned(start=START) -> TrainState:
    return TrainState.create(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), start))


def loss(params):
    """Not a quadratic, so that the gradient changes in size and sign."""
    a, b = params["a"], params["b"][0]
    return (jnp.cos(3 * a) + 0.1 * a**2).sum() * (1 + b**2), {"b": b}


def gradient(params):
    a, b = params["a"], params["b"][0]
    outer = (np.cos(3 * a) + 0.1 * a**2).sum()
    return {"a": (-3 * np.sin(3 * a) + 0.2 * a) * (1 + b**2), "b": [np.array(2 * b * outer)]}


def adam(params, rates):
    """The paper's algorithm 1 in 64 bits."""
    m = v = jax.tree.map(np.zeros_like, params)
    for t, rate in enumerate(rates, 1):
        g = gradient(params)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        step = lambda p, m, v, t=t, rate=rate: (
            p - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        )
        params = jax.tree.map(step, params, m, v)
    return params


def close(actual, wanted):
    jax.tree.map(lambda a, w: np.testing.assert_allclose(a, w, 1e-4, 1e-5), actual, wanted)


def test_steps_are_the_papers_while_the_rate_changes():
    rates = [0.1, 0.1, 0.01, 0.0, 0.3, 0.05]
    x = learned()
    for rate in rates:
        before = x.params
        x, (value, aux) = x.apply_gradient(loss, rate)
        np.testing.assert_allclose(value, loss(before)[0], rtol=1e-5)  # before the step
        assert aux["b"] == before["b"][0]
    close(x.params, adam(START, rates))
    assert x.opt_state.count == len(rates)


def test_a_hundred_steps_are_the_papers():
    """Along gradients that do not depend on the steps, which would magnify what is rounded."""
    slopes = np.random.default_rng(0).normal(0, 3, (100, 5)).astype(np.float32)

    @jax.jit
    def run(x, slopes):
        step = lambda x, g: (x.apply_gradient(lambda p: ((p * g).sum(), None), 0.01)[0], None)
        return jax.lax.scan(step, x, slopes)[0]

    x = run(TrainState.create(jnp.zeros(5)), jnp.asarray(slopes))
    params, m, v = np.zeros(5), np.zeros(5), np.zeros(5)
    for t, g in enumerate(slopes.astype(np.float64), 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        params = params - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(x.params, params, rtol=0, atol=3e-6)  # of 1 - 0.999^t in 32 bits


def test_an_optimiser_of_ones_own_is_an_optax_transformation():
    """Here AdamW: it decays what it trains, at the rate of the step."""

    @dataclass(frozen=True)
    class AdamW(Adam):
        weight_decay: float = 0.1

        def transform(self):
            return optax.chain(super().transform(), optax.add_decayed_weights(self.weight_decay))

    flat = lambda p: ((p * 0.0).sum(), None)
    x, _ = TrainState.create(jnp.full(3, 2.0), AdamW()).apply_gradient(flat, 0.5)
    np.testing.assert_allclose(x.params, 2.0 - 0.5 * 0.1 * 2.0, rtol=1e-6)
    assert x.optimizer == AdamW()


def test_rate_is_data():
    """A population's rates differ, and none of them is compiled in."""
    rates = jnp.asarray([0.0, 0.01, 0.2])
    step = jax.jit(jax.vmap(lambda rate: learned().apply_gradient(loss, rate)[0]))
    out = step(rates)
    for i, rate in enumerate((0.0, 0.01, 0.2)):
        close(jax.tree.map(lambda x, i=i: x[i], out.params), adam(START, [rate]))
    step(rates * 2)
    assert step._cache_size() <= 1  # 0 if others pushed it out


def test_moments_do_not_depend_on_the_rate():
    slow, fast = (learned().apply_gradient(loss, rate)[0] for rate in (0.0, 0.5))
    close(slow.opt_state, fast.opt_state)


def test_nothing_moves_where_there_is_no_gradient():
    x, _ = learned().apply_gradient(lambda p: (p["a"][0, 0] * 0.0 + 1.0, None), 0.1)
    close(x.params, START)


def test_first_step_has_the_size_of_the_rate():
    """However small or great the gradient is: Adam is invariant to the loss's scale."""
    for scale in (1e-4, 1e6):
        x, _ = learned().apply_gradient(lambda p, s=scale: (s * p["a"].sum(), None), 0.1)
        np.testing.assert_allclose(x.params["a"], START["a"] - 0.1, rtol=2e-4)


@pytest.mark.parametrize("count", [10, 10_000_000])
def test_long_training_stays_exact(count):
    """With moments at rest the step is m / sqrt(v), whatever the count."""
    x = learned({"a": np.array([1.0])})
    at_rest = {"a": jnp.asarray([0.5])}
    past = ScaleByAdamState(jnp.int32(count - 1), at_rest, {"a": jnp.asarray([0.25])})
    x = TrainState(x.params, past)
    x, _ = x.apply_gradient(lambda p: (0.5 * p["a"].sum(), None), 0.1)
    unbiased = (0.5 / (1 - 0.9**count)) / np.sqrt(0.25 / (1 - 0.999**count))
    np.testing.assert_allclose(x.params["a"], 1 - 0.1 * unbiased, rtol=1e-5)
