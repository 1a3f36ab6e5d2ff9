"""Compares algorithms over environments: aggregates, profiles, improvement, sample efficiency.

The plots and statistics are those that Agarwal et al., "Deep Reinforcement Learning at the Edge
of the Statistical Precipice" (2021), recommend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError, or_all
from thespis.report import statistics
from thespis.report.plots import (
    GREY,
    INK,
    WORDS,
    Curve,
    count,
    legend,
    look,
    rows_axis,
    sheet,
    steps_axis,
    value_axis,
)
from thespis.runs import directory

AGGREGATES = {
    "IQM": statistics.pooled_iqm,
    "median": statistics.median_of_means,
    "mean": statistics.mean_of_means,
    "optimality gap": statistics.optimality_gap,
}


@dataclass(frozen=True)
class Table:
    """Scores of algorithms: `curves[label][env]` is (steps [points], scores [seeds, points])."""

    curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]
    meaning: str  # what scores are, as the label of an axis
    normalised: bool

    @property
    def labels(self) -> list[str]:
        return list(self.curves)

    @property
    def envs(self) -> list[str]:
        return list(next(iter(self.curves.values())))

    def final(self, label: str) -> list[np.ndarray]:
        """Returns the scores [seeds] in every environment, at the last step of all its runs."""
        return [scores[:, -1] for _, scores in self.curves[label].values()]

    def over_time(self, label: str, points: int = 100) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns steps [points] common to all environments, and the scores [seeds, points]."""
        everything = [steps for curves in self.curves.values() for steps, _ in curves.values()]
        start, end = max(s[0] for s in everything), min(s[-1] for s in everything)
        if start > end:
            raise ThespisError("no steps in common: leave out the run that is too short")
        grid = np.linspace(start, end, points if end > start else 1)
        at = lambda steps, scores: np.stack([np.interp(grid, steps, x) for x in scores])
        return grid, [at(*curve) for curve in self.curves[label].values()]


def table(
    curves: Sequence[Curve],
    metric: str = "eval/mean_reward",
    normalise: str | Path | dict[str, Any] | None = None,
) -> Table:
    """Collects the scores, normalised if algorithms are compared over several environments.

    `normalise` is "none"; "first-best", where 0 is the mean first evaluation of the runs of an
    environment and 1 their best one; {env: (score of 0, score of 1)}; or a JSON file with that.
    The default is "none" for one environment and "first-best" for several.
    """
    algorithms: dict[str, dict[str, Any]] = {}
    for curve in curves:
        algorithms.setdefault(curve.label, {})[curve.env] = curve
    envs = list(dict.fromkeys(curve.env for curve in curves))
    for label, by_env in algorithms.items():
        missing = [env for env in envs if env not in by_env]
        if missing:
            raise ThespisError(
                f"{label} has no run on {missing[0]}: compare algorithms on the same environments"
            )
    rule = normalise or ("first-best" if len(envs) > 1 else "none")
    ends, meaning = references(curves, envs, rule)
    scale = lambda x, env: (x - ends[env][0]) / (ends[env][1] - ends[env][0]) if ends else x
    scored = {}
    for label, by_env in algorithms.items():
        scored[label] = {}
        for env in envs:  # in the same order for all
            steps, values = statistics.on_grid(*zip(*by_env[env].runs, strict=True))
            until = min(runs[0][-1] for curve in curves if curve.env == env for runs in curve.runs)
            keep = steps <= until
            if not keep.any():
                raise ThespisError(f"no steps in common on {env}: leave out the shortest run")
            scored[label][env] = steps[keep], scale(values[:, keep], env)
    return Table(scored, meaning or WORDS.get(metric, metric), bool(ends))


def references(curves: Sequence[Curve], envs: list[str], rule: Any) -> tuple[dict, str]:
    """Returns {env: (score of 0, score of 1)}, and what a normalised score means."""
    if rule == "none":
        return {}, ""
    if rule == "first-best":
        ends = {}
        for env in envs:
            runs = [values for curve in curves if curve.env == env for _, values in curve.runs]
            ends[env] = np.mean([x[0] for x in runs]), max(x.max() for x in runs)
        meaning = "normalised return (0: mean first evaluation, 1: best)"
    else:
        pairs = rule if isinstance(rule, dict) else directory.read_json(Path(rule).resolve())
        absent = [env for env in envs if env not in pairs]
        if absent:
            raise ThespisError(f"no scores to normalise {absent[0]} by{or_all(absent[0], pairs)}")
        try:
            ends = {env: tuple(map(float, pairs[env])) for env in envs}
            if any(len(pair) != 2 for pair in ends.values()):
                raise ValueError
        except (TypeError, ValueError):
            raise ThespisError(
                f"cannot normalise by {rule}: give each environment as [score of 0, score of 1]"
            ) from None
        meaning = "normalised return (0 and 1 as given)"
    flat = [env for env, (low, high) in ends.items() if low == high]
    if flat:
        raise ThespisError(f"cannot normalise {flat[0]}: its scores of 0 and 1 are the same")
    return ends, meaning


# --- plots ----------------------------------------------------------------------------------


def aggregates(scores: Table, path: Path | str) -> Path:
    """Plots IQM, median, mean and, if normalised, optimality gap, with 95 % intervals."""
    names = [n for n in AGGREGATES if scores.normalised or n != "optimality gap"]
    labels = scores.labels
    with sheet(path, (2.5 * len(names) + 1.2, 0.42 * len(labels) + 1.4)) as figure:
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for name, panel in zip(names, panels, strict=True):
            statistic = AGGREGATES[name]
            for i, label in enumerate(labels):
                final, (colour, _) = scores.final(label), look(i)
                value, interval = statistic(final), statistics.stratified([final], statistic)
                bar(panel, i, value, interval, colour, 0.55)
            panel.set_title(f"{name} (less is better)" if name == "optimality gap" else name)
            panel.margins(x=0.08)
            rows_axis(panel, labels)
            panel.grid(axis="x")
        figure.supxlabel(f"{scores.meaning}; {counted(scores)}", fontsize=9)
    return Path(path)


def profiles(scores: Table, path: Path | str) -> Path:
    """Plots the share of runs above every score, with 95 % intervals."""
    everything = np.concatenate([x for label in scores.labels for x in scores.final(label)])
    low, high = everything.min(), everything.max()
    margin = 0.03 * (high - low or 1.0)
    thresholds = np.linspace(low - margin, high + margin, 200)
    with sheet(path, (6.4, 4.0)) as figure:
        panel = figure.subplots()
        share = lambda final: statistics.profile(final, thresholds)
        for i, label in enumerate(scores.labels):
            final, (colour, line) = scores.final(label), look(i)
            interval = statistics.stratified([final], share)
            if interval:
                panel.fill_between(thresholds, *interval, color=colour, alpha=0.18, linewidth=0)
            panel.plot(thresholds, share(final), line, color=colour, linewidth=2, label=label)
        panel.set_ylim(-0.02, 1.02)
        panel.set_xlim(thresholds[0], thresholds[-1])
        panel.grid(axis="y")
        panel.set_ylabel("share of runs with a higher score")
        panel.set_xlabel(scores.meaning)
        score_legend(figure, scores)
    return Path(path)


def improvements(scores: Table, path: Path | str) -> Path:
    """Plots for every pair of algorithms the probability that one beats the other."""
    pairs = list(combinations(scores.labels, 2))
    if not pairs:
        raise ThespisError("improvement compares algorithms: name runs of two or more")
    with sheet(path, (6.4, 0.45 * len(pairs) + 1.3)) as figure:
        panel = figure.subplots()
        for i, pair in enumerate(pairs):
            both = [scores.final(label) for label in pair]
            value = statistics.improvement(*both)
            interval = statistics.stratified(both, statistics.improvement)
            colour, _ = look(scores.labels.index(pair[0]))
            bar(panel, i, value, interval, colour, 0.5)
            panel.text(1.02, i, f"{value:.2f}", va="center", color=INK, fontsize=9)
        panel.axvline(0.5, color=GREY, linewidth=1, linestyle="--", zorder=0)
        panel.set_xlim(0, 1)
        rows_axis(panel, [f"{x} > {y}" for x, y in pairs])
        panel.grid(axis="x")
        panel.set_xlabel(f"probability of improvement; {counted(scores)}")
    return Path(path)


def efficiency(scores: Table, path: Path | str) -> Path:
    """Plots the IQM over all runs of all environments against steps, with 95 % intervals."""
    with sheet(path, (6.4, 4.0)) as figure:
        panel = figure.subplots()
        for i, label in enumerate(scores.labels):
            grid, values = scores.over_time(label)
            colour, line = look(i)
            interval = statistics.stratified([values], statistics.pooled_iqm)
            if interval:
                panel.fill_between(grid, *interval, color=colour, alpha=0.18, linewidth=0)
            mark = line + ("o" if len(grid) == 1 else "")
            panel.plot(grid, statistics.pooled_iqm(values), mark, color=colour, linewidth=2)
            steps_axis(panel, grid[-1])
        value_axis(panel)
        panel.set_ylabel(f"IQM of {scores.meaning}".replace(" (", "\n("))
        score_legend(figure, scores)
    return Path(path)


def bar(panel, row: int, value: Any, interval: Any, colour: str, height: float) -> None:
    """Draws a value as a stroke, and its interval as a bar behind it."""
    if interval:
        low, high = interval
        panel.barh(row, high - low, height, low, color=colour, alpha=0.25, linewidth=0)
    panel.vlines(value, row - height / 2, row + height / 2, color=colour, linewidth=2.4)


def score_legend(figure, scores: Table) -> None:
    lines = [(label, *look(i), 2) for i, label in enumerate(scores.labels)]
    legend(figure, lines, counted(scores), ncols=min(len(lines), 4))


def counted(scores: Table) -> str:
    """Returns "5 seeds on 3 environments, 95 % bootstrap intervals", if there are intervals."""
    numbers = [[len(x) for x in scores.final(label)] for label in scores.labels]
    seeds, several = sorted({n for some in numbers for n in some}), len(scores.envs) > 1
    banded = any(min(some) > 1 for some in numbers)
    where = f"{len(scores.envs)} environments" if several else scores.envs[0]
    return f"{count(seeds)} on {where}{', 95 % bootstrap intervals' * banded}"


KINDS = {
    "scores": aggregates,
    "profile": profiles,
    "improvement": improvements,
    "efficiency": efficiency,
}
