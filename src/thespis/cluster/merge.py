"""The checkpoint of a run from those of its groups: all but the replays, which stay there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis.engine.loop import Loop
from thespis.runs import checkpoint, snapshot
from thespis.runs.best import Best
from thespis.runs.build import blank
from thespis.runs.config import Config
from thespis.tuning import hyper

PARTS = ("state", "actors", "progress", "hyper", "best")


def load(folder: Path, config: Config, loop: Loop, step: int | None) -> tuple[dict[str, Any], Any]:
    """Returns the parts of a group's checkpoint at this step, or of its newest; and its info."""
    learner = blank(config, loop)
    hps = hyper.fill(config.Algorithm.Hyper, {}, config.members)
    template = snapshot.split(learner, hps, Best.empty(learner.state, hps))
    wanted = {name: template[name] for name in PARTS}
    there = checkpoint.latest(folder / "checkpoints")
    path = there[0] if step is None else folder / "checkpoints" / f"{step:012d}"
    return checkpoint.load(path, wanted), checkpoint.manifest(path)["info"]


def joined(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the parts of all members; what is alike for all is that of the first group."""
    along = lambda axis, name: jax.tree.map(
        lambda *xs: np.concatenate(xs, axis), *(parts[name] for parts in groups)
    )
    sums = [parts["progress"]["metric_sums"] for parts in groups]
    progress = groups[0]["progress"] | {
        "metric_sums": jax.tree.map(lambda *xs: np.concatenate(xs, 1), *sums)
    }
    parts = {name: along(0, name) for name in PARTS if name != "progress"}
    return parts | {"progress": progress}
