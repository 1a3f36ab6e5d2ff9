"""The report of checks says what is wrong and how to fix it, a line each."""

import pytest

from thespis.core import ThespisError
from thespis.envs.check.report import Report, Stop


def test_a_report_is_ok_unless_something_is_wrong():
    report = Report("Walk")
    report.add("reset", "ok", "returns (obs, info)")
    report.add("ends", "cannot say", "no episode ended")
    assert report.ok
    assert str(report).splitlines() == [
        "Walk",
        "  reset             ok          returns (obs, info)",
        "  ends              cannot say  no episode ended",
        "nothing is wrong",
    ]


def test_what_is_wrong_comes_with_its_fix_and_ends_the_checks():
    report = Report("Walk")
    report.add("reset", "ok", "returns (obs, info)")
    with pytest.raises(Stop):
        report.stop("step", "terminated is 0.5", "return it as a bool")
    assert not report.ok
    assert str(report).splitlines()[2:] == [
        "  step              wrong       terminated is 0.5",
        "                                → return it as a bool",
        "1 of 2 checks wrong",
    ]


@pytest.mark.parametrize(
    ("error", "message"),
    [(ValueError("two\nlines"), "ValueError: two lines"), (ThespisError("plain"), "plain")],
)
def test_what_is_raised_is_blamed_on_the_environment_in_one_line(error, message):
    report = Report("Walk")
    with pytest.raises(Stop), report.blame("start", "return a state"):
        raise error
    assert report.checks == [("start", "wrong", message, "return a state")]
