"""Whole episodes are recorded as they were played, and how alike others act is told."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.replay.test_demonstrations import same
from tests.small import Toy
from thespis import core, envs
from thespis.algos import SAC, TAAC, DiscreteSAC
from thespis.algos.frame_stack import FrameStack
from thespis.engine import recorder
from thespis.engine.recorder import Recorder
from thespis.engine.rollout import FrozenPolicy
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import CartPole, Pendulum
from thespis.replay import demonstrations


def policy_of(Algorithm, env, **options):
    algo = Algorithm(env.spec, hidden=(4,), **options)
    return algo, beginner(algo)


def beginner(algo, seed=0):
    """A policy that has learned nothing."""
    hp = algo.Hyper()
    return FrozenPolicy(jax.jit(algo.init)(random.key(seed), hp), hp, jnp.int32(0))


def greedy(algo, policy, obs):
    act = lambda policy, obs: policy.act(algo, None, obs, random.key(0), "greedy")[0]
    return np.asarray(jax.jit(act)(policy, obs))


def similar(algo):
    return jax.jit(partial(recorder.similarity, algo))


class Ended(Toy):
    """Ends after six steps."""

    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, self.time == 6, False, info


RECORDED = {
    "device": (SAC, lambda: Autoreset(Pendulum(limit=7)), 7, False),
    "discrete": (DiscreteSAC, lambda: Autoreset(CartPole(limit=7)), 7, False),
    "memory": (TAAC, lambda: Autoreset(Pendulum(limit=7)), 7, False),
    "host": (SAC, lambda: envs.make(Toy), 15, False),
    "ended": (SAC, lambda: envs.make(Ended), 6, True),
}


@pytest.mark.parametrize("case", RECORDED)
def test_whole_episodes_are_recorded_with_their_last_observation(case):
    Algorithm, make, length, ended = RECORDED[case]
    env = make()
    algo, policy = policy_of(Algorithm, env)
    record = Recorder(algo, env, 12)
    found = record(policy, 5)
    assert [(e.length, e.terminated) for e in found] == [(length, ended)] * 12
    demonstrations.check(env.spec, found, case)
    starts = np.stack([e.obs[0] for e in found])
    assert len(np.unique(starts, axis=0)) == 12  # each from a start of its own
    same(record(policy, 5), found)
    assert not np.array_equal(record(policy, 6)[0].obs, found[0].obs)
    if Algorithm is SAC:  # what it did is what the greedy policy does, in the environment's units
        e = found[3]
        action = greedy(algo, policy, e.obs[:-1])
        np.testing.assert_allclose(e.action, 2 * action, rtol=1e-4, atol=1e-5)


def test_what_is_recorded_is_what_the_environment_did():
    """Observations follow from each other, and rewards come with the step that earned them."""
    env = Autoreset(Pendulum(limit=7))
    algo, policy = policy_of(SAC, env)
    for e in Recorder(algo, env, 2, "explore")(policy, 0):
        angle = np.arctan2(e.obs[:, 1], e.obs[:, 0])
        cost = angle[:-1] ** 2 + 0.1 * e.obs[:-1, 2] ** 2 + 0.001 * e.action[:, 0] ** 2
        np.testing.assert_allclose(e.reward, -cost, rtol=1e-3, atol=1e-3)


def test_an_environment_without_an_end_is_cut(monkeypatch):
    class Endless(Toy):
        def step(self, action):
            return *super().step(action)[:2], False, False, {}

    monkeypatch.setattr(core, "LIMIT", 9)
    env = envs.make(Endless)
    algo, policy = policy_of(SAC, env)
    found = Recorder(algo, env, 12)(policy, 0)
    assert [(e.length, e.terminated) for e in found] == [(9, False)] * 12
    assert len(np.unique([e.obs[0] for e in found], axis=0)) == 12  # all begin anew


def test_similarity_is_1_for_the_same_actions_and_0_for_their_mean():
    env = Autoreset(Pendulum(limit=30))
    algo, policy = policy_of(SAC, env)
    shown = Recorder(algo, env, 3)(policy, 0)
    view = demonstrations.view(
        env.spec, shown, capacity=200
    )  # rows that are not there do not count
    program = similar(algo)
    similarity = lambda policy: float(program(policy, view))
    np.testing.assert_allclose(similarity(policy), 1, atol=1e-6)
    acted = np.concatenate([env.spec.action.to_unit(e.action) for e in shown])
    last = lambda p: (p.state.actor.params.weights[-1], p.state.actor.params.biases[-1])
    constant = np.arctanh(np.array([acted.mean(), 0.0], np.float32))
    still = eqx.tree_at(last, policy, (np.zeros_like(last(policy)[0]), constant))
    np.testing.assert_allclose(similarity(still), 0, atol=1e-3)
    other = beginner(algo, seed=9)
    action = greedy(algo, other, np.concatenate([e.obs[:-1] for e in shown]))
    wanted = 1 - ((action - acted) ** 2).mean() / acted.var()
    np.testing.assert_allclose(similarity(other), wanted, rtol=1e-3)


def test_similarity_is_of_an_agent_that_remembers_its_episode():
    env = Autoreset(Pendulum(limit=9))
    algo = FrameStack.wrap(SAC, env.spec, 3, hidden=(4,))
    policy = beginner(algo)
    view = demonstrations.view(env.spec, Recorder(algo, env, 3)(policy, 0))
    np.testing.assert_allclose(similar(algo)(policy, view), 1, atol=1e-5)


def test_similarity_of_choices_is_the_share_that_agrees():
    env = Autoreset(CartPole(limit=20))
    algo, policy = policy_of(DiscreteSAC, env)
    shown = Recorder(algo, env, 2)(policy, 0)
    flipped = [e._replace(action=np.where(np.arange(e.length) % 4 == 0, 1 - e.action, e.action))
               for e in shown]  # fmt: skip
    share = np.mean(np.concatenate([np.arange(e.length) % 4 != 0 for e in shown]))
    similarity = similar(algo)
    for given_, wanted in ((shown, 1.0), (flipped, share)):
        view = demonstrations.view(env.spec, given_)
        np.testing.assert_allclose(similarity(policy, view), wanted, rtol=1e-5)
