"""What a run needs is known from shapes alone, and what does not fit is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import thespis
from tests.runs.test_tuning_rounds import population
from tests.small import arguments
from thespis.algos import SAC
from thespis.core import ThespisError
from thespis.engine.loop import Loop
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import PointMass
from thespis.runs import sizes

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


def test_a_replay_larger_than_the_machine_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sizes, "memory", lambda: 2**34)
    with pytest.raises(ThespisError, match=r"buffer_size = \d+ for 1 member\(s\) needs .* GiB"):
        thespis.train(
            "sac", out=tmp_path, **arguments(steps=10**9, buffer_size=10**9, eval_freq=100)
        )


def test_a_population_that_does_not_fit_says_how_many_would(tmp_path):
    given = population(steps=10**9, buffer_size=10**9, eval_freq=100, hidden=(8, 8))
    with pytest.raises(ThespisError, match=r"for 4 member\(s\) needs .* this machine has .* GiB"):
        thespis.train("sac", out=tmp_path, **given)
    less = population(steps=10**8, buffer_size=2 * 10**8, members=100, eval_freq=100)
    with pytest.raises(ThespisError, match=r"for 100 member\(s\) .*: \d+ member\(s\) fit"):
        thespis.train("sac", out=tmp_path, **less)
    assert not list(tmp_path.iterdir())


def test_bytes_are_counted_from_shapes_alone():
    tree = {"x": jax.ShapeDtypeStruct((3, 5), jnp.float32), "on": jax.ShapeDtypeStruct((7,), bool)}
    assert sizes.size(tree) == 3 * 5 * 4 + 7
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert sizes.size((key, None)) == 8


def test_only_the_replay_grows_with_its_rows():
    env = Autoreset(PointMass())
    loop = Loop(SAC(env.spec, hidden=(4,)), env, envs=2, capacity=100)
    few, many = (sizes.member_sizes(dataclasses.replace(loop, capacity=n)) for n in (100, 10**9))
    assert many.replay > 9e6 * few.replay
    assert (many.state, many.environments) == (few.state, few.environments)
    assert few.total == few.replay + sizes.STATES * few.state + few.environments
