"""Small runs that have skills, as fixtures of all folders: conftest.py names this file.

What they need is imported when one of them is asked for.
"""

import pytest

TINY = {"env": "jax:pointmass", "alternatives": 5, "steps": 300, "eval_freq": 150}


def train(folder, **more):
    """A small run of DADS, by programs that are kept as the command keeps them."""
    import thespis
    from tests import small

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.xla.compile_cache.keeping", True)
        patch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **_: path.touch())
        return thespis.train("dads", **small.arguments(**TINY, **more, out=folder))


@pytest.fixture(scope="session")
def skilled(tmp_path_factory):
    from thespis.runs.skilled import Skilled

    return Skilled(train(tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="session")
def counted(tmp_path_factory):
    """A run of three one-hot skills, that has learned nothing."""
    from thespis.runs.skilled import Skilled

    more = {"skills": 3, "skill_kind": "one-hot", "updates_per_step": 0}
    return Skilled(train(tmp_path_factory.mktemp("runs"), **more))


class Untrained:
    """What `Skilled` asks of a run, of METRA before it has learned."""

    path = "untrained"

    def __init__(self):
        from thespis.algos import DADS
        from thespis.engine.loop import Loop
        from thespis.envs.autoreset import Autoreset
        from thespis.envs.classic import PointMass

        env = Autoreset(PointMass())
        self.algo = DADS(env.spec, objective="metra", hidden=(8,))
        self.parts = Loop(self.algo, env), env

    def member(self, which):
        return 0

    def frozen(self, member, which):
        import jax
        import jax.numpy as jnp

        from thespis.engine.rollout import FrozenPolicy
        from thespis.tuning.hyper import fill

        hp = jax.tree.map(lambda x: x[0], fill(self.algo.Hyper, {}, 1))
        return FrozenPolicy(jax.jit(self.algo.init)(jax.random.key(0), hp), hp, jnp.int32(0))


@pytest.fixture(scope="session")
def far():
    from thespis.runs.skilled import Skilled

    return Skilled(Untrained())
