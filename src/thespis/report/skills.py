"""Pictures of skills: where each of them goes, and how plans made of them reach their goals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.report.plots import FAINT, GREY, INK, PALETTE, STYLE, UNDATED
from thespis.runs import files
from thespis.skills.planner import Pursuit
from thespis.skills.rollout import Trajectories
from thespis.skills.score import hull


def trajectories(played: Trajectories, path: Path | str, title: str = "") -> Path:
    """The paths of every skill in descriptor space; over time if the descriptor is one number.

    Of larger descriptors the first two coordinates are drawn.
    """
    with drawing(path) as panel:
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


def pursuit(found: Pursuit, path: Path | str, title: str = "") -> Path:
    """The paths to goals, and where plans were made anew; of large descriptors the first two."""
    with drawing(path) as panel:
        hold = -(-(found.paths.shape[1] - 1) // found.skills.shape[1])
        for i, (goal, p, score) in enumerate(
            zip(found.goals, found.paths, found.scores, strict=True)
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
    """Alike for skills that are alike: by number, or by the direction of the first two numbers."""
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
    panel.grid(color=FAINT, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.set_xlabel("descriptor 0")
    panel.set_ylabel("descriptor 1")


class drawing:
    """A panel to draw on, written as .png, .svg or .pdf when all is drawn."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.form = self.path.suffix[1:].lower()
        if self.form not in UNDATED:
            raise ThespisError(f"cannot write {self.path.name}: a plot is .png, .svg or .pdf")

    def __enter__(self):
        import matplotlib
        from matplotlib.figure import Figure

        self.rules = matplotlib.rc_context(STYLE)
        self.rules.__enter__()
        self.figure = Figure(figsize=(5.6, 4.8), layout="constrained")
        return self.figure.subplots()

    def __exit__(self, kind, error, trace):
        if kind is None:
            with files.writing(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
            more = {"format": self.form, "dpi": 200, "metadata": UNDATED[self.form]}
            with files.replacing(self.path) as file:
                self.figure.savefig(Path(file.name), **more)
        self.rules.__exit__(kind, error, trace)
