"""Sweeps from start to end: the table, restarts, stops, failures, the page."""

import csv
import signal

import numpy as np
import pytest

import thespis
from tests.report import pages
from tests.small import differences, stop_at
from tests.sweeps.inline import TINY, Inline, inline, sweep
from thespis.errors import ThespisError
from thespis.runs.process import alone
from thespis.sweeps import sweep as sweeps

pytestmark = pytest.mark.usefixtures("kept", "undrawn")
RATES = {"critic_lr": [3e-4, 1e-3]}
GRID = RATES | {"gamma": [0.9, 0.99]}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two rates and two discounts, all done."""
    with pytest.MonkeyPatch.context() as patch:
        made = inline.__wrapped__(patch)
        patch.setattr("thespis.xla.compile_cache.keeping", True)
        found = sweep(tmp_path_factory.mktemp("swept"), set=GRID)
        assert len(made[0].started) == 4
    return found


def test_a_sweep_is_a_folder_of_ordinary_runs(swept):
    assert swept.path.parent.name == "sweeps"
    assert swept.counts == {"done": 4}
    for job, row in zip(swept.jobs, swept.rows, strict=True):
        run = thespis.load(swept.path / "jobs" / job.name)
        assert all(run.config.hp[name] == row[name] for name in GRID)
        assert run.config.seeds == (0, 1)  # seeds are members of one run
        assert run.saved["command"] == row["command"]
        last = run.metrics["eval/mean_reward"][-2:]
        assert row["iqm"] == pytest.approx(np.mean(last))  # of two, the middle half is their mean
        assert row["low"] == pytest.approx(min(last))
        assert row["high"] == pytest.approx(max(last))


def test_the_table_is_a_file_and_a_frame(swept):
    with open(swept.path / "results.csv") as file:
        lines = list(csv.DictReader(file))
    frame = swept.frame()
    assert list(frame["critic_lr"]) == [float(line["critic_lr"]) for line in lines]
    assert list(frame["iqm"]) == [float(line["iqm"]) for line in lines]
    assert swept.frame("polars")["state"].to_list() == ["done"] * 4
    with pytest.raises(ThespisError, match="give pandas or polars"):
        swept.frame("numpy")


def test_the_best_setting_is_that_with_the_highest_iqm(swept):
    best = max(swept.rows, key=lambda row: row["iqm"])
    assert swept.best["iqm"] == best["iqm"]
    assert swept.best["algo"] == best["algo"]
    assert swept.best["commands"] == {"jax:pendulum": best["command"]}


def test_the_page_has_the_table_the_best_and_a_heat_map(swept):
    told = pages.data(swept.path / "report.html")
    assert len(told["runs"]) == 4
    assert [row["iqm"] for row in told["sweep"]["rows"]] == sorted(
        (row["iqm"] for row in swept.rows), reverse=True
    )
    assert told["sweep"]["best"]["commands"] == swept.best["commands"]
    (heat,) = told["sweep"]["maps"]
    assert (heat["y"], heat["x"]) == ("critic_lr", "gamma")
    assert heat["jobs"] == [[1, 1], [1, 1]]


def test_what_is_finished_is_not_run_again(swept, inline):
    again = sweep(swept.path.parents[1], set=GRID)
    assert again.path == swept.path
    assert inline[0].started == []
    assert thespis.sweep(config=swept.path, progress=False).path == swept.path
    assert inline[1].started == []


def test_another_question_is_another_folder(swept):
    out = swept.path.parents[1]
    given = TINY | {"algo": "sac", "env": "jax:pendulum", "set": GRID, "out": out}
    same, _ = sweeps.open_sweep(given | {"seeds": "0-1", "jobs": 7}, None, False)
    other, _ = sweeps.open_sweep(given | {"seeds": "0-2"}, None, False)
    assert same.path == swept.path
    assert other.path == swept.path.with_name(swept.path.name.replace("_1", "_2"))
    with pytest.raises(ThespisError, match="there is no such sweep"):
        sweeps.open_sweep(given | {"seeds": "0-3"}, None, False, new=False)


def test_two_sweeps_at_once_in_one_folder_are_refused(swept, inline):
    with alone(swept.path), pytest.raises(ThespisError, match="is being swept by another process"):
        thespis.sweep(config=swept.path)
    assert not any(executor.started for executor in inline)


def test_a_stopped_sweep_goes_on_exactly(tmp_path, inline, swept, monkeypatch):
    given = {"set": {"critic_lr": [3e-4]}, "gamma": 0.9}
    with monkeypatch.context() as patch:
        stop_at(patch, 130, signal.SIGTERM)
        assert sweep(tmp_path, **given).counts == {"stopped": 1}
    whole = sweep(tmp_path, **given)
    assert whole.counts == {"done": 1}
    same = swept.path / "jobs" / swept.jobs[0].name
    assert not differences(same, whole.path / "jobs" / whole.jobs[0].name)


def test_a_job_that_fails_does_not_stop_the_others(tmp_path, inline):
    given = {"env": "tests.small:ToyRaise-v0,jax:pendulum", "learning_starts": 50}
    found = sweep(tmp_path, **given)
    failed, done = found.rows
    assert found.counts == {"done": 1, "failed": 1}
    assert "the curtain fell" in failed["error"]
    assert "\n" not in failed["error"]
    assert done["env"] == "jax:pendulum"
    assert found.best is None  # no setting is done on both environments
    again = sweep(tmp_path, **given)
    assert inline[1].started == [failed["job"]]
    assert again.path == found.path


class Picky(Inline):
    """Takes so many jobs at a time, though it has more slots; they end when they are looked at."""

    slots = 5

    def __init__(self, room):
        self.room, self.running, self.started = room, [], []

    def start(self, name):
        if len(self.running) == self.room:
            raise ThespisError("no more jobs")
        self.running.append(name)
        self.started.append(name)

    def ended(self):
        return {self.running.pop(0): 130}


def runner(tmp_path):
    """What runs a sweep of three jobs."""
    given = TINY | {"algo": "sac", "env": "jax:pendulum", "out": tmp_path}
    opened, _ = sweeps.open_sweep(given | {"set": {"gamma": [0.9, 0.95, 0.99]}}, None, False)
    made = sweeps.Runner(opened, {}, True, False)
    made.sampler = sweeps.sampler_of(opened.plan, opened.path)
    for job in made.sampler.known():
        made.is_over(job)
    return made


def test_jobs_that_are_refused_wait_until_others_have_ended(tmp_path, capsys):
    made, executor = runner(tmp_path), Picky(2)
    made.follow(made.sampler.known(), 0, executor, [])
    names = [job.name for job in made.sampler.known()]
    assert executor.started == names
    said = f"no more jobs; {names[2]} waits until another one has ended"
    assert said in capsys.readouterr().out
    with pytest.raises(ThespisError, match="no more jobs"):  # there is nothing to wait for
        made.follow(made.sampler.known(), 0, Picky(0), [])


def test_an_unknown_metric_ends_a_sweep_when_its_first_job_has_begun(tmp_path, inline):
    with pytest.raises(ThespisError, match="eval/mean_rewards is not a metric of sac; did you"):
        sweep(tmp_path, set=RATES, metric="eval/mean_rewards")
    assert len(inline[0].started) == 1


def test_a_folder_that_is_no_sweep_is_refused(tmp_path):
    with pytest.raises(ThespisError, match="no sweep at .*: give a folder or a sweep.toml"):
        thespis.sweep(config=tmp_path / "nothing.toml")
    with pytest.raises(ThespisError, match="no sweep at"):
        sweeps.Sweep(tmp_path)


def test_a_file_says_what_arguments_say_and_arguments_win(tmp_path, inline):
    text = 'algo = "sac"\nenv = "jax:pendulum"\nseeds = "0-1"\nsteps = 400\n'
    text += "[set]\ncritic_lr = [3e-4, 1e-3]\n"
    (tmp_path / "rates.toml").write_text(text)
    found, running = sweeps.open_sweep(
        TINY | {"out": tmp_path, "jobs": 3}, tmp_path / "rates.toml", False
    )
    assert found.path == tmp_path / "sweeps" / "rates_1"
    assert found.plan.options["steps"] == 200
    assert found.plan.set == RATES
    assert running == {"executor": "local", "jobs": 3}


def test_who_names_a_cluster_means_it():
    """From Python and in files, too; what is typed wins over a file, with its cluster."""
    running = sweeps.running_of
    assert running({"ray": "auto"}, {}) == {"executor": "ray", "ray": "auto"}
    slurm = {"executor": "slurm", "slurm": {"timeout_min": 5}}
    assert running({"slurm": ["timeout_min=5"]}, {}) == slurm
    assert running({}, {"slurm": {"timeout_min": 5}}) == slurm
    assert running({"executor": "local"}, slurm | {"jobs": 2}) == {"executor": "local", "jobs": 2}
    assert running({"ray": "auto"}, slurm) == {"executor": "ray", "ray": "auto"}
    old = {"executor": "local", "ray": "auto"}  # as folders of sweeps may have it
    assert running({}, old) == {"executor": "local"}
    for wrong in ({"executor": "slurm", "ray": "auto"}, {"ray": "auto", "slurm": "mem_gb=1"}, old):
        with pytest.raises(ThespisError, match="is not for executor = .*: leave one of them out"):
            running(wrong, {})


def test_a_file_with_the_cluster_of_another_executor_is_refused(tmp_path):
    (tmp_path / "rates.toml").write_text('algo = "sac"\nexecutor = "local"\nray = "auto"\n')
    with pytest.raises(ThespisError, match="ray.* is not for executor = local"):
        sweeps.open_sweep({"out": tmp_path}, tmp_path / "rates.toml", False)
