"""Statistics over seeds: the interquartile mean and bootstrap intervals.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021),
argue for both when there are only a handful of seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from thespis.errors import ThespisError


def iqm(x) -> np.ndarray:
    """The mean of the middle half of x [seeds, ...] over its first axis.

    Exact for every number of seeds: a sample that straddles a quartile counts by the part of
    it that lies inside, so that 5 seeds weigh 0, 0.75, 1, 0.75, 0.
    """
    x = np.sort(np.asarray(x, float), axis=0)
    n = len(x)
    rank = np.arange(n)
    inside = np.minimum(rank + 1, 0.75 * n) - np.maximum(rank, 0.25 * n)
    weight = np.maximum(inside, 0.0) / (0.5 * n)
    return np.tensordot(weight, x, axes=1)


def mean(x) -> np.ndarray:
    """The mean of x [seeds, ...] over its first axis."""
    return np.mean(np.asarray(x, float), axis=0)


def bootstrap(
    samples: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The percentile interval of a statistic of samples [seeds, points] -> low, high [points].

    Whole seeds are drawn with replacement, so that a curve stays a curve. One seed says
    nothing about the spread over seeds: its interval is None.
    """
    seeds = len(samples)
    if seeds < 2:
        return None
    drawn = np.random.default_rng(seed).integers(seeds, size=(draws, seeds))
    # Some draws at a time: all at once would hold draws x seeds x points numbers.
    parts = -(-draws * samples.size // 2**20)
    values = np.concatenate([statistic(samples[x.T]) for x in np.array_split(drawn, parts)])
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def on_grid(
    steps: Sequence[np.ndarray], values: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Curves of several seeds on one grid -> grid [points], values [seeds, points].

    The grid holds every step at which some seed was evaluated, from the latest start to the
    earliest end; between its own evaluations a seed is interpolated linearly. Nothing is
    extrapolated, and every point rests on all seeds: past the end of the shortest run a
    statistic over those that remain would jump, and flatter whichever seeds lived longest.
    """
    start, end = max(s[0] for s in steps), min(s[-1] for s in steps)
    if start > end:
        raise ThespisError(
            f"no steps in common: one run starts at {start:g}, another ends at {end:g}; "
            "leave out the run that is too short"
        )
    grid = np.unique(np.concatenate(list(steps)))
    grid = grid[(grid >= start) & (grid <= end)]
    return grid, np.stack([np.interp(grid, s, v) for s, v in zip(steps, values, strict=True)])
