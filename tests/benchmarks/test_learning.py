"""Cells of benchmarks/learning.py: each is trained once, by one process, and counted as it is."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from thespis.cli import main

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
pytest.importorskip("fcntl", reason="the benchmark runs where POSIX is")

import learning  # noqa: E402
import learning_cells  # noqa: E402
import learning_page  # noqa: E402
from learning_cells import Cell, Table, claim  # noqa: E402
from workers.learning import play  # noqa: E402

TABLE = """
[protocol]
eval_freq = 5000
episodes = 2

[stages.both]
arms = ["ours", "theirs"]
envs = ["Hopper-v5"]
seeds = [0, 1]
steps = 10000

[arms.ours]
library = "thespis"
options = "sac"

[arms.theirs]
library = "sbx"
algo = "SAC"
envs = ["Hopper-v5"]
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.toml"
    path.write_text(TABLE)
    return Table.read(path)


@pytest.fixture
def choose(table, tmp_path):
    """Command-line options -> the arguments, and the cells that they choose."""

    def choose(words=""):
        args = learning.arguments([*words.split(), "--results", str(tmp_path / "results")])
        return args, learning.cells(table, args)

    return choose


def result(cell, returns=(100.0, 200.0), seconds=(10.0, 30.0)):
    rows = [
        {"step": 5000 * i, "returns": [x - 1, x + 1], "cpu_seconds": s, "gflops": 90.0}
        for i, (x, s) in enumerate(zip(returns, seconds, strict=True), 1)
    ]
    found = {"arm": cell.arm.given, "library": cell.arm.library, "steps": 5000 * len(rows)}
    found |= {"evaluations": rows, "versions": {"jax": "1"}, "eval_cpu_seconds": 2.0}
    found |= {"env": cell.env, "seed": cell.seed, "load": [1.0, 2.5]}
    found |= {"processor": "abacus", "cores": 1, "began": "2026-11-17T18:00:00Z"}
    return found


@pytest.fixture
def trained(monkeypatch):
    """The cells that were trained; those in its `broken` fail."""

    class Trained(list):
        broken = ()

    cells = Trained()

    def train(cell, table, args):
        cells.append(str(cell))
        if str(cell) in cells.broken:
            raise learning.Failed("no memory")
        return result(cell)

    monkeypatch.setattr(learning, "train", train)
    return cells


def test_each_cell_is_trained_once(table, choose, trained):
    args, cells = choose()
    assert learning.work(cells, table, args) == []
    assert trained == [f"{arm} Hopper-v5 seed {n}" for arm in ("ours", "theirs") for n in (0, 1)]
    learning.work(cells, table, args)
    assert len(trained) == 4
    args, cells = choose("--arms ours --envs Hopper-v5 --seeds 1 --steps 10000 --again")
    learning.work(cells, table, args)
    assert trained[4:] == ["ours Hopper-v5 seed 1"]


def test_a_failure_is_told_and_tried_again_next_time(table, choose, trained, capsys):
    args, cells = choose()
    trained.broken = ["ours Hopper-v5 seed 1"]
    assert learning.work(cells, table, args) == [cells[1]]
    assert "ours Hopper-v5 seed 1: no memory" in capsys.readouterr().out
    assert [cell.done(args.results) for cell in cells] == [True, False, True, True]
    trained.broken = []
    assert learning.work(cells, table, args) == []
    assert trained[4:] == ["ours Hopper-v5 seed 1"]


def test_a_short_result_is_trained_again_for_longer(table, choose, trained):
    args, cells = choose("--stage both --arms ours --seeds 0")
    learning.work(cells, table, args)
    args, cells = choose("--stage both --arms ours --seeds 0 --steps 20000")
    assert cells[0].state(args.results) == "too short"
    learning.work(cells, table, args)
    assert len(trained) == 2


def test_a_result_of_other_options_is_neither_used_nor_replaced(table, choose, trained, capsys):
    args, cells = choose("--stage both --arms ours --seeds 0")
    path = cells[0].path(args.results)
    path.parent.mkdir(parents=True)
    learning.save(result(cells[0]) | {"arm": {"options": "sac --hidden 8"}}, path)
    learning.work(cells, table, args)
    assert trained == []
    assert "other options than the table" in capsys.readouterr().out
    assert not cells[0].done(args.results)


def test_work_stops_between_cells_when_the_time_is_up(table, choose, trained):
    args, cells = choose("--time-limit 0")
    learning.work(cells, table, args)
    assert trained == []


def test_an_environment_that_a_library_lacks_is_left_out(table, choose, trained, capsys):
    args, cells = choose("--stage both --arms theirs --envs Ant-v5 --seeds 0")
    learning.work(cells, table, args)
    assert trained == []
    assert "sbx has no such environment" in capsys.readouterr().out


# --- claims -----------------------------------------------------------------------------------

HOLD = """
import sys, time
sys.path.append(sys.argv[1])
from pathlib import Path
from learning_cells import claim
with claim(Path(sys.argv[2])) as mine:
    print(mine, flush=True)
    time.sleep(600)
"""


def test_a_claim_holds_until_its_process_ends(table, choose, trained):
    args, cells = choose("--stage both --arms ours --seeds 0")
    path = cells[0].path(args.results)
    command = [sys.executable, "-c", HOLD, str(BENCHMARKS), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert cells[0].state(args.results) == f"in process {other.pid}"
        assert f"in process {other.pid} 0" in learning.listing(table, cells, args.results)
        learning.work(cells, table, args)
        assert trained == []
        os.kill(other.pid, signal.SIGKILL)
    assert path.with_suffix(".lock").exists()
    assert cells[0].state(args.results) == "missing"
    learning.work(cells, table, args)
    assert len(trained) == 1


def test_two_claims_of_a_process_exclude_each_other(tmp_path):
    with claim(tmp_path / "0.json") as first, claim(tmp_path / "0.json") as second:
        assert (first, second) == (True, False)
    with claim(tmp_path / "0.json") as again:
        assert again


WORKER = """
import json, sys
from pathlib import Path
row = {"step": 5000, "returns": [1.0, 3.0], "lengths": [5, 6], "cpu_seconds": 7.0, "gflops": 9.0}
print(json.dumps(row), flush=True)
if Path("broken").exists():
    sys.exit("the worker broke")
print(json.dumps({"versions": {"python": "3"}, "eval_cpu_seconds": 1.0}))
"""


@pytest.mark.skipif(not shutil.which("taskset"), reason="cells are pinned with taskset")
def test_a_worker_that_ends_early_leaves_no_result(table, choose, tmp_path, monkeypatch, capsys):
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "learn_thespis.py").write_text(WORKER)
    (tmp_path / "broken").touch()
    monkeypatch.setattr(learning, "HERE", tmp_path)
    core = min(os.sched_getaffinity(0))
    args, cells = choose(f"--stage both --arms ours --seeds 0 --steps 5000 --core {core}")
    assert learning.work(cells, table, args) == cells
    assert "the worker broke" in capsys.readouterr().out
    assert list(args.results.rglob("*.json")) == []
    (tmp_path / "broken").unlink()
    assert learning.work(cells, table, args) == []
    found = json.loads(cells[0].path(args.results).read_text())
    assert found["evaluations"][0]["returns"] == [1.0, 3.0]
    assert found["command"].startswith("python -m workers.learn_thespis --arm ")
    assert (found["seed"], found["steps"], found["eval_cpu_seconds"]) == (0, 5000, 1.0)


# --- workers ----------------------------------------------------------------------------------


def worker(*command):
    done = subprocess.run(
        [sys.executable, *command], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_thespis_is_evaluated_on_the_way():
    arm = {"options": "sac --hidden 8 --batch-size 8 --updates-per-step 0"}
    words = "--env jax:pendulum --seed 3 --steps 40 --eval-freq 20 --episodes 3"
    lines = worker("-m", "workers.learn_thespis", "--arm", json.dumps(arm), *shlex.split(words))
    first, second, last = lines
    assert (first["step"], second["step"]) == (20, 40)
    assert [len(line["returns"]) for line in lines[:2]] == [3, 3]
    assert first["lengths"] == [200, 200, 200]
    assert 0 < first["cpu_seconds"] < second["cpu_seconds"]
    assert "thespis" in last["versions"]


CLOCK = """
import itertools
import numpy as np
from workers import learning
seconds = itertools.count(100, 10)
learning.Recorder.now = staticmethod(lambda: np.full(2, next(seconds)))
recorder = learning.Recorder()
print("whatever a library says is no result")
for step in (1, 2):
    with recorder.evaluation(step) as found:
        found |= {"returns": [step], "lengths": [5]}
recorder.end()
"""


def test_evaluations_cost_nothing():
    # The clock goes on by 10 seconds per look: at the start, and around every evaluation.
    first, second, last = worker("-c", CLOCK)
    assert (first["cpu_seconds"], second["cpu_seconds"]) == (110, 120)
    assert (first["wall_seconds"], second["wall_seconds"]) == (10, 20)
    assert last["eval_cpu_seconds"] == 20


class Countdown(gymnasium.Env):
    """Pays 1 for every step of an episode whose length follows from the seed."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.left = seed
        return np.array([seed], np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.left], np.float32), float(action[0]), self.left == 0, False, {}


def test_each_copy_plays_one_episode(monkeypatch):
    monkeypatch.setattr(gymnasium, "make", lambda name: Countdown())
    returns, lengths = play("any", 3, 2, lambda obs: np.ones_like(obs))
    assert (returns, lengths) == ([2, 3, 4], [2, 3, 4])


# --- the page ---------------------------------------------------------------------------------


def run(table, returns, env="Hopper-v5"):
    cell = Cell(table.arms["ours"], env, 0, 10_000)
    return learning_page.Run.of(cell, result(cell, returns))


def test_scores_are_normalised_by_random_and_td3(table):
    low, high = learning_page.NORMAL["Hopper"]
    scores = run(table, (low, high)).score([5_000, 7_500, 10_000], "steps")
    np.testing.assert_allclose(scores, [0, 0.5, 1])


def test_between_evaluations_is_a_straight_line_and_beyond_them_nothing(table):
    found = run(table, (100.0, 200.0))
    np.testing.assert_allclose(found.at([10, 25, 30], "seconds"), [100, 175, 200])
    assert np.isnan(found.at([9.9, 30.1], "seconds")).all()
    assert np.isnan(found.at([4_999, 10_001], "steps")).all()


def test_a_longer_run_counts_with_its_first_part(table):
    cell = Cell(table.arms["ours"], "Hopper-v5", 0, 10_000)
    found = learning_page.Run.of(cell, result(cell, (1.0, 2.0, 3.0), (1.0, 2.0, 3.0)))
    assert found.returns.tolist() == [1, 2]


def test_the_page_has_every_cell_and_counts_by_hand(table, choose, tmp_path):
    args, cells = choose()
    returns = {("ours", 0): 1000, ("ours", 1): 2000, ("theirs", 0): 500, ("theirs", 1): 600}
    for cell in cells:
        path = cell.path(args.results)
        path.parent.mkdir(parents=True, exist_ok=True)
        last = returns[cell.arm.name, cell.seed]
        learning.save(result(cell, (100.0, last), (20.0, 70.0 + 10 * cell.seed)), path)
    learning_page.write(table, args.results, tmp_path)
    text = (tmp_path / "learning.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    # The interquartile mean of two runs is their mean: (1500 - 18.8) / (3226 - 18.8).
    assert rows[0].startswith("| `ours` | 0.46 (0.31 … 0.62) |")
    assert rows[0].endswith("| 75 |")
    assert rows[1].startswith("| `theirs` | 0.17 (0.15 … 0.18) | 0% (0% … 0%) |")
    # After 60 CPU-seconds: 80 % and 2/3 of the way from 100 to 1000 and 2000.
    by_hand = ((100 + 0.8 * 900) + (100 + 1900 * 2 / 3)) / 2
    assert rows[2].startswith(f"| `ours` | {(by_hand - 18.8) / (3226 - 18.8):.2f} (")
    assert "1,500 (1,000 … 2,000)" in rows[4]
    for (arm, seed), last in returns.items():
        assert f"| `{arm}` | Hopper-v5 | {seed} | {last:,} |" in text
    assert "`thespis train sac`" in text
    assert "abacus" in text
    assert (tmp_path / "img" / "learning-both.png").exists()


def test_an_arm_without_all_its_cells_has_no_score(table, choose, tmp_path):
    args, cells = choose()
    for cell in cells[:3]:
        path = cell.path(args.results)
        path.parent.mkdir(parents=True, exist_ok=True)
        learning.save(result(cell), path)
    learning_page.write(table, args.results, tmp_path)
    text = (tmp_path / "learning.md").read_text()
    assert "| `theirs` | 1 of 2 seeds |" in text
    assert "Not complete, so without a score (cells done, of 2): `theirs` (1)." in text
    assert "| `theirs` | 0." not in text


def test_a_stage_without_scores_tells_costs_and_draws_no_curve_of_one_point(tmp_path):
    path = tmp_path / "table.toml"
    path.write_text(TABLE.replace("Hopper-v5", "jax:pendulum").replace("10000", "5000"))
    table, results = Table.read(path), tmp_path / "results"
    for seed, seconds in enumerate((30.0, 50.0)):
        cell = Cell(table.arms["ours"], "jax:pendulum", seed, 5000)
        cell.path(results).parent.mkdir(parents=True, exist_ok=True)
        learning.save(result(cell, (-150.0,), (seconds,)), cell.path(results))
    learning_page.write(table, results, tmp_path)
    text = (tmp_path / "learning.md").read_text()
    assert "| arm | jax:pendulum | CPU-seconds |" in text
    assert "| `ours` | -150 (-150 … -150) | 40 |" in text
    assert "learning-both.png" not in text


# --- the table that is there ------------------------------------------------------------------


ARMS = [arm for arm in Table.read().arms.values() if arm.library == "thespis"]


@pytest.mark.thorough
@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_the_command_accepts_every_arm_of_thespis(arm, monkeypatch, capsys):
    words = [*shlex.split(arm.options), "--env", "jax:pendulum", "--no-probe", "--json"]
    monkeypatch.setattr(sys, "argv", ["thespis", "plan", *words])
    assert not main(), capsys.readouterr().err


def test_every_result_belongs_to_an_arm():
    arms = Table.read().arms
    for path in learning_cells.RESULTS.rglob("*.json"):
        found = json.loads(path.read_text())
        assert found["arm"] == arms[path.parts[-3]].given, path
