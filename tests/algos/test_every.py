"""What the algorithms of continuous actions do alike."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis import hyper
from thespis.algos import SAC, TD3
from thespis.core import Discrete, Row, Spec, ThespisError

pytestmark = pytest.mark.parametrize("Algorithm", [SAC, TD3])


def act(algo, mode, rows, key=1):
    hp = algo.Hyper()
    state, obs = algo.init(random.key(0), hp), jnp.ones((rows, 2))
    return algo.act(state, hp, None, obs, random.key(key), jnp.int32(0), mode)[0]


def test_random_actions_are_uniform(Algorithm):
    action = act(Algorithm(reference.spec(), hidden=(4,)), "random", 4000)
    assert action.shape == (4000, 2)
    for one in np.asarray(action).T:
        counts, _ = np.histogram(one, 10, (-1, 1))
        assert counts.sum() == 4000
        assert (abs(counts - 400) < 100).all()  # five standard deviations


def test_only_greedy_actions_ignore_the_key(Algorithm):
    algo = Algorithm(reference.spec(), hidden=(4,))
    for mode in ("random", "explore", "greedy"):
        one, same, other = (act(algo, mode, 3, key) for key in (1, 1, 2))
        assert reference.difference(one, same) == 0
        assert (reference.difference(one, other) == 0) == (mode == "greedy")


def test_sizes_of_networks(Algorithm):
    """Of the actor, and of the critics alike unless they have their own."""

    def sizes(**options):
        algo = Algorithm(reference.spec(obs=3), **options)
        state = jax.eval_shape(algo.init, random.key(0), algo.Hyper())
        of = lambda net: tuple(bias.shape[0] for bias in net.biases)[:-1]
        return of(state.actor.params), [of(net) for net in state.critic.params.networks]

    assert sizes() == ((256, 256), [(256, 256)] * 2)
    assert sizes(hidden=(5,), critics=3) == ((5,), [(5,)] * 3)
    assert sizes(hidden=(5,), critic_hidden=(7, 6)) == ((5,), [(7, 6)] * 2)
    assert sizes(hidden=()) == ((), [()] * 2)


def test_batches_are_drawn_as_asked(Algorithm):
    """With the member's own discount, which the rewards of several steps need."""

    asked = []

    class Replay:
        def transitions(self, key, *arguments):
            asked.extend(arguments)
            return batch

    algo, batch = Algorithm(reference.spec(), batch_size=7, n_step=3), reference.transitions()
    drawn = algo.sample(Replay(), None, algo.Hyper(gamma=0.9), random.key(0), jnp.int32(0))
    assert asked == [7, 0.9, 3]
    assert drawn is batch


def test_statistics_are_kept_if_asked_for(Algorithm):
    obs = jnp.asarray(np.random.default_rng(0).normal(3, 2, (5, 2)), jnp.float32)
    zeros = jnp.zeros(5)
    rows = Row(obs, zeros, zeros > 0, zeros > 0, jnp.zeros((5, 2)))
    for normalize in (False, True):
        algo = Algorithm(reference.spec(), hidden=(4,), normalize_observations=normalize)
        before = algo.init(random.key(0), algo.Hyper())
        after = algo.observe(before, rows)
        if normalize:
            np.testing.assert_allclose(after.stats.mean, obs.mean(0), rtol=1e-5)
            same = dataclasses.replace(after, stats=before.stats)
        else:
            assert after.stats is None
            same = after
        assert reference.difference(same, before) == 0


def test_discrete_actions_are_refused(Algorithm):
    with pytest.raises(ThespisError, match="continuous actions"):
        Algorithm(Spec(jax.ShapeDtypeStruct((2,), jnp.float32), Discrete(3)))


def test_presets_name_what_exists(Algorithm):
    assert "qdax" in Algorithm.presets
    for preset in Algorithm.presets.values():
        assert preset.keys() <= {"algo", "hp", "train"}
        Algorithm(reference.spec(), **preset.get("algo", {}))
        hyper.check(Algorithm.Hyper, preset.get("hp", {}))
