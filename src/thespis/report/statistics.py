"""Statistics over seeds: the interquartile mean and bootstrap intervals.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021),
argue for both when there are only a handful of seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from thespis.errors import ThespisError


def iqm(x) -> np.ndarray:
    """Returns the mean of the middle half of x [seeds, ...] over its first axis.

    It is exact for every number of seeds: a sample that straddles a quartile has the weight of the
    part inside, so that 5 seeds have weights 0, 0.75, 1, 0.75, 0.
    """
    x = np.sort(np.asarray(x, float), axis=0)
    n = len(x)
    rank = np.arange(n)
    inside = np.minimum(rank + 1, 0.75 * n) - np.maximum(rank, 0.25 * n)
    weight = np.maximum(inside, 0.0) / (0.5 * n)
    return np.tensordot(weight, x, axes=1)


def mean(x) -> np.ndarray | np.floating:
    """Returns the mean of x [seeds, ...] over its first axis."""
    return np.mean(np.asarray(x, float), axis=0)


def bootstrap(
    samples: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the percentile interval, low and high [points], of a statistic of [seeds, points].

    Whole seeds are drawn with replacement, so that curves stay whole. The interval of a single
    seed is None, since it has no spread over seeds.
    """
    seeds = len(samples)
    if seeds < 2:
        return None
    drawn = np.random.default_rng(seed).integers(seeds, size=(draws, seeds))
    # A part of the draws at a time: all together would take draws x seeds x points numbers.
    parts = -(-draws * samples.size // 2**20)
    values = np.concatenate([statistic(samples[x.T]) for x in np.array_split(drawn, parts)])
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def on_grid(
    steps: Sequence[np.ndarray], values: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Interpolates curves of several seeds; returns grid [points] and values [seeds, points].

    The grid has every step at which some seed was evaluated, from the latest start to the earliest
    end; between its own evaluations a seed is interpolated linearly. Nothing is extrapolated, and
    every point uses all seeds: after the end of the shortest run, a statistic over the remaining
    seeds would jump, and be biased towards those that lasted longest.
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


# --- over several environments --------------------------------------------------------------
#
# Scores are a list with an array [seeds, ...] per environment, normalised such that 1 means the
# same in all of them. Environments may differ in their number of seeds.

Scores = Sequence[np.ndarray]
Numbers = np.ndarray | np.floating


def stratified(
    groups: Sequence[Scores],
    statistic: Callable[..., Numbers],
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Numbers, Numbers] | None:
    """Returns the percentile interval of statistic(*groups); seeds are drawn within environments.

    A group has the scores of one algorithm; the statistic keeps all axes but the first of its
    arrays. The interval is None if an environment has a single seed.
    """
    if any(len(x) < 2 for scores in groups for x in scores):
        return None
    rng = np.random.default_rng(seed)
    size = sum(x.size for scores in groups for x in scores)
    values, left = [], draws
    while left:  # a part of the draws at a time, of about a million numbers
        now = min(left, max(1, 2**20 // size))
        again = [[x[rng.integers(len(x), size=(len(x), now))] for x in scores] for scores in groups]
        values.append(np.asarray(statistic(*again)))
        left -= now
    low, high = np.quantile(np.concatenate(values), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def pooled_iqm(scores: Scores) -> Numbers:
    """Returns the mean of the middle half of all runs of all environments."""
    return iqm(np.concatenate(list(scores)))


def mean_of_means(scores: Scores) -> Numbers:
    """Returns the mean over environments of their means over seeds."""
    return np.mean([mean(x) for x in scores], axis=0)


def median_of_means(scores: Scores) -> Numbers:
    """Returns the median over environments of their means over seeds."""
    return np.median([mean(x) for x in scores], axis=0)


def optimality_gap(scores: Scores, goal: float = 1.0) -> Numbers:
    """Returns the mean distance of runs below a goal; runs above it count as 0."""
    return np.mean([mean(np.maximum(goal - x, 0)) for x in scores], axis=0)


def profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Returns the share of runs, scores [seeds, ...], above each threshold: [..., thresholds]."""
    return np.mean([mean(x[..., None] > thresholds) for x in scores], axis=0)


def improvement(ours: Scores, theirs: Scores) -> Numbers:
    """Returns the probability that a run of ours beats one of theirs; a tie counts half."""
    wins = lambda x, y: np.mean((x[:, None] > y) + 0.5 * (x[:, None] == y), axis=(0, 1))
    return np.mean([wins(x, y) for x, y in zip(ours, theirs, strict=True)], axis=0)
