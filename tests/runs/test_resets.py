"""Members begin anew at steps that the algorithm names, and nothing else does."""

from dataclasses import dataclass

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests.small import arguments, arrays, differences, stop_at
from thespis.algos.sac import SAC
from thespis.engine.streams import Stream, member_keys
from thespis.runs import config as configs
from thespis.runs import metrics
from thespis.runs.build import build, hyper_parameters

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


@dataclass(frozen=True)
class Forgetful(SAC):
    """SAC whose networks are made anew now and then."""

    resets: tuple[int, ...] = ()
    """Steps at which it forgets."""

    def reset(self, state, hp, key):
        return self.init(key, hp)


class Clockwork(gymnasium.Env):
    """Episodes of ten steps that all begin alike: with their first row they take eleven."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.float32([self.time]), -float(action[0] ** 2), False, self.time == 10, {}


JAX = {"env": "jax:pendulum"}
HOST = {"env": Clockwork, "buffer_size": 500}
OFTEN = {"steps": 330, "learning_starts": 66, "eval_freq": 110, "checkpoint_freq": 110}


def given(env, **changes):
    return arguments(**OFTEN | env | changes)


def same(a, b) -> None:
    assert differences(a, b) == []
    assert metrics.differences(a / "metrics.csv", b / "metrics.csv") == []


@pytest.mark.parametrize(
    ("env", "stops"),
    [
        pytest.param(JAX, (110, 143), id="jax"),
        pytest.param(HOST, (143,), id="host", marks=pytest.mark.thorough),
        pytest.param(HOST, (110, 220), id="host, at checkpoints", marks=pytest.mark.slow),
    ],
)
def test_stop_and_continue_around_a_reset_equals_never_stopped(env, stops, tmp_path, capsys):
    """Host environments begin new episodes here, stopped or not: so they too go on bit for bit."""
    whole = thespis.train(Forgetful, **given(env, out=tmp_path, resets=(110, 143, 220)))
    said = capsys.readouterr().err
    for number, step in enumerate((110, 143, 220), 1):
        assert f"step {step}: " in said
        assert f"is reset ({number} of 3)" in said
    for step in stops:  # with a checkpoint due there (110, 220) and without one
        run = stopped(tmp_path, step, **env, resets=(110, 143, 220))
        thespis.resume(run.path, env=env["env"], progress=False)
        same(whole.path, run.path)


def test_a_run_that_ends_at_a_reset_may_become_longer(tmp_path):
    whole = thespis.train(Forgetful, **given(JAX, out=tmp_path, resets=(220,)))
    short = thespis.train(Forgetful, **given(JAX, out=tmp_path, resets=(220,), steps=220))
    thespis.resume(short.path, steps=330, progress=False)
    same(whole.path, short.path)


def test_a_reset_falls_exactly_at_its_step_and_leaves_the_replay_alone(tmp_path):
    kept, reset = (stopped(tmp_path, 133, resets=resets) for resets in [(), (132,)])
    before, after = (arrays(run.path) for run in (kept, reset))
    assert before["progress.clock.time"].tolist() == after["progress.clock.time"].tolist()
    for name in (name for name in before if name.startswith("replay.")):
        x, y = before[name], after[name]
        if name == "replay.rows.action":  # the newest is that of the new networks
            assert not np.array_equal(x[132], y[132])
            x, y = x[:132], y[:132]
        assert np.array_equal(x, y), name
    networks = [name for name in before if name.startswith("state.actor.params")]
    assert not any(np.array_equal(before[name], after[name]) for name in networks)


def stopped(out, step, **changes):
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, step)
        run = thespis.train(Forgetful, **given(JAX, out=out) | changes)
    assert run.status == {"state": "stopped", "step": step}
    return run


@pytest.mark.thorough
def test_a_member_is_reset_as_in_its_run_alone(tmp_path):
    both = thespis.train(Forgetful, **given(JAX, out=tmp_path, seeds=(3, 5), resets=(110, 220)))
    alone = thespis.train(Forgetful, **given(JAX, out=tmp_path, seeds=(5,), resets=(110, 220)))
    assert differences(both.path, alone.path, member=1) == []


def test_the_new_state_follows_from_the_seed_and_the_number_of_the_reset():
    options = given(JAX, seeds=(3, 5), devices=1)
    del options["progress"]
    config = configs.make(Forgetful, options)
    loop, _ = build(config)
    hps, seeds = hyper_parameters(config), jnp.array(config.seeds)
    state = jax.jit(loop.init)(seeds, hps).state
    reset = jax.jit(loop.reset)
    found = [reset(state, hps, seeds, number).actor for number in (0, 0, 1)]
    keys = member_keys(seeds, Stream.RESET, 0)
    found.append(jax.vmap(loop.algo.init)(keys, hps).actor)
    first, again, second, made = (
        [np.asarray(x) for x in jax.tree.leaves(actor)] for actor in found
    )
    for x, y, z in zip(first, again, made, strict=True):
        assert np.array_equal(x, y)
        assert np.allclose(x, z, atol=1e-6)
    assert not np.array_equal(first[0], second[0])
    assert not np.array_equal(first[0][0], first[0][1])  # members differ
