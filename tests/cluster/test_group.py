"""Tests of a group's process: where it may train, and what becomes of parents that are lost."""

import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from thespis.cluster import group
from thespis.cluster.group import Assignment, Donor, Group, GroupTrainer, Lost, Rows
from thespis.cluster.head import Head
from thespis.errors import ThespisError
from thespis.runs import checkpoint
from thespis.runs.build import build
from thespis.runs.config import make
from thespis.runs.directory import GROUPS


@pytest.fixture
def made(tmp_path):
    """A group that has not begun, in a folder with the proof that it is the run's."""
    given = {"env": "jax:pendulum", "members": 2, "pbt": True, "steps": 1000, "devices": 1}
    config = make("sac", given)
    (tmp_path / group.PROOF).write_text("1234")
    folder = tmp_path / "000"
    made = Group(Assignment(config, tmp_path, folder, "1234", [], {}, 0, False))
    loop, _ = build(config, training=False)
    made.trainer = SimpleNamespace(config=config, loop=loop)  # type: ignore
    return made


def test_a_group_trains_only_in_the_folder_of_its_run(made, tmp_path):
    made.check_folder()
    (tmp_path / group.PROOF).write_text("of another file system")
    with pytest.raises(ThespisError, match="cannot read .*that all nodes share"):
        made.check_folder()
    (tmp_path / group.PROOF).unlink()
    with pytest.raises(ThespisError, match="cannot read"):
        made.check_folder()


def test_a_parent_that_is_lost_is_no_parent_where_members_may_stay(made, tmp_path):
    donor = Donor(None, 0, made.assignment.config, tmp_path / "001")
    decision = {"parents": [1, donor], "sick": [False, False], "hps": {}}
    assert made.fetched(None, 5) is None
    assert made.fetched(decision, 5, stay=True)["parents"] == [1, 1]
    with pytest.raises(Lost, match="member 0 of .*001 at step 5"):
        made.fetched(decision, 5)


REPORT = {
    "step": 5,
    "rows": [[5, 1, {"loss": 0.5}, {"lengths": [1, 2]}]],
    "scores": [[1.0], [float("nan")]],
    "evaluated": [5, [1.0, 2.0]],
    "best_step": 5,
    "notes": ["so"],
    "programs": {"epoch": 1.0},
    "gap": None,
}
WRONG = [
    *({name: wrong} for name in REPORT for wrong in ([], {"a": []}, "text") if name != "gap"),
    {"step": 10},
    {"rows": [5]},
    {"rows": [[5, 2, {}, {}]]},
    {"rows": [[5, 1, {"unknown": 1.0}, {}]]},
    {"rows": [[5, 1, {"loss": "1"}, {}]]},
    {"rows": [[5, 1, {}, {"lengths": [1]}]]},
    {"rows": [[5, 1, {}, {"unknown": [1, 2]}]]},
    {"scores": [[1.0]]},
    {"evaluated": [5]},
    {"notes": [5]},
    {"programs": {"epoch": []}},
]
FINE = [{"rows": []}, {"notes": []}, {"evaluated": []}]  # as of a group that had nothing to tell


@pytest.mark.posix
def test_a_report_is_read_if_it_is_one_and_links_are_not_followed(tmp_path):
    log = SimpleNamespace(columns=("loss",), edges={"lengths": (0, 1, 2)})
    config = SimpleNamespace(members=2, scores=1)
    trainer: Any = SimpleNamespace(folder=tmp_path, step=5, log=log, config=config, tuning=True)
    trainer.is_report = partial(GroupTrainer.is_report, trainer)
    file = tmp_path / "reports" / f"{5:012d}.json"
    file.parent.mkdir()
    for changes in ({}, *FINE):
        file.write_text(json.dumps(REPORT | changes))
        assert GroupTrainer.reported(trainer)["step"] == 5
    for changes in WRONG:
        file.write_text(json.dumps(REPORT | changes))
        if changes not in FINE:
            with pytest.raises(ThespisError, match="is damaged: it is not what a group reports"):
                GroupTrainer.reported(trainer)
    file.write_text("[]")
    with pytest.raises(ThespisError, match="is damaged: it is not what a group reports"):
        GroupTrainer.reported(trainer)
    file.parent.rename(tmp_path / "mine")
    file.parent.symlink_to(tmp_path / "mine")  # in which old reports would be deleted
    for method in (GroupTrainer.save, GroupTrainer.reported):
        with pytest.raises(ThespisError, match="reports is a symbolic link"):
            method(trainer)
    (tmp_path / GROUPS).symlink_to(tmp_path / "mine")
    with pytest.raises(ThespisError, match="groups is a symbolic link"):
        Head.groups.fget(trainer)  # type: ignore


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_nothing_newer_is_removed_before_it_is_known_that_a_group_can_go_back(made, harm):
    folder = made.assignment.folder / "checkpoints"
    for step in (100, 200):
        checkpoint.save(folder, step, {"state": {"x": np.ones(3)}}, {})
    if harm == "damaged":
        (folder / f"{100:012d}" / "state.safetensors").write_bytes(b"1234")
    made.trainer.step, wanted = 300, 100 if harm == "damaged" else 50
    with pytest.raises(ThespisError, match="has no checkpoint of step 50|is damaged"):
        made.prepare({"step": wanted, "until": 400})
    assert len(checkpoint.latest(folder)) == 2


def test_rows_are_plain_numbers_that_survive_a_file():
    rows = Rows(["loss"], {})
    rows.append(100, 1, {"loss": np.float32(0.1)}, {"steps": np.array([1, 2])})
    told = json.loads(json.dumps(rows.rows))
    assert told == [[100, 1, {"loss": float(np.float32(0.1))}, {"steps": [1, 2]}]]
    assert np.float32(told[0][2]["loss"]) == np.float32(0.1)
