"""Campaigns of a few cases each, and the tools that they need; `make test-faults` is the whole."""

import os
import subprocess
import sys

import pytest

from tests.faults import shim
from tests.faults.__main__ import CAMPAIGNS, page, run
from tests.faults.common import ROOT, plain

pytestmark = pytest.mark.posix
SHORT = [name for name, campaign in CAMPAIGNS.items() if campaign.short]
SEEDS = {"trainings": 1}  # one agent: the population of the first seed takes three times as long


def check(found):
    if found["skipped"]:
        pytest.skip(found["skipped"])
    assert found["faults"] == []
    assert found["cases"] > 0


@pytest.mark.parametrize("name", SHORT)
def test_nothing_is_lost_or_different_and_there_are_but_clear_lines(name):
    check(run(name, CAMPAIGNS[name].short, SEEDS.get(name, 0)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_whole_campaign_finds_no_fault(name):
    check(run(name, CAMPAIGNS[name].long))


@pytest.mark.skipif(shim.library() is None, reason=shim.NO_COMPILER)
def test_the_disk_fails_where_it_is_told_to(tmp_path):
    """Of four operations on one file: creation, write, fsync, rename."""
    code = """
import os, sys
with open(sys.argv[1] + "/a.tmp", "wb") as file:
    file.write(b"1234")
    file.flush()
    os.fsync(file.fileno())
os.replace(sys.argv[1] + "/a.tmp", sys.argv[1] + "/a")
print("done")
"""

    def tried(at: int, error: int) -> subprocess.CompletedProcess:
        env = os.environ | shim.killing(tmp_path, "a", at) | {"FAULT_ERRNO": str(error)}
        command = [sys.executable, "-c", code, tmp_path]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    for at in range(1, 5):
        assert tried(at, 0).returncode == -9
        assert not (tmp_path / "a").exists()
        failed = tried(at, 28)
        assert "No space left on device" in failed.stderr
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a.tmp").read_bytes() == b"1234"
    assert tried(5, 28).stdout == "done\n"
    assert (tmp_path / "a").exists()


def test_what_is_no_plain_line_is_told_apart():
    assert plain("note\nthespis: no run at x: look there\n") == []
    for bad in ("", "ValueError: x\n", "thespis: \x1b[2J\n", "thespis: <a object at 0x7f>\n"):
        assert plain(bad)
    assert plain("Traceback (most recent call last):\nthespis: x\n")


def test_the_page_tells_of_every_campaign():
    text = (ROOT / "docs" / "reliability.md").read_text()
    assert page({}, text) == text
    for name in CAMPAIGNS:
        assert f"\n| {name} | " in text
