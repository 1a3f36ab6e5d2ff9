"""The networks of TAAC have the sizes that were asked for, and encoders that the critics train."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tests.algos import reference, taac_reference
from tests.algos.test_taac import HYPER, make, midway, scalars, updated
from thespis.algos import TAAC, TAACL
from thespis.core import Spec


def test_only_the_critics_train_a_shared_encoder():
    """The actor's loss would move it as well, if it were not held fast."""
    algo = make(encoder=(3,))
    state = midway(algo)
    still = scalars(HYPER | {"critic_lr": 0.0})
    moved, kept = updated(algo, state)[0], updated(algo, state, still)[0]
    before = state.critic.params.encoder
    assert reference.difference(moved.critic.params.encoder, before) > 1e-3
    assert reference.difference(kept.critic.params, state.critic.params) == 0
    assert reference.difference(kept.actor, state.actor) > 1e-3


def test_only_the_critics_train_convolutions_through_which_all_see():
    see = {"camera": jax.ShapeDtypeStruct((8, 8), jnp.uint8), "speed": make().spec.obs}
    conv = {"conv_channels": (2,), "conv_kernels": (3,), "conv_strides": (3,)}
    algo = TAAC(Spec(see, make().spec.action), hidden=(4,), n_step=1, **conv)
    windows = taac_reference.windows(algo, obs=2)
    images = lambda seed: np.random.default_rng(seed).integers(0, 255, (2, 1, 8, 8), np.uint8)
    shape = (*windows.rows.reward.shape, 8, 8)
    obs = {"camera": np.broadcast_to(images(0), shape), "speed": windows.rows.obs}
    batch = dataclasses.replace(windows, rows=dataclasses.replace(windows.rows, obs=obs))
    state, still = midway(algo), scalars(HYPER | {"critic_lr": 0.0})
    moved, kept = (updated(algo, state, hp, batch)[0] for hp in (scalars(), still))
    before = state.critic.params.eyes
    assert reference.difference(moved.critic.params.eyes, before) > 1e-3
    assert reference.difference(moved.target.eyes, state.target.eyes) > 1e-5
    assert reference.difference(kept.critic.params, state.critic.params) == 0

    @reference.quick
    def proposal(camera):
        seen = {"camera": camera[:, 0], "speed": jnp.ones((2, 2))}
        memory = algo.memory(random.key(0), 2)
        return algo.act(state, still, memory, seen, random.key(1), jnp.int32(0), "greedy")[0]

    assert reference.difference(proposal(images(1)), proposal(images(2))) > 1e-4


def test_sizes_of_networks():
    def sizes(**options):
        algo = make(TAACL, **options)
        state = jax.eval_shape(algo.init, random.key(0), scalars())
        of = lambda net: tuple(x.shape[0] for x in (*net.weights, net.biases[-1]))
        actor, critic = state.actor.params, state.critic.params
        embeddings = [of(e) for e in actor.embeddings]
        return embeddings, of(actor.body), [of(net) for net in critic.critics.networks]

    assert sizes() == ([(2, 2)] * 2, (6, 4, 4), [(6, 4, 1)] * 2)
    assert sizes(embed=False)[:2] == ([], (6, 4, 4))
    assert sizes(encoder=(5,), critic_hidden=(7,), critics=1) == (
        [(2, 5)] * 2,
        (15, 4, 4),
        [(9, 7, 1)],
    )
