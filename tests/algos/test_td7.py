"""TD7 against an independent NumPy form over several updates, two of which copy networks."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from tests.algos.reference import Adam, averaged, plain
from thespis.algos import TD7
from thespis.core import ThespisError
from thespis.nn.networks import Network

HYPER = {
    "actor_lr": 0.03,
    "critic_lr": 0.05,
    "encoder_lr": 0.04,
    "gamma": 0.9,
    "reward_scale": 1.7,
    "target_noise": 0.6,
    "noise_clip": 0.4,
}


def make(**options) -> TD7:
    sizes = {"hidden": (4,), "embedding": 3, "target_every": 2}
    return TD7(reference.spec(), **sizes | options)


def scalars():
    return reference.scalars(TD7.Hyper, HYPER)


@pytest.fixture
def branching(monkeypatch):
    """Branches are taken in Python, as everything else outside of `jit`: it compiles less."""
    take = lambda test, yes, no, *args: yes(*args) if test else no(*args)
    monkeypatch.setattr(jax.lax, "cond", take)


def midway(algo):
    state = reference.drawn(algo, scalars())
    bounds = lambda s: (s.critic.params.low, s.critic.params.high)
    bounds_of_target = lambda s: (s.target_critic.low, s.target_critic.high)
    numbers = lambda *x: tuple(jnp.asarray(i, jnp.float32) for i in x)
    state = eqx.tree_at(bounds, state, numbers(-0.1, 0.2))
    return eqx.tree_at(bounds_of_target, state, numbers(-0.05, 0.1))  # some values are beyond


# --- once more in NumPy -----------------------------------------------------------------------


def layers(network):
    return {"first": plain(network.first), "body": plain(network.body)}


def embedding(network):
    return {"states": plain(network.states), "pairs": plain(network.pairs)}


def adam(trained, of):
    past = trained.opt_state
    return Adam(of(trained.params), of(past.mu), of(past.nu), float(past.count))


def numpy_state(state):
    critics = lambda c: [layers(network) for network in c.networks]
    held = lambda c: {"z": embedding(c.embedding), "low": float(c.low), "high": float(c.high)}
    return {
        "actor": adam(state.actor, layers),
        "critic": adam(state.critic, critics),
        "encoder": adam(state.encoder, embedding),
        "held": held(state.critic.params),
        "target_actor": layers(state.target_actor),
        "target_critic": critics(state.target_critic),
        "target_held": held(state.target_critic),
    }


def forward(network, x, activation):
    for weight, bias in network[:-1]:
        x = activation(x @ weight + bias)
    return x @ network[-1][0] + network[-1][1]


def elu(x):
    return np.where(x > 0, x, np.expm1(x))


def relu(x):
    return np.maximum(x, 0)


def scaled(x):
    return x / np.abs(x).mean(-1, keepdims=True)


def z_of(z, obs):
    return scaled(forward(z["states"], obs, elu))


def pair(z, state, action):
    return forward(z["pairs"], np.concatenate([state, action], -1), elu)


def embedded(network, given, z, activation):
    first = scaled(forward(network["first"], np.concatenate(given, -1), None))
    return forward(network["body"], np.concatenate([first, *z], -1), activation)


def values(critics, z, obs, action):
    state = z_of(z, obs)
    both = pair(z, state, action), state
    return np.stack([embedded(net, (obs, action), both, elu)[:, 0] for net in critics])


def policy(actor, z, obs):
    return np.tanh(embedded(actor, (obs,), (z_of(z, obs),), relu))


def update(algo, state, hp, b, noise, updates):
    old, held = state["target_held"], state["held"]
    obs, next_obs, valid = b["obs"], b["next_obs"], b["valid"]
    smooth = np.clip(hp["target_noise"] * noise, -hp["noise_clip"], hp["noise_clip"])
    action = np.clip(policy(state["target_actor"], old["z"], next_obs) + smooth, -1, 1)
    after = values(state["target_critic"], old["z"], next_obs, action).min(0)
    target = reference.bellman(algo, hp, b, np.clip(after, old["low"], old["high"]))

    def critic_loss(critics):
        error = np.abs(values(critics, held["z"], obs, b["action"]) - target)
        huber = np.where(error < 1, 0.5 * error**2, error - 0.5)
        return averaged(b["weight"] * huber, valid).sum()

    error = np.abs(values(state["critic"].params, held["z"], obs, b["action"]) - target)
    critic, _ = state["critic"].descend(critic_loss, hp["critic_lr"])
    due, copies = (updates + 1) % algo.delay == 0, (updates + 1) % algo.target_every == 0
    new = state | {"critic": critic}

    def actor_loss(actor):
        q = values(critic.params, held["z"], obs, policy(actor, held["z"], obs))
        return -averaged(q.mean(0), valid)

    if due:
        new["actor"], _ = state["actor"].descend(actor_loss, hp["actor_lr"])

    def encoder_loss(z):
        wanted = z_of(state["encoder"].params, next_obs)
        return averaged(((pair(z, z_of(z, obs), b["action"]) - wanted) ** 2).mean(-1), valid)

    new["encoder"], loss = state["encoder"].descend(encoder_loss, hp["encoder_lr"])
    learned = target[valid.astype(bool)]
    low, high = min(held["low"], learned.min()), max(held["high"], learned.max())
    new["held"] = {"z": held["z"], "low": low, "high": high}
    if copies:
        new["target_actor"], new["target_critic"] = new["actor"].params, critic.params
        new["target_held"] = new["held"]
        new["held"] = new["held"] | {"z": new["encoder"].params}
    return new, loss, np.maximum(error.max(0), 1)


# --- tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"delay": 1, "critics": 3}], ids=reference.named)
def test_updates_are_what_numpy_computes(options, monkeypatch, branching):
    """From the first update to just after the second copy."""
    algo, hp = make(**options), scalars()
    state, batch = midway(algo), reference.transitions()
    wanted, hp_, batch_ = numpy_state(state), plain(hp), plain(batch)
    noise, valid = reference.fixed_noise(monkeypatch), batch.valid > 0
    for updates in range(2 * algo.target_every + 1):
        state, metrics, priorities = algo.update(
            state, hp, batch, random.key(2), jnp.int32(updates)
        )
        wanted, loss, priorities_ = update(algo, wanted, hp_, batch_, noise, updates)
        ours, theirs = jax.tree.leaves(numpy_state(state)), jax.tree.leaves(wanted)
        assert len(ours) == len(theirs)
        for a, w in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, w, 5e-4, 5e-5)
        np.testing.assert_allclose(priorities[valid], priorities_[valid], 2e-4)
        np.testing.assert_allclose(metrics["encoder_loss"], loss, 2e-4, 1e-6)


def test_before_the_first_copy_targets_are_rewards(branching):
    """Nothing has been learned that values could stay within."""
    algo, hp, batch = make(), scalars(), reference.transitions()
    _, metrics, _ = algo.update(
        algo.init(random.key(0), hp), hp, batch, random.key(1), jnp.int32(0)
    )
    assert metrics["target_value"] == 0


def test_weight_decay_leaves_alone_what_critics_hold(branching):
    algo, hp, batch = make(optimizer="adamw"), scalars(), reference.transitions()
    hp = dataclasses.replace(hp, weight_decay=jnp.float32(0.5))
    state = midway(algo)
    new, *_ = algo.update(state, hp, batch, random.key(1), jnp.int32(0))
    held = lambda s: s.critic.params.embedding
    assert reference.difference(held(new), held(state)) == 0
    assert reference.difference(new.critic.params.networks, state.critic.params.networks) > 0


def test_what_does_not_go_with_embeddings_is_refused():
    with pytest.raises(ThespisError, match="target_every = 3: .* give a multiple of 2, the delay"):
        make(target_every=3)
    for network in (Network(norm="batch"), Network(dropout=0.1)):
        with pytest.raises(ThespisError, match="encoder.*: the encoder has neither batch norm"):
            make(encoder_network=network)
    with pytest.raises(ThespisError, match="critic_target: this algorithm has no such choice"):
        make(critic_target="every")


def test_it_may_draw_uniformly():
    assert make().rule(1) is not None
    assert make(prioritized_replay=False).rule(1) is None


def test_the_encoder_may_have_another_body():
    network = Network(hidden=(4,), body="simbav2")
    state = jax.eval_shape(make(encoder_network=network).init, random.key(0), scalars())
    assert jax.tree.leaves(state.encoder.params)
