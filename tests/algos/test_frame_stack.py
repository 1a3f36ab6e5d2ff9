"""Stacks of observations: drawn from the ring, and made while acting, as if by hand."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jax import random

import thespis
from tests.small import arguments
from thespis import core
from thespis.algos import MASAC, SAC, SQIL, TAAC, TD3
from thespis.algos.frame_stack import FrameStack
from thespis.core import MASK, Prioritised, Row, ThespisError, capability
from thespis.engine.loop import DeviceDriver, Loop
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import Pendulum
from thespis.envs.teams import Meeting
from thespis.replay.priorities import Rule
from thespis.replay.ring import Index, Replay
from thespis.tuning import hyper

CAPACITY, ENVS, MOST, FRAMES = 7, 2, 18, 3


def name(time, env):
    return 10 * time + env


@partial(jax.jit, static_argnums=0)
def fill(rule, finals, count) -> Replay:
    """After `count` rows [envs] whose observations tell when and where they were."""

    def row(time):
        x = (10 * time + jnp.arange(ENVS))[None]
        obs = {
            "pixels": (x[..., None] % 251).astype(jnp.uint8),
            MASK: x[..., None] % 2 == 0,
            "n": x,
        }
        number = x.astype(jnp.float32)
        return Row(obs, number, finals[time][None], jnp.zeros((1, ENVS), bool), number)

    put = lambda time, replay: replay.add(row(time), alpha=jnp.ones(1))
    return jax.lax.fori_loop(0, count, put, Replay.empty(CAPACITY, row(0), rule))


def by_hand(finals, time, env):
    """The stack of a row, by walking back until its episode begins."""
    stack = [time]
    while len(stack) < FRAMES:
        before = stack[0] - 1
        stack.insert(0, stack[0] if before < 0 or finals[before, env] else before)
    return [name(t, env) for t in stack]


lives = {
    "finals": arrays(bool, (MOST, ENVS), elements=st.sampled_from([False, False, True])),
    "count": st.integers(FRAMES + 2, MOST),
    "seed": st.integers(0, 99),
}
draw = jax.jit(
    lambda replay, seed: (
        replay.view(jnp.int32(0), jnp.float32(1))
        .stacked(FRAMES)
        .transitions(random.key(seed), 32, 0.9, 2)
    )
)


@pytest.mark.parametrize("rule", [None, Rule(2, behind=FRAMES - 1)], ids=["uniform", "prioritised"])
@settings(max_examples=25, deadline=None)
@given(**lives)
def test_drawn_stacks_are_those_made_by_hand(rule, finals, count, seed):
    """Across the ends of episodes and the ring's wrap; no row whose history is lost is drawn."""
    replay = fill(rule, finals, count)
    batch = draw(replay, seed)
    now, then = np.asarray(batch.obs["n"]), np.asarray(batch.next_obs["n"])
    assert now.shape == (32, FRAMES)
    assert batch.obs["pixels"].shape == (32, FRAMES, 1)
    assert batch.obs["pixels"].dtype == jnp.uint8
    for i in np.flatnonzero(np.asarray(batch.valid)):
        for stack in (now[i], then[i]):
            assert stack.tolist() == by_hand(finals, stack[-1] // 10, stack[-1] % 10)
        assert then[i, -1] == now[i, -1] + 10 * int(batch.steps[i])
        np.testing.assert_array_equal(batch.obs["pixels"][i, :, 0], now[i] % 251)
        assert batch.obs[MASK][i].tolist() == [now[i, -1] % 2 == 0]  # of the newest alone
    if count > CAPACITY:
        assert (now[:, -1] // 10 >= count - CAPACITY + FRAMES - 1)[
            np.asarray(batch.valid) > 0
        ].all()


def test_windows_hold_stacks_too():
    finals = np.zeros((MOST, ENVS), bool)
    finals[4] = True
    view = fill(None, finals, 7).view(jnp.int32(0)).stacked(FRAMES)
    found = view.at(Index(jnp.array([3, 4]), jnp.array([1, 0])).window(0, 3))
    assert found.obs["n"].shape == (3, 2, FRAMES)
    for t, b in np.ndindex(3, 2):
        env, time = (1, 3 + t) if b == 0 else (0, 4 + t)
        assert found.obs["n"][t, b].tolist() == by_hand(finals, time, env)
    assert found.reward.shape == (3, 2)


@pytest.mark.thorough
def test_what_is_acted_on_is_what_is_learned_from():
    """The stacks of acting equal those that the replay gives for the same rows."""
    env = Autoreset(Pendulum(limit=6))
    algo = FrameStack.wrap(
        Spy, env.spec, FRAMES, hidden=(4,), batch_size=4, normalize_observations=True
    )
    loop = Loop(algo, env, 2, 40)
    seeds, hps = jnp.arange(2, dtype=jnp.int32), hyper.fill(TD3.Hyper, {}, 2)
    driver = DeviceDriver(loop, seeds)
    x = driver.run(driver.init(seeds, hps), hps, None, seeds, 20, "explore", True)
    assert x.replay.rows.obs.shape == (40, 2, 2, 3)  # each stored once
    for member in range(2):
        view = x.replay.view(jnp.int32(member)).stacked(FRAMES)
        time, env_ = np.meshgrid(np.arange(20), np.arange(2), indexing="ij")
        rows = view.at(Index(jnp.asarray(time), jnp.asarray(env_)))
        np.testing.assert_array_equal(rows.obs, rows.extra)
    assert x.state.stats.mean.shape == (2, FRAMES, 3)
    np.testing.assert_array_equal(x.state.stats.mean[:, 0], x.state.stats.mean[:, 2])


class Spy(TD3):
    """Stores what it acted on."""

    def act(self, state, hp, memory, obs, key, step, mode):
        action, memory, _ = super().act(state, hp, memory, obs, key, step, mode)
        return action, memory, obs


def test_rows_with_priorities_need_the_whole_of_their_stack():
    """What a full ring has overwritten of a stack cannot be drawn: see test_priorities.py."""
    given = {"prioritized_replay": True, "n_step": 2}
    stack = FrameStack.wrap(TD3, Autoreset(Pendulum()).spec, FRAMES, **given)
    assert capability(stack, Prioritised).rule(1) == Rule(ahead=2, behind=FRAMES - 1)


CAPABILITIES = [
    kind
    for kind in vars(core).values()
    if getattr(kind, "_is_runtime_protocol", False) and kind is not core.Wrapping
]


@dataclass(frozen=True)
class Plain:
    """What an algorithm of one's own has at least."""

    spec: Any


@pytest.mark.parametrize("Algorithm", [SAC, TD3, SQIL, TAAC, Plain])
def test_a_stack_can_do_what_its_algorithm_can_and_nothing_else(Algorithm):
    stack = FrameStack.wrap(Algorithm, Autoreset(Pendulum()).spec, FRAMES)
    able = {kind for kind in CAPABILITIES if capability(stack.algo, kind)}
    assert {kind for kind in CAPABILITIES if capability(stack, kind)} == able
    assert not [kind for kind in CAPABILITIES if isinstance(stack, kind)]  # by itself
    if Algorithm is not Plain:
        assert capability(stack, core.Hiding).privileged == ()
    assert (core.Reporting in able) == (Algorithm is TAAC)
    assert core.imitates(stack) == (Algorithm is SQIL)


def test_skills_are_refused(tmp_path):
    """They differ in coordinates of one observation: in a stack these would be its oldest."""
    given = arguments(env="jax:pointmass", frame_stack=2)
    with pytest.raises(ThespisError, match="frame_stack = 2: DADS describes single observations"):
        thespis.train("dads", out=tmp_path, **given)
    assert not list(tmp_path.iterdir())  # it never began


def test_teams_are_refused():
    """The axis of frames would be taken for that of agents."""
    with pytest.raises(ThespisError, match="frame_stack = 2 is for one agent, and there are 2"):
        FrameStack.wrap(MASAC, Autoreset(Meeting()).spec, 2)
