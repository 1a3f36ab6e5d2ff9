"""Tests of the decisions on disk: what was written is read, and the one before if it is damaged."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.cluster import journal
from thespis.cluster.journal import Entry
from thespis.errors import ThespisError
from thespis.runs.config import make
from thespis.runs.tuning_rounds import Rounds
from thespis.tuning import hyper


@pytest.fixture(params=["tuned", "seeds"])
def entry(request):
    """Returns a function that makes the entry of a step."""
    given = {"env": "jax:pendulum", "members": 4, "steps": 1000, "devices": 1}
    config = make("sac", given | ({"pbt": True} if request.param == "tuned" else {}))
    hps = hyper.fill(config.Algorithm.Hyper, {"gamma": [0.1, 0.2, 0.3, 0.4]}, 4)

    def made(step: int) -> Entry:
        if config.tuner is None:
            return Entry(step, hps, None, None, b"", 1.5)
        born, scores = jnp.full(4, step, jnp.int32), jnp.ones((4, 10))
        rounds = Rounds({"count": jnp.int32(step)}, born, scores)
        return Entry(step, hps, np.int32([0, 0, 2, 1]), rounds, b"step,member\n5,0\n", 1.5)

    return config, made


def test_the_newest_entry_is_read_and_two_are_kept(entry, tmp_path):
    config, made = entry
    assert journal.newest(tmp_path, config, made(0).rounds, print) is None
    for step in (0, 100, 200):
        journal.write(tmp_path, made(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{n:012d}" for n in (100, 200)]
    found, wanted = journal.newest(tmp_path, config, made(0).rounds, print), made(200)
    assert found is not None
    assert (found.step, found.lineage, found.elapsed) == (200, wanted.lineage, 1.5)
    assert np.asarray(found.hps.gamma).tolist() == np.asarray(wanted.hps.gamma).tolist()
    if wanted.parents is None:
        assert found.parents is None
        return
    assert found.parents.tolist() == [0, 0, 2, 1]
    assert found.rounds.born.tolist() == [200] * 4
    assert int(found.rounds.memory["count"]) == 200


def test_entries_are_kept_that_a_late_group_still_has_to_follow(entry, tmp_path):
    config, made = entry
    steps = lambda: sorted(int(path.name) for path in tmp_path.iterdir())
    for step in (0, 100, 200, 300):
        journal.write(tmp_path, made(step)._replace(deadline=2.0), oldest=100)
    assert steps() == [100, 200, 300]
    found = journal.earlier(tmp_path, config, made(0).rounds, 300)
    assert sorted(x.step for x in found) == [100, 200]
    assert {x.deadline for x in found} == {2.0}
    journal.write(tmp_path, made(400), oldest=400)
    assert steps() == [300, 400]


def test_a_damaged_entry_makes_way_for_the_one_before(entry, tmp_path):
    config, made = entry
    for step in (100, 200):
        journal.write(tmp_path, made(step))
    (tmp_path / f"{200:012d}" / "hyper.safetensors").write_bytes(b"nothing")
    notes = []
    found = journal.newest(tmp_path, config, made(0).rounds, notes.append)
    assert found is not None
    assert found.step == 100
    assert "is damaged" in notes[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"parents": np.int32([0, 0, 9, 1])},
        {"elapsed": "long"},
        {"elapsed": math.nan},
        {"deadline": "long"},
        {"deadline": -1.0},
    ],
)
def test_an_entry_of_somebody_else_is_checked(entry, tmp_path, wrong):
    config, made = entry
    if config.tuner is None and "parents" in wrong:
        return
    journal.write(tmp_path, made(100)._replace(**wrong))
    with pytest.raises(ThespisError, match="is damaged: it is not what was decided"):
        journal.newest(tmp_path, config, made(0).rounds, print)
