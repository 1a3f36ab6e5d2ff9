"""Every algorithm finds the known values of the probes, through the loop that users run.

Compiling takes far longer than learning here. So all probes are one environment, and one run of
two members, which differ in their discount, serves every test of an algorithm.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.algos import SAC, TAAC, TD3, DiscreteSAC
from thespis.core import Box, Discrete
from thespis.engine.loop import DeviceDriver, Learner, Loop
from thespis.envs.autoreset import Autoreset
from thespis.envs.probes import PROBES, Chosen, Delayed, Ending, Endless, Matched, Observed
from thespis.tuning import hyper

pytestmark = pytest.mark.optimised

GAMMAS = (0.8, 0.5)
STATES = {Observed: (-1, 1), Delayed: (0, 1), Matched: (-1, 1), Ending: (0, 0.2, 0.4, 0.6, 0.8)}
STARTS = {Observed: (-1, 1), Matched: (-1, 1)}  # the others start at 0
BEST = {Chosen: (0.5,), Matched: (-0.5, 0.5)}  # actions in those states
BEST_CHOICE = {Chosen: (1,), Matched: (0, 1)}  # the same of two discrete actions


@dataclass(frozen=True)
class Mixture:
    """Each episode is one of the probes, named by a vector or by the pixels of an image."""

    image: bool
    discrete: bool = False
    limit: int = 10

    @property
    def action(self):
        return Discrete(2) if self.discrete else Box((-1.0,), (1.0,), (1,))

    @property
    def obs(self):
        number = jax.ShapeDtypeStruct((1,), jnp.float32)
        if self.image:
            return {"s": number, "pixels": jax.ShapeDtypeStruct((len(PROBES), 1, 1), jnp.uint8)}
        return {"s": number, "which": jax.ShapeDtypeStruct((len(PROBES),), jnp.float32)}

    def start(self, key):
        which = random.randint(key, (), 0, 2 * len(PROBES))
        both = [STARTS.get(probe, (0, 0)) for probe in PROBES]
        return which // 2, jnp.asarray(both, jnp.float32).reshape(-1)[which]

    def observe(self, state):
        which, s = state
        hot = jnp.arange(len(PROBES)) == which
        if self.image:
            return {"s": s[None], "pixels": jnp.where(hot, 255, 0).astype("u1")[:, None, None]}
        return {"s": s[None], "which": hot.astype(jnp.float32)}

    def step(self, state, action):
        which, s = state
        steps = [Probe(self.discrete, self.limit).step for Probe in PROBES]
        s, reward, terminated = jax.lax.switch(which, steps, s, action)
        return (which, s), reward, terminated


@dataclass
class Trained:
    """What each member believes, for states [batch] of one probe."""

    task: Mixture
    algo: Any
    learner: Learner
    hps: Any

    def __post_init__(self):
        self.value, self.best = (reference.quick(f) for f in (self.valued, self.chosen))

    def member(self, i):
        return reference.member((self.learner.state, self.hps), i)

    def observed(self, probe, states):
        which = jnp.full(len(states), probe)
        return jax.vmap(self.task.observe)((which, states))

    def valued(self, member, probe, states, actions):
        state, _ = member
        obs = self.algo.see(state, self.observed(probe, states))
        return self.algo.q(state.critic.params, obs, actions)

    def chosen(self, member, probe, states):
        state, hp = member
        obs, memory = self.observed(probe, states), self.algo.memory(random.key(1), len(states))
        return self.algo.act(state, hp, memory, obs, random.key(0), jnp.int32(0), "greedy")[0]

    def q(self, i, probe, states, actions):
        """[critics, batch]."""
        given = PROBES.index(probe), np.float32(states), self.actions(actions)
        return np.asarray(self.value(self.member(i), *given))

    def actions(self, given):
        """Of a number each, or of numbers whose sign is the choice."""
        given = np.float32(given)
        return np.int32(given > 0) if self.task.discrete else given[:, None]

    def greedy(self, i, probe, states):
        action = self.best(self.member(i), PROBES.index(probe), np.float32(states))
        return np.asarray(action).reshape(len(states))


# The entropy bonus of SAC adds at most 0.02 log 2 / (1 - gamma), which is 0.07.
ALGORITHMS = {
    "sac": (SAC, Mixture(image=True), {"temperature": "fixed"}, {"alpha": 0.02}, {}),
    "discrete-sac": (
        DiscreteSAC,
        Mixture(image=False, discrete=True),
        {"temperature": "fixed"},
        {"alpha": 0.02},
        {"epsilon_start": 1.0, "epsilon_end": 1.0},
    ),
    "td3": (TD3, Mixture(image=False), {}, {"noise": 0.3}, {"noise": 1.0}),
    "taac": (TAAC, Mixture(image=False), {}, {"alpha": 0.02, "alpha_lr": 0.0}, {}),
}


@pytest.fixture(scope="module", params=ALGORITHMS)
def trained(request):
    Algorithm, task, options, given, wide = ALGORITHMS[request.param]
    env = Autoreset(task)
    algo = Algorithm(env.spec, hidden=(32, 32), batch_size=128, **options)
    loop = Loop(algo, env, envs=16, capacity=4000, updates_per_step=Fraction(1, 16))
    given |= {"actor_lr": 1e-3, "critic_lr": 3e-3, "tau": 0.05, "gamma": list(GAMMAS)}
    hps = hyper.fill(Algorithm.Hyper, given, 2)
    # Rates are data: at first the actor waits for the critics, in the same program.
    waiting = hyper.fill(Algorithm.Hyper, given | wide | {"actor_lr": 0.0}, 2)

    seeds = jnp.arange(2)
    driver = DeviceDriver(loop, seeds)
    learner = reference.quick(loop.init)(seeds, hps)
    learner = driver.run(learner, waiting, None, seeds, 800, "explore", True)
    learner = driver.run(learner, hps, None, seeds, 1600, "explore", True)
    return Trained(task, algo, learner, hps)


@pytest.mark.parametrize("probe", PROBES)
def test_values(trained, probe):
    """Of every state, with actions all over their range, by every critic."""
    pairs = np.meshgrid(STATES.get(probe, (0,)), (-0.8, -0.2, 0.3, 0.7))
    states, actions = (np.float32(np.ravel(x)) for x in pairs)
    for i, gamma in enumerate(GAMMAS):
        task = probe(trained.task.discrete)
        given = jnp.asarray(states)[:, None], jnp.asarray(trained.actions(actions))
        wanted = task.q(*given, gamma)
        for q in trained.q(i, probe, states, actions):
            np.testing.assert_allclose(q, wanted, atol=0.25)


@pytest.mark.parametrize("probe", BEST)
def test_the_policy_finds_the_best_action(trained, probe):
    for i in range(len(GAMMAS)):
        action = trained.greedy(i, probe, STATES.get(probe, (0,)))
        if trained.task.discrete:
            np.testing.assert_array_equal(action, BEST_CHOICE[probe])
        else:
            np.testing.assert_allclose(action, BEST[probe], atol=0.3)  # a regret of 0.09


def test_time_limits_are_not_ends(trained):
    """The last step of an episode is worth what would follow it, unless it terminated."""
    for i, gamma in enumerate(GAMMAS):
        np.testing.assert_allclose(trained.q(i, Endless, [0], [0]), 1 / (1 - gamma), rtol=0.06)
        np.testing.assert_allclose(trained.q(i, Ending, [0.8], [0]), 1, atol=0.15)


def test_images_are_stored_as_bytes(trained):
    kinds = {name: x.dtype for name, x in trained.learner.replay.rows.obs.items()}
    assert kinds == {name: x.dtype for name, x in trained.task.obs.items()}
