"""Small runs that have skills."""

import jax
import jax.numpy as jnp
import pytest
from jax import random

import thespis
from tests import small
from thespis.algos import DADS
from thespis.engine.loop import Loop
from thespis.engine.rollout import FrozenPolicy
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import PointMass
from thespis.runs.skilled import Skilled
from thespis.tuning.hyper import fill

TINY = {"env": "jax:pointmass", "alternatives": 5, "steps": 300, "eval_freq": 150}


def train(folder, **more):
    """A small run of DADS, by programs that are kept as the command keeps them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.xla.compile_cache.keeping", True)
        patch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **_: path.touch())
        return thespis.train("dads", **small.arguments(**TINY, **more, out=folder))


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def skilled(run):
    return Skilled(run)


@pytest.fixture(scope="session")
def counted(tmp_path_factory):
    """A run of three one-hot skills, that has learned nothing."""
    more = {"skills": 3, "skill_kind": "one-hot", "updates_per_step": 0}
    return Skilled(train(tmp_path_factory.mktemp("runs"), **more))


class Untrained:
    """What `Skilled` asks of a run, of METRA before it has learned."""

    path = "untrained"

    def __init__(self):
        env = Autoreset(PointMass())
        self.algo = DADS(env.spec, objective="metra", hidden=(8,))
        self.parts = Loop(self.algo, env), env

    def member(self, which):
        return 0

    def frozen(self, member, which):
        hp = jax.tree.map(lambda x: x[0], fill(DADS.Hyper, {}, 1))
        return FrozenPolicy(jax.jit(self.algo.init)(random.key(0), hp), hp, jnp.int32(0))


@pytest.fixture(scope="session")
def far():
    return Skilled(Untrained())
