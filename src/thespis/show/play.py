"""Watching a policy: frames of whole episodes, to a video file or into a window."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis import envs
from thespis.core import Step, ThespisError
from thespis.envs import Autoreset
from thespis.evaluate import LIMIT
from thespis.show import draw, video

FPS = 30


def play(run, policy, path=None, episodes: int = 1, seed: int = 0, human: bool = False):
    """Play whole episodes -> the video's path (None for a window) and their returns."""
    if episodes < 1:
        raise ThespisError(f"episodes = {episodes}: give at least 1")
    env = run.parts[1]
    stage = (DeviceStage if isinstance(env, Autoreset) else HostStage)(env, seed, human)
    label = f"{run.config.algo}  {envs.label(env)}"
    frames, returns, total, length = [], [], 0.0, 0
    try:
        step = stage.reset()
        policy.reset(seed)
        while len(returns) < episodes:
            total, length = total + float(step.reward[0]), length + 1
            frame = stage.frame(step)
            if not human:
                frames.append(video.caption(frame, f"{label}  return {total:,.1f}"))
            over = bool(step.final[0]) or length > (env.limit or LIMIT)
            step = stage.step(policy.respond(step.obs))
            if over:
                returns, total, length = [*returns, total], 0.0, 0
                policy.reset(seed + len(returns))
    finally:
        stage.close()
    if human:
        return None, returns
    name = f"{envs.label(env)}_seed{seed}{video.default_suffix()}"
    file = Path(path) if path else run.path / "videos" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    return video.write(frames, file, FPS), returns


class HostStage:
    """One Gymnasium environment, drawn by us if we know it, else by itself."""

    def __init__(self, env, seed: int, human: bool):
        self.name, self.human = env.name, human
        mode = "human" if human else None if env.name in draw.TASKS else "rgb_array"
        self.envs = env.open(1, seed, mode)
        self.reset, self.step, self.close = self.envs.reset, self.envs.step, self.envs.close

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
        self.env, self.seed, self.time = env, seed, 0
        self.name = getattr(env.task, "name", type(env.task).__name__)
        self.advance = jax.jit(env.step)
        self.trail: list[np.ndarray] = []
        self.window = Window(self.name) if human else None

    def reset(self) -> Step:
        self.state, step = self.env.reset(random.key(self.seed), 1)
        return step

    def step(self, action: np.ndarray) -> Step:
        self.time += 1
        key = random.fold_in(random.key(self.seed), self.time)
        self.state, step = self.advance(self.state, jnp.asarray(action), key)
        return step

    def frame(self, step: Step) -> np.ndarray | None:
        self.trail.append(np.asarray(step.obs)[0])
        goal = getattr(self.env.task, "goal", (0.0, 0.0))
        picture = draw.frame(self.name, self.trail[-1], trail=self.trail[:-1], goal=goal)
        if step.final[0]:
            self.trail = []
        if picture is None:
            raise ThespisError(f"{self.name} cannot be drawn: there is no picture of it")
        if self.window:
            self.window.show(picture)
        return picture

    def close(self) -> None:
        pass


class Window:
    """A window that shows one frame after another."""

    def __init__(self, title: str):
        import matplotlib.pyplot as plt
        from matplotlib.backends import BackendFilter, backend_registry

        if plt.get_backend().lower() in backend_registry.list_builtin(
            BackendFilter.NON_INTERACTIVE
        ):
            raise ThespisError(
                "there is no display for a window: leave --human out to write a file"
            )
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
