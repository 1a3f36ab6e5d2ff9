"""A slice of environments behaves as one environment of many rows."""

import pickle

import numpy as np
import pytest

from tests.envs.varied import Varied
from thespis.envs import env_slice
from thespis.envs.env_slice import EnvSlice, Kind
from thespis.envs.stepping import array

READ = array((3,), np.float32)


class Place(Varied):
    """Observes the place alone."""

    def seen(self, action):
        return np.float32(super().seen(action)["place"])


def make():
    return Place()


def broken():
    raise RuntimeError("no licence")


@pytest.fixture
def slice_of(monkeypatch):
    monkeypatch.setattr(env_slice, "follow_parent", lambda: None)
    monkeypatch.setattr(env_slice.signal, "signal", lambda *given: None)

    def of(make, seeds, size):
        kind = Kind(
            "Place", pickle.dumps((make, READ)), {"": ((3,), "f4")}, ((2,), "f4"), None, False
        )
        return EnvSlice(kind, seeds, size)

    return of


def act(envs, over):
    actions = {"over": np.array(over, np.uint8), "action": np.zeros((len(over), 2), np.float32)}
    obs, _, _, _, info = envs.step(actions)
    return obs, info


def test_rows_that_have_no_environment_stay_as_they_are(slice_of):
    envs = slice_of(make, [3, 4], 3)
    obs, info = act(envs, [1, 1, 1])
    assert info == {}
    obs, _ = act(envs, [0, 1, 0])
    assert obs["obs."][:2, 0] == pytest.approx([1 / 3, 0])
    assert not obs["obs."][2].any()


def test_what_cannot_be_made_is_told_in_the_info(slice_of):
    _, info = act(slice_of(broken, [3], 1), [1])
    assert (info["failed"], info["what"]) == (0, "RuntimeError: no licence")


def test_an_attribute_is_set_in_all_or_refused_in_one_line(slice_of):
    envs = slice_of(make, [3, 4], 2)
    assert envs.put("speed", 5.0) == ""
    assert [env.speed for env in envs.envs] == [5.0, 5.0]
    assert "Place has no attribute 'colour'" in envs.put("colour", 1)
