"""What training would take is known before it starts, and close to what it takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import thespis
from tests.small import RUN, arguments, words
from thespis.cli.command import main
from thespis.runs import estimate as plans
from thespis.runs import sizes

GIVEN = {k: v for k, v in arguments().items() if k != "progress"}


def test_bytes_are_those_of_what_is_allocated(tmp_path):
    found = thespis.plan("sac", probe=False, **GIVEN)
    run = thespis.train("sac", out=tmp_path, **arguments())
    state = run.state()[0]
    assert found.member.state == sum(x.nbytes for x in jax.tree.leaves(state))
    # 200 rows of three observations, reward, two flags and an action, and two counters.
    assert found.member.replay == 200 * (3 * 4 + 4 + 2 + 4) + 8
    keen = thespis.plan("sac", probe=False, **GIVEN, prioritized_replay=True)
    assert keen.member.replay > found.member.replay + 200 * 4  # a priority each, at least
    assert found.fits
    assert found.largest == (sizes.memory() - sizes.base()) // found.member.total
    assert found.needed == sizes.base() + found.member.total
    assert found.times is None


def test_what_does_not_fit_is_told_and_nothing_is_tried(monkeypatch):
    small = thespis.plan("sac", probe=False, **GIVEN)
    monkeypatch.setattr(sizes, "memory", lambda: sizes.base() + int(2.5 * small.member.total))
    monkeypatch.setattr(plans, "measure", None)
    found = thespis.plan("sac", **(GIVEN | {"members": 3}))
    assert (found.fits, found.largest) == (False, 2)
    assert "2 members fit, not 3: lower buffer_size or members" in str(found)


def test_a_probe_runs_the_very_programs_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plans, "SECONDS", 0.1)
    found = thespis.plan("sac", **GIVEN)
    assert all(seconds >= 0 for seconds in found.times)
    assert found.times.total == pytest.approx(sum(found.times))
    assert found.times.learning > 0
    assert "learning" in str(found)
    assert list(tmp_path.iterdir()) == []


def test_the_command(capsys, monkeypatch):
    assert main(["plan", "sac", *words(), "--no-probe", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["members"], told["steps"], told["fits"]) == (1, RUN["steps"], True)
    assert told["seconds"] is None
    assert told["bytes_per_member"]["total"] <= told["bytes_there"]
    monkeypatch.setattr(sizes, "memory", lambda: 2**34)
    assert main(["plan", "sac", *words(buffer_size=10**9, steps=10**9), "--no-probe"]) == 2
    assert "buffer_size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.14, "3.1 s"), (90, "1.5 min"), (5400, "1.5 h"), (0, "0.0 s")]
)
def test_durations_are_written_in_a_unit_that_suits(seconds, text):
    assert plans.duration(seconds) == text


def test_sizes_are_written_in_a_unit_that_suits():
    assert [plans.written(x) for x in (12, 2048, 3 * 2**20, 5 * 2**40)] == [
        "12 bytes",
        "2.0 KiB",
        "3.0 MiB",
        "5,120.0 GiB",
    ]


PEAK = """
import json, sys
from thespis import cli
sys.argv = ["thespis", "train", *sys.argv[1:]]
assert cli.main() == 0
kinds = dict(line.split(":") for line in open("/proc/self/status"))
print(int(kinds["VmHWM"].split()[0]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the peak")
@pytest.mark.parametrize(
    "given",
    [
        {"steps": 100_000, "hidden": (64, 64)},
        {"steps": 2_000_000, "members": 8, "hidden": (64, 64)},
    ],
)
def test_a_run_needs_the_memory_that_was_planned(tmp_path, given):
    """It ends at its first evaluation: its replay has its whole size from the beginning."""
    given |= {"buffer_size": given["steps"], "eval_freq": 1500, "checkpoint_freq": 1500}
    planned = thespis.plan("td3", probe=False, **GIVEN | given).needed
    argv = words(**given, stop_reward=-1e9)
    command = [sys.executable, "-c", PEAK, "td3", *argv, "--json"]
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "XLA_FLAGS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak = int(done.stdout.splitlines()[-1])
    assert 0.8 < peak / planned < 1.15
