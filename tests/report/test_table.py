import numpy as np
from rich.console import Console

from thespis.report.table import summary


def lines(rows, title=None):
    console = Console(width=120)
    with console.capture() as capture:
        console.print(summary(rows, title))
    return [line.split() for line in capture.get().splitlines() if line.strip()]


def test_steps_have_separators_and_returns_one_decimal():
    rows = [
        {"algo": "SAC", "steps": 20_000, "return": -142.345},
        {"algo": "TD3", "steps": np.float64(1_000_000), "return": np.float32(1234.56)},
    ]
    title, head, _, sac, td3 = lines(rows, "Final")
    assert title == ["Final"]
    assert head == ["algo", "steps", "return"]
    assert sac == ["SAC", "20,000", "-142.3"]
    assert td3 == ["TD3", "1,000,000", "1,234.6"]


def test_small_numbers_keep_three_digits():
    assert lines([{"lr": 3e-4, "success": 0.8768}, {"lr": 1e-3, "success": 1.0}])[2:] == [
        ["0.0003", "0.877"],
        ["0.001", "1"],
    ]


def test_small_returns_beside_large_ones_keep_three_digits():
    returns = [-1262.04, 10.0, 0.8234, -2.433e-4, 1.0, 0.0, 9.996]
    told = ["-1,262.0", "10.0", "0.823", "-0.000243", "1.0", "0.0", "10.0"]
    assert [row[0] for row in lines([{"return": x} for x in returns])[2:]] == told


def test_what_is_missing_is_a_dash():
    assert lines([{"a": 12.0}, {"a": float("nan"), "b": "x"}])[2:] == [["12.0", "–"], ["–", "x"]]


def test_text_in_brackets_is_shown_as_it_is():
    assert lines([{"env": "[red]x"}])[2] == ["[red]x"]


def test_names_cannot_move_the_cursor_or_style_the_table(capsys):
    rows = [{"name\x1b[2J": "\x1b]0;title\x07[red]x[/red]", "reward": 1.5}]
    Console(width=200).print(summary(rows, "on \x1b[31m[bold]y"))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    for name in (r"name\x1b[2J", r"\x1b]0;title\x07[red]x[/red]", r"on \x1b[31m[bold]y"):
        assert name in shown
