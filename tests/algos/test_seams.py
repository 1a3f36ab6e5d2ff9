"""Seams of `update`: heads, passes, reductions and networks of one's own, as in the examples."""

import importlib.util
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests.algos import reference
from tests.small import arguments
from thespis.algos import ALGORITHMS, MASAC, SAC, TAAC, TD3
from thespis.core import ThespisError
from thespis.nn.networks import ACTIVATIONS, MLP, Critics, Network
from thespis.runs import config as configs
from thespis.runs import config_file

EXAMPLES = Path(__file__).parents[2] / "examples"
CLASSES = {"redq": "REDQ", "droq": "DroQ", "tqc": "TQC", "crossq": "CrossQ"}


def example(name: str):
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def algorithm(name: str):
    return getattr(example(name), CLASSES[name])


every = pytest.mark.parametrize("name", CLASSES)


# --- the examples ---------------------------------------------------------------------------


@every
def test_an_algorithm_of_ones_own_is_short_and_copies_no_update(name):
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    assert len(lines) <= 80
    assert "update" not in vars(algorithm(name))
    assert algorithm(name).update is SAC.update


@every
def test_an_algorithm_of_ones_own_updates_what_it_begins_with(name):
    algo = algorithm(name)(reference.spec(), hidden=(4,))
    hp, key, step = algo.Hyper(), random.key(0), jnp.int32(0)
    state = jax.eval_shape(algo.init, key, hp)
    new, metrics, _ = jax.eval_shape(algo.update, state, hp, reference.transitions(), key, step)
    shapes = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]
    assert shapes(new) == shapes(state)
    assert metrics["critic_loss"].shape == ()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", CLASSES)
def test_an_algorithm_of_ones_own_trains(name, tmp_path, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, name, algorithm(name))
    small = {"steps": 60, "learning_starts": 20, "eval_freq": 60, "checkpoint_freq": 60}
    given = arguments(**small, out=tmp_path, updates_per_step=0.5)
    run = thespis.train(name, **given | {"hidden": (4,), "batch_size": 8})
    assert np.isfinite(run.metrics["train/critic_loss"][-1])
    assert run.status == {"state": "done", "step": 60}


@pytest.mark.slow
@every
def test_an_algorithm_of_ones_own_learns(name, tmp_path, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, name, algorithm(name))
    often = name in ("redq", "droq")
    given = {"steps": 4000 if often else 15_000, "updates_per_step": 20 if often else 1}
    run = thespis.train(
        name, "jax:pendulum", seeds=range(3), hidden=(64, 64), out=tmp_path, progress=False, **given
    )
    returns = np.array(run.evaluate(episodes=100)["returns"]).mean(1)
    assert (returns >= -200).all(), returns


# --- reductions and heads -------------------------------------------------------------------


def test_redq_takes_the_smallest_of_some_critics_and_the_actor_the_mean():
    algo = algorithm("redq")(reference.spec(), critics=6, asked=2)
    out = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5, 1)), jnp.float32)
    smaller = {float(np.minimum(out[i, 0], out[j, 0])[0]) for i in range(6) for j in range(i)}
    found = {float(algo.reduce_target(out, (), random.key(k))[0, 0]) for k in range(200)}
    assert found <= smaller
    assert len(found) > 3  # other critics at other times
    assert max(found) > float(out[:, 0].min())
    np.testing.assert_allclose(algo.reduce_actor(out, random.key(0)), out.mean(0), rtol=1e-6)


def test_tqc_pools_quantiles_and_drops_the_largest():
    algo = algorithm("tqc")(reference.spec(), critics=2, quantiles=3, dropped_quantiles=1)
    out = jnp.asarray([[[1.0, 9.0, 5.0]], [[2.0, 3.0, 8.0]]])
    kept = algo.reduce_target(out, (), random.key(0))
    np.testing.assert_array_equal(kept, [[1.0, 2.0, 3.0, 5.0]])
    given = jnp.asarray([10.0]), jnp.asarray([0.5]), jnp.asarray([2.0])
    target = algo.value_head.target(kept, *given)
    np.testing.assert_allclose(target, [[11.5, 12.0, 12.5, 13.5]])
    losses, error = algo.value_head.loss(out, target)
    wanted = np.zeros((2, 1))
    for c in range(2):
        for i, tau in enumerate((1 / 6, 0.5, 5 / 6)):
            for y in (11.5, 12.0, 12.5, 13.5):
                u = y - float(out[c, 0, i])
                huber = 0.5 * u**2 if abs(u) <= 1 else abs(u) - 0.5
                wanted[c, 0] += abs(tau - (u < 0)) * huber / 12
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    np.testing.assert_allclose(error[:, 0], [5 - 12.375, 13 / 3 - 12.375], rtol=1e-5)


def test_crossq_learns_statistics_but_no_gradient_moves_them():
    algo, hp = algorithm("crossq")(reference.spec(), hidden=(4,)), SAC.Hyper(critic_lr=0.0)
    state = jax.jit(algo.init)(random.key(0), hp)
    batch = reference.transitions()
    new, _, _ = jax.jit(algo.update)(state, hp, batch, random.key(1), jnp.int32(0))
    before, after = (s.critic.params.networks[0] for s in (state, new))
    assert reference.difference(before.weights, after.weights) == 0
    running = lambda network: [(norm.mean, norm.var) for norm in network.norms]
    assert reference.difference(running(before), running(after)) > 1e-4
    assert new.target is None


def test_dropout_draws_in_passes_of_training_alone():
    algo = algorithm("droq")(reference.spec(), hidden=(32,))
    critic = algo.make_critic(random.key(0), 2)
    obs, action = jnp.ones((1, 2)), jnp.ones((1, 2))
    outs = [np.asarray(algo.outputs(critic, obs, action, key=random.key(k))) for k in range(40)]
    assert len({float(x[0, 0, 0]) for x in outs}) > 5
    twins = eqx.tree_at(lambda c: c.networks, critic, critic.networks[:1] * 2)
    pair = [np.asarray(algo.outputs(twins, obs, action, key=random.key(k))) for k in range(40)]
    assert len({float(x[1, 0, 0] - x[0, 0, 0]) for x in pair}) > 5  # each draws by itself
    still = [np.asarray(algo.q(critic, obs, action)) for _ in range(2)]
    np.testing.assert_array_equal(*still)


# --- networks -------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["none", "layer"])
def test_networks_are_what_numpy_computes(activation, norm):
    net = Network((5,), activation=activation, norm=norm).build(random.key(0), 3, 2)
    x = np.random.default_rng(0).normal(size=(4, 3))
    hidden = x @ np.asarray(net.weights[0]) + np.asarray(net.biases[0])
    if norm == "layer":
        hidden = hidden - hidden.mean(-1, keepdims=True)
        hidden = hidden / np.sqrt((hidden**2).mean(-1, keepdims=True) + 1e-5)
    shapes = {
        "relu": lambda h: np.maximum(h, 0),
        "elu": lambda h: np.where(h > 0, h, np.exp(h) - 1),
        "silu": lambda h: h / (1 + np.exp(-h)),
        "tanh": np.tanh,
    }
    wanted = shapes[activation](hidden) @ np.asarray(net.weights[1]) + np.asarray(net.biases[1])
    np.testing.assert_allclose(net(jnp.asarray(x, jnp.float32)), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("Algorithm", [SAC, TD3])
def test_actor_and_critics_have_networks_of_their_own_choice(Algorithm):
    chosen = {
        "actor_network": Network(activation="tanh"),
        "critic_network": Network((7,), norm="layer"),
    }
    algo = Algorithm(reference.spec(), hidden=(5,), **chosen)
    state = jax.eval_shape(algo.init, random.key(0), algo.Hyper())
    actor, critic = state.actor.params, state.critic.params.networks[0]
    assert (actor.network.activation, actor.norms, actor.biases[0].shape) == ("tanh", None, (5,))
    assert (critic.network.activation, critic.biases[0].shape) == ("relu", (7,))
    assert critic.norms[0].scale.shape == (7,)


def test_networks_are_chosen_by_name_and_kept_with_the_run(tmp_path):
    given = {"env": "jax:pendulum", "critic.norm": "layer", "actor.activation": "elu"}
    config = configs.make("sac", given)
    assert config.options["critic.norm"] == "layer"
    assert config.options["actor.norm"] == "none"
    same = configs.make("sac", {"env": "jax:pendulum", "critic_network": Network(norm="layer")})
    assert same.options == config.options | {"actor.activation": "relu"}
    config_file.write(tmp_path, config, "thespis train")
    again, _ = config_file.read(tmp_path)
    assert again.options == config.options


@pytest.mark.parametrize("Algorithm", [TAAC, MASAC])
def test_algorithms_with_losses_of_their_own_have_networks_by_choice_but_no_batch_norm(Algorithm):
    spec = reference.team_spec() if Algorithm is MASAC else reference.spec()
    for choices in ({"norm": "batch"}, {"input_norm": "batch"}, {"dropout": 0.1}):
        with pytest.raises(ThespisError, match="neither batch norm nor dropout"):
            Algorithm(spec, critic_network=Network(**choices))
    chosen = {"actor_network": Network(norm="rms"), "critic_network": Network(body="simba")}
    algo = Algorithm(spec, hidden=(4,), **chosen)
    state = jax.eval_shape(algo.init, random.key(0), algo.Hyper())
    networks = lambda tree: jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, MLP))
    assert any(x.norms for x in networks(state.actor.params) if isinstance(x, MLP))
    bodies = {x.network.body for x in networks(state.critic.params) if isinstance(x, MLP)}
    assert bodies == {"simba"}


def test_networks_that_do_not_draw_get_no_key():
    class Plain(MLP):
        def linear(self, i, x, key):
            assert key is None
            return super().linear(i, x, key)

    build = lambda key, inputs, outputs: Plain(key, (inputs, 4, outputs))
    critics = Critics(random.key(0), 2, (3, 1), build=build)
    assert critics(jnp.ones((2, 2)), jnp.ones((2, 1)), key=random.key(1)).shape == (2, 2, 1)


# --- the delayed actor ----------------------------------------------------------------------


def test_the_actor_may_learn_less_often_than_the_critics():
    algo, hp = SAC(reference.spec(), hidden=(4,), actor_every=3), SAC.Hyper()
    state, moved = jax.jit(algo.init)(random.key(0), hp), []
    update = jax.jit(algo.update)
    for step in range(6):
        new, metrics, _ = update(
            state, hp, reference.transitions(), random.key(step), jnp.int32(step)
        )
        moved.append(reference.difference(new.actor.params, state.actor.params) > 0)
        assert reference.difference(new.critic.params, state.critic.params) > 0
        changed = reference.difference(new.temperature, state.temperature) > 0
        assert changed == moved[-1]
        assert float(metrics["actor_loss"].count) == moved[-1]
        state = new
    assert moved == [False, False, True] * 2


def test_an_update_without_the_actor_computes_nothing_of_it():
    """It is one branch of a condition, and the other has no matrix products."""
    algo, hp = SAC(reference.spec(), hidden=(4,), actor_every=3), SAC.Hyper()
    state = jax.eval_shape(algo.init, random.key(0), hp)
    given = (state, hp, reference.transitions(), random.key(0), jnp.int32(0))
    branches = [
        [str(branch).count("dot_general") for branch in equation.params["branches"]]
        for equation in jax.make_jaxpr(algo.update)(*given).eqns
        if equation.primitive.name == "cond"
    ]
    assert [min(counts) for counts in branches] == [0]
    assert max(branches[0]) > 6  # of the actor and both critics, forwards and back
