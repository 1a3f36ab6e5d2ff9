"""Tests of metrics.csv of a run in groups: every row once, and none that is done once more."""

from types import SimpleNamespace

import pytest

from thespis.cluster.run_log import RunLog
from thespis.runs.config import make
from thespis.runs.metrics import lines

TOLD = {"columns": ["loss"], "edges": {}}


def opened(folder, last=0):
    config = make("sac", {"env": "jax:pendulum", "members": 4, "steps": 1000, "devices": 1})
    shown = []

    def seen(step, rows):
        assert [row["loss"] - step for row in rows] == pytest.approx([0, 0.1, 0, 0.1])
        shown.append(step)

    reporter = SimpleNamespace(note=print, row=lambda step, rows, counts: seen(step, rows))
    log = RunLog(config, folder, reporter)
    log.open(TOLD, last)
    return log, shown


def report(step):
    """What a group of two has measured, as it comes from a file."""
    return [[step, member, {"loss": step + member / 10}, {}] for member in range(2)]


def written(log):
    return [(int(row[0]), int(row[1])) for row in lines(log.log.path)[1]]


def test_rows_of_all_groups_are_written_in_order_and_once(tmp_path):
    log, shown = opened(tmp_path)
    for _ in range(2):  # whoever was started again reports again
        log.keep(2, 100, report(100))
        log.keep(0, 100, report(100))
        log.write(100)
        assert written(log) == [(100, member) for member in range(4)]
    assert shown == [100]  # the reporter sees them once, too


def test_rows_of_late_groups_follow_and_newer_ones_are_left_out(tmp_path):
    log, shown = opened(tmp_path)
    log.keep(0, 100, report(100))
    log.keep(2, 150, report(150))  # beyond the meeting: it is done once more
    log.write(100)
    assert written(log) == [(100, 0), (100, 1)]
    log.keep(2, 100, report(100))
    log.write(200)
    assert written(log) == [(100, member) for member in range(4)]
    assert shown == [100]  # once all have theirs


def test_rows_of_late_groups_are_shown_though_the_head_was_killed(tmp_path):
    log, shown = opened(tmp_path)
    log.keep(2, 100, report(100))
    log.write(100)
    assert shown == []
    again, shown = opened(tmp_path, last=100)
    again.keep(0, 100, report(100))
    again.write(100)
    assert shown == [100]
    assert again.unseen == {}


def test_what_a_killed_head_had_written_is_not_written_again(tmp_path):
    log, _ = opened(tmp_path)
    log.keep(0, 100, report(100))
    log.keep(0, 200, report(200))
    log.write(200)
    again, _ = opened(tmp_path, last=100)
    assert written(again) == [(100, 0), (100, 1)]  # cut back to the newest decision
    again.keep(0, 100, report(100))
    again.write(100)
    assert written(again) == [(100, 0), (100, 1)]
