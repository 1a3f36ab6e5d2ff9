"""Tasks as users write them, under Autoreset."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tests.envs.toys import Tally
from thespis.core import Box, HostEnv, JaxEnv
from thespis.envs.autoreset import FPS, Autoreset, TaskWrapper
from thespis.envs.classic import CartPole, Pendulum, PointMass
from thespis.envs.gymnasium import Gymnasium
from thespis.envs.probes import Constant

# JAX takes every choice between two keys for a use of both.
unchecked = jax.debug_key_reuse(False)


@dataclass(frozen=True)
class Walk:
    """A random walk: its randomness is a key in its state, and its numbers are weakly typed."""

    limit: int = 3
    obs: ClassVar = {"now": jax.ShapeDtypeStruct((), jnp.float32)}
    action: ClassVar = Box((-1.0,) * 4, (1.0,) * 4, (2, 2))

    def start(self, key):
        return {"key": key, "now": 0.0}

    def observe(self, state):
        return {"now": state["now"]}

    def step(self, state, action):
        key, k_move = random.split(state["key"])
        now = state["now"] + random.normal(k_move) + action.sum()
        return {"key": key, "now": now}, 1.0, False


@unchecked
def test_a_task_may_be_random_and_of_any_structure():
    env = Autoreset(Walk())
    state, step = env.reset(random.key(0), 2)
    advance = jax.jit(env.step)
    for i in range(9):
        state, step = advance(state, jnp.zeros((2, 4)), random.key(i + 1))
        assert step.truncated.tolist() == [i % 4 == 2] * 2
        assert len(set(step.obs["now"].tolist())) == (1 if i % 4 == 3 else 2)


@unchecked
def test_a_step_compiles_once():
    env = Autoreset(Walk())
    step = jax.jit(env.step)
    state, _ = jax.jit(env.reset, static_argnums=1)(random.key(0), 2)
    for i in range(3):
        state, _ = step(state, jnp.zeros((2, 4)), random.key(i + 1))
    assert step._cache_size() <= 1  # 0 if others pushed it out


def test_a_flat_action_takes_the_shape_of_the_task():
    rescaled = Autoreset(Walk()).rescale(jnp.arange(4.0)[None] / 4)
    np.testing.assert_allclose(rescaled, [[[0, 0.25], [0.5, 0.75]]])


def test_a_batch_that_ends_together_does_not_start_alike():
    env = Autoreset(Tally(end=1))
    advance = jax.jit(env.step)
    state, first = jax.jit(env.reset, static_argnums=1)(random.key(0), 50)
    state, _ = advance(state, jnp.zeros((50, 2)), random.key(1))
    state, again = advance(state, jnp.zeros((50, 2)), random.key(2))
    assert len(np.unique(np.concatenate([first.obs[:, 1], again.obs[:, 1]]))) == 100


def test_start_states_are_made_only_when_an_episode_ended():
    @dataclass(frozen=True)
    class Counting(Pendulum):
        def start(self, key):
            jax.debug.callback(lambda: made.append(1))
            return super().start(key)

    made = []
    env = Autoreset(Counting(limit=5))
    state, _ = env.reset(random.key(0), 1)
    step = jax.jit(env.step)
    for i in range(1, 13):
        state, _ = step(state, jnp.zeros((1, 1)), random.key(i))
    jax.effects_barrier()
    assert len(made) == 3


def test_environments_may_be_mapped_over_members():
    env = Autoreset(CartPole())
    state, step = jax.jit(jax.vmap(lambda key: env.reset(key, 3)))(random.split(random.key(0), 2))
    keys = random.split(random.key(1), 2)
    state, step = jax.jit(jax.vmap(env.step))(state, jnp.zeros((2, 3), jnp.int32), keys)
    assert step.obs.shape == (2, 3, 4)
    assert step.reward.shape == (2, 3)


def test_environments_are_told_apart_by_their_protocols():
    inside, outside = Autoreset(Pendulum()), Gymnasium("Pendulum-v1")
    assert isinstance(inside, JaxEnv)
    assert not isinstance(inside, HostEnv)
    assert isinstance(outside, HostEnv)
    assert not isinstance(outside, JaxEnv)


def test_a_task_around_another_passes_on_what_it_does_not_change():
    class Shown(PointMass):
        fps = 7

        def picture(self, state):
            return state

    plain, around = Autoreset(Shown(goal=(2.0, 3.0))), Autoreset(TaskWrapper(Shown((2.0, 3.0))))
    assert (around.name, around.fps, around.goal) == ("jax:pointmass", 7, (2.0, 3.0))
    assert around.picture(5) == 5
    assert (around.spec, around.limit) == (plain.spec, plain.limit)
    nothing = Autoreset(TaskWrapper(Constant()))
    assert (nothing.name, nothing.fps, nothing.picture) == ("Constant", FPS, None)
