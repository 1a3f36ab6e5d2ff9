"""What algorithms do alike, whatever their kind of actions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis import hyper
from thespis.algos import ALGORITHMS, SAC, SQIL, TD3, DiscreteSAC
from thespis.core import Box, Row, ThespisError

every = pytest.mark.parametrize("Algorithm", ALGORITHMS.values())
plain = pytest.mark.parametrize("Algorithm", [SAC, DiscreteSAC, TD3])  # an actor, critics, batches


def spec(Algorithm, obs: int = 2):
    """Of actions that it takes: two numbers, or one of three."""
    for it in (reference.spec(obs), reference.discrete_spec(3, obs=obs)):
        try:
            return Algorithm(it).spec
        except ThespisError:
            pass
    raise AssertionError("it takes neither")


def act(algo, mode, rows, key=1):
    hp = algo.Hyper()
    state, obs = algo.init(random.key(0), hp), jnp.ones((rows, 2))
    memory = algo.memory(random.key(7), rows)
    return algo.act(state, hp, memory, obs, random.key(key), jnp.int32(0), mode)[0]


@every
def test_random_actions_are_uniform(Algorithm):
    it = spec(Algorithm)
    action = np.asarray(act(Algorithm(it, hidden=(4,)), "random", 4000))
    if isinstance(it.action, Box):
        assert action.shape == (4000, 2)
        counts = [np.histogram(one, 10, (-1, 1))[0] for one in action.T]
    else:
        assert action.shape == (4000,)
        counts = [np.bincount(action, minlength=3)]
    for count in counts:
        expected = 4000 / len(count)
        assert count.sum() == 4000
        assert (abs(count - expected) < 5 * np.sqrt(expected)).all()  # five standard deviations


@every
def test_only_greedy_actions_ignore_the_key(Algorithm):
    algo = Algorithm(spec(Algorithm), hidden=(4,))
    for mode in ("random", "explore", "greedy"):
        one, same, other = (act(algo, mode, 30, key) for key in (1, 1, 2))
        assert reference.difference(one, same) == 0
        assert (reference.difference(one, other) == 0) == (mode == "greedy")


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
def test_batches_are_drawn_as_asked(Algorithm):
    """With the member's own discount, which the rewards of several steps need."""

    asked = []

    class Replay:
        def transitions(self, key, *arguments):
            asked.extend(arguments)
            return batch

    algo, batch = Algorithm(spec(Algorithm), batch_size=7, n_step=3), reference.transitions()
    drawn = algo.sample(Replay(), None, algo.Hyper(gamma=0.9), random.key(0), jnp.int32(0))
    assert asked == [7, 0.9, 3]
    assert drawn is batch


@plain
def test_statistics_are_kept_if_asked_for(Algorithm):
    obs = jnp.asarray(np.random.default_rng(0).normal(3, 2, (5, 2)), jnp.float32)
    zeros = jnp.zeros(5)
    rows = Row(obs, zeros, zeros > 0, zeros > 0, jnp.zeros((5, 2)))
    for normalize in (False, True):
        algo = Algorithm(spec(Algorithm), hidden=(4,), normalize_observations=normalize)
        before = algo.init(random.key(0), algo.Hyper())
        after = algo.observe(before, rows)
        if normalize:
            np.testing.assert_allclose(after.stats.mean, obs.mean(0), rtol=1e-5)
            same = dataclasses.replace(after, stats=before.stats)
        else:
            assert after.stats is None
            same = after
        assert reference.difference(same, before) == 0


@pytest.mark.parametrize("Algorithm", [A for A in ALGORITHMS.values() if A is not SQIL])
def test_other_actions_are_refused_and_an_algorithm_for_them_named(Algorithm):
    continuous = isinstance(spec(Algorithm).action, Box)
    other = reference.discrete_spec() if continuous else reference.spec()
    with pytest.raises(ThespisError, match="needs .* actions, not .*: take ") as caught:
        Algorithm(other)
    named = ALGORITHMS[str(caught.value).rpartition("take ")[2].split()[0]]
    assert named(other).spec == other


@every
def test_presets_name_what_exists(Algorithm):
    for preset in Algorithm.presets.values():
        assert preset.keys() <= {"algo", "hp", "train", "pbt"}
        Algorithm(spec(Algorithm), **preset.get("algo", {}))
        hyper.check(Algorithm.Hyper, preset.get("hp", {}))
