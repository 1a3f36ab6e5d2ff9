"""Draws the built-in tasks from their observations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from thespis.core import MASK

PAPER, FAINT, SHADE, INK = "#F7F6F3", "#E3E1DB", "#CBD5D8", "#22303C"
RED, GLOW, GREEN = "#D55E00", "#F4CFB4", "#009E73"  # moving parts, their trails, goals
OVERSAMPLE = 4  # factor by which pictures are drawn larger, then shrunk to get smooth edges

Point = tuple[float, float]


def frame(
    task_name: str,
    obs: np.ndarray | dict[str, np.ndarray],
    size: tuple[int, int] = (480, 360),
    trail: Iterable[Any] = (),
    goal: Point = (1.0, 1.0),
) -> np.ndarray | None:
    """Returns a picture of an observation, uint8 [height, width, 3]; None for unknown tasks.

    The point mass also shows its `trail` of earlier observations and its `goal`.
    """
    name = task_name.removeprefix("jax:")
    if isinstance(obs, dict):  # only one part is drawn
        obs = next(part for key, part in obs.items() if key != MASK)
    if name == "pointmass":
        return pointmass(np.asarray(obs, float), size, trail, goal)
    task = TASKS.get(name)
    return task(np.asarray(obs, float), size) if task else None


class Canvas:
    """An image that shows the world rectangle (left, bottom, right, top), y upwards.

    The rectangle is centred and never distorted; lengths and widths are world units.
    """

    def __init__(self, size: tuple[int, int], world: tuple[float, float, float, float]):
        left, bottom, right, top = world
        self.width, self.height = (OVERSAMPLE * n for n in size)
        self.unit = min(self.width / (right - left), self.height / (top - bottom))
        self.centre = (left + right) / 2, (bottom + top) / 2
        self.image = Image.new("RGB", (self.width, self.height), PAPER)
        self.pen = ImageDraw.Draw(self.image)

    def pixel(self, point: Point) -> Point:
        x, y = (p - c for p, c in zip(point, self.centre, strict=True))
        return self.width / 2 + self.unit * x, self.height / 2 - self.unit * y

    def disc(self, centre: Point, radius: float, colour: str):
        x, y = self.pixel(centre)
        r = radius * self.unit - 0.5  # the pen paints the pixel at either end
        self.pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def ring(self, centre: Point, radius: float, width: float, colour: str, inside: str = PAPER):
        self.disc(centre, radius + width / 2, colour)
        self.disc(centre, radius - width / 2, inside)

    def line(self, points: Sequence[Point], width: float, colour: str):
        """Draws a stroke with round ends and joints."""
        for (x, y), (to_x, to_y) in itertools.pairwise(points):
            length = math.hypot(to_x - x, to_y - y) or 1.0
            a, b = (to_x - x) / length * width / 2, (to_y - y) / length * width / 2
            corners = [(x - b, y + a), (x + b, y - a), (to_x + b, to_y - a), (to_x - b, to_y + a)]
            self.shape(corners, colour)
        for point in points:
            self.disc(point, width / 2, colour)

    def shape(self, points: Sequence[Point], colour: str):
        self.pen.polygon([tuple(map(round, self.pixel(p))) for p in points], fill=colour)

    def array(self) -> np.ndarray:
        return np.asarray(self.image.reduce(OVERSAMPLE))


def pendulum(obs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Draws cos, sin and speed of the angle from upright, which grows anticlockwise."""
    cos, sin, speed = obs
    angle = np.arctan2(sin, cos)
    canvas = Canvas(size, (-1.3, -1.3, 1.3, 1.3))
    on_circle = lambda a: (-np.sin(a), np.cos(a))
    canvas.ring((0, 0), 1.0, 0.015, FAINT)
    # Where the tip has just been, thinner the longer ago.
    for age in np.linspace(1, 0, 120):
        canvas.disc(on_circle(angle - 0.12 * age * speed), 0.105 - 0.1 * age, GLOW)
    canvas.ring(on_circle(0), 0.13, 0.02, GREEN)
    canvas.line([(0, 0), on_circle(angle)], 0.09, INK)
    canvas.disc(on_circle(angle), 0.105, RED)
    canvas.ring((0, 0), 0.06, 0.05, INK)
    return canvas.array()


def mountain_car(obs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Draws a position in [-1.2, 0.6]; the velocity is not shown."""
    x = obs[0]
    height = lambda x: 0.45 * np.sin(3 * x) + 0.55
    canvas = Canvas(size, (-1.2, -0.08, 0.6, 1.36))
    xs = np.linspace(-2.5, 2.0, 400)
    ridge = list(zip(xs, height(xs), strict=True))
    canvas.shape([*ridge, (2.0, -9), (-2.5, -9)], SHADE)
    canvas.line(ridge, 0.014, INK)

    goal, top = 0.45, 1.29
    canvas.line([(goal, height(goal)), (goal, top)], 0.014, INK)
    canvas.shape([(goal, top), (goal + 0.12, top - 0.05), (goal, top - 0.1)], GREEN)

    slope = np.arctan(1.35 * np.cos(3 * x))
    along = np.array([np.cos(slope), np.sin(slope)])
    up = np.array([-along[1], along[0]])
    place = lambda a, b: tuple((x, height(x)) + a * along + b * up)
    cabin = [(-0.075, 0.08), (-0.045, 0.155), (0.025, 0.155), (0.065, 0.08)]
    canvas.line([place(*p) for p in cabin], 0.02, RED)
    canvas.shape([place(*p) for p in cabin], RED)
    window = [(-0.045, 0.095), (-0.03, 0.142), (0.015, 0.142), (0.038, 0.095)]
    canvas.shape([place(*p) for p in window], PAPER)
    canvas.line([place(-0.085, 0.075), place(0.085, 0.075)], 0.06, RED)
    for wheel in (-0.06, 0.06):
        canvas.ring(place(wheel, 0.042), 0.023, 0.026, INK)
    return canvas.array()


def cartpole(obs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Draws the position of the cart, and the pole's angle (clockwise from upright)."""
    x, _, angle, _ = obs
    canvas = Canvas(size, (-2.6, -0.9, 2.6, 1.9))
    canvas.line([(-2.4, 0), (2.4, 0)], 0.035, SHADE)
    for stop in (-2.4, 2.4):
        canvas.line([(stop, -0.1), (stop, 0.1)], 0.05, SHADE)
    canvas.line([(x - 0.22, 0.02), (x + 0.22, 0.02)], 0.34, INK)
    # The pole is really one unit long; it is drawn longer to make its tilt easier to see.
    hinge, tip = (x, 0.08), (x + 1.5 * np.sin(angle), 0.08 + 1.5 * np.cos(angle))
    canvas.line([hinge, tip], 0.11, RED)
    canvas.disc(hinge, 0.03, PAPER)
    return canvas.array()


def acrobot(obs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Draws cos and sin of the first link's angle from hanging, and of the second's from it."""
    first, second = np.arctan2(obs[1], obs[0]), np.arctan2(obs[3], obs[2])
    canvas = Canvas(size, (-2.2, -2.2, 2.2, 2.2))
    along = lambda angle: np.array([np.sin(angle), -np.cos(angle)])
    joint, tip = along(first), along(first) + along(first + second)
    canvas.line([(-2.1, 1), (2.1, 1)], 0.03, GREEN)
    canvas.line([(0, 0), tuple(joint)], 0.16, INK)
    canvas.line([tuple(joint), tuple(tip)], 0.16, RED)
    for hinge in ((0, 0), tuple(joint)):
        canvas.disc(hinge, 0.05, PAPER)
    return canvas.array()


def grid(obs: np.ndarray, size: tuple[int, int], cells: int = 6) -> np.ndarray:
    """Draws row and column, within [-1, 1]; the goal is at the lower right."""
    row, column = (obs + 1) / 2 * (cells - 1)
    canvas = Canvas(size, (-0.7, -0.7, cells - 0.3, cells - 0.3))
    for i in range(cells + 1):
        low, high = -0.5, cells - 0.5
        canvas.line([(low, i - 0.5), (high, i - 0.5)], 0.03, FAINT)
        canvas.line([(i - 0.5, low), (i - 0.5, high)], 0.03, FAINT)
    canvas.ring((cells - 1, 0), 0.36, 0.06, GREEN)
    canvas.disc((float(column), float(cells - 1 - row)), 0.26, RED)
    return canvas.array()


def pointmass(
    obs: np.ndarray, size: tuple[int, int], trail: Iterable[np.ndarray], goal: Point
) -> np.ndarray:
    """Draws a place at most 2 away from the origin; rings show the distance from the goal."""
    canvas = Canvas(size, (-2.05, -2.05, 2.05, 2.05))
    for radius in np.arange(4.0, 0, -0.5):
        canvas.ring(goal, radius, 0.015, FAINT)
    canvas.ring(goal, 0.15, 0.03, GREEN)
    places = [(float(x), float(y)) for x, y in [*trail, obs]]
    if len(places) > 1:
        canvas.line(places, 0.05, GLOW)
    canvas.disc(places[-1], 0.1, RED)
    return canvas.array()


def catch(obs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Draws an image [10, 10, 1] of the ball and, in its last row, of the paddle."""
    canvas = Canvas(size, (-0.8, -0.8, 9.8, 9.8))
    canvas.line([(-0.7, -0.7), (9.7, -0.7)], 0.1, SHADE)
    lit = [(float(x), 9.0 - y) for y, x, _ in np.argwhere(obs)]
    for x, _ in [p for p in lit if p[1] == 0]:
        canvas.line([(x - 0.35, -0.3), (x + 0.35, -0.3)], 0.3, INK)
    for place in lit[:1]:  # the ball is the upper one; when caught, it is where the paddle is
        canvas.disc(place, 0.4, RED)
    return canvas.array()


def meeting(obs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Draws [agents, 3]: the stage (-1 home, 0 deciding, 1 in town, 2 over), and all places."""
    stage, colours = obs[0, 0], (INK, RED, SHADE)
    canvas = Canvas(size, (-1.5, -1.3, 1.5, 1.3))
    canvas.ring((0, 0), 1.0, 0.03, SHADE if stage >= 1 else FAINT)
    canvas.shape([(-0.22, -0.12), (0.22, -0.12), (0.22, 0.12), (-0.22, 0.12)], FAINT)
    canvas.shape([(-0.3, 0.12), (0.3, 0.12), (0, 0.34)], GREEN if stage < 0 else FAINT)
    if stage > 1 and np.ptp(obs[:, 1:], 0).max() < 0.2:  # they have met
        canvas.disc((float(obs[0, 1]), float(obs[0, 2])), 0.24, GREEN)
    for i, (_, x, y) in enumerate(obs):
        if stage < 2:  # side by side: at home, or on their way into town
            x, y = 0.2 * (i - (len(obs) - 1) / 2), 0.0 if stage < 1 else -0.55
        # Later agents are smaller, so that all agents at the same place are visible.
        canvas.disc((float(x), float(y)), 0.16 * (1 - 0.6 * i / len(obs)), colours[i % 3])
    return canvas.array()


TASKS = {
    "meeting": meeting,
    "meeting-continuous": meeting,
    "pendulum": pendulum,
    "mountain-car": mountain_car,
    "cartpole": cartpole,
    "acrobot": acrobot,
    "grid": grid,
    "catch": catch,
    # Gymnasium's versions of the same tasks have the same observations.
    "Pendulum-v1": pendulum,
    "MountainCarContinuous-v0": mountain_car,
    "CartPole-v1": cartpole,
    "Acrobot-v1": acrobot,
}
