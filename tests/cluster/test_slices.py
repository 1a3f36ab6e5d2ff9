"""Tests of groups: who belongs to which, what each is told, and when they meet."""

import pytest

from thespis.cluster import slices
from thespis.errors import ThespisError
from thespis.runs.config import make
from thespis.runs.timetable import Timetable


def config(**changes):
    given = {"env": "jax:pendulum", "members": 5, "pbt": True, "steps": 1000, "devices": 1}
    given |= {"eval_freq": 50, "pbt.interval": 200, "learning_starts": 100}
    return make("sac", given | changes)


@pytest.mark.parametrize("members", range(1, 12))
@pytest.mark.parametrize("size", range(1, 13))
def test_everybody_is_in_one_group_and_none_is_too_large(members, size):
    groups = slices.split(members, size)
    assert [m for group in groups for m in group] == list(range(members))
    sizes = [len(group) for group in groups]
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    assert len(groups) == -(-members // size)  # and no more groups than need be


def test_by_default_groups_fill_the_cluster():
    assert slices.default_size(32, 8) == 4
    assert slices.default_size(33, 8) == 5
    assert slices.default_size(2, 100) == 1


def test_a_group_has_the_seeds_and_the_hyper_parameters_of_its_members():
    whole = config(gamma=[0.9, 0.91, 0.92, 0.93, 0.94], tau=0.01, seeds="3 1 4 2 5", members=None)
    part = slices.part(whole, range(1, 4))
    assert part.seeds == (1, 4, 2)
    assert part.hp["gamma"] == [0.91, 0.92, 0.93]
    assert part.hp["tau"] == 0.01
    assert part.pbt == whole.pbt  # who tunes them is still asked what is inherited
    assert slices.part(whole, range(4, 5)).hp["gamma"] == [0.94]


@pytest.mark.parametrize(
    ("changes", "meetings"),
    [
        ({}, [200, 400, 600, 800, 1000]),
        ({"steps": 1100}, [200, 400, 600, 800, 1000, 1100]),
        ({"pbt": False, "pbt.interval": None, "checkpoint_freq": 300}, [300, 600, 900, 1000]),
        ({"patience": 3, "eval_freq": 300}, [200, 300, 400, 600, 800, 900, 1000]),
    ],
)
def test_groups_meet_where_something_is_decided_of_all(changes, meetings):
    given = {name: x for name, x in changes.items() if x is not None}
    if changes.get("pbt") is False:
        base = {"env": "jax:pendulum", "members": 5, "steps": 1000, "devices": 1, "eval_freq": 50}
        run = make("sac", base | {"checkpoint_freq": 300})
    else:
        run = config(**given)
    timetable, found = Timetable.from_config(run, (), {}), [0]
    while found[-1] < run.steps:
        found.append(slices.meeting_after(run, timetable, found[-1]))
    assert found[1:] == meetings


def test_groups_on_disk_are_all_members_in_their_order(tmp_path):
    file = tmp_path / "groups.json"
    file.write_text("[[0, 2], [2, 5]]")
    assert slices.read(file, 5) == [range(2), range(2, 5)]
    wrong = "{} null 5 [] [[0]] [[0,2]] [[0,5,1]] [[0,2],[3,5]] [[0,2.0],[2,5]] [[2,5],[0,2]]"
    for text in [*wrong.split(), '[["0","5"]]', "[[0,0],[0,5]]", "[[-5,5]]", "[[0,NaN]]"]:
        file.write_text(text)
        with pytest.raises(ThespisError, match="groups.json is damaged: it does not name 5 mem"):
            slices.read(file, 5)
