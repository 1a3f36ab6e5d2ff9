"""The best policies of a run, which are saved in its checkpoints and in a folder of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from thespis.runs import checkpoint, metrics
from thespis.runs.config import RETURN
from thespis.runs.config_file import judge_of
from thespis.runs.directory import read_config


class Best(eqx.Module):
    """The policy of every member at its best evaluation so far; NumPy leaves [members, ...].

    `reward` is the score by which it was chosen (`Config.judge`).
    """

    state: Any
    hyper: Any
    reward: np.ndarray
    step: np.ndarray

    @classmethod
    def empty(cls, state: Any, hps: Any) -> Best:
        """Returns a placeholder before the first evaluation, in the shapes of its arguments."""
        members = jax.tree.leaves(state)[0].shape[0]
        reward, step = np.full(members, -np.inf, np.float32), np.zeros(members, np.int32)
        zeros = lambda tree: jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), tree)
        return cls(zeros(state), zeros(hps), reward, step)

    def challenge(self, reward: np.ndarray, step: int, state: Any, hps: Any) -> Best:
        """Returns the better policy of every member, out of these and those just evaluated."""
        better = reward > self.reward
        new = Best(state, hps, reward, np.full_like(self.step, step))
        pick = lambda x, y: np.where(better.reshape(-1, *(1,) * (x.ndim - 1)), x, y)
        return jax.tree.map(pick, new, self)

    def write(self, folder: Path) -> None:
        """Saves these policies in a folder and removes others, also later ones (after a resume)."""
        existing = checkpoint.latest(folder)
        saved = None
        if (self.reward > -np.inf).any():
            info = {"reward": self.reward.tolist(), "step": self.step.tolist()}
            saved = next((path for path in existing if info_of(path) == info), None)
            parts = {"state": self.state, "hyper": self.hyper}
            saved = saved or checkpoint.save(folder, int(self.step.max()), parts, info)
        for path in existing:
            if path != saved:
                checkpoint.remove(path)


def info_of(path: Path) -> dict[str, Any] | None:
    try:
        return checkpoint.manifest(path)["info"]
    except checkpoint.Damaged:
        return None


def best_member(folder: Path, which: str = "last") -> int:
    """Returns the member with the best score in its last evaluation, or at its "best".

    It is 0 without evaluations. In a tuned population, the "best" policy of a member may belong to
    one that has been replaced since.
    """
    members = len(read_config(folder)["seeds"])
    if which == "best":
        best = checkpoint.latest(folder / "best")
        info = checkpoint.manifest(best[0])["info"] if best else {"reward": [0.0]}
        try:
            return int(np.argmax(np.asarray(info["reward"], np.float32)[:members]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise checkpoint.Damaged(f"{best[0]} is damaged: it has no rewards") from error
    if not os.path.lexists(folder / "metrics.csv"):
        return 0
    table = metrics.read(folder / "metrics.csv", members)
    saved = checkpoint.latest(folder / "checkpoints")
    step = int(saved[0].name.rstrip(checkpoint.REPLACED)) if saved else 0
    none = np.full(len(table["step"]), np.nan)
    scores = table.get(judge_of(folder), table.get(RETURN, none))
    known = np.isfinite(scores) & (table["step"] <= step)
    last = known & (table["step"] == table["step"][known].max(initial=-1))
    rewards = np.where(last, scores, -np.inf)
    return int(table["member"][rewards.argmax()]) if last.any() else 0
