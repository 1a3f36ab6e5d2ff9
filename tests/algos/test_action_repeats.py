"""Repetitions and the lengths of runs are counted row by row."""

import jax.numpy as jnp
import numpy as np

from tests.algos import reference
from tests.algos.test_taac import make
from thespis.algos.action_repeats import ACTION_EDGES, LENGTH_EDGES, histograms, repetitions
from thespis.algos.taac import Extra
from thespis.core import Row


def test_the_report_counts_repetitions_and_the_runs_that_ended():
    """Of one environment: a run of three steps, one of two, then the end and a new episode."""
    switch = [1, 0, 0, 1, 0, 1, 1, 0]
    repeats = [0, 1, 2, 3, 1, 2, 0, 1]
    final = [0, 0, 0, 0, 0, 1, 0, 0]
    as_bool = lambda x: jnp.asarray(np.array(x, bool))
    zeros, none = (jnp.asarray(np.zeros(shape, np.float32)) for shape in (8, (8, 0)))
    extra = Extra(none, none, jnp.asarray(np.int32(repeats)), as_bool(switch))
    rows = Row(zeros, zeros, as_bool(final), as_bool([0] * 8), zeros, extra)

    def told(algo):
        report = reference.quick(lambda rows: repetitions(rows, algo.begins(rows.extra.repeats)))(
            rows
        )
        return {k: (np.sum(m.total), np.sum(m.count)) for k, m in report.items()}

    assert told(make()) == {"repeat_rate": (4, 5), "run_length": (3, 1)}
    assert told(make(first="zero"))["repeat_rate"] == (4, 7)  # a first step may repeat as well


def test_lengths_of_runs_and_actions_are_counted_where_they_end():
    switch, repeats = jnp.array([False, True, True, False]), jnp.int32([1, 2, 40, 1])
    final = jnp.array([False, False, False, True])
    action = jnp.float32([[-1.0], [0.25], [0.99], [0.0]])
    extra = Extra(action, action, repeats, switch)
    rows = Row(action, repeats, final, jnp.zeros(4, bool), action, extra)
    found = histograms(rows, jnp.zeros(4, bool))
    counts = {name: np.asarray(x.count).reshape(4, -1).sum(0) for name, x in found.items()}
    lengths = dict(zip(LENGTH_EDGES, counts["run_lengths"].tolist()))
    assert {low: n for low, n in lengths.items() if n} == {2.0: 1, 33.0: 1}
    places = dict(zip(ACTION_EDGES, counts["actions/0"].tolist()))
    assert {low: n for low, n in places.items() if n} == {-1.0: 1, 0.2: 1, 0.9: 1}  # not the last
