"""The lineage tells who descends from whom, and is restored as a checkpoint has it."""

import numpy as np
import pytest

from thespis.errors import ThespisError
from thespis.runs import lineage


def test_parents_are_as_they_were_before_their_round():
    """2 copies what 1 was, while 1 becomes a copy of 0; then 1 is healed, and all stay."""
    step, member = [100] * 3 + [200] + [200] * 3, [0, 1, 2, 1, 0, 1, 2]
    table = {"step": step, "member": member, "parent": [0, 0, 1, 2, 0, 1, 2]}
    table = {name: np.array(x, float) for name, x in table.items()}
    assert lineage.ancestry(table, 2) == (1, [2, 6])
    assert lineage.ancestry(table, 1) == (1, [2, 3, 5])
    assert lineage.ancestry(table, 0) == (0, [0, 4])


def written(folder, members=3):
    """One round at 100, in which 2 becomes a copy of 0 with another gamma."""
    log = lineage.LineageLog(folder, ["gamma"])
    before = {"gamma": np.float32([0.9, 0.8, 0.7])}
    after = {"gamma": np.float32([0.9, 0.8, 0.95])}
    ages = np.int32([1, 1, 0])
    log.append(100, range(members), np.array([0, 1, 0]), np.float32([3, 2, 1]), ages, before, after)
    return log


def test_what_was_appended_is_read_back(tmp_path):
    assert len(lineage.read(tmp_path)["step"]) == 0  # no file yet
    assert written(tmp_path).rows == 3
    table = lineage.read(tmp_path, members=3)
    assert table["member"].tolist() == [0, 1, 2]
    assert table["parent"].tolist() == [0, 1, 0]
    assert table["score"].tolist() == [3, 2, 1]
    np.testing.assert_allclose(table["after/gamma"], [0.9, 0.8, 0.95], rtol=1e-6)
    with pytest.raises(ThespisError, match="is damaged"):
        lineage.read(tmp_path, members=1)


def test_a_schedule_is_that_of_the_line_a_member_descends_from(tmp_path):
    written(tmp_path)
    log = "step,member,hparams/gamma,hparams/tau\n50,0,0.9,0.1\n50,1,0.8,0.1\n50,2,0.7,0.1\n"
    (tmp_path / "metrics.csv").write_text(log)
    first, changes = lineage.schedule(tmp_path, 2)
    assert first == {"gamma": 0.9, "tau": 0.1}  # of member 0
    assert changes == [(100, {"gamma": pytest.approx(0.95)})]
    assert lineage.schedule(tmp_path, 1)[0] == {"gamma": 0.8, "tau": 0.1}


def test_a_file_is_restored_as_the_checkpoint_has_it_and_the_rest_is_kept_beside(tmp_path):
    log, notes = written(tmp_path), []
    saved = log.content
    written(tmp_path)  # a round that the checkpoint does not know
    lineage.LineageLog(tmp_path, ["gamma"], saved, notes.append)
    assert (log.content, notes) == (saved, [])
    log.path.write_bytes(saved.replace(b"100", b"1x0", 1))
    lineage.LineageLog(tmp_path, ["gamma"], saved, notes.append)
    assert log.content == saved
    assert "lineage.csv was damaged: it is restored from the checkpoint" in notes.pop()
    log.path.unlink()
    lineage.LineageLog(tmp_path, ["gamma"], saved, notes.append)
    assert log.content == saved
    assert "was missing" in notes.pop()
    log.cut(1)
    assert log.rows == 1
