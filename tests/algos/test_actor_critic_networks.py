"""What networks see of observations, and how they are built."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from tests.algos.test_actor_critic import plain, spec
from thespis.algos import ALGORITHMS, SAC, SQIL, TD3
from thespis.core import Box, Row, ThespisError, Transition
from thespis.nn.networks import Network


@plain
def test_sizes_of_networks(Algorithm):
    """Of the actor, and of the critics alike unless they have their own."""

    def sizes(**options):
        algo = Algorithm(spec(Algorithm, obs=3), **options)
        state = jax.eval_shape(algo.init, random.key(0), algo.Hyper())
        of = lambda net: tuple(bias.shape[0] for bias in net.biases)[:-1]
        return of(state.actor.params), [of(net) for net in state.critic.params.networks]

    assert sizes() == ((256, 256), [(256, 256)] * 2)
    assert sizes(hidden=(5,), critics=3) == ((5,), [(5,)] * 3)
    assert sizes(hidden=(5,), critic_hidden=(7, 6)) == ((5,), [(7, 6)] * 2)
    assert sizes(hidden=()) == ((), [()] * 2)


@plain
def test_statistics_are_kept_if_asked_for(Algorithm):
    obs = np.random.default_rng(0).normal(3, 2, (5, 2)).astype(np.float32)
    zeros, no = (jnp.asarray(np.zeros(5, kind)) for kind in (np.float32, bool))
    rows = Row(jnp.asarray(obs), zeros, no, no, jnp.asarray(np.zeros((5, 2), np.float32)))
    for normalize in (False, True):
        algo = Algorithm(spec(Algorithm), hidden=(4,), normalize_observations=normalize)
        before = reference.quick(algo.init)(random.key(0), algo.Hyper())
        after = reference.quick(algo.observe)(before, rows)
        if normalize:
            np.testing.assert_allclose(after.stats.mean, obs.mean(0), rtol=1e-5)
            same = dataclasses.replace(after, stats=before.stats)
        else:
            assert after.stats is None
            same = after
        assert reference.difference(same, before) == 0


@pytest.mark.parametrize("Algorithm", [A for A in ALGORITHMS.values() if not A.multi_agent])
def test_acting_sees_normalised_observations(Algorithm):
    """As a policy without statistics does what others have normalised."""
    algo = Algorithm(spec(Algorithm), hidden=(4,), normalize_observations=True)
    hp = algo.Hyper()
    state, obs = reference.drawn(algo, hp), np.random.default_rng(0).normal(0, 9, (50, 2))

    @reference.quick
    def act(state, obs):
        memory = algo.memory(random.key(7), 50)
        late = jnp.int32(10**6)  # after any schedule
        return algo.act(state, hp, memory, obs, random.key(1), late, "explore")[0]

    normal = reference.vector(reference.plain(state.stats), obs)
    raw, normal = (jnp.asarray(x, jnp.float32) for x in (obs, normal))
    blank = dataclasses.replace(state, stats=None)
    np.testing.assert_allclose(act(state, raw), act(blank, normal), atol=1e-5)
    assert reference.difference(act(state, raw), act(blank, raw)) > 0.1


@pytest.mark.cases(1)
@pytest.mark.parametrize("Algorithm", [SAC, TD3])
def test_an_update_in_half_precision_is_near_that_of_float32(Algorithm):
    """Losses, and parameters with the optimiser's moments, which have the gradients in them."""

    def updated(dtype):
        half = {f"{name}_network": Network(dtype=dtype) for name in ("actor", "critic")}
        algo = Algorithm(reference.spec(), hidden=(16, 16), **half)
        hp = Algorithm.Hyper()
        given = reference.drawn(algo, hp), hp, reference.transitions(), random.key(2)
        traced = str(jax.make_jaxpr(algo.update)(*given, jnp.int32(1)))
        new, metrics, _ = reference.quick(algo.update)(*given, jnp.int32(1))
        return traced, new, metrics

    (traced, exact, metrics), (half, rounded, about) = updated("float32"), updated("bfloat16")
    assert "bf16" not in traced
    assert "bf16" in half
    assert all(x.dtype != jnp.bfloat16 for x in jax.tree.leaves((rounded, about)))
    near = lambda a, b: np.testing.assert_allclose(a, b, 0.05, 0.02)
    jax.tree.map(near, about, metrics)
    flat = lambda tree: np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])
    for part in (lambda s: s.actor, lambda s: s.critic):
        wanted, got = flat(part(exact)), flat(part(rounded))
        assert 0 < np.linalg.norm(wanted - got) < 0.02 * np.linalg.norm(wanted)


# --- images and what only critics see -------------------------------------------------------

SEEN = {
    "camera": jax.ShapeDtypeStruct((8, 8, 1), jnp.uint8),
    "speed": jax.ShapeDtypeStruct((2,), jnp.float32),
    "truth": jax.ShapeDtypeStruct((3,), jnp.float32),
}


def with_encoder(Algorithm, **options):
    """An algorithm of images and vectors, its state, and a batch of four."""
    it = dataclasses.replace(spec(Algorithm), obs=SEEN)
    sizes = {"hidden": (4,), "conv_channels": (2,), "conv_kernels": (3,), "conv_strides": (3,)}
    algo = Algorithm(it, **(sizes | options))
    rng = np.random.default_rng(0)
    draw = lambda s: (
        rng.integers(0, 255, (4, *s.shape))
        if s.dtype == jnp.uint8
        else rng.normal(size=(4, *s.shape))
    )
    obs, next_obs = ({k: jnp.asarray(draw(s), s.dtype) for k, s in SEEN.items()} for _ in range(2))
    state = reference.drawn(algo, algo.Hyper())
    number, n = (lambda x: jnp.asarray(np.full(4, x, np.float32))), algo.spec.action_shape
    action = np.int32(rng.integers(0, 3, 4)) if n == () else np.float32(rng.uniform(-1, 1, (4, *n)))
    more = number(0), number(0), number(1), number(1), number(1)
    return algo, state, Transition(obs, jnp.asarray(action), number(1), next_obs, *more)


@pytest.mark.cases(2)
@plain
@pytest.mark.parametrize("shared", [True, False])
def test_an_encoder_is_trained_by_the_critics_and_by_actors_that_have_their_own(Algorithm, shared):
    algo, state, batch = with_encoder(Algorithm, shared_encoder=shared)
    given = algo.Hyper(), batch, random.key(2), jnp.int32(1)
    new, _, priorities = reference.quick(algo.update)(state, *given)
    assert priorities.shape == (4,)
    moved = lambda a, b: reference.difference(a, b) > 0
    assert moved(state.critic.params.encoder, new.critic.params.encoder)
    target = next(name for name in ("target", "target_critic") if hasattr(state, name))
    old, followed = getattr(state, target).encoder, getattr(new, target).encoder
    tau = algo.Hyper().tau
    follow = lambda t, c: t + np.float32(tau) * (np.asarray(c) - t)  # a Polyak copy of its own
    wanted = jax.tree.map(follow, old, new.critic.params.encoder)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), followed, wanted)
    assert hasattr(state.actor.params, "encoder") == (not shared)
    if not shared:
        assert moved(state.actor.params.encoder, new.actor.params.encoder)


def test_the_target_of_td3_sees_through_its_own_encoder():
    """What it expects next depends on the target's encoder, and not on that of the critics."""
    algo, state, batch = with_encoder(TD3)
    update = reference.quick(algo.update)
    given = algo.Hyper(), batch, random.key(2), jnp.int32(1)
    value = lambda state: float(update(state, *given)[1]["target_value"])
    changed = lambda where: eqx.tree_at(where, state, replace_fn=lambda e: jax.tree.map(jnp.cos, e))
    assert value(changed(lambda s: s.critic.params.encoder)) == value(state)
    assert value(changed(lambda s: s.target_critic.encoder)) != value(state)


def test_imitators_have_eyes_as_well():
    algo, state, batch = with_encoder(SQIL, objective="iq")
    given = algo.Hyper(), batch, random.key(2), jnp.int32(1)
    new, metrics, _ = reference.quick(algo.update)(state, *given)
    assert reference.difference(state.critic.params.encoder, new.critic.params.encoder) > 0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((new, metrics)))


@plain
def test_actors_do_without_what_is_privileged_and_critics_use_it(Algorithm):
    algo, state, batch = with_encoder(Algorithm, privileged=("truth",))

    @reference.quick
    def act(obs):
        given = algo.Hyper(), None, obs, random.key(1), jnp.int32(0), "greedy"
        return algo.act(state, *given)[0]

    answer = lambda obs: np.asarray(act(obs))

    without = {k: x for k, x in batch.obs.items() if k != "truth"}
    other = batch.obs | {"truth": 9 + np.asarray(batch.obs["truth"])}
    for obs in (without, other):
        np.testing.assert_array_equal(answer(obs), answer(batch.obs))
    moved = batch.obs | {"speed": 9 + np.asarray(batch.obs["speed"])}
    if isinstance(algo.spec.action, Box):
        assert (answer(moved) != answer(batch.obs)).any()
    value = lambda obs: algo.q(state.critic.params, algo.see(state, obs), batch.action)
    q = reference.quick(value)
    assert (np.asarray(q(other)) != np.asarray(q(batch.obs))).all()


@plain
def test_eyes_that_cannot_work_are_refused(Algorithm):
    for options, message in (
        ({"privileged": ("goal",)}, "privileged = goal: the observation has the keys camera"),
        ({"conv_strides": None}, "go together"),
        ({"conv_kernels": (9,)}, "8 x 8 pixels is too small"),
        ({"max_use": 3}, "max_use = 3 needs prioritized_replay"),
    ):
        with pytest.raises(ThespisError, match=message):
            with_encoder(Algorithm, **options)
