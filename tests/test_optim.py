"""Adam, whose rate is an argument."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.optim import Learned

START = {"a": np.array([[1.0, -2.0], [0.5, 3.0]]), "b": [np.array(0.7)]}


def learned(start=START) -> Learned:
    return Learned.of(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), start))


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
        x, (value, aux) = x.descend(loss, rate)
        np.testing.assert_allclose(value, loss(before)[0], rtol=1e-5)  # before the step
        assert aux["b"] == before["b"][0]
    close(x.params, adam(START, rates))
    assert x.count == len(rates)


def test_rate_is_data():
    """A population's rates differ, and none of them is compiled in."""
    rates = jnp.asarray([0.0, 0.01, 0.2])
    step = jax.jit(jax.vmap(lambda rate: learned().descend(loss, rate)[0]))
    out = step(rates)
    for i, rate in enumerate((0.0, 0.01, 0.2)):
        close(jax.tree.map(lambda x, i=i: x[i], out.params), adam(START, [rate]))
    step(rates * 2)
    assert step._cache_size() <= 1  # 0 if others pushed it out


def test_moments_do_not_depend_on_the_rate():
    slow, fast = (learned().descend(loss, rate)[0] for rate in (0.0, 0.5))
    close((slow.first, slow.second), (fast.first, fast.second))


def test_nothing_moves_where_there_is_no_gradient():
    x, _ = learned().descend(lambda p: (p["a"][0, 0] * 0.0 + 1.0, None), 0.1)
    close(x.params, START)


def test_first_step_has_the_size_of_the_rate():
    """However small or great the gradient is: Adam is invariant to the loss's scale."""
    for scale in (1e-4, 1e6):
        x, _ = learned().descend(lambda p, s=scale: (s * p["a"].sum(), None), 0.1)
        np.testing.assert_allclose(x.params["a"], START["a"] - 0.1, rtol=2e-4)


@pytest.mark.parametrize("count", [10, 10_000_000])
def test_long_training_stays_exact(count):
    """With moments at rest the step is m / sqrt(v), whatever the count."""
    x = learned({"a": np.array([1.0])})
    at_rest = {"a": jnp.asarray([0.5])}
    x = Learned(x.params, at_rest, {"a": jnp.asarray([0.25])}, jnp.int32(count - 1))
    x, _ = x.descend(lambda p: (0.5 * p["a"].sum(), None), 0.1)
    unbiased = (0.5 / (1 - 0.9**count)) / np.sqrt(0.25 / (1 - 0.999**count))
    np.testing.assert_allclose(x.params["a"], 1 - 0.1 * unbiased, rtol=1e-5)
