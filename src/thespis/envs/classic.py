"""Small classic tasks as pure JAX functions, equal to Gymnasium's where it has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array

from thespis.core import Box, Discrete, Key


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
class PointMass:
    """Steer a point in the plane to a goal: the reward is minus the distance that remains.

    State and observation [2]: position, started within 0.05 of the origin. Action [2]: a
    velocity within the unit disc, of which a step covers 0.02; so an episode reaches 2 far.
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
    """Catch a falling ball with a paddle that moves left, stays or moves right.

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


TASKS = {task.name: task for task in (Pendulum, MountainCar, CartPole, PointMass, Catch)}
