"""Jobs that are not worth going on end at an evaluation, cleanly, and are marked so."""

import pytest

import thespis
from tests.sweeps.inline import inline, sweep  # noqa: F401
from thespis.sweeps import folder as folders

pytest.importorskip("optuna")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("kept", "undrawn")]
# Nobody learns: what a policy is worth follows from the widths of its networks.
GIVEN = {"sampler": "optuna", "trials": 6, "startup_trials": 1, "steps": 400, "hidden": None}
GIVEN |= {"set": {"hidden": ["8 8", "4", "4 4", "16 4", "2", "3 3 3"]}}


def test_pruned_jobs_end_at_an_evaluation_and_are_marked(tmp_path, inline):  # noqa: F811
    found = sweep(tmp_path, **GIVEN)
    assert found.counts.keys() == {"done", "pruned"}
    assert sum(found.counts.values()) == 6
    for row in found.rows:
        run = thespis.load(found.path / "jobs" / row["job"])
        assert run.status["state"] == "done"
        assert str(run.status.get("reason")).endswith(folders.WHY) == (row["state"] == "pruned")
        if row["state"] == "pruned":
            assert run.status["step"] in (100, 200, 300)  # where it was evaluated, and saved
    best = max((row for row in found.rows if row["state"] == "done"), key=lambda row: row["iqm"])
    assert found.best["jobs"] == [best["job"]]
    again = sweep(tmp_path, **GIVEN)
    assert inline[1].started == []
    assert again.counts == found.counts
