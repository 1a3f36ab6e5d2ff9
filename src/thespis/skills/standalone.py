"""Skills in NumPy alone: `Skills("skills.npz").act(obs, skill)` and `.change(skill)`."""

from __future__ import annotations

from pathlib import Path

import numpy as np


class Skills:
    """The policy of skills, and if they are all it needs the model of what they change."""

    def __init__(self, path: str | Path):
        with np.load(path, allow_pickle=False) as found:
            self.parts = dict(found)

    def act(self, obs: np.ndarray, skill: np.ndarray) -> np.ndarray:
        """The likeliest action on an observation [..., n], in the environment's own units."""
        p = self.parts
        if "obs.mean" in p:
            std = np.sqrt(np.clip(p["obs.var"], 1e-6, 1e6))
            obs = np.clip((obs - p["obs.mean"]) / std, -5, 5)
        seen = np.asarray(obs)[..., p["policy_sees"]]
        mean, _ = np.split(self.network("actor", np.concatenate([seen, skill], -1)), 2, -1)
        unit = np.tanh(mean).reshape(*mean.shape[:-1], *p["low"].shape)
        return p["low"] + 0.5 * (unit + 1) * (p["high"] - p["low"])

    def change(self, skill: np.ndarray) -> np.ndarray:
        """How one step of a skill [..., size] is expected to change the descriptor."""
        p, parts = self.parts, int(self.parts["components"])
        raw = self.network("dynamics", np.asarray(skill))
        size = p["change.mean"].shape[0] if "change.mean" in p else raw.shape[-1] // parts - 1
        logits, means = raw[..., :parts], raw[..., parts : parts * (1 + size)]
        weight = np.exp(logits - logits.max(-1, keepdims=True))
        weight = weight / weight.sum(-1, keepdims=True)
        means = means.reshape(*means.shape[:-1], parts, size)
        change = (weight[..., None] * means).sum(-2)
        if "change.mean" in p:
            change = p["change.mean"] + np.sqrt(np.clip(p["change.var"], 1e-12, 1e6)) * change
        return change

    def network(self, name: str, x: np.ndarray) -> np.ndarray:
        depth = sum(key.startswith(f"{name}.weight") for key in self.parts)
        for i in range(depth):
            x = x @ self.parts[f"{name}.weight{i}"] + self.parts[f"{name}.bias{i}"]
            x = np.maximum(x, 0) if i < depth - 1 else x
        return x
