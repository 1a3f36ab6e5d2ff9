"""The best policies of a run: kept beside its checkpoints, and in them."""

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
    """The policy of every member at its best evaluation so far, NumPy leaves [members, ...].

    `reward` is what it was chosen by (`Config.judge`).
    """

    state: Any
    hyper: Any
    reward: np.ndarray
    step: np.ndarray

    @classmethod
    def none(cls, state: Any, hps: Any) -> Best:
        """Returns what there is before the first evaluation; `state` and `hps` give the shapes."""
        members = jax.tree.leaves(state)[0].shape[0]
        reward, step = np.full(members, -np.inf, np.float32), np.zeros(members, np.int32)
        zeros = lambda tree: jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), tree)
        return cls(zeros(state), zeros(hps), reward, step)

    def challenge(self, reward: np.ndarray, step: int, state: Any, hps: Any) -> Best:
        """Returns the better policy of every member: this one or the one just evaluated."""
        better = reward > self.reward
        new = Best(state, hps, reward, np.full_like(self.step, step))
        pick = lambda x, y: np.where(better.reshape(-1, *(1,) * (x.ndim - 1)), x, y)
        return jax.tree.map(pick, new, self)

    def write(self, folder: Path) -> None:
        """Makes the folder hold this one alone, also if it has a later one from a lost future."""
        there = checkpoint.latest(folder)
        kept = None
        if (self.reward > -np.inf).any():
            info = {"reward": self.reward.tolist(), "step": self.step.tolist()}
            kept = next((path for path in there if about(path) == info), None)
            parts = {"state": self.state, "hyper": self.hyper}
            kept = kept or checkpoint.save(folder, int(self.step.max()), parts, info)
        for path in there:
            if path != kept:
                checkpoint.remove(path)


def about(path: Path) -> dict[str, Any] | None:
    try:
        return checkpoint.manifest(path)["info"]
    except checkpoint.Damaged:
        return None


def best_member(folder: Path, which: str = "last") -> int:
    """Returns the member that did best in its last evaluation, or at its "best"; 0 without any.

    In a population that is tuned, a place may have been taken by another since its best.
    """
    members = len(read_config(folder)["seeds"])
    if which == "best":
        best = checkpoint.latest(folder / "best")
        info = checkpoint.manifest(best[0])["info"] if best else {"reward": [0.0]}
        try:
            return int(np.argmax(np.asarray(info["reward"], np.float32)[:members]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise checkpoint.Damaged(f"{best[0]} does not say who is best") from error
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
