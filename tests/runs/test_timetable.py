"""What is due when follows from the config, counted in iterations."""

import dataclasses

import pytest

from thespis.runs.config import make
from thespis.runs.timetable import Timetable


def timetable(resets=(), callbacks=None, **given) -> Timetable:
    often = {"log_freq": 20, "eval_freq": 50, "checkpoint_freq": 100}
    config = make("sac", {"env": "jax:pendulum", "steps": 1000} | often | given)
    config = dataclasses.replace(config, schedule=((70, {"gamma": 0.9}),))
    return Timetable.from_config(config, resets, callbacks or {})


def test_several_environments_take_fewer_iterations():
    assert timetable().every == {"log": 20, "eval": 50, "checkpoint": 100}
    assert timetable(envs=10).every == {"log": 2, "eval": 5, "checkpoint": 10}
    population = timetable(members=4, pbt=True, **{"pbt.interval": 40}, callbacks={"mine": 7})
    assert population.every["exchange"] == 40
    assert population.every["mine"] == 7


def test_something_is_due_at_every_multiple():
    table = timetable()
    assert [n for n in range(1, 101) if table.due(n, "eval")] == [50, 100]
    assert table.due(40, "eval", "log")
    assert not table.due(40, "eval", "exchange")  # nobody exchanges here


@pytest.mark.parametrize(
    ("iteration", "end", "left"),
    [(0, 1000, 20), (20, 1000, 20), (40, 1000, 10), (60, 1000, 5), (65, 1000, 5), (85, 90, 5)],
)
def test_epochs_last_until_something_is_due_changes_or_ends(iteration, end, left):
    """At 65 members are reset, at 70 a hyper-parameter changes; neither a second time."""
    assert timetable(resets=(65,)).until_next(iteration, end) == left


def test_rows_are_written_at_logs_evaluations_and_exchanges():
    assert [timetable().until_record(n) for n in (0, 15, 20, 45, 50)] == [20, 5, 20, 5, 10]
