"""Whether other processes would pay follows from what was measured."""

import numpy as np
import pytest

import thespis
from tests.small import Toy, arguments
from thespis.envs.gymnasium import Gymnasium
from thespis.runs import env_speed
from thespis.runs import estimate as plans
from thespis.runs.env_speed import EnvSpeed, Still

FAST = EnvSpeed(envs=4, step=20e-6, busy=1.0, iteration=5e-3, learning=4.9e-3)


@pytest.mark.parametrize(
    ("speed", "text"),
    [
        (FAST, "0.02 ms a step of one: other processes would not pay"),
        # Four that wait: as fast as one of them. Collectors overlap learning as well.
        (
            EnvSpeed(4, 10e-3, 0.1, 44e-3, 4e-3),
            "10 ms a step of one; --env-workers 4 would train 4.2 times as fast; "
            "--envs 10 --collectors 10 10.5 times",
        ),
        # Four that compute, and two cores: half of the time, which is what learning needs.
        (
            EnvSpeed(4, 1e-3, 1.0, 5e-3, 2.5e-3),
            "1 ms a step of one; --env-workers 2 would train 2.0 times as fast",
        ),
        # One environment cannot be shared.
        (
            EnvSpeed(1, 20e-3, 1.0, 22e-3, 2e-3),
            "20 ms a step of one; --envs 10 --collectors 10, on a cluster with a core for each, "
            "10.7 times",
        ),
    ],
)
def test_advice_follows_from_what_was_measured(speed, text):
    assert speed.advice(cores=2, alone=True) == text
    assert "collectors" not in speed.advice(cores=2, alone=False)


def test_a_step_is_measured_and_so_is_the_share_that_computes(monkeypatch):
    monkeypatch.setattr(env_speed, "SECONDS", 0.05)
    seconds, busy = env_speed.step_time(Gymnasium(Toy))
    assert 0 < seconds < 0.1
    assert busy >= 0


def test_without_environments_what_arrived_stays():
    envs = Gymnasium(Toy).open(2, 0)
    step = envs.reset()
    still = Still(envs, step._replace(**{k: x[None] for k, x in step._asdict().items()}))
    np.testing.assert_array_equal(still.step(None).obs, step.obs)
    still.close()


def test_a_plan_says_whether_other_processes_would_pay(monkeypatch):
    monkeypatch.setattr(plans, "SECONDS", 0.05)
    monkeypatch.setattr(env_speed, "SECONDS", 0.05)
    given = {
        k: x
        for k, x in arguments(env=Toy, hidden=(8, 8), updates_per_step=0).items()
        if k != "progress"
    }
    found = thespis.plan("sac", **given)
    assert found.stepping.envs == 1
    assert found.as_dict()["stepping"]["step"] > 0
    assert "stepping   " in str(found)
