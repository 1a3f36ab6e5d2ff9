"""The page of benchmarks/run.py: a table for each machine, whose rows are replaced one by one."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
pytest.importorskip("fcntl", reason="the benchmark runs where POSIX is")

import run


def line(case, ratio, peer="sbx"):
    found = {"case": case, "place": "one core", "unit": "/CPU-s", "peer": peer, "ours": [ratio]}
    return found | {"theirs": [1.0], "ratios": [ratio], "ratio": ratio, "wanted": 1, "met": True}


def test_a_row_is_replaced_and_other_rows_and_machines_stay(monkeypatch):
    monkeypatch.setattr(run, "processor", lambda: "the first")
    page = run.saved("# Benchmarks\n\nText.\n\n", [line("a", 1.5), line("b", 2.5)])
    page = run.saved(page, [line("a", 3.5), line("a", 4.5, "products alone (80 GFLOP/s)")])
    page = run.saved(page, [line("a", 5.5, "products alone (90 GFLOP/s)")])
    first = [row for row in page.splitlines() if row.startswith(("| a", "| b"))]
    assert [row.split(" | ")[5] for row in first] == ["3.50", "2.50", "5.50"]

    monkeypatch.setattr(run, "processor", lambda: "the second")
    both = run.saved(page, [line("a", 6.5)])
    assert both.startswith("# Benchmarks\n\nText.\n\n## ")
    assert page.removeprefix("# Benchmarks\n\nText.\n\n").strip() in both
    assert both.count("## ") == 2
    assert both.count("| a |") == 3


def test_rows_without_avx512_have_a_table_of_their_own(monkeypatch):
    monkeypatch.setattr(run, "processor", lambda: "the first")
    page = run.saved("# Benchmarks\n\n", [line("a", 1.5)])
    for ratio in (2.5, 3.5):
        page = run.saved(page, [line("a", ratio)], avx2=True)
    rows = [row for row in page.splitlines() if row.startswith("| a")]
    assert [row.split(" | ")[5] for row in rows] == ["3.50", "1.50"]
