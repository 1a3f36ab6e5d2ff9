"""Plots when an agent that may repeat its actions chooses new ones, and how long it repeats."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core import Repeating, ThespisError, longest, scalar_reward
from thespis.engine import rollout
from thespis.engine.rollout import Copies
from thespis.envs import label
from thespis.report.plots import FAINT, GREY, PALETTE, sheet
from thespis.report.table import decimal
from thespis.runs.files import output

MOST = 6  # largest number of action dimensions that are drawn


@dataclass(frozen=True)
class Episode:
    """Actions [steps, n] in [-1, 1], whether each step [steps] chose a new one, and the return."""

    actions: np.ndarray
    new_action: np.ndarray
    total: float

    @property
    def runs(self) -> list[int]:
        """Numbers of steps from one new action to the next, or to the end."""
        starts = [*np.flatnonzero(self.new_action), len(self.new_action)]
        return [int(b - a) for a, b in pairwise(starts)]

    @property
    def repeat_rate(self) -> float:
        """The share of steps, after the first, that repeated."""
        return 1 - float(self.new_action[1:].mean()) if len(self.new_action) > 1 else 0.0


def play(
    run: Any, member: int | str = "best", which: str = "last", episodes: int = 10, seed: int = 0
) -> list[Episode]:
    """Plays greedy episodes of a run whose policy may repeat its actions."""
    policy, env = run.policy(member, which), run.parts[1]
    with closing(Copies(env, 1)) as copies:
        return [play_one(run, policy, copies, longest(env), seed + i) for i in range(episodes)]


def play_one(run: Any, policy: Any, copies: Copies, limit: int, seed: int) -> Episode:
    policy.reset(seed)
    copies.open(seed)
    actions, new_action, total, act = [], [], 0.0, lambda obs, time: policy.act(obs)
    for arrived, _, action in rollout.episode(copies.reset(), copies.step, act, limit):
        if action is not None:
            if not isinstance(policy.memory, Repeating):
                raise ThespisError(f"{run.config.algo} never repeats actions: plot a run of taac")
            actions.append(action[0])
            new_action.append(policy.memory.repeats[0] == 1)
        total += float(scalar_reward(policy.algo, np.asarray(arrived.reward), arrived.obs)[0])
    return Episode(np.array(actions), np.array(new_action, bool), total)


def draw(episodes: list[Episode], path: Path | str, title: str = "") -> Path:
    """Draws the first episode's actions, new ones marked, and a histogram of all repetitions."""
    from matplotlib.ticker import MaxNLocator

    first = episodes[0]
    shown = min(first.actions.shape[1], MOST)
    time = np.arange(len(first.actions))
    with sheet(path, (7.2, 1.3 * shown + 2.6)) as figure:
        heights = [*[1.0] * shown, 1.8]
        grid = figure.subplots(shown + 1, 1, height_ratios=heights, squeeze=False)
        *panels, bottom = grid[:, 0]
        for i, panel in enumerate(panels):
            action, colour = first.actions[:, i], PALETTE[i % len(PALETTE)]
            panel.vlines(time[first.new_action], -1.1, 1.1, color=FAINT, linewidth=0.8, zorder=1)
            panel.step(time, action, where="post", color=colour, linewidth=1.2, zorder=2)
            panel.plot(
                time[first.new_action],
                action[first.new_action],
                "o",
                color=colour,
                markersize=3,
                zorder=3,
            )
            panel.set_ylim(-1.1, 1.1)
            panel.set_ylabel("action" if shown == 1 else f"action {i}")
            panel.sharex(panels[0])
            panel.tick_params(labelbottom=i == shown - 1)
        panels[-1].set_xlabel("step of one episode; dots are new actions")
        panels[0].set_title(title)

        runs = np.array([length for episode in episodes for length in episode.runs])
        rate = np.mean([episode.repeat_rate for episode in episodes])
        bottom.hist(runs, np.arange(0.5, runs.max() + 1.5), color=PALETTE[0])
        bottom.axvline(runs.mean(), color=GREY, linestyle="--", linewidth=1)
        bottom.set_title(f"{runs.mean():.1f} steps per action on average; repeat rate {rate:.2f}")
        number = f"{len(episodes)} episode{'s' * (len(episodes) != 1)}"
        bottom.set_xlabel(f"steps until the next new action, {number}")
        bottom.set_ylabel("actions")
        bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    return Path(path)


def plot(
    run: Any,
    path: Path | str | None = None,
    member: int | str = "best",
    which: str = "last",
    episodes: int = 10,
    seed: int = 0,
) -> Path:
    """Plays episodes and draws them, by default into the run's folder `plots`."""
    if episodes < 1:
        raise ThespisError(f"episodes = {episodes}: give at least 1")
    played = play(run, member, which, episodes, seed)
    title = f"{run.config.algo.upper()}  {label(run.parts[1])}  return {decimal(played[0].total)}"
    return draw(played, output(run.path, path, "plots", "repeats.png"), title)
