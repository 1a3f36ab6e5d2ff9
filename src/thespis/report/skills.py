"""Draws skills: the paths of each, and how plans that combine them reach their goals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from thespis.report.plots import GREY, INK, PALETTE, sheet
from thespis.skills.planner import Pursuit
from thespis.skills.rollout import Trajectories
from thespis.skills.score import hull

SIZE = (5.6, 4.8)


def trajectories(played: Trajectories, path: Path | str, title: str = "") -> Path:
    """Draws the paths of every skill in descriptor space, or over time if that is one number.

    Only the first two coordinates of larger descriptors are drawn.
    """
    with sheet(path, SIZE) as figure:
        panel = figure.subplots()
        line = played.descriptors.shape[-1] == 1
        for skill, colour, paths in zip(
            played.skills, colours(played.skills), played.descriptors, strict=True
        ):
            label = str(int(skill.argmax())) if one_hot(played.skills) else None
            for p in paths:
                x, y = (np.arange(len(p)), p[:, 0]) if line else p.T[:2]
                panel.plot(x, y, color=colour, linewidth=1.1, alpha=0.75, label=label)
                last = np.flatnonzero(np.isfinite(y))[-1]
                panel.plot(x[last], y[last], "o", color=colour, markersize=3)
                label = None
        if line:
            panel.set_xlabel("step")
            panel.set_ylabel("descriptor")
        else:
            corners = hull(played.end_points.mean(1)[:, :2])
            if len(corners) > 2:
                panel.fill(*corners.T, facecolor="none", edgecolor=GREY, linestyle=":", zorder=0)
            plane(panel)
        if one_hot(played.skills) and len(played.skills) <= 12:
            panel.legend(title="skill", loc="center left", bbox_to_anchor=(1, 0.5))
        panel.set_title(title)
    return Path(path)


def pursuit(pursued: Pursuit, path: Path | str, title: str = "") -> Path:
    """Draws the paths to goals and the points of replanning, in the first two coordinates."""
    with sheet(path, SIZE) as figure:
        panel = figure.subplots()
        hold = -(-(pursued.paths.shape[1] - 1) // pursued.skills.shape[1])
        for i, (goal, p, score) in enumerate(
            zip(pursued.goals, pursued.paths, pursued.scores, strict=True)
        ):
            colour = PALETTE[i % len(PALETTE)]
            flat = lambda x: x if x.shape[-1] > 1 else np.concatenate([x, 0 * x], -1)
            goal, p = flat(goal), flat(p)
            panel.plot(*p.T[:2], color=colour, linewidth=1.5, label=f"{score:.2f}")
            panel.plot(*p[:-1:hold].T[:2], ".", color=colour, markersize=5)
            panel.plot(*goal[:2], "*", color=colour, markersize=14, markeredgecolor=INK)
        panel.legend(title="score", loc="center left", bbox_to_anchor=(1, 0.5))
        plane(panel)
        panel.set_title(title)
    return Path(path)


def one_hot(skills: np.ndarray) -> bool:
    return skills.shape[0] == skills.shape[1] and bool((skills == np.eye(len(skills))).all())


def colours(skills: np.ndarray) -> list[Any]:
    """Returns similar colours for similar skills, by number or by direction in two dimensions."""
    from matplotlib import colormaps

    if one_hot(skills) and len(skills) <= len(PALETTE):
        return list(PALETTE[: len(skills)])
    if one_hot(skills):
        return [colormaps["turbo"](x) for x in np.linspace(0.05, 0.95, len(skills))]
    if skills.shape[1] == 1:
        return [colormaps["viridis"](x) for x in (skills[:, 0] + 1) / 2]
    angle = np.arctan2(skills[:, 1], skills[:, 0])
    return [colormaps["hsv"](x) for x in (angle / (2 * np.pi)) % 1]


def plane(panel) -> None:
    panel.set_aspect("equal", adjustable="datalim")
    panel.grid()
    panel.set_xlabel("descriptor 0")
    panel.set_ylabel("descriptor 1")
