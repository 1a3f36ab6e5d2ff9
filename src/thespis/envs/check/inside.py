"""Checks the values that Gymnasium environments return, before the adapter converts them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from thespis.core import MASK
from thespis.envs.check.report import Report
from thespis.envs.gymnasium import Gymnasium


def check_inside(report: Report, env: Gymnasium, seed: int) -> None:
    """Checks the shapes, types and bounds of the values that an instance returns."""
    instance: Any = env.instance()
    try:
        with report.blame("reset", "reset(self, *, seed=None, options=None) returns (obs, info)"):
            first = instance.reset(seed=seed)
        if not (isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], dict)):
            text = f"reset returns {describe(first)}, not a pair"
            report.stop("reset", text, "return (obs, info), where info is a dict")
        report.add("reset", "ok", "returns (obs, info)")
        fault = odd_observation(instance.observation_space, first[0])
        space = instance.action_space
        corners = [space.low.copy(), space.high.copy()] if isinstance(space, spaces.Box) else []
        space.seed(seed)
        act = lambda i: corners[i] if i < len(corners) else legal_sample(instance, obs)
        obs, rows = first[0], 0
        for i in range(200):
            with report.blame("step", "it must accept every action of its action_space"):
                returned = instance.step(act(i))
            if odd := odd_step(returned, env.spec.reward_dim or 1):
                report.stop("step", *odd)
            obs, _, terminated, truncated, info = returned
            fault = fault or odd_observation(instance.observation_space, obs)
            rows += 1
            if terminated or truncated:
                hidden = {"final_observation", "final_obs", "terminal_observation"} & set(info)
                if hidden:
                    text = f"info has {hidden.pop()!r}: the environment resets itself"
                    fix = "return that as the observation; Thespis resets the environment"
                    report.stop("final observation", text, fix)
                if info.get("TimeLimit.truncated") and terminated:
                    text = "info has TimeLimit.truncated, but step returns terminated"
                    report.stop("ends", text, "return truncated = True instead")
                obs, _ = instance.reset()
        report.add("step", "ok", f"{rows} steps, including actions at the bounds")
        if fault:
            report.stop("observations", *fault)
        report.add("observations", "ok", "shape, type and bounds match observation_space")
    finally:
        instance.close()


def describe(x: Any) -> str:
    return f"{len(x)} values" if isinstance(x, tuple) else f"a {type(x).__name__}"


def legal_sample(instance: Any, obs: Any) -> Any:
    space = instance.action_space
    mask = obs.get(MASK) if isinstance(obs, dict) else None
    if mask is None or not isinstance(space, spaces.Discrete):
        return space.sample()
    return space.sample(np.asarray(mask, np.int8))


def odd_step(returned: Any, reward_dim: int) -> tuple[str, str] | None:
    """Returns what is wrong with the values that step returned, and how to fix it; or None."""
    if not isinstance(returned, tuple) or len(returned) != 5:
        return (
            f"step returns {describe(returned)}, not five",
            "return (obs, reward, terminated, truncated, info); the old `done` is terminated",
        )
    _, reward, terminated, truncated, info = returned
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            return f"{name} is {flag!r}, a {type(flag).__name__}", f"return {name} as a bool"
    try:
        numbers = np.asarray(reward, np.float64)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if numbers.size != reward_dim:
        many = "one number" if reward_dim == 1 else f"{reward_dim} numbers"
        return f"the reward is {reward!r}, not {many}", "return a float"
    if not np.isfinite(numbers).all():
        return f"the reward is {reward}", "bound the state, or terminate before it diverges"
    if not isinstance(info, dict):
        return f"info is a {type(info).__name__}", "return a dict, such as {}"
    return None


def odd_observation(space: Any, obs: Any, name: str = "obs") -> tuple[str, str] | None:
    """Returns why an observation does not belong to its space, and how to fix it; or None."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        pairs = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        for key, child in pairs:
            try:
                part = obs[key]
            except (KeyError, IndexError, TypeError):
                return f"{name} has no {key!r}", "return all parts that observation_space declares"
            if odd := odd_observation(child, part, f"{name}[{key!r}]"):
                return odd
        return None
    x = np.asarray(obs)
    if space.shape is not None and x.shape != space.shape:
        return (
            f"{name} has shape {x.shape}, but observation_space has {space.shape}",
            "return that shape, or change observation_space",
        )
    if x.dtype.kind not in "fiub":
        return f"{name} has the type {x.dtype}", "return numbers"
    if isinstance(space, spaces.Box) and space.dtype.kind in "iu" and x.dtype.kind == "f":
        return (
            f"{name} has the type {x.dtype}, its space {space.dtype}: fractions would be cut off",
            f"return {space.dtype}, or declare a Box of float32",
        )
    if not np.isfinite(x.astype(np.float64)).all():
        return f"{name} is not finite", "bound the state, or terminate before it diverges"
    if isinstance(space, spaces.Box):
        margin = 1e-4 * (1 + np.abs(x.astype(np.float64)))  # for rounding
        low, high = x < space.low - margin, x > space.high + margin
        if (low | high).any():
            i = tuple(np.argwhere(low | high)[0])
            bounds = f"[{space.low[i]:g}, {space.high[i]:g}]"
            return (
                f"{name} is {x[i]:g} at index {', '.join(map(str, i))}, outside {bounds}",
                "clip it, or widen the bounds of observation_space",
            )
    elif not space.contains(obs) and not space.contains(x.astype(space.dtype)):
        return f"{name} is {obs!r}, which is not in {space}", "return an element of the space"
    return None
