"""A session with host environments goes on with new episodes and with all that was learned."""

import shutil

import numpy as np
import pytest

import thespis
from tests.runs.test_trainer import stopped
from tests.small import Toy, arguments, arrays, differences, stop_at
from thespis.runs import checkpoint

pytestmark = pytest.mark.usefixtures("kept", "undrawn")
HOST = {"env": Toy, "envs": 2, "buffer_size": 1000}


def test_host_environments_begin_new_episodes_after_a_stop(tmp_path, monkeypatch):
    """The learner goes on; no transition joins the two sides of the stop."""
    run = stopped(monkeypatch, tmp_path, 150, **HOST)
    at = run.status["step"] // 2
    before = arrays(run.path)
    thespis.resume(run.path, env=Toy, progress=False)
    after = arrays(run.path)
    episode, moment = (after["replay.rows.obs"][:, 0, :, i] for i in (0, 1))
    final = after["replay.rows.terminated"] | after["replay.rows.truncated"]
    assert after["replay.size"] == 200
    assert np.array_equal(before["replay.rows.obs"], after["replay.rows.obs"][:at])
    assert final[at - 1].all()  # where it stopped
    assert (moment[at] == 0).all()
    for row in range(199):
        going = ~final[row, 0]
        assert (episode[row + 1][going] == episode[row][going]).all()
        assert (moment[row + 1][going] == moment[row][going] + 1).all()
        assert (moment[row + 1][~going] == 0).all()


def test_host_environments_learn_as_if_never_stopped(tmp_path, monkeypatch):
    """The checkpoint itself holds everything that the learner had."""
    host = arguments(**HOST, out=tmp_path, checkpoint_freq=150)
    run = thespis.train("sac", **host)
    stop_at(monkeypatch, 300)
    other = thespis.train("sac", **host)
    assert other.status == {"state": "stopped", "step": 300}
    early = checkpoint.latest(run.path / "checkpoints")[-1]
    assert early.name == "000000000300"
    shutil.rmtree(checkpoint.latest(run.path / "checkpoints")[0])
    assert differences(run.path, other.path) == []
