"""A snapshot is saved if it is healthy, and loaded without a second copy of the replay."""

import tracemalloc

import gymnasium
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import thespis
from tests.small import Toy, arguments
from thespis.errors import ThespisError
from thespis.runs import snapshot, trainer

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


class Wide(Toy):
    """Observations of four parts that make a replay of 16 MB of 200 rows."""

    def __init__(self):
        super().__init__()
        part = gymnasium.spaces.Box(-np.inf, np.inf, (5000,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(dict.fromkeys("abcd", part))

    def seen(self):
        return {name: np.full(5000, self.time, np.float32) for name in "abcd"}


def test_a_replay_is_loaded_with_no_second_copy_of_all(tmp_path, monkeypatch):
    """Leaf by leaf: read into the ring, handed to the device, forgotten."""
    small = {"steps": 200, "buffer_size": 300, "hidden": (2,), "batch_size": 2}
    rare = {"updates_per_step": 0, "eval_freq": 200, "eval_episodes": 1, "checkpoint_freq": 200}
    run = thespis.train("sac", out=tmp_path, **arguments(env=Wide, **small, **rare))
    load, found = trainer.Trainer.load, {}

    def measured(self, *given):
        tracemalloc.start()  # of NumPy and not of JAX
        try:
            past = load(self, *given)
            found["peak"] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        found["replay"] = jax.device_get(self.learner.replay)
        return past

    monkeypatch.setattr(trainer.Trainer, "load", measured)
    thespis.resume(run.path, steps=210, env=Wide, progress=False)
    replay = found["replay"]
    assert (replay.size, replay.capacity, replay.head) == (200, 210, 200)
    saved = load_file(run.path / "checkpoints" / "000000000200" / "replay.safetensors")
    for name, x in replay.rows.obs.items():
        np.testing.assert_array_equal(x[:200], saved[f"rows.obs.{name}"])
    # Never all of the four leaves twice: on a busy machine one or two wait for the device, and
    # what Python itself takes meanwhile is some 2 MB.
    assert found["peak"] < 1.5 * sum(x.nbytes for x in saved.values()) + 2e6


def test_what_is_not_finite_is_named_and_not_saved():
    state = {"actor": {"w": np.ones(3)}, "critic": np.array([1.0, np.inf])}
    with pytest.raises(ThespisError, match="sac, step 7: critic is not finite, so it is not saved"):
        snapshot.refuse_not_finite(state, "sac, step 7")
    snapshot.refuse_not_finite(state["actor"], "sac, step 7")


def test_a_checkpoint_of_another_environment_is_refused(tmp_path):
    manifest = {"step": 100, "info": {"env": "jax-pendulum"}}
    snapshot.check_same(tmp_path, tmp_path / "100", manifest, "jax-pendulum")
    with pytest.raises(ThespisError, match="was saved on env = jax-pendulum, not Toy"):
        snapshot.check_same(tmp_path, tmp_path / "100", manifest, "Toy")


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": "many"},
        {"elapsed": float("nan")},
        {"elapsed": None},
        {"env": ["jax-pendulum"]},
        {"lineage": "long"},
        {"programs": []},
        {"programs": {"epoch": "slow"}},
        {"programs": {"epoch": 10**400}},
    ],
)
def test_what_a_checkpoint_says_of_itself_is_checked(wrong):
    info = {"rows": 100, "elapsed": 1.5, "env": "jax-pendulum"}
    assert snapshot.is_info(info)
    assert snapshot.is_info(info | {"lineage": 4, "programs": {"epoch": 2.5}})
    assert not snapshot.is_info(info | wrong)
