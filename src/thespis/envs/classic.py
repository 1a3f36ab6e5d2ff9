"""Small classic tasks as pure JAX functions, equal to Gymnasium's if it has the same task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array

from thespis.core import MASK, Box, Discrete, Key


def vector(size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size,), jnp.float32)


@dataclass(frozen=True)
class Pendulum:
    """Swing a pendulum up and hold it with little torque. Equal to Gymnasium's Pendulum-v1.

    State [2]: angle from upright, angular velocity. Observation [3]: cosine and sine of the
    angle, velocity. Action [1]: torque. Never terminates.
    """

    limit: int = 200

    name: ClassVar[str] = "jax:pendulum"
    obs: ClassVar[jax.ShapeDtypeStruct] = vector(3)
    action: ClassVar[Box] = Box(low=(-2.0,), high=(2.0,), shape=(1,))

    def start(self, key: Key) -> Array:
        high = jnp.array([jnp.pi, 1.0], jnp.float32)
        return high * random.uniform(key, (2,), jnp.float32, -1.0, 1.0)

    def observe(self, state: Array) -> Array:
        angle, velocity = state
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), velocity])

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        angle, velocity = state
        torque = jnp.clip(action[0], -2.0, 2.0)
        from_upright = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        reward = -(from_upright**2 + 0.1 * velocity**2 + 0.001 * torque**2)
        velocity = jnp.clip(velocity + (15.0 * jnp.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        angle = angle + velocity * 0.05
        return jnp.stack([angle, velocity]), reward, jnp.array(False)


@dataclass(frozen=True)
class MountainCar:
    """Drive out of a valley by rocking. Equal to Gymnasium's MountainCarContinuous-v0.

    State and observation [2]: position, velocity. Action [1]: force. Terminates at the flag,
    with reward 100; every step costs 0.1 action².
    """

    limit: int = 999

    name: ClassVar[str] = "jax:mountain-car"
    obs: ClassVar[jax.ShapeDtypeStruct] = vector(2)
    action: ClassVar[Box] = Box(low=(-1.0,), high=(1.0,), shape=(1,))

    def start(self, key: Key) -> Array:
        position = random.uniform(key, (), jnp.float32, -0.6, -0.4)
        return jnp.stack([position, jnp.zeros_like(position)])

    def observe(self, state: Array) -> Array:
        return state

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        position, velocity = state
        force = jnp.clip(action[0], -1.0, 1.0)
        velocity = velocity + 0.0015 * force - 0.0025 * jnp.cos(3 * position)
        velocity = jnp.clip(velocity, -0.07, 0.07)
        position = jnp.clip(position + velocity, -1.2, 0.6)
        velocity = jnp.where((position <= -1.2) & (velocity < 0), 0.0, velocity)
        terminated = (position >= 0.45) & (velocity >= 0)
        reward = jnp.where(terminated, 100.0, 0.0) - 0.1 * action[0] ** 2
        return jnp.stack([position, velocity]), reward, terminated


@dataclass(frozen=True)
class CartPole:
    """Keep a pole upright by pushing its cart left or right. Equal to Gymnasium's CartPole-v1.

    State and observation [4]: position and velocity of the cart, angle of the pole and its
    velocity. Reward 1 per step; terminates when the pole leans 12° or the cart leaves the track.
    """

    limit: int = 500

    name: ClassVar[str] = "jax:cartpole"
    obs: ClassVar[jax.ShapeDtypeStruct] = vector(4)
    action: ClassVar[Discrete] = Discrete(2)

    def start(self, key: Key) -> Array:
        return random.uniform(key, (4,), jnp.float32, -0.05, 0.05)

    def observe(self, state: Array) -> Array:
        return state

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        gravity, pole_mass, total_mass, half_length, interval = 9.8, 0.1, 1.1, 0.5, 0.02
        x, x_speed, angle, angle_speed = state
        force = jnp.where(action == 1, 10.0, -10.0)
        sin, cos = jnp.sin(angle), jnp.cos(angle)
        pole = pole_mass * half_length
        push = (force + pole * angle_speed**2 * sin) / total_mass
        angle_gain = (gravity * sin - cos * push) / (
            half_length * (4 / 3 - pole_mass * cos**2 / total_mass)
        )
        x_gain = push - pole * angle_gain * cos / total_mass
        rates = jnp.stack([x_speed, x_gain, angle_speed, angle_gain])
        state = state + interval * rates
        terminated = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * jnp.pi / 180)
        return state, jnp.ones_like(x), terminated


@dataclass(frozen=True)
class Acrobot:
    """Swing up two hanging links by the joint between them. Equal to Gymnasium's Acrobot-v1.

    State [4]: angles of the first link from hanging and of the second from the first, and their
    velocities. Observation [6]: cosine and sine of both angles, velocities. Reward -1 per step;
    terminates, with reward 0, when the tip is as far above the pivot as one link is long.
    """

    limit: int = 500

    name: ClassVar[str] = "jax:acrobot"
    obs: ClassVar[jax.ShapeDtypeStruct] = vector(6)
    action: ClassVar[Discrete] = Discrete(3)

    def start(self, key: Key) -> Array:
        return random.uniform(key, (4,), jnp.float32, -0.1, 0.1)

    def observe(self, state: Array) -> Array:
        first, second, *speeds = state
        turns = jnp.cos(first), jnp.sin(first), jnp.cos(second), jnp.sin(second)
        return jnp.stack([*turns, *speeds])

    def rates(self, state: Array, torque: Array) -> Array:
        """Returns the time derivative of the state. Links have length, mass and inertia 1."""
        gravity, middle = 9.8, 0.5
        first, second, first_speed, second_speed = state
        sin, cos = jnp.sin(second), jnp.cos(second)
        joint = middle**2 + middle * cos + 1
        whole = 2 * middle**2 + 1 + 2 * middle * cos + 2
        second_pull = middle * gravity * jnp.sin(first + second)
        first_pull = (
            second_pull
            + (middle + 1) * gravity * jnp.sin(first)
            - middle * (second_speed**2 + 2 * second_speed * first_speed) * sin
        )
        second_gain = (
            torque + joint / whole * first_pull - middle * first_speed**2 * sin - second_pull
        ) / (middle**2 + 1 - joint**2 / whole)
        first_gain = -(joint * second_gain + first_pull) / whole
        return jnp.stack([first_speed, second_speed, first_gain, second_gain])

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        interval, torque = 0.2, action.astype(jnp.float32) - 1
        k1 = self.rates(state, torque)  # Runge-Kutta of order 4
        k2 = self.rates(state + interval / 2 * k1, torque)
        k3 = self.rates(state + interval / 2 * k2, torque)
        k4 = self.rates(state + interval * k3, torque)
        state = state + interval / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = (state[:2] + jnp.pi) % (2 * jnp.pi) - jnp.pi
        fastest = jnp.array([4 * jnp.pi, 9 * jnp.pi], jnp.float32)
        state = jnp.concatenate([angles, jnp.clip(state[2:], -fastest, fastest)])
        terminated = -jnp.cos(angles[0]) - jnp.cos(angles[0] + angles[1]) > 1
        return state, jnp.where(terminated, 0.0, -1.0), terminated


@dataclass(frozen=True)
class Grid:
    """Walk from one corner of a grid to the goal in the opposite one, which is worth 1.

    State [2]: row and column, starting in the four cells of the first corner. Observation: both,
    within [-1, 1], and a mask of the moves (up, down, left, right) that stay inside the grid.
    Every step costs 0.02, so the best mean return is 0.82, and that of never arriving is -2.
    """

    size: int = 6
    limit: int = 100

    name: ClassVar[str] = "jax:grid"
    obs: ClassVar[dict[str, jax.ShapeDtypeStruct]] = {
        "cell": vector(2),
        MASK: jax.ShapeDtypeStruct((4,), bool),
    }
    action: ClassVar[Discrete] = Discrete(4)

    def start(self, key: Key) -> Array:
        return random.randint(key, (2,), 0, 2)

    def observe(self, state: Array) -> dict[str, Array]:
        last = self.size - 1
        (row, column), cell = state, 2 * state.astype(jnp.float32) / last - 1
        return {"cell": cell, MASK: jnp.stack([row > 0, row < last, column > 0, column < last])}

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        moves = jnp.array([[-1, 0], [1, 0], [0, -1], [0, 1]], jnp.int32)
        state = jnp.clip(state + moves[action], 0, self.size - 1)
        arrived = (state == self.size - 1).all()
        return state, jnp.where(arrived, 1.0, 0.0) - 0.02, arrived


@dataclass(frozen=True)
class PointMass:
    """Steer a point in the plane to a goal: the reward is minus the remaining distance.

    State and observation [2]: position, starting within 0.05 of the origin. Action [2]: a
    velocity within the unit disc; a step moves the point by 0.02 of it, an episode by at most 2.
    """

    goal: tuple[float, float] = (1.0, 1.0)
    limit: int = 100

    name: ClassVar[str] = "jax:pointmass"
    descriptor: ClassVar[str] = "0:2"
    obs: ClassVar[jax.ShapeDtypeStruct] = vector(2)
    action: ClassVar[Box] = Box(low=(-1.0, -1.0), high=(1.0, 1.0), shape=(2,))

    def start(self, key: Key) -> Array:
        return random.uniform(key, (2,), jnp.float32, -0.05, 0.05)

    def observe(self, state: Array) -> Array:
        return state

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        state = state + 0.02 * action / jnp.maximum(1.0, jnp.linalg.norm(action))
        reward = -jnp.linalg.norm(state - jnp.array(self.goal, jnp.float32))
        return state, reward, jnp.array(False)


@dataclass(frozen=True)
class Catch:
    """Catch a falling ball with a paddle that can move left, stay or move right.

    State [3]: row and column of the ball, column of the paddle. Observation [10, 10, 1]: an image
    of both. The ball falls one row per step and lands after nine: reward 1 if caught, else -1.
    """

    limit: int = 9

    name: ClassVar[str] = "jax:catch"
    obs: ClassVar[jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct((10, 10, 1), jnp.uint8)
    action: ClassVar[Discrete] = Discrete(3)

    def start(self, key: Key) -> Array:
        return jnp.stack([jnp.int32(0), random.randint(key, (), 0, 10), jnp.int32(5)])

    def observe(self, state: Array) -> Array:
        row, column, paddle = state
        image = jnp.zeros((10, 10, 1), jnp.uint8)
        return image.at[9, paddle].set(255).at[row, column].set(255)

    def step(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        row, column, paddle = state
        row, paddle = row + 1, jnp.clip(paddle + action - 1, 0, 9)
        landed = row >= 9
        reward = jnp.where(landed, jnp.where(paddle == column, 1.0, -1.0), 0.0)
        return jnp.stack([row, column, paddle]), reward, landed


TASKS = {
    task.name: task for task in (Pendulum, MountainCar, CartPole, Acrobot, Grid, PointMass, Catch)
}
