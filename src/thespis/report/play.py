"""Plays whole episodes of a policy, in a video file or a window."""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis import envs
from thespis.core import Repeating, Step, longest, scalar_reward
from thespis.engine import rollout
from thespis.engine.rollout import Copies
from thespis.envs import Autoreset
from thespis.envs.autoreset import FPS
from thespis.envs.gymnasium import Gymnasium
from thespis.errors import ThespisError, one_line
from thespis.report import draw, video
from thespis.report.table import decimal
from thespis.runs.files import output


def play(
    run: Any,
    member: int | str = "best",
    which: str = "last",
    path: Path | str | None = None,
    episodes: int = 1,
    seed: int = 0,
    human: bool = False,
    skill: Any = None,
) -> tuple[Path | None, list[Any]]:
    """Plays whole episodes of a run's policy; returns the video (None for a window) and returns.

    With "all", members play side by side in one video, and there is a list of returns for each.
    """
    if episodes < 1:
        raise ThespisError(f"episodes = {episodes}: give at least 1")
    if not 0 <= seed < 2**31:
        raise ThespisError(f"seed = {seed}: give a number from 0 to {2**31 - 1}")
    offscreen()
    several = member == "all" and run.config.members > 1
    env, members = run.parts[1], run.chosen(0 if member == "all" and not several else member)
    if human and several:
        raise ThespisError("--human shows one member: give --member N or best")
    player = "_all" if several else f"_member{members[0]}"
    player = player if run.config.members > 1 else ""
    name = f"{envs.label(env)}{player}_seed{seed}{video.default_suffix()}"
    file = output(run.path, path, "videos", name)
    if not human:
        video.check(file)
    limit, videos, returns, fps = longest(env), [], [], FPS
    for number in members:
        policy = run.policy(number, which, skill=skill)
        stage = (DeviceStage if isinstance(env, Autoreset) else HostStage)(env, seed, human)
        try:
            label = f"member {number}" if several else f"{run.config.algo}  {envs.label(env)}"
            played = [episode(stage, policy, seed + i, limit, label) for i in range(episodes)]
        finally:
            stage.close()
        videos.append([frames for frames, _ in played])
        returns.append([total for _, total in played])
        fps = stage.fps
    if human:
        return None, returns[0]
    if not several:
        return video.write([x for frames in videos[0] for x in frames], file, fps), returns[0]
    together = [x for one in zip(*videos, strict=True) for x in video.side_by_side(one)]
    return video.write(together, file, fps), returns


def episode(stage, policy, seed: int, limit: int, label: str) -> tuple[list[np.ndarray], float]:
    """Plays one episode; returns its frames (none if a window shows them) and its return.

    If a policy may repeat its actions, frames with a new action are marked.
    """
    policy.reset(seed)
    frames, total, new_action = [], 0.0, []
    act = lambda obs, time: policy.act(obs)
    for step, _, action in rollout.episode(stage.reset(seed), stage.step, act, limit):
        total += float(scalar_reward(policy.algo, np.asarray(step.reward), step.obs)[0])
        if isinstance(policy.memory, Repeating) and action is not None:
            new_action.append(bool(policy.memory.repeats[0] == 1))
        frame = stage.frame(step)
        if frame is not None:
            frame = video.caption(frame, f"{label}  return {decimal(total)}")
            frames.append(video.beats(frame, new_action) if new_action else frame)
    return frames, total


def offscreen() -> None:
    """Makes MuJoCo render without a display, with the library that is installed."""
    if os.environ.get("MUJOCO_GL") or os.environ.get("DISPLAY") or sys.platform != "linux":
        return
    installed = [name for name in ("EGL", "OSMesa") if ctypes.util.find_library(name)]
    if installed:
        os.environ["MUJOCO_GL"] = installed[0].lower()


class HostStage:
    """One Gymnasium environment, drawn by draw.py if that knows it, else by its own renderer."""

    def __init__(self, env: Any, seed: int, human: bool):
        self.name, self.human = env.name, human
        mode = "human" if human else None if env.name in draw.TASKS else "rgb_array"
        env = env.in_workers(None) if isinstance(env, Gymnasium) else env
        self.copies = Copies(env, 1, mode)
        with explained(self.name):
            self.copies.open(seed)
        self.envs, self.step, self.close = self.copies.host, self.copies.step, self.copies.close
        # The task sets the speed, up to 50 frames per second.
        self.fps = min(int(self.envs.envs[0].metadata.get("render_fps") or FPS), 50)

    def reset(self, seed: int) -> Step:
        return self.copies.reset()  # it was seeded when it was opened

    def frame(self, step: Step) -> np.ndarray | None:
        if self.human:
            return None  # the environment shows itself
        if self.name in draw.TASKS:
            return draw.frame(self.name, step.obs[0])
        with explained(self.name):
            picture = self.envs.render()[0]
        if not isinstance(picture, np.ndarray):
            raise ThespisError(f"{self.name} cannot be rendered: it has no render_mode 'rgb_array'")
        return picture


class DeviceStage:
    """One JAX environment, drawn by its own method `picture(state)` if it has one, else draw.py."""

    def __init__(self, env: Autoreset, seed: int, human: bool):
        self.env, self.name, self.fps = env, env.name, env.fps
        self.copies = Copies(env, 1)
        self.step = self.copies.step
        self.window = Window(self.name) if human else None

    def reset(self, seed: int) -> Step:
        self.trail: list[np.ndarray] = []
        self.copies.open(seed)
        return self.copies.reset()

    def frame(self, step: Step) -> np.ndarray | None:
        picture = self.picture(step)
        if picture is None:
            raise ThespisError(
                f"{self.name} cannot be rendered: its task has no method picture(state)"
            )
        if not self.window:
            return picture
        self.window.show(picture)
        return None

    def picture(self, step: Step) -> np.ndarray | None:
        if self.env.picture is not None:
            with explained(self.name):
                state = jax.tree.map(lambda x: x[0], self.copies.world.task)
                return np.asarray(self.env.picture(state))
        self.trail.append(jax.tree.map(lambda x: np.asarray(x)[0], step.obs))
        return draw.frame(self.name, self.trail[-1], trail=self.trail[:-1], goal=self.env.goal)

    def close(self) -> None:
        if self.window:
            self.window.close()


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turns errors of rendering into one line, with advice if a graphics library failed."""
    try:
        yield
    except Exception as error:
        ours = isinstance(error, ThespisError)
        text = str(error) if ours else f"{name} cannot be rendered: {one_line(error)}"
        signs = ("opengl", "glfw", "egl", "osmesa", "mujoco_gl", "gl context", "display")
        if any(sign in str(error).lower() for sign in signs):
            text += (
                "; MuJoCo renders with EGL (Debian: libegl1 libegl-mesa0 libgl1, MUJOCO_GL=egl) or "
                "OSMesa (libosmesa6, MUJOCO_GL=osmesa): set MUJOCO_GL before Python starts"
            )
        raise ThespisError(text) from error


class Window:
    """A window that shows one frame after another."""

    def __init__(self, title: str):
        import matplotlib.pyplot as plt
        from matplotlib.backends.registry import BackendFilter, backend_registry

        windowless = backend_registry.list_builtin(BackendFilter.NON_INTERACTIVE)
        if plt.get_backend().lower() in windowless:
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
