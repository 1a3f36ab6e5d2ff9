"""What algorithms do alike, whatever their kind of actions."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.algos import ALGORITHMS, SAC, SQIL, TD3, TD7, DiscreteSAC
from thespis.core import Box, ThespisError
from thespis.nn.networks import Network
from thespis.tuning import hyper
from thespis.values import ungrouped

every = pytest.mark.parametrize("Algorithm", ALGORITHMS.values())
plain = pytest.mark.parametrize("Algorithm", [SAC, DiscreteSAC, TD3])  # an actor, critics, batches


def spec(Algorithm, obs: int = 2):
    """Of actions that it takes: two numbers, or one of three; of two agents if it must be."""
    one = (reference.spec(obs, descriptor="0"), reference.discrete_spec(3, obs=obs))
    for it in (*one, reference.team_spec()):
        try:
            return Algorithm(it).spec
        except ThespisError:
            pass
    raise AssertionError("it takes neither")


@cache
def act_of(Algorithm):
    """Actions of 4000 environments that observe the same, in every mode, by a key."""
    algo = Algorithm(spec(Algorithm), hidden=(4,))
    hp = algo.Hyper()

    @reference.quick
    def act(state, key):
        obs = jax.tree.map(lambda s: jnp.ones((4000, *s.shape), s.dtype), algo.spec.obs)
        memory = algo.memory(random.key(7), 4000)
        given = lambda: (state, hp, memory, obs, random.clone(key), jnp.int32(0))
        return {mode: algo.act(*given(), mode)[0] for mode in ("random", "explore", "greedy")}

    state = reference.drawn(algo, hp)
    return lambda key: jax.tree.map(np.asarray, act(state, random.key(key)))


@every
def test_random_actions_are_uniform(Algorithm):
    it, action = spec(Algorithm), act_of(Algorithm)(1)["random"]
    assert action.shape == (4000, *it.action_shape)
    if isinstance(it.actions[0], Box):
        counts = [np.histogram(one, 10, (-1, 1))[0] for one in action.reshape(4000, -1).T]
    else:
        counts = [np.bincount(action, minlength=3)]
    for count in counts:
        expected = 4000 / len(count)
        assert count.sum() == 4000
        assert (abs(count - expected) < 5 * np.sqrt(expected)).all()  # five standard deviations


@every
def test_only_greedy_actions_ignore_the_key(Algorithm):
    one, same, other = map(act_of(Algorithm), (1, 1, 2))
    for mode in ("random", "explore", "greedy"):
        assert reference.difference(one[mode], same[mode]) == 0
        assert (reference.difference(one[mode], other[mode]) == 0) == (mode == "greedy")


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


@pytest.mark.parametrize("Algorithm", [A for A in ALGORITHMS.values() if A is not SQIL])
def test_other_actions_are_refused_and_an_algorithm_for_them_named(Algorithm):
    if Algorithm.multi_agent:  # it takes both
        assert not Algorithm(reference.team_spec(discrete=True)).continuous
        return
    continuous = isinstance(spec(Algorithm).action, Box)
    other = reference.discrete_spec() if continuous else reference.spec(descriptor="0")
    with pytest.raises(ThespisError, match="needs .* actions, not .*: take ") as caught:
        Algorithm(other)
    named = ALGORITHMS[str(caught.value).rpartition("take ")[2].split()[0]]
    assert named(other).spec == other


@every
def test_another_number_of_agents_is_refused_and_an_algorithm_for_it_named(Algorithm):
    other = reference.spec() if Algorithm.multi_agent else reference.team_spec()
    with pytest.raises(ThespisError, match="is for .* agent.*: take ") as caught:
        Algorithm(other)
    assert ALGORITHMS[str(caught.value).rpartition("take ")[2]](other).spec == other


@pytest.mark.parametrize(
    ("body", "choice"),
    [
        ("simbav2", {"activation": "silu"}),
        ("simbav2", {"init": "orthogonal"}),
        ("simbav2", {"norm_place": "after"}),
        ("simba", {"norm_place": "after"}),
        ("flash", {"norm_place": "after"}),
    ],
)
def test_choices_that_a_body_does_not_have_are_refused(body, choice):
    (name,) = choice
    for group in ("actor", "critic"):
        network = {f"{group}_network": Network(body=body, **choice)}
        with pytest.raises(ThespisError, match=f"{group}.{name} = .*: body = {body} has no such"):
            SAC(spec(SAC), **network)


def test_defaults_of_algorithms_go_with_any_body():
    for network in (Network(body="simbav2"), replace(TD7.critic_network, body="simbav2")):
        assert TD7(spec(TD7), critic_network=network, encoder_network=network).critics == 2


@every
def test_dropout_of_actors_is_refused(Algorithm):
    with pytest.raises(ThespisError, match=r"actor\..*dropout; "):
        Algorithm(spec(Algorithm), actor_network=Network(dropout=0.1))


@every
def test_presets_name_what_exists(Algorithm):
    for preset in Algorithm.presets.values():
        assert preset.keys() <= {"for", "algo", "hp", "train", "pbt"}
        assert preset["for"]
        Algorithm(spec(Algorithm), **ungrouped(Algorithm, preset.get("algo", {})))
        hyper.check(Algorithm.Hyper, preset.get("hp", {}))


@every
def test_states_begin_with_the_types_that_they_keep(Algorithm):
    """The first update makes weak types strong, and would compile its program once more."""
    for name, preset in {"none": {}, **Algorithm.presets}.items():
        algo = Algorithm(spec(Algorithm), **ungrouped(Algorithm, preset.get("algo", {})))
        state = jax.eval_shape(algo.init, random.key(0), algo.Hyper())
        assert not any(x.weak_type for x in jax.tree.leaves(state)), name
