"""SAC against an independent NumPy form, and what users rely on beyond one update."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.algos import SAC, SQIL
from thespis.core import ThespisError
from thespis.nn.networks import Network
from thespis.nn.train_state import TrainState
from thespis.xla import fast_random

HYPER = reference.HYPER


def make(action=2, **options) -> SAC:
    return SAC(reference.spec(action=action), **({"hidden": (4,)} | options))


def scalars(values=HYPER):
    return reference.scalars(SAC.Hyper, values)


midway = reference.midway


# Choices that do not touch each other share an update; each alone is for the thorough.
OPTIONS = [
    {},
    {"hidden": (4, 4), "critic_hidden": (4,), "temperature": "linear", "critics": 1},
    {"action": 1, "temperature": "fixed", "ignore_done": True, "normalize_observations": True},
    {"critics": 3, "critic_loss": "half-mean"},
    SAC.presets["qdax"]["algo"],
    SAC.presets["di-engine"]["algo"] | {"hidden": (4,)},
]
ALONE = [
    {"action": 1},
    {"hidden": (4,), "critic_hidden": (4, 4)},
    {"std": "softplus"},
    {"log_derivative": "epsilon"},
    {"temperature": "exp"},
    {"temperature": "linear"},
    {"temperature": "fixed"},
    {"order": "simultaneous"},
    {"critics": 1},
    {"critics": 3},
    {"critics": 1, "critic_loss": "half-mean"},
    {"ignore_done": True},
    {"drop_truncated": True},
    {"normalize_observations": True},
]


@pytest.mark.parametrize("options", OPTIONS + reference.thorough(ALONE), ids=reference.named)
def test_update_is_what_numpy_computes(options, monkeypatch):
    algo, hp = make(**options), scalars()
    n = algo.spec.action.size
    state, batch = midway(algo, hp), reference.transitions(n)
    noise = reference.fixed_noise(monkeypatch, n)

    new, metrics, priorities = algo.update(state, hp, batch, random.key(2), jnp.int32(0))

    inputs = (reference.plain(x) for x in (state, hp, batch))
    state_, metrics_, priorities_ = reference.sac(algo, *inputs, noise)
    reference.close(new, state_)
    assert metrics.keys() == metrics_.keys()
    for name, value in metrics_.items():
        np.testing.assert_allclose(metrics[name], value, 1e-4, 1e-5, err_msg=name)
    valid = batch.valid > 0
    np.testing.assert_allclose(priorities[valid], priorities_[valid], 1e-4)


def test_a_batch_without_a_transition_to_learn_from_stays_finite():
    algo, hp = make(drop_truncated=True), scalars()
    batch = reference.transitions()
    none = dataclasses.replace(batch, valid=jnp.zeros_like(batch.valid))
    out = algo.update(midway(algo, hp), hp, none, random.key(2), jnp.int32(0))
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(out))


def test_linear_temperature_stops_at_zero_and_returns():
    algo = make(temperature="linear")
    batch = reference.transitions()

    def run(state, target_entropy, updates):
        hp = scalars(HYPER | {"alpha_lr": 0.5, "target_entropy": target_entropy})
        for i in range(updates):
            out = algo.update(state, hp, batch, random.key(i), jnp.int32(i))
            assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(out))
            state = out[0]
        return state

    cold = run(algo.init(random.key(0), scalars()), -50.0, 2)  # far more entropy than wanted
    assert cold.temperature.params == 0.0
    assert algo.alpha(cold, scalars()) == 0.0
    reborn = run(dataclasses.replace(cold, temperature=TrainState.create(jnp.zeros(()))), 50.0, 1)
    assert reborn.temperature.params > 0.0


# --- hyper-parameters are data --------------------------------------------------------------

BOLD, CHANGED, EFFECT = reference.BOLD, reference.CHANGED, reference.EFFECT
PARTS = ("actor", "critic", "target", "temperature")


@pytest.fixture(scope="module")
def population():
    """Members that differ from the first in one hyper-parameter each, and one update of all."""
    algo = make()
    hps = reference.members(SAC.Hyper, HYPER | BOLD, CHANGED)
    state, batch = midway(algo, scalars()), reference.transitions()
    update = jax.jit(jax.vmap(algo.update, in_axes=(None, 0, None, None, None)))
    new = update(state, hps, batch, random.key(2), jnp.int32(0))
    return algo, hps, state, batch, update, new


def test_each_hyper_parameter_changes_what_it_should_and_nothing_else(population):
    algo, hps, _, _, _, (new, _, _) = population
    assert EFFECT.keys() == CHANGED.keys() == reference.updating(SAC.Hyper)
    initial = jax.vmap(lambda hp: algo.init(random.key(0), hp).temperature)(hps)
    parts = {p: getattr(new, p) for p in PARTS} | {"initial temperature": initial}
    assert reference.effects(parts, CHANGED) == EFFECT


def test_members_equal_themselves_alone(population):
    algo, hps, state, batch, _, new = population
    for i in range(len(CHANGED) + 1):
        hp = jax.tree.map(jnp.asarray, reference.member(hps, i))
        alone = algo.update(state, hp, batch, random.key(2), jnp.int32(0))
        assert reference.difference(alone, reference.member(new, i)) < 2e-5


def test_new_hyper_parameters_compile_nothing(population):
    _, hps, state, batch, update, _ = population
    other = jax.tree.map(lambda x: x * 0.9, hps)
    update(state, other, batch, random.key(2), jnp.int32(1))
    assert update._cache_size() <= 1  # 0 if others pushed it out


def test_randomness_comes_from_the_key(population):
    _, hps, state, batch, update, (new, _, _) = population
    again, _, _ = update(state, hps, batch, random.key(2), jnp.int32(0))
    other, _, _ = update(state, hps, batch, random.key(3), jnp.int32(0))
    assert reference.difference(new, again) == 0
    assert reference.difference(new.critic, other.critic) > 1e-4
    assert reference.difference(new.actor, other.actor) > 1e-4


def test_target_and_actor_draw_with_different_keys(monkeypatch):
    keys, normal = [], fast_random.normal

    def spy(key, *args, **kwargs):
        keys.append(random.key_data(key).tobytes())
        return normal(key, *args, **kwargs)

    monkeypatch.setattr("thespis.xla.fast_random.normal", spy)
    algo, hp = make(), scalars()
    algo.update(midway(algo, hp), hp, reference.transitions(), random.key(2), jnp.int32(0))
    assert len(set(keys)) == len(keys) > 0


# --- acting ---------------------------------------------------------------------------------


def act(algo, mode, n=1000, state=None, obs=None):
    hp = scalars()
    state = algo.init(random.key(0), hp) if state is None else state
    obs = jnp.ones((n, 2)) if obs is None else obs
    return algo.act(state, hp, None, obs, random.key(1), jnp.int32(0), mode)


def test_greedy_actions_are_the_squashed_mean():
    algo = make(store_policy=True)
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), jnp.float32)
    state = algo.init(random.key(0), scalars())
    action, memory, extra = act(algo, "greedy", state=state, obs=obs)
    out = reference.forward(reference.plain(state.actor.params), np.float64(obs))
    np.testing.assert_allclose(action, np.tanh(out[:, :2]), atol=1e-6)
    np.testing.assert_allclose(extra["mu"], out[:, :2], atol=1e-6)
    np.testing.assert_allclose(extra["sigma"], np.exp(out[:, 2:]), rtol=1e-5)
    assert memory is None


def test_exploring_actions_follow_the_stored_policy():
    """The stored mean and deviation are those of the Gaussian that was squashed."""
    algo = make(store_policy=True)
    action, _, extra = act(algo, "explore", 4000)
    z = (np.arctanh(np.float64(action)) - extra["mu"]) / extra["sigma"]
    np.testing.assert_allclose(z.mean(0), 0, atol=0.08)
    np.testing.assert_allclose(z.std(0), 1, atol=0.06)
    assert abs(np.corrcoef(z.T)[0, 1]) < 0.08  # dimensions are independent
    assert act(make(), "explore", 3)[2] is None


# --- beginnings -----------------------------------------------------------------------------


def test_init_w_bounds_the_last_layer_of_the_actor_alone():
    of = lambda w: make(init_w=w).init(random.key(0), scalars())
    small, usual = of(0.003), of(None)
    net = small.actor.params
    last = np.append(net.weights[-1], net.biases[-1])
    assert 0.0025 < abs(last).max() <= 0.003
    assert len(np.unique(last)) == last.size
    same = lambda s: (s.actor.params.weights[0], s.actor.params.biases[0], s.critic, s.target)
    assert reference.difference(same(small), same(usual)) == 0


@pytest.mark.parametrize("Algorithm", [SAC, SQIL])
@pytest.mark.parametrize("choice", [{"body": "simbav2"}, {"unit": "weights"}])
def test_init_w_does_not_go_with_weights_of_unit_length(Algorithm, choice):
    with pytest.raises(ThespisError, match="init_w = 0.003: weights of the actor keep unit length"):
        Algorithm(reference.spec(), init_w=0.003, actor_network=Network(**choice))
    assert Algorithm(reference.spec(), init_w=0.003, critic_network=Network(**choice)).init_w
    assert Algorithm(reference.spec(), init_w=0.003, actor_network=Network(unit="hidden")).init_w
