"""Teams: what is refused of them, and what critics read of all agents."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from tests.algos.test_masac import lured, make, midway, scalars
from thespis.algos import MASAC
from thespis.algos.multi_agent import Team
from thespis.core import Discrete, ThespisError


def test_kinds_of_actions_must_not_be_mixed():
    spec = reference.team_spec()
    mixed = dataclasses.replace(spec, action=(Discrete(2), spec.actions[1]))
    with pytest.raises(ThespisError, match="actions of one kind"):
        MASAC(mixed)


def test_masks_must_fit():
    spec = reference.team_spec(discrete=True, masked=True)
    wrong = dataclasses.replace(spec, action=(Discrete(5),) * 2)
    with pytest.raises(ThespisError, match="there are 5 actions"):
        MASAC(wrong)


@pytest.mark.parametrize("given", [{"privileged": ("agents",)}, {"conv_kernels": (3,)}])
def test_what_it_has_no_use_for_is_refused(given):
    (name,) = given
    with pytest.raises(ThespisError, match=f"{name}: MASAC reads images as plain numbers"):
        MASAC(reference.team_spec(), **given)


def test_only_rewards_of_a_team_are_scaled_by_its_returns():
    """In a game for two the team's return is 0, and its deviation no measure of anyone's."""
    spec, each = reference.team_spec(), reference.team_spec(rewards=True)
    with pytest.raises(ThespisError, match="reward_norm = std is by returns of the team"):
        MASAC(each, reward_norm="std")
    for team in (MASAC(each, reward_norm="std", team_reward=True), MASAC(spec, reward_norm="std")):
        assert team.normalizes_rewards
        assert not team.individual_rewards


def test_choices_of_others_are_drawn_from_their_present_policies():
    """Not taken from the replay: an actor that always does the same is met by its very action."""
    algo, hp = make(discrete=True, sizes=(1, 1), hidden=()), scalars()
    state = lured(algo, hp, [0.0, 50.0])
    seen = algo.see_team(state, reference.observations(algo.spec, 5))
    read = []

    class Spy(Team):
        def __call__(self, x):
            read.append(np.asarray(x))
            return jnp.zeros((*x.shape[:-1], 2))

    algo.soft_values(state.actor.params, (Spy(()),), seen, random.key(0))
    (x,) = read
    np.testing.assert_array_equal(x[..., 4:], np.tile([0, 1], (5, 2, 1)))  # after observations


def test_joint_critics_read_everyone_in_turn_the_agent_itself_first():
    algo = make(discrete=True, sizes=(1, 1, 1), hidden=())
    seen = algo.see_team(midway(algo, scalars()), reference.observations(algo.spec, 5))
    choices = jnp.tile(jnp.eye(3)[None], (5, 1, 1))[..., : algo.size]
    x = np.asarray(algo.critic_inputs(seen, choices))
    own, choices = np.asarray(seen.local), np.asarray(choices)
    for i, turn in enumerate([(0, 1, 2), (1, 2, 0), (2, 0, 1)]):
        expected = [own[:, j] for j in turn] + [choices[:, j] for j in turn[1:]]
        np.testing.assert_array_equal(x[:, i], np.concatenate(expected, -1))
