"""SQIL from ten demonstrations of our own agents, to a threshold, by every one of three seeds.

Returns are greedy ones of the last policy; nothing is chosen by them.
"""

from dataclasses import dataclass
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from thespis.demos import Recorder
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import CartPole, Pendulum

pytestmark = pytest.mark.slow

EXPERTS = {"jax:pendulum": ("sac", 20_000), "jax:cartpole": ("discrete-sac", 50_000)}
SMALL = {"hidden": (64, 64), "progress": False}
SEEDS = 3


@dataclass(frozen=True)
class WidePendulum(Pendulum):
    """Starts at up to twice the speed, at any angle."""

    def start(self, key):
        return jnp.array([1.0, 2.0], jnp.float32) * super().start(key)


@dataclass(frozen=True)
class WideCartPole(CartPole):
    """Starts up to twice as far from rest."""

    def start(self, key):
        return 2 * super().start(key)


WIDE = {"jax:pendulum": WidePendulum, "jax:cartpole": WideCartPole}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    out = tmp_path_factory.mktemp("sqil")

    @cache
    def expert(env: str):
        """Ten episodes, and the mean returns of chance and of the expert."""
        algo, steps = EXPERTS[env]
        run = thespis.train(algo, env=env, steps=steps, out=out, **SMALL)
        loop = run.parts[0]
        hp = loop.algo.Hyper()
        chance = Recorder(loop.algo, loop.env, 100, "random")
        played = chance(loop.algo.init(random.key(0), hp), hp, 0)
        low = np.mean([e.reward.sum() for e in played])
        return run.record(episodes=10), low, run.evaluate(100)["mean_reward"]

    @cache
    def imitators(env: str, cloning: bool = False):
        given = {"bc_steps": 10**9} if cloning else {}
        given |= {"steps": 20_000, "eval_freq": 2000, "seeds": range(SEEDS), "out": out}
        return thespis.train("sqil", env=env, demos=expert(env)[0], **SMALL, **given)

    return expert, imitators


def returns(run) -> np.ndarray:
    return np.array(run.evaluate(100)["returns"]).mean(1)


@pytest.mark.parametrize("env", EXPERTS)
def test_every_seed_comes_close_to_the_expert(world, env):
    expert, imitators = world
    _, low, high = expert(env)
    share = (returns(imitators(env)) - low) / (high - low)
    print(f"{env}: chance {low:.1f}, expert {high:.1f}, shares {share.round(3)}")
    assert (share >= 0.9).all(), share


@pytest.mark.parametrize("env", EXPERTS)
def test_it_does_better_than_cloning_from_starts_twice_as_wide(world, env):
    _, imitators = world
    wide = Autoreset(WIDE[env]())
    ours, clones = (
        returns(thespis.load(imitators(env, cloning).path, eval_env=wide))
        for cloning in (False, True)
    )
    print(f"{env}, wide starts: sqil {ours.round(1)}, clones {clones.round(1)}")
    assert ours.mean() > clones.mean()
