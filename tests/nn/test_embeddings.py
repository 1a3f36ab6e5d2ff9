"""Embeddings of states and actions, and the networks that read them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.nn.embeddings import (
    EmbeddedActor,
    EmbeddedCritics,
    EmbeddedNetwork,
    Embedding,
    average_norm,
)
from thespis.nn.networks import Network

NETWORK = Network(hidden=(4,), activation="elu")


def critics(n=2) -> EmbeddedCritics:
    embedding = Embedding(random.key(0), 3, 2, 5, NETWORK)
    return EmbeddedCritics(random.key(1), n, embedding, 5, 1, NETWORK)


def test_the_mean_of_absolute_values_is_one():
    x = jnp.array([[1.0, -3.0], [0.0, 0.5], [0.0, 0.0]])
    np.testing.assert_allclose(average_norm(x), [[0.5, -1.5], [0.0, 2.0], [0.0, 0.0]])


def test_critics_read_the_pair_the_state_and_their_embeddings():
    """Each of the two hidden inputs matters, and the shapes are those of other critics."""
    obs, action = jnp.ones((7, 3)), jnp.full((7, 2), 0.3)
    assert critics()(obs, action).shape == (2, 7, 1)
    joined = critics().join(obs, action)
    assert joined.shape == (7, 3 + 2 + 5 + 5)
    z = critics().embedding.of_state(obs)
    np.testing.assert_allclose(np.abs(z).mean(-1), 1.0, 1e-6)
    np.testing.assert_allclose(joined[:, -5:], z)
    np.testing.assert_allclose(joined[:, 5:10], critics().embedding.of_pair(z, action))


def test_gradients_reach_the_action_but_not_the_embedding():
    obs, action = jnp.ones((1, 3)), jnp.full((1, 2), 0.3)
    of_critics = jax.grad(lambda c: c(obs, action).sum())(critics())
    assert all((x == 0).all() for x in jax.tree.leaves(of_critics.embedding))
    assert any((x != 0).any() for x in jax.tree.leaves(of_critics.networks))
    through = lambda a: critics().embedding.frozen().of_pair(critics().embedding.of_state(obs), a)
    assert (jax.grad(lambda a: through(a).sum())(action) != 0).any()

    body = EmbeddedNetwork(random.key(2), 3, 3 + 5, 2, NETWORK)
    of_actor = jax.grad(lambda actor: actor(obs).sum())(EmbeddedActor(critics().embedding, body))
    assert all((x == 0).all() for x in jax.tree.leaves(of_actor.embedding))
    assert any((x != 0).any() for x in jax.tree.leaves(of_actor.body))


def test_values_stay_within_the_range_that_was_learned():
    new = critics()
    np.testing.assert_array_equal(new.bounded(jnp.array([-2.0, 5.0])), [0.0, 0.0])
    some = eqx.tree_at(lambda c: (c.low, c.high), new, (jnp.float32(-1.0), jnp.float32(2.0)))
    np.testing.assert_array_equal(some.bounded(jnp.array([-2.0, 0.5, 5.0])), [-1.0, 0.5, 2.0])
