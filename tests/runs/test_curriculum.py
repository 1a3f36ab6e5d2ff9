"""Environments change on the way from the step that was asked for, or that is refused."""

import gymnasium
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.runs.test_callbacks import HOST, JAX, Climber, Clockwork, train
from thespis import envs
from thespis.core import ThespisError
from thespis.runs import checkpoint, curriculum

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


def rewards_of(run):
    return load_file(checkpoint.latest(run.path / "checkpoints")[0] / "replay.safetensors")


def test_tasks_in_jax_change_from_that_step_on_and_evaluations_do_not(tmp_path, capsys):
    given = {"updates_per_step": 0, "envs": 2}
    run = train(tmp_path, JAX, Climber(slope=5.0), **given)
    assert "step 110: slope is recompiled with slope = 5.0" in capsys.readouterr().err
    rows = rewards_of(run)
    obs = rows["rows.obs"][:, 0]
    assert np.abs(obs[:55]).max() < 3 < np.abs(obs[55:]).min()
    assert rows["rows.truncated"][54].all()  # cut off as by a time limit
    plain = train(tmp_path, JAX, **given)
    name = "eval/mean_reward"
    assert run.metrics[name].tolist() == plain.metrics[name].tolist()


def test_attributes_of_gymnasium_change_from_that_step_on(tmp_path):
    wrapped = lambda: gymnasium.wrappers.TimeLimit(Clockwork(), 10)
    run = train(tmp_path, {"env": wrapped}, Climber(level=100.0), updates_per_step=0)
    reward = rewards_of(run)["rows.reward"][:, 0, 0]
    assert reward[:110].min() >= -2
    assert reward[110:].min() < -10


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (JAX, {"slop": 1.0}, "Slope has no field 'slop'; did you mean slope"),
        (JAX, {"slope": object()}, "give numbers, text or lists of them"),
        (JAX, {"slope": [1.0, 2.0]}, "."),
        (HOST, {"lev": 1.0}, "Clockwork has no attribute 'lev': give Clockwork one"),
    ],
)
def test_what_an_environment_does_not_have_is_refused(kind, given, message, tmp_path):
    with pytest.raises(ThespisError, match=rf"callback Climber, step 110: on_step .*{message}"):
        train(tmp_path, kind, Climber(**given), updates_per_step=0)


def test_a_value_that_a_task_cannot_use_is_told():
    env = envs.make("jax:pendulum")
    assert curriculum.adjusted(env, 2, {"limit": 5}).limit == 5
    for wrong in ("text", {"a": 1}, None):
        with pytest.raises(ThespisError, match="set_env"):
            curriculum.adjusted(env, 2, {"limit": wrong})
