"""Jobs in processes of their own: on this machine, on Ray, and as Slurm's; stopped and lost."""

import os
import signal
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import thespis
from tests.small import wait_for
from tests.sweeps.inline import TINY
from thespis.cli.command import main
from thespis.errors import ThespisError
from thespis.runs.directory import status_of
from thespis.sweeps import executors
from thespis.sweeps import job as jobs
from thespis.sweeps.executors import Slurm

LONG = TINY | {"steps": 10**7, "checkpoint_freq": 10**6, "eval_freq": 10**5}


def sweep(out, **changes):
    given = {"env": "jax:pendulum", **TINY, **changes}
    return thespis.sweep("sac", out=out, progress=False, **given)


def interrupt_when_begun(out, number=signal.SIGINT):
    """Sends this process a signal once a job is being trained."""

    def wait():
        begun = lambda: any(map(trains, out.glob("sweeps/*/jobs/*/status.json")))
        wait_for(begun)
        os.kill(os.getpid(), number)

    threading.Thread(target=wait, daemon=True).start()


def trains(path):
    return status_of(path.parent)["state"] == "running"


@pytest.mark.posix
def test_ctrl_c_lets_jobs_save_and_ends_with_130(tmp_path, capsys):
    interrupt_when_begun(tmp_path)
    words = [w for k, v in LONG.items() for w in (f"--{k}", *str(v).strip("()").split(", "))]
    code = main(["sweep", "sac", "--env", "jax:pendulum", "--out", str(tmp_path), *words])
    assert code == 128 + signal.SIGINT
    (run,) = tmp_path.glob("sweeps/*/jobs/*/config.json")
    status = status_of(run.parent)
    assert status["state"] == "stopped"
    assert status["step"] > 0  # it saved where it was
    (sweep,) = tmp_path.glob("sweeps/*")
    assert f"to go on: thespis sweep {sweep}" in capsys.readouterr().err


@pytest.mark.slow
def test_as_many_jobs_run_at_a_time_as_were_asked_for(tmp_path):
    found = sweep(tmp_path, set={"critic_lr": [1e-4, 1e-3]}, jobs=2)
    assert found.counts == {"done": 2}


@pytest.mark.slow
def test_a_job_that_is_killed_is_told(tmp_path):
    def kill():
        wait_for(lambda: any(map(trains, tmp_path.glob("sweeps/*/jobs/*/status.json"))))
        for process in children(os.getpid(), "thespis.sweeps.job"):
            os.kill(process, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    found = sweep(tmp_path, **LONG)
    (row,) = found.rows
    assert row["state"] == "failed"
    assert "ended by signal 9" in row["error"]


def children(parent, module=None):
    """Processes that another one has started, to run a module or anything."""
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            status = Path("/proc", entry, "stat").read_text().rpartition(")")[2]
            words = Path("/proc", entry, "cmdline").read_text().split("\0")
        except OSError:  # it has ended meanwhile
            continue
        if int(status.split()[1]) == parent and (module is None or module in words):
            yield int(entry)


# --- Ray ------------------------------------------------------------------------------------


class Cancelled(Exception):
    """A task was cancelled."""


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """Ray with a node of two CPUs whose tasks wait for ever -> its executor, by size of jobs."""
    cancelled, left = [], []

    def get(handle):
        raise Cancelled

    errors = SimpleNamespace(TaskCancelledError=Cancelled, RayError=Exception)
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": True, "Resources": {}}]
    task = SimpleNamespace(remote=lambda folder, name, *rest: f"task of {name}")
    ray = SimpleNamespace(
        nodes=lambda: nodes,
        cluster_resources=lambda: {"CPU": 2.0},
        remote=lambda function: SimpleNamespace(options=lambda **how: task),
        wait=lambda handles, timeout: ([x for x in handles if x in cancelled], []),
        get=get,
        cancel=cancelled.append,
        exceptions=errors,
    )

    @contextmanager
    def connect(address):
        yield ray
        left.append(address)

    monkeypatch.setattr(executors, "connect", connect)
    (tmp_path / "jobs").mkdir()
    made = lambda size: executors.Ray(tmp_path, size, None, False, None)
    made.cancelled, made.left = cancelled, left
    return made


def test_jobs_larger_than_any_node_of_ray_are_refused(pretended):
    with pytest.raises(ThespisError, match="takes 3 CPU.* largest node of Ray has 2: give fewer"):
        pretended(3)
    assert pretended(2).slots == 1


def test_tasks_of_ray_without_a_place_end_with_a_stop(pretended, tmp_path, monkeypatch):
    executor = pretended(1)
    (tmp_path / "jobs" / "001-b.log").touch()  # this one may have begun, and saves
    for name in ("000-a", "001-b"):
        executor.start(name)
    assert executor.ended() == {}
    executor.stop()
    assert executor.ended() == {"000-a": 130}
    assert pretended.cancelled == ["task of 000-a"]
    monkeypatch.setattr(jobs, "PATIENCE", -1.0)
    executor.end = None
    executor.close()
    assert pretended.cancelled == ["task of 000-a", "task of 001-b"]
    assert pretended.left == [None]


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of two nodes on this machine, and one without CPUs that has Ray's own server."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made
    import ray

    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_jobs_run_as_tasks_of_a_ray_cluster(tmp_path, cluster):
    given = {"executor": "ray", "ray": cluster.address}
    given |= {"env": "jax:pendulum,tests.small:ToyRaise-v0", "learning_starts": 50}
    found = sweep(tmp_path, **given)
    assert found.counts == {"done": 1, "failed": 1}
    assert "the curtain fell" in found.rows[1]["error"]


@pytest.mark.slow
@pytest.mark.posix
@pytest.mark.filterwarnings("default")
def test_ctrl_c_lets_tasks_of_ray_save(tmp_path, cluster):
    interrupt_when_begun(tmp_path)
    found = sweep(tmp_path, executor="ray", ray=cluster.address, **LONG)
    assert found.signal == signal.SIGINT
    assert found.rows[0]["state"] == "stopped"
    assert found.rows[0]["step"] > 0


def test_a_file_in_the_current_folder_does_not_stand_in_for_a_library(tmp_path, monkeypatch):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "a_library.py").write_text("print('imported')")
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", lambda command, **how: command)
        command = jobs.start(tmp_path, "000")
    python = command[: command.index("-m")]
    tried = [*python, "-c", "import a_library"]
    process = subprocess.run(tried, cwd=tmp_path, capture_output=True, text=True)
    assert "No module named 'a_library'" in process.stderr
    assert process.stdout == ""


@pytest.mark.slow
@pytest.mark.posix
@pytest.mark.filterwarnings("default")
def test_a_task_that_is_lost_with_its_node_goes_on_elsewhere(tmp_path, cluster):
    """A node is killed with all its processes, as if its machine had lost power."""
    raylet_of = lambda node: node.all_processes["raylet"][0].process.pid
    killed = []

    def lose():
        wait_for(lambda: any(map(trains, tmp_path.glob("sweeps/*/jobs/*/status.json"))))
        nodes = {raylet_of(node): node for node in cluster.list_all_nodes() if not node.head}
        for raylet, node in nodes.items():
            workers = list(children(raylet))
            jobs = [job for worker in workers for job in children(worker, "thespis.sweeps.job")]
            if jobs:
                killed.append(node)
                for process in (raylet, *workers, *jobs):
                    os.kill(process, signal.SIGKILL)
                cluster.remove_node(node, allow_graceful=False)

    threading.Thread(target=lose, daemon=True).start()
    given = {"executor": "ray", "ray": cluster.address, "jobs": 1}
    found = sweep(tmp_path, **given, **LONG | {"steps": 50_000, "eval_freq": 50_000})
    assert len(killed) == 1
    assert found.counts == {"done": 1}
    (job,) = found.jobs
    assert len(thespis.load(found.path / "jobs" / job.name).saved["resumes"]) == 1


# --- Slurm ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")
def test_submitit_works_in_a_folder_in_which_nobody_has_put_anything(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "1_submitted.pkl").write_bytes(b"a stranger's, to be unpickled")
    slurm = Slurm(tmp_path, 1, 1, False, {"cluster": "local"})
    assert slurm.executor.folder.parent == tmp_path / "slurm"
    assert not any(slurm.executor.folder.iterdir())
    said = lambda task: os.environ["PYTHONSAFEPATH"]  # the current folder has no libraries
    monkeypatch.setattr(slurm.executor, "submit", said)
    slurm.start("000")
    assert slurm.running == {"000": "1"}
    assert "PYTHONSAFEPATH" not in os.environ


@pytest.mark.filterwarnings("default")
def test_a_job_that_slurm_refuses_is_told_in_one_line(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    slurm = Slurm(tmp_path, 1, 1, False, {"cluster": "local"})

    def refuse(task):
        raise RuntimeError("sbatch: error: QOSMaxSubmitJobPerUserLimit\nBatch job failed")

    monkeypatch.setattr(slurm.executor, "submit", refuse)
    with pytest.raises(ThespisError, match="slurm takes no job: .*QOSMaxSubmitJob") as refused:
        slurm.start("000")
    assert "\n" not in str(refused.value)
    assert slurm.running == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_jobs_are_handed_to_slurm_by_submitit(tmp_path):
    pytest.importorskip("submitit")
    given = {"executor": "slurm", "slurm": {"cluster": "local"}, "learning_starts": 50}
    found = sweep(tmp_path, env="jax:pendulum,tests.small:ToyRaise-v0", **given)
    assert found.counts == {"done": 1, "failed": 1}
    assert "the curtain fell" in found.rows[1]["error"]


@pytest.mark.slow
@pytest.mark.posix
@pytest.mark.filterwarnings("default")
def test_a_job_of_slurm_that_is_cut_off_goes_on_by_itself(tmp_path, monkeypatch):
    submitit = pytest.importorskip("submitit")
    submit = submitit.AutoExecutor.submit

    def cut_off(self, task):
        handle = submit(self, task)

        def later():
            wait_for(lambda: any(map(trains, tmp_path.glob("sweeps/*/jobs/*/status.json"))))
            for process in children(handle._process.pid, "submitit.core._submit"):
                os.kill(process, signal.SIGUSR2)  # as Slurm does before the time is over

        threading.Thread(target=later, daemon=True).start()
        return handle

    monkeypatch.setattr(submitit.AutoExecutor, "submit", cut_off)
    found = sweep(
        tmp_path,
        executor="slurm",
        slurm=["cluster=local"],
        **LONG | {"steps": 50_000, "eval_freq": 50_000},
    )
    assert found.counts == {"done": 1}
    (job,) = found.jobs
    assert len(thespis.load(found.path / "jobs" / job.name).saved["resumes"]) == 1
