"""What a run fills in that its algorithm cannot know."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests import small
from thespis.algos.sac import SAC
from thespis.tuning.hyper import Uniform, prior

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


@dataclass(frozen=True)
class Decaying(SAC):
    """SAC that says how much of its schedule is left."""

    class Hyper(SAC.Hyper):
        schedule_updates: float = prior(0.0, Uniform(1, 1e6), "length", low=0, special=True)

    def update(self, state, hp, batch, key, step):
        state, metrics, priorities = super().update(state, hp, batch, key, step)
        left = 1 - step.astype(jnp.float32) / jnp.maximum(hp.schedule_updates, 1)
        return state, metrics | {"left": left}, priorities


def arguments(**changes):
    return small.arguments(**{"lr_schedule": "linear"} | changes)


def lengths(run) -> list[float]:
    return run.metrics["hparams/schedule_updates"].tolist()


def test_a_schedule_lasts_as_long_as_the_run_that_has_it(tmp_path, capsys):
    run = thespis.train(Decaying, out=tmp_path, **arguments(steps=200))
    assert lengths(run) == [100, 100]  # no updates in the first 100 steps
    assert run.metrics["train/n_updates"][-1] == 100
    assert run.metrics["train/left"][-1] == pytest.approx(0.505)  # the mean of 1, 0.99, ..., 0.01
    assert capsys.readouterr().err == ""
    longer = thespis.resume(run.path, steps=300, progress=False)
    assert "schedule_updates was 100 and is 200 from here on" in capsys.readouterr().err
    assert lengths(longer) == [100, 100, 200]
    thespis.resume(run.path, steps=400, progress=False)
    assert lengths(run)[-1] == 300


SELDOM = pytest.param(0.3, 1, 30, marks=pytest.mark.slow)


@pytest.mark.cases(1)
@pytest.mark.parametrize(("ratio", "envs", "updates"), [SELDOM, (2.0, 4, 200), (0, 1, 1)])
def test_its_length_counts_updates_and_not_steps(tmp_path, ratio, envs, updates):
    more = {"steps": 200, "updates_per_step": ratio, "envs": envs}
    run = thespis.train(Decaying, out=tmp_path, **arguments(**more))
    assert lengths(run) == [updates, updates]
    assert run.metrics["train/n_updates"][-1] == (updates if ratio else 0)


@pytest.mark.thorough
def test_what_is_given_or_tuned_is_left_alone(tmp_path):
    given = arguments(steps=200, seeds=(0, 1), schedule_updates=[0, 70], devices=1)
    run = thespis.train(Decaying, out=tmp_path, **given)
    assert lengths(run) == [100, 70, 100, 70]
    (alone,) = {
        *lengths(thespis.resume(run.path, steps=300, member=0, out=tmp_path, progress=False))[2:]
    }
    assert alone == 200
    tuned = {"interval": 100, "tuned": ("schedule_updates",)}
    run = thespis.train(Decaying, out=tmp_path, **arguments(members=2, pbt=tuned, devices=1))
    assert not np.isin(300, lengths(run))


def test_members_of_a_population_have_it_and_leave_with_it(tmp_path):
    tuned = {"interval": 100, "tuned": ("tau",)}
    given = arguments(steps=200, members=2, pbt=tuned, devices=1)
    run = thespis.train(Decaying, out=tmp_path, **given)
    assert lengths(run) == [100] * 4
    longer = thespis.resume(run.path, steps=300, progress=False)
    assert lengths(longer)[-1] == 200
    left = thespis.resume(run.path, steps=400, member=1, out=tmp_path, progress=False)
    assert lengths(left)[-1] == 300
    again = thespis.rerun(run.path, 1, out=tmp_path, progress=False)
    assert thespis.resume(again.path, steps=400, progress=False).config.hp["schedule_updates"] == 0


def test_a_run_without_a_schedule_has_no_length_of_it(tmp_path, capsys):
    """So that a longer run equals one that was meant to be long."""
    given = arguments(steps=200, lr_schedule="constant", updates_per_step=0)
    run = thespis.train(Decaying, out=tmp_path, **given)
    thespis.resume(run.path, steps=300, progress=False)
    assert lengths(run) == [0, 0, 0]
    assert capsys.readouterr().err == ""
