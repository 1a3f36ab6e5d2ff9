"""Watching a policy: frames of whole episodes, to a video file or into a window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis import envs
from thespis.core import Step
from thespis.envs import Autoreset
from thespis.errors import ThespisError
from thespis.evaluate import LIMIT
from thespis.show import draw, video

FPS = 30


def play(
    run: Any,
    member: int | str = "best",
    which: str = "last",
    path: Path | str | None = None,
    episodes: int = 1,
    seed: int = 0,
    human: bool = False,
) -> tuple[Path | None, list[float]]:
    """Play whole episodes of a run's policy -> the video (None for a window), their returns."""
    if episodes < 1:
        raise ThespisError(f"episodes = {episodes}: give at least 1")
    if not 0 <= seed < 2**31:
        raise ThespisError(f"seed = {seed}: give a number from 0 to {2**31 - 1}")
    env, number = run.parts[1], run.member(member)
    several = f"_member{number}" if len(run.config.seeds) > 1 else ""
    name = f"{envs.label(env)}{several}_seed{seed}{video.default_suffix()}"
    file = Path(path) if path else run.path / "videos" / name
    if file.suffix.lower() not in (".gif", ".mp4"):  # say so before the play, not after it
        raise ThespisError(f"cannot write {file.name}: a video is .gif or .mp4")
    policy = run.policy(number, which)
    stage = (DeviceStage if isinstance(env, Autoreset) else HostStage)(env, seed, human)
    try:
        label = f"{run.config.algo}  {envs.label(env)}"
        limit = env.limit or LIMIT
        played = [episode(stage, policy, seed + i, limit, label) for i in range(episodes)]
    finally:
        stage.close()
    returns = [total for _, total in played]
    if human:
        return None, returns
    return video.write([frame for frames, _ in played for frame in frames], file, FPS), returns


def episode(stage, policy, seed: int, limit: int, label: str) -> tuple[list[np.ndarray], float]:
    """One episode from its first to its final observation -> frames (unless shown), return."""
    policy.reset(seed)
    step, frames, total = stage.reset(seed), [], 0.0
    for time in range(limit + 1):
        total += float(step.reward[0])
        frame = stage.frame(step)
        if frame is not None:
            frames.append(video.caption(frame, f"{label}  return {total:,.1f}"))
        if step.final[0] or time == limit:
            break
        step = stage.step(policy.respond(step.obs))
    return frames, total


class HostStage:
    """One Gymnasium environment, drawn by us if we know it, else by itself."""

    def __init__(self, env: Any, seed: int, human: bool):
        self.name, self.human = env.name, human
        mode = "human" if human else None if env.name in draw.TASKS else "rgb_array"
        self.envs = env.open(1, seed, mode)
        self.step, self.close = self.envs.step, self.envs.close

    def reset(self, seed: int) -> Step:
        return self.envs.reset()  # seeded when it was opened

    def frame(self, step: Step) -> np.ndarray | None:
        if self.human:
            return None  # the environment shows itself
        if self.name in draw.TASKS:
            return draw.frame(self.name, step.obs[0])
        picture = self.envs.render()[0]
        if not isinstance(picture, np.ndarray):
            raise ThespisError(f"{self.name} cannot be drawn: it has no render_mode 'rgb_array'")
        return picture


class DeviceStage:
    """One JAX environment, drawn by us."""

    def __init__(self, env: Autoreset, seed: int, human: bool):
        self.name = getattr(env.task, "name", type(env.task).__name__)
        self.picture = getattr(env.task, "picture", None)  # of tasks that draw themselves
        self.goal = getattr(env.task, "goal", (0.0, 0.0))
        self.begin = jax.jit(lambda seed: env.reset(random.key(seed), 1))
        self.advance = jax.jit(lambda state, action: env.step(state, action, random.key(0)))
        self.window = Window(self.name) if human else None

    def reset(self, seed: int) -> Step:
        self.trail: list[np.ndarray] = []
        self.state, step = self.begin(seed)
        return step

    def step(self, action: np.ndarray) -> Step:
        # The key is used by resets alone, and none follows before the episode's end.
        self.state, step = self.advance(self.state, jnp.asarray(action))
        return step

    def frame(self, step: Step) -> np.ndarray | None:
        self.trail.append(np.asarray(jax.tree.leaves(step.obs)[0])[0])
        if self.picture:
            picture = self.picture(jax.tree.map(lambda x: x[0], self.state.task))
        else:
            picture = draw.frame(self.name, self.trail[-1], trail=self.trail[:-1], goal=self.goal)
        if picture is None:
            raise ThespisError(f"{self.name} cannot be drawn: there is no picture of it")
        if not self.window:
            return picture
        self.window.show(picture)
        return None

    def close(self) -> None:
        if self.window:
            self.window.close()


class Window:
    """A window that shows one frame after another."""

    def __init__(self, title: str):
        import matplotlib.pyplot as plt
        from matplotlib.backends.registry import BackendFilter, backend_registry

        still = backend_registry.list_builtin(BackendFilter.NON_INTERACTIVE)
        if plt.get_backend().lower() in still:
            raise ThespisError("--human: there is no display; leave it out to write a file")
        self.plt = plt
        self.figure = plt.figure(title)
        self.picture = None

    def show(self, frame: np.ndarray) -> None:
        if self.picture is None:
            axes = self.figure.add_axes((0, 0, 1, 1))
            axes.axis("off")
            self.picture = axes.imshow(frame)
        self.picture.set_data(frame)
        self.plt.pause(1 / FPS)

    def close(self) -> None:
        self.plt.close(self.figure)
