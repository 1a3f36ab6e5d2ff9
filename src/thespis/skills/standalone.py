"""Skills that need only NumPy: `Skills("skills.npz").act(obs, skill)`.

Skills of DADS also have `.change(skill)`, the expected effect of one step, and those of METRA
`.lead(place, goal)`, the skill that leads to a goal.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np


class Skills:
    """The policy of skills, and the model of their effects."""

    def __init__(self, path: str | Path):
        with np.load(path, allow_pickle=False) as file:
            self.parts = dict(file)

    def act(self, obs: np.ndarray, skill: np.ndarray) -> np.ndarray:
        """Returns the mode of the policy for observations [..., n], in the environment's units."""
        p = self.parts
        if "obs.mean" in p:
            std = np.sqrt(np.clip(p["obs.var"], 1e-6, 1e6))
            obs = np.clip((obs - p["obs.mean"]) / std, -5, 5)
        inputs = np.asarray(obs)[..., p["policy_sees"]]
        mean, _ = np.split(self.network("actor", np.concatenate([inputs, skill], -1)), 2, -1)
        action = np.tanh(mean).reshape(*mean.shape[:-1], *p["low"].shape)
        # The same as thespis.core.Box.to_env, which this file must not import.
        return (0.5 * ((1 - action) * p["low"] + (1 + action) * p["high"])).astype(np.float32)

    def change(self, skill: np.ndarray) -> np.ndarray:
        """Returns the expected change of the descriptor in one step of a skill [..., size]."""
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

    def lead(self, place: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Returns the skill that leads from descriptors [..., n] to goals."""
        way = self.representation(goal) - self.representation(place)
        if self.parts["one_hot"]:
            return np.eye(way.shape[-1])[way.argmax(-1)]
        return way / np.maximum(np.linalg.norm(way, axis=-1, keepdims=True), 1e-6)

    def representation(self, descriptor: np.ndarray) -> np.ndarray:
        """Returns METRA's representation phi of a descriptor [..., n], in units of steps."""
        p = self.parts
        inputs = np.asarray(descriptor)[..., p["representation_sees"]]
        if "seen.mean" in p:
            std = np.sqrt(np.clip(p["seen.var"], 1e-12, 1e6))
            inputs = np.clip((inputs - p["seen.mean"]) / std, -5, 5)
        return self.network("representation", inputs)

    def network(self, name: str, x: np.ndarray) -> np.ndarray:
        depth = sum(key.startswith(f"{name}.weight") for key in self.parts)
        for i in range(depth):
            x = x @ self.parts[f"{name}.weight{i}"] + self.parts[f"{name}.bias{i}"]
            x = np.maximum(x, 0) if i < depth - 1 else x
        return x
