"""The probes have the values that they claim."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.core import Discrete
from thespis.envs.autoreset import Autoreset
from thespis.envs.probes import PROBES, Chosen, Ending, Endless, Matched

GAMMA = 0.9


@pytest.mark.cases(6)
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("probe", PROBES)
def test_q_obeys_the_bellman_equation(probe, discrete):
    """Q(s, a) = r + gamma max Q(s', .) unless s' is terminal, on every step of a rollout."""
    task = probe(discrete=discrete)
    env = Autoreset(task)
    state, step = env.reset(random.key(0), 8)
    advance = jax.jit(env.step)
    rng = np.random.default_rng(0)
    grid = jnp.arange(2) if discrete else jnp.linspace(-1, 1, 41)[:, None]
    seen = 0
    for i in range(2 * task.limit):
        obs, final = step.obs, step.terminated | step.truncated
        if isinstance(task.action, Discrete):
            action = jnp.asarray(rng.integers(0, 2, 8), jnp.int32)
        else:
            action = jnp.asarray(rng.uniform(-1, 1, (8, 1)), jnp.float32)
        state, step = advance(state, action, random.key(i + 1))
        best = jax.vmap(lambda a, o=step.obs: task.q(o, jnp.broadcast_to(a, (8, *a.shape)), GAMMA))
        target = step.reward + GAMMA * jnp.where(step.terminated, 0.0, best(grid).max(0))
        q = task.q(obs, action, GAMMA)
        np.testing.assert_allclose(q[~final], target[~final], rtol=1e-5)
        seen += (~final).sum()
    assert seen > 8


def test_endless_is_cut_and_never_terminates():
    env = Autoreset(Endless(limit=3))
    state, _ = env.reset(random.key(0), 1)
    for i in range(6):
        state, step = env.step(state, jnp.zeros((1, 1)), random.key(i + 1))
        assert not step.terminated[0]
        assert bool(step.truncated[0]) == (i == 2)


def test_ending_terminates_after_five_steps():
    env = Autoreset(Ending())
    state, _ = env.reset(random.key(0), 1)
    ends = []
    for i in range(5):
        state, step = env.step(state, jnp.zeros((1, 1)), random.key(i + 1))
        ends.append(bool(step.terminated[0]))
    assert ends == [False] * 4 + [True]
    np.testing.assert_allclose(Ending().q(jnp.zeros(1), jnp.zeros(1), GAMMA), 4.0951, rtol=1e-5)


def test_best_actions_are_where_they_are_said_to_be():
    actions = jnp.linspace(-1, 1, 41)[:, None]
    for state, best in ((1.0, 0.5), (-1.0, -0.5)):
        obs = jnp.full((41, 1), state)
        q = Matched().q(obs, actions, GAMMA)
        np.testing.assert_allclose(actions[q.argmax(), 0], best, atol=1e-6)
    q = Chosen().q(jnp.zeros((41, 1)), actions, GAMMA)
    np.testing.assert_allclose(actions[q.argmax(), 0], 0.5, atol=1e-6)
