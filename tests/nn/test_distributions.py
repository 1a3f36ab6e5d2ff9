"""The policy distributions, also where tanh is flat and where actions are illegal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.nn.distributions import Categorical, Mixture, TanhGaussian


def log_derivative(u):
    """Of tanh, in 64 bits: log(1 - tanh²u) = log 4 - 2|u| - 2 log(1 + exp(-2|u|))."""
    return np.log(4) - 2 * abs(u) - 2 * np.log1p(np.exp(-2 * abs(u)))


def log_probability(mean, sigma, noise):
    normal = -0.5 * noise**2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    return (normal - log_derivative(mean + sigma * noise)).sum(-1)


@pytest.fixture
def noise(monkeypatch):
    """Normal draws are these numbers, repeated."""
    values = np.array([[0.3], [-1.2]])
    draw = lambda key, shape=(), dtype=jnp.float32: jnp.asarray(np.resize(values, shape), dtype)
    monkeypatch.setattr("thespis.xla.fast_random.normal", draw)
    return values


@pytest.mark.parametrize("sigma", [1e-3, 0.5, 7.0])
def test_log_probability_is_exact_even_of_saturated_actions(sigma, noise):
    u = np.concatenate([np.linspace(-20, 20, 81), [-1e-3, 1e-3, -200, 200]])[:, None]
    z = np.resize(noise, u.shape)
    mean = np.float32(u - sigma * z)
    policy = TanhGaussian(jnp.asarray(mean), jnp.full(u.shape, np.log(sigma), jnp.float32))
    action, log_p = policy.sample(random.key(0))
    assert log_p.shape == (len(u),)
    np.testing.assert_allclose(action, np.tanh(mean + sigma * z), atol=1e-6)
    np.testing.assert_allclose(log_p, log_probability(mean, sigma, z), rtol=1e-5, atol=1e-5)


def test_epsilon_form_floors_the_derivative_of_tanh(noise):
    u = np.array([[-20.0], [-9.0], [-1.0], [0.0], [3.0], [9.0], [20.0]])
    z = np.resize(noise, u.shape)
    mean = jnp.asarray(u - z, jnp.float32)
    _, log_p = TanhGaussian(mean, jnp.zeros(u.shape), "epsilon").sample(random.key(0))
    normal = (-0.5 * z**2 - 0.5 * np.log(2 * np.pi))[:, 0]
    floored = np.log(1 - np.tanh(u[:, 0]) ** 2 + 1e-6)
    np.testing.assert_allclose(log_p, normal - floored, rtol=0.03)  # float32 knows 1 - a² so well
    for end in (0, -1):
        np.testing.assert_allclose(log_p[end], normal[end] + 6 * np.log(10), rtol=1e-5)


@pytest.mark.parametrize("form", ["exact", "epsilon"])
@pytest.mark.parametrize("std", ["exp", "softplus"])
def test_gradients_are_finite_however_extreme_the_network(std, form):
    extremes = [-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4]
    raw = jnp.asarray([[m, s] for m in extremes for s in extremes])

    def loss(raw):
        action, log_p = TanhGaussian.from_outputs(raw, std, form).sample(random.key(0))
        return action.sum() + log_p.sum()

    value, gradient = jax.value_and_grad(loss)(raw)
    assert jnp.isfinite(value)
    assert jnp.isfinite(gradient).all()


def test_gradient_of_the_exact_form_survives_saturation(noise):
    """d log p / du -> 2 sign(u): entropy still pulls a saturated action back."""

    def log_p(mean):
        return TanhGaussian(mean, jnp.full_like(mean, -5.0)).sample(random.key(0))[1].sum()

    gradient = jax.grad(log_p)(jnp.asarray([[-15.0], [15.0]]))
    np.testing.assert_allclose(gradient[:, 0], [-2, 2], rtol=1e-5)


def test_standard_deviation_of_either_form():
    raw = jnp.asarray([[0.5, -30.0], [0.5, -1.0], [0.5, 0.7], [0.5, 30.0]])
    sigma = lambda std: np.exp(TanhGaussian.from_outputs(raw, std, "exact").log_std)[:, 0]
    np.testing.assert_allclose(sigma("exp"), np.exp([-20, -1, 0.7, 2]), rtol=1e-5)
    np.testing.assert_allclose(
        sigma("softplus"), np.log1p(np.exp([-30, -1, 0.7, 30])) + 0.001, rtol=1e-5
    )


def test_means_come_first_then_scales():
    policy = TanhGaussian.from_outputs(jnp.asarray([[0.1, 0.2, -3.0, -4.0]]), "exp", "exact")
    np.testing.assert_allclose(policy.mean, [[0.1, 0.2]])
    np.testing.assert_allclose(policy.log_std, [[-3, -4]])
    np.testing.assert_allclose(policy.mode(), np.tanh([[0.1, 0.2]]), rtol=1e-6)


def test_density_of_actions_integrates_to_one(monkeypatch):
    z = np.linspace(-6, 6, 4001)[:, None]
    monkeypatch.setattr(
        "thespis.xla.fast_random.normal", lambda key, shape: jnp.asarray(z, jnp.float32)
    )
    policy = TanhGaussian(jnp.full(z.shape, 0.4), jnp.full(z.shape, -0.3))
    action, log_p = policy.sample(random.key(0))
    assert np.trapezoid(np.exp(log_p), action[:, 0]) == pytest.approx(1, abs=1e-3)


def test_samples_have_the_mean_and_deviation_asked_for():
    policy = TanhGaussian(jnp.full((4000, 2), 0.3), jnp.full((4000, 2), -1.0))
    action, log_p = policy.sample(random.key(0))
    u = np.arctanh(np.float64(action))
    np.testing.assert_allclose(u.mean(0), 0.3, atol=0.03)
    np.testing.assert_allclose(u.std(0), np.exp(-1), rtol=0.05)
    z = (u - 0.3) / np.exp(-1)
    np.testing.assert_allclose(log_p, log_probability(0.3, np.exp(-1), z), atol=1e-3)


# --- categorical ----------------------------------------------------------------------------

LEGAL = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 1, 0], [0, 0, 0]], bool)
LOGITS = np.array([[0.3, -1, 2], [0.1, 50, -0.4], [1e20, 5, 4], [3, -1e4, 2], [1, 2, 3]])


def choice(logits=LOGITS, legal=LEGAL):
    return Categorical(jnp.asarray(logits, jnp.float32), jnp.asarray(legal))


def test_probabilities_are_those_of_the_legal_actions_alone():
    policy = choice()
    weight = np.where(LEGAL, np.exp(np.minimum(LOGITS, 60)), 0)
    weight[3] = [0, 1, 0]
    p = weight / np.maximum(weight.sum(-1, keepdims=True), 1e-300)
    np.testing.assert_allclose(policy.p, p, rtol=1e-5)
    assert (np.asarray(policy.p)[~LEGAL] == 0).all()
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1)
    np.testing.assert_allclose(policy.entropy(), entropy, atol=1e-5)
    assert (policy.entropy()[3:] == 0).all()  # one legal action, and none
    np.testing.assert_allclose(np.exp(policy.log_p)[LEGAL], p[LEGAL], rtol=1e-5)


@pytest.mark.parametrize("garbage", [0.0, 1e30, np.inf, np.nan])
def test_expectations_ignore_illegal_actions(garbage):
    values = np.where(LEGAL, [1.0, 2.0, 4.0], garbage)
    wanted = (np.asarray(choice().p) * np.where(LEGAL, values, 0)).sum(-1)
    np.testing.assert_allclose(choice().expect(jnp.asarray(values, jnp.float32)), wanted, rtol=1e-6)


def test_gradients_are_finite_and_illegal_logits_have_none():
    values = jnp.broadcast_to(jnp.arange(3.0), (5, 3))

    def loss(logits):
        policy = Categorical(logits, jnp.asarray(LEGAL))
        return policy.expect(values).sum() + policy.entropy().sum()

    gradient = np.asarray(jax.grad(loss)(jnp.asarray(LOGITS, jnp.float32)))
    assert np.isfinite(gradient).all()
    assert (gradient[~LEGAL] == 0).all()
    assert (gradient[0] != 0).all()


def test_samples_and_the_mode_are_legal():
    policy = choice(np.repeat(LOGITS[:4], 5000, 0), np.repeat(LEGAL[:4], 5000, 0))
    drawn = np.asarray(policy.sample(random.key(0))).reshape(4, 5000)
    shares = np.array([np.bincount(one, minlength=3) / 5000 for one in drawn])
    np.testing.assert_allclose(shares, choice().p[:4], atol=0.03)
    assert (shares[~LEGAL[:4]] == 0).all()
    np.testing.assert_array_equal(choice().mode()[:4], [2, 0, 1, 1])


def test_without_a_mask_every_action_is_legal():
    policy = Categorical.from_logits(jnp.zeros((2, 4)))
    np.testing.assert_allclose(policy.entropy(), np.log([4, 4]), rtol=1e-6)
    assert policy.legal.all()


def test_the_log_probability_of_any_action_is_that_of_its_sample():
    mean, log_std = jnp.array([[0.3, -1.0], [2.0, 0.0]]), jnp.array([[-0.5, 0.1], [0.2, -1.0]])
    policy = TanhGaussian(mean, log_std)
    action, log_p = policy.sample(random.key(0))
    np.testing.assert_allclose(policy.log_prob(action, 1e-6), log_p, rtol=1e-3, atol=1e-3)
    assert np.isfinite(policy.log_prob(jnp.array([[1.0, -1.0], [1.0, 1.0]]))).all()


@pytest.mark.parametrize("learned", [False, True])
def test_a_mixture_is_what_numpy_computes(learned):
    """Density and mean, one component and coordinate after the other; scales are positive."""
    rng, parts, n = np.random.default_rng(0), 3, 2
    raw = rng.normal(0, 2, (4, parts * (1 + n * (2 if learned else 1))))
    x = rng.normal(size=(4, n))
    found = Mixture.from_outputs(jnp.asarray(raw, jnp.float32), parts, n, 0.5, learned)
    for i, row in enumerate(raw):
        chance = np.exp(row[:parts]) / np.exp(row[:parts]).sum()
        means = row[parts : parts * (1 + n)].reshape(parts, n)
        std = np.full((parts, n), 0.5)
        if learned:
            std = std + np.log1p(np.exp(row[parts * (1 + n) :])).reshape(parts, n)
        normal = np.exp(-0.5 * ((x[i] - means) / std) ** 2) / (std * np.sqrt(2 * np.pi))
        density = (chance * normal.prod(1)).sum()
        np.testing.assert_allclose(
            found.log_prob(jnp.asarray(x, jnp.float32))[i], np.log(density), rtol=1e-4
        )
        np.testing.assert_allclose(found.expect()[i], chance @ means, rtol=1e-4, atol=1e-5)
    assert (found.std >= 0.5).all()
