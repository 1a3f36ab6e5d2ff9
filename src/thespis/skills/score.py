"""Scores skills: how diverse, predictable and far-reaching they are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.runs.skilled import Skilled
from thespis.skills.planner import predict
from thespis.skills.rollout import Trajectories, rollout

CELLS = 20  # along each side of the box around all trajectories


def score(skilled: Skilled, n: int = 100, episodes: int = 3, seed: int = 0) -> dict[str, float]:
    """Returns the scores of n skills (all of them if they are discrete) over some episodes."""
    return judged(skilled, rollout(skilled, skilled.skills(n, seed), episodes, seed))


def judged(skilled: Skilled, played: Trajectories) -> dict[str, float]:
    """Returns the scores of the given episodes."""
    ends = played.end_points  # [skills, episodes, size]
    middle = ends.mean(1)
    between = np.sqrt(((middle - middle.mean(0)) ** 2).sum(-1).mean())
    within = np.sqrt(((ends - middle[:, None]) ** 2).sum(-1).mean())
    scores = {
        "skills": float(len(ends)),
        "diversity": float(np.nansum(played.diversity) / max(played.ends.sum(), 1)),
        "diversity_return": float(played.diversity_returns.mean()),
        "true_return": float(played.returns.mean()),
        "spread_between_skills": float(between),
        "spread_within_a_skill": float(within),
        **predictability(skilled, played),
        "cells": float(cells(played.descriptors)),
    }
    if ends.shape[-1] == 2:
        scores["hull_area"] = hull_area(middle)
    return scores


def predictability(skilled: Skilled, played: Trajectories) -> dict[str, float]:
    """Returns how well the skill dynamics predict single steps and whole paths.

    It returns {} unless they predict the descriptor from the descriptor alone, so that they can be
    iterated.
    """
    algo: Any = skilled.algo
    base, coordinates = algo.views["predicts"]
    inputs, also = algo.views["dynamics_sees"]
    if (
        algo.objective == "metra"
        or base != "descriptor"
        or (also and inputs != "descriptor")
        or len(coordinates) != algo.views.sizes[base]
    ):
        return {}
    one = jax.jit(lambda x, skill: predict(algo, skilled.state, skilled.hp, x, skill))
    paths, (skills, episodes) = played.descriptors, played.ends.shape
    repeated = jnp.asarray(np.repeat(played.skills, episodes, 0))
    flat = lambda x: jnp.asarray(x.reshape(skills * episodes, -1), jnp.float32)
    predicted, single, change = [paths[:, :, 0]], [], []
    for t in range(paths.shape[2] - 1):
        fold = lambda x: np.asarray(x).reshape(skills, episodes, -1)
        predicted.append(fold(one(flat(predicted[-1]), repeated)))
        single.append(fold(one(flat(paths[:, :, t]), repeated)) - paths[:, :, t + 1])
        change.append(paths[:, :, t + 1] - paths[:, :, t])
    squares = lambda x: np.nansum(np.square(x))
    moved = np.array(change)
    centred = moved - np.nanmean(moved, (0, 1, 2), keepdims=True)
    where = np.indices(played.ends.shape)
    last = np.stack(predicted, 2)[where[0], where[1], played.ends]
    off = np.linalg.norm(last - played.end_points, axis=-1).mean()
    far = np.linalg.norm(played.end_points - paths[:, :, 0], axis=-1).mean()
    return {
        "predictability": float(1 - squares(np.array(single)) / max(squares(centred), 1e-30)),
        "path_error": float(off / max(far, 1e-12)),
    }


def cells(descriptors: np.ndarray) -> int:
    """Returns the number of visited cells in a grid over the box around all descriptors."""
    places = descriptors.reshape(-1, descriptors.shape[-1])
    places = places[np.isfinite(places).all(-1)]
    low, high = places.min(0), places.max(0)
    index = ((places - low) / np.maximum(high - low, 1e-12) * CELLS).astype(int).clip(0, CELLS - 1)
    return len(np.unique(index, axis=0))


def hull(points: np.ndarray) -> np.ndarray:
    """Returns the corners of the convex hull of points [n, 2], anticlockwise."""
    points = np.unique(points, axis=0)

    def half(points):
        corners: list[np.ndarray] = []
        for p in points:
            while len(corners) > 1 and turn(corners[-2], corners[-1], p) <= 0:
                corners.pop()
            corners.append(p)
        return corners[:-1]

    turn = lambda a, b, c: (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
    if len(points) < 3:
        return points
    return np.array(half(points) + half(points[::-1]))


def hull_area(points: np.ndarray) -> float:
    """Returns the area of the convex hull of points [n, 2]."""
    corners = hull(points)
    x, y = corners.T
    return float(0.5 * abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)))
