"""What TAAC reports of the actions in rows: how often they were repeated, and their values."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool

from thespis.core import Histogram, Mean, Row

# Edges of histograms.
ACTION_EDGES = tuple(i / 10 for i in range(-10, 11))
PROBABILITY_EDGES = tuple(i / 20 for i in range(21))
LENGTH_EDGES = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 9.0, 13.0, 17.0, 33.0, 65.0, 129.0, 257.0)


def repetitions(rows: Row, begins: Bool[Array, "..."]) -> dict[str, Mean]:
    """Returns the share of rows [...] that repeated, and the lengths of runs that ended in them.

    Rows that had to begin a new trajectory (`begins`) had no choice and are left out.
    """
    as_float = lambda x: x.astype(jnp.float32)
    switch, repeats = rows.extra.switch, rows.extra.repeats
    chose = ~rows.final & ~begins
    ended = as_float(chose & switch)
    return {
        "repeat_rate": Mean(as_float(chose & ~switch), as_float(chose)),
        "run_length": Mean(ended * as_float(repeats), ended),
    }


def histograms(rows: Row, begins: Bool[Array, "..."]) -> dict[str, Histogram]:
    """Counts the lengths of runs that ended in rows [...], and the values of actions."""
    acted = ~rows.final
    ended = acted & ~begins & rows.extra.switch
    counts = {"run_lengths": Histogram.from_values(rows.extra.repeats, ended, LENGTH_EDGES)}
    for i in range(rows.action.shape[-1]):
        counts[f"actions/{i}"] = Histogram.from_values(rows.action[..., i], acted, ACTION_EDGES)
    return counts
