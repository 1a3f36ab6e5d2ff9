"""What a run says: an ETA without compile time, mean and spread over seeds, how to go on."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import thespis
from tests.small import arguments
from thespis.report import progress
from thespis.report.progress import Rate, Speed, Terminal, duration, outcome, ranges
from thespis.runs.config import make

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


def terminal(width: int = 100, live: bool = False) -> tuple[Terminal, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, force_terminal=live)
    return Terminal(console), out


def begun(seeds=(0,), step=0, **changes) -> tuple[Terminal, io.StringIO]:
    watcher, out = terminal()
    config = make("sac", {"env": "jax:pendulum", "steps": 10_000, "seeds": seeds} | changes)
    watcher.begin(config, Path("runs/sac/jax-pendulum_1"), step)
    return watcher, out


def test_the_first_lines_tell_what_runs_where_and_on_how_many_threads():
    _, out = begun(seeds=(0, 1, 2, 7), preset="qdax", threads=2, devices=2)
    assert out.getvalue().splitlines() == [
        "sac on jax:pendulum: 10,000 steps, seeds 0-2, 7, preset qdax, 2 devices, 2 threads",
        "runs/sac/jax-pendulum_1",
    ]


def test_the_first_lines_tell_where_a_run_goes_on():
    _, out = begun(step=2500)
    assert out.getvalue().startswith("sac on jax:pendulum: 10,000 steps from step 2,500, seed 0")


def test_names_in_brackets_are_not_taken_for_styles():
    watcher, out = terminal()
    config = make("sac", {"env": "my[bold]env", "steps": 10_000})
    watcher.begin(config, Path("runs/[red]"), 0)
    watcher.note("mind the [gap]")
    assert "my[bold]env" in out.getvalue()
    assert "runs/[red]" in out.getvalue()
    assert "mind the [gap]" in out.getvalue()


def test_long_paths_stay_on_one_line():
    watcher, out = begun()
    watcher.note("go on: thespis resume " + "x" * 300)
    assert out.getvalue().splitlines()[-1].endswith("x" * 300)


def test_a_row_tells_the_mean_and_the_spread_over_seeds():
    watcher, out = begun(seeds=(0, 1))
    rows = [{"eval/mean_reward": -100.0, "time/fps": 1234.0}, {"eval/mean_reward": -300.0}]
    watcher.row(2000, rows)
    line = out.getvalue().splitlines()[-1]
    assert " ".join(line.split()) == "2,000 steps reward -200.0 ± 100.0 1,234 steps/s"
    watcher.row(2500, [{"time/fps": 3.0}, {"time/fps": 3.0}])  # no evaluation, no line
    assert out.getvalue().splitlines()[-1] == line


def test_the_speed_leaves_compiling_out():
    speed = Speed()
    assert speed.at(0, elapsed=10.0, compiling=9.0) is None
    assert speed.at(100, elapsed=11.0, compiling=9.0) == 100
    assert speed.at(101, elapsed=60.0, compiling=50.0) is None  # the next phase compiles
    assert speed.at(301, elapsed=61.0, compiling=50.0) == 200


def test_there_is_no_eta_before_learning_starts():
    watcher, _ = begun(learning_starts=1000)
    left = lambda: watcher.bar.tasks[0].fields["left"]
    watcher.advance(0, 10_000, elapsed=1.0, compiling=1.0)
    watcher.advance(1000, 10_000, elapsed=1.1, compiling=1.0)
    assert left() is None
    watcher.advance(1001, 10_000, elapsed=9.0, compiling=8.0)
    assert left() is None
    watcher.advance(2000, 10_000, elapsed=18.99, compiling=8.0)
    assert left() == pytest.approx(80, rel=0.01)


def test_the_bar_shows_speed_time_left_and_what_compiling_took(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    watcher, _ = begun(learning_starts=1000)
    shown = lambda: str(Rate().render(watcher.bar.tasks[0]))
    assert shown() == "compiling, 0.0 s"
    now[0] += 12
    assert shown() == "compiling, 12.0 s"
    watcher.compiling()  # another program
    assert shown() == "compiling, 0.0 s"
    watcher.advance(2000, 10_000, elapsed=10.0, compiling=8.0)
    watcher.advance(4000, 10_000, elapsed=110.0, compiling=8.0)
    assert shown() == "20 steps/s  5:00 left  8 s compiling"


def test_a_live_bar_is_gone_at_the_end():
    watcher, out = terminal(live=True)
    config = make("sac", {"env": "jax:pendulum", "steps": 10_000})
    with watcher.watching(config, Path("runs/x")):
        watcher.advance(5000, 10_000, elapsed=10.0, compiling=8.0)
        watcher.bar.refresh()
    assert "5,000 of 10,000" in out.getvalue()
    assert not watcher.bar.live.is_started


def test_the_end_is_a_table_with_the_last_and_the_best_evaluation(tmp_path):
    run = thespis.train("sac", out=tmp_path, **arguments(seeds=(0, 7)))
    watcher, out = terminal(width=200)
    watcher.done(run, "done", run.path / "plots" / "learning_curve.png")
    text = out.getvalue()
    assert "sac on jax:pendulum: done" in text
    table = run.metrics
    for m, seed in enumerate((0, 7)):
        rewards = table["eval/mean_reward"][table["member"] == m]
        (line,) = [row.split() for row in text.splitlines() if row.split()[:1] == [str(seed)]]
        assert line[1] == "400"
        assert line[2] == f"{rewards[-1]:,.1f}"
        assert line[4] == f"{rewards.max():,.1f}"
        assert line[5] == str(100 * (1 + rewards.argmax()))
    mean = table["eval/mean_reward"][-2:].mean()
    (line,) = [row.split() for row in text.splitlines() if row.split()[:1] == ["mean"]]
    assert line[2] == f"{mean:,.1f}"
    assert f"curve  {run.path}/plots/learning_curve.png" in text
    assert "compiling" in text
    assert "resume" not in text
    watcher.done(run, "stopped", None)
    assert f"stopped at step 400; to go on: thespis resume {run.path}" in out.getvalue()


def test_of_imitators_the_best_is_the_most_similar_one():
    nan = np.nan
    table = {
        "step": [100, 150, 200, 300],
        "eval/mean_reward": [5.0, nan, 9.0, 7.0],
        "eval/std_reward": [1.0, nan, 2.0, 3.0],
        "eval/similarity": [0.4, nan, 0.5, 0.8],
    }
    table = {name: np.array(column) for name, column in table.items()}
    row = outcome(3, {name: x[[0, 1, 3, 2]] for name, x in table.items()}, "eval/similarity")
    assert (row["reward"], row["best"], row["at step"]) == (9.0, 7.0, 300)
    assert outcome(3, table)["best"] == 9.0

    watcher, out = begun()
    watcher.row(100, [{"eval/mean_reward": 5.0, "eval/similarity": 0.84, "time/fps": 1.0}])
    assert "similarity  0.84" in out.getvalue()


def test_the_end_of_a_population_marks_the_winner_and_tells_its_hypers(tmp_path):
    names = ("actor_lr", "critic_lr", "gamma", "tau", "reward_scale", "target_entropy")
    fields = {"interval": 100, "tuned": names}
    run = thespis.train("sac", out=tmp_path, **arguments(members=3, pbt=fields))
    watcher, out = terminal(width=60)
    watcher.done(run, "done", None)
    lines = [line.split() for line in out.getvalue().splitlines()]
    best, rewards = run.member("best"), run.metrics["eval/mean_reward"][-3:]
    first, second = [line for line in lines if line[:2] == [str(best), "★"]]
    assert first[3] == f"{rewards[best]:,.1f}"
    assert second[2:] == [f"{float(getattr(run.hypers(), name)[best]):.3g}" for name in names]
    assert ["member", *names] in lines
    (child, *_) = [m for m in range(3) if run.parents[m] != m]
    (line, _) = [line for line in lines if line[:1] == [str(child)]]
    assert line[-1] == str(run.parents[child])


def test_a_population_says_who_tunes_and_who_is_best():
    watcher, out = begun(seeds=(0, 1), pbt=True)
    assert "seeds 0-1, pbt every 500 steps" in out.getvalue()
    rows = [{"eval/mean_reward": -100.0, "time/fps": 1.0}, {"eval/mean_reward": -30.0}]
    watcher.row(2000, rows)
    assert "best -30.0 (member 1)" in " ".join(out.getvalue().splitlines()[-1].split())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.9, "59.9 s"),
        (60, "1:00 min"),
        (3599, "59:59 min"),
        (90_061, "25:01:01 h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_ranges():
    assert ranges((0,)) == "0"
    assert ranges((3, 0, 1, 2, 9)) == "0-3, 9"
