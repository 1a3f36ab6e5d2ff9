"""Imitation from demonstrations of our own agents, to a threshold, by every one of three seeds.

Returns are greedy ones of the policy that is most similar to what was held out, or of the last
where nothing was; nothing is chosen by them.
"""

from dataclasses import dataclass
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests.slow.typed import train
from thespis.engine.recorder import Recorder
from thespis.engine.rollout import FrozenPolicy
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import Pendulum

pytestmark = pytest.mark.slow

# Who is imitated, and the imitators' steps. CartPole-v1 moves like our own form of it.
EXPERTS = {"jax:pendulum": ("sac", 20_000), "jax:cartpole": ("discrete-sac", 50_000)}
EXPERT_OF = {"CartPole-v1": "jax:cartpole"}
STEPS = {"jax:pendulum": 10_000, "CartPole-v1": 10_000, "jax:cartpole": 30_000}
SMALL = {"hidden": (64, 64)}
SILENT = {"monitor_gradients": False, "monitor_policy": False}
SEEDS = 3


@dataclass(frozen=True)
class WidePendulum(Pendulum):
    """Starts at up to twice the speed, at any angle."""

    def start(self, key):
        return jnp.array([1.0, 2.0], jnp.float32) * super().start(key)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    out = tmp_path_factory.mktemp("sqil")

    @cache
    def expert(env: str):
        """Ten episodes, and the mean returns of chance and of the expert."""
        algo, steps = EXPERTS[env]
        run = train(algo, env=env, steps=steps, out=out, eval_episodes=2, **SMALL)
        loop = run.parts[0]
        hp = loop.algo.Hyper()
        chance = Recorder(loop.algo, loop.env, 100, "random")
        played = chance(FrozenPolicy(loop.algo.init(random.key(0), hp), hp, jnp.int32(0)), 0)
        low = np.mean([e.reward.sum() for e in played])
        return run.record(episodes=10), low, run.evaluate(100)["mean_reward"]

    @cache
    def imitators(env: str, objective: str, episodes: int):
        """`objective` may be cloning, which is not one of SQIL's."""
        chosen = {"bc_steps": 10**9} if objective == "cloning" else {"objective": objective}
        shown = expert(EXPERT_OF.get(env, env))[0]
        chosen |= {"demos": shown, "demo_episodes": episodes, "steps": STEPS[env]}
        chosen |= {"eval_freq": STEPS[env] // 10, "eval_episodes": 2, "seeds": range(SEEDS)}
        return train("sqil", env=env, out=out, **SMALL, **SILENT, **chosen)

    return expert, imitators


def returns(run) -> np.ndarray:
    which = "last" if run.config.demo_episodes == 1 else "best"
    return np.array(run.evaluate(100, which=which)["returns"]).mean(1)


def shares(world, env, *chosen) -> np.ndarray:
    """Of the way from chance to the expert, by every seed."""
    expert, imitators = world
    _, low, high = expert(EXPERT_OF.get(env, env))
    share = (returns(imitators(env, *chosen)) - low) / (high - low)
    print(f"{env}, {chosen}: chance {low:.1f}, expert {high:.1f}, shares {share.round(3)}")
    return share


@pytest.mark.parametrize("env", ["jax:pendulum", "CartPole-v1"])
def test_every_seed_comes_close_to_the_expert(world, env):
    assert (shares(world, env, "sqil", 10) >= 0.9).all()


@pytest.mark.parametrize("objective", ["ls-iq", "iq"])
def test_a_single_demonstration_is_enough(world, objective):
    assert shares(world, "jax:cartpole", objective, 1).mean() >= 0.8


def test_it_does_better_than_cloning_from_starts_twice_as_wide(world):
    """Of the pendulum: cloning a pole that never falls is perfect."""
    wide, env = Autoreset(WidePendulum()), "jax:pendulum"
    ours, clones = (
        np.array(
            thespis.load(world[1](env, which, 10).path, eval_env=wide).evaluate(100)["returns"]
        )
        for which in ("sqil", "cloning")
    )
    print(f"{env}, wide starts: sqil {ours.mean(1).round(1)}, clones {clones.mean(1).round(1)}")
    assert ours.mean() > clones.mean()
