"""Numbers that are not finite are noticed and named, with what to do."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests.runs.test_trainer import newest
from tests.small import RUN, arrays
from thespis.core import Box, ThespisError
from thespis.runs import directory

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


@dataclasses.dataclass(frozen=True)
class Fragile:
    """A JAX task whose reward is not finite after some steps."""

    name = "fragile"
    obs = jax.ShapeDtypeStruct((3,), jnp.float32)
    action = Box((-1.0,), (1.0,), (1,))
    limit: int = 100

    def start(self, key):
        return jnp.zeros(())

    def observe(self, time):
        return jnp.stack([time, jnp.zeros(()), jnp.ones(())])

    def step(self, time, action):
        return time + 1, jnp.where(time >= 30, jnp.inf, 1.0), jnp.zeros((), bool)


def test_numbers_that_are_not_finite_stop_a_run_of_jax_tasks(tmp_path):
    with pytest.raises(ThespisError) as caught:
        thespis.train(
            "sac",
            Fragile(),
            out=tmp_path,
            checkpoint_freq=20,
            progress=False,
            seeds=(3, 4),
            **{k: v for k, v in RUN.items() if k not in ("env", "checkpoint_freq")},
        )
    message = str(caught.value)
    assert "fragile, environment 0, step 31, seed 3: the reward is not finite" in message
    folder = tmp_path / "sac" / "fragile_1"
    assert f'saved up to step 20: thespis.resume("{folder}", env=...)' in message
    assert newest(folder) == 20
    assert all(np.isfinite(x).all() for name, x in arrays(folder).items() if "best" not in name)
    status = directory.read_json(folder / "status.json")
    assert (status["state"], status["step"]) == ("failed", 20)
    assert "not finite" in status["error"]
