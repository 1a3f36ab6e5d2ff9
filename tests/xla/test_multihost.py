"""Several processes train one population: what one alone would make of it, bit for bit."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests.small import arguments, differences, wait_for, words
from thespis.errors import ThespisError
from thespis.runs import checkpoint, metrics
from thespis.runs import config as configs
from thespis.xla import multihost, threads
from thespis.xla.placement import MEMBERS, local_part, local_slice, whole

pytestmark = pytest.mark.posix
COMMAND = [sys.executable, "-m", "thespis"]
# JAX keeps no compiled programs for any process but the first: so compile in a hurry.
HURRY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
POPULATION = {
    "members": 4,
    "hidden": (4,),
    "batch_size": 8,
    "learning_starts": 20,
    "devices": 1,
    "threads": 1,
}


def start(*argv, flags: str = HURRY, **more: str) -> subprocess.Popen:
    pipe, env = subprocess.PIPE, os.environ | {"NPROC": "1", "XLA_FLAGS": flags} | more
    return subprocess.Popen([*map(str, argv)], stdout=pipe, stderr=pipe, text=True, env=env)


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


def together(*argv, n: int = 2, flags: str = HURRY) -> list[subprocess.Popen]:
    """The same command, once per process."""
    at = ["--coordinator", free_port(), "--processes", n]
    return [start(*COMMAND, *argv, *at, "--process", i, flags=flags) for i in range(n)]


def end(*children: subprocess.Popen, code: int = 0) -> list[tuple[str, str]]:
    """What they said, once all have ended as they should."""
    said = [child.communicate(timeout=600) for child in children]
    assert [child.returncode for child in children] == [code] * len(children), said
    return said


def same(a: Path, b: Path) -> None:
    assert differences(a, b) == []
    assert metrics.differences(a / "metrics.csv", b / "metrics.csv") == []
    assert (a / "lineage.csv").read_bytes() == (b / "lineage.csv").read_bytes()


WAITING = """
import sys, time
from thespis import cli
from thespis.runs import checkpoint, trainer
at, save, run = int(sys.argv[1]), checkpoint.save, trainer.Trainer.run

def run_until_asked(self, stop):
    def save_and_wait(folder, step, *rest):
        save(folder, step, *rest)
        while step == at and not stop:
            time.sleep(0.01)

    checkpoint.save = save_and_wait
    return run(self, stop)

trainer.Trainer.run, sys.argv[1:] = run_until_asked, sys.argv[2:]
sys.exit(cli.main())
"""


@pytest.mark.thorough
def test_two_processes_asked_to_end_and_continued_by_one_equal_one_alone(tmp_path):
    every = {"steps": 600, "eval_freq": 100, "checkpoint_freq": 150, "pbt.interval": 100}
    given = POPULATION | every | {"buffer_size": 400}  # not full at the signal, but in the end
    train = ["train", "td3", "--json", *words(**given), "--out", tmp_path / "pair"]
    train += ["--coordinator", free_port(), "--processes", 2, "--process"]
    flags = os.environ.get("XLA_FLAGS", "")  # compiled as here
    waiting = [sys.executable, "-c", WAITING, 300]  # there, for the signal; the other for it
    pair = [start(*COMMAND, *train, 0, flags=flags), start(*waiting, *train, 1, flags=flags)]
    alone = thespis.train("td3", out=tmp_path / "alone", **arguments(**given))
    folder = tmp_path / "pair" / "td3" / "jax-pendulum_1"
    saved = lambda: max([0, *(int(p.name) for p in (folder / "checkpoints").glob("0*[0-9]"))])
    wait_for(lambda: saved() >= 300 or any(child.poll() is not None for child in pair), 600)
    pair[1].send_signal(signal.SIGTERM)  # to one of them: all of them save and end
    leader, follower = end(*pair, code=143)
    assert json.loads(leader[0])["state"] == "stopped"
    assert f"to go on: thespis resume {folder}" in leader[1]
    assert follower == ("", "")
    assert [p.name for p in (tmp_path / "pair" / "td3").iterdir()] == ["jax-pendulum_1"]
    assert saved() == 300
    assert len(alone.lineage["step"]) == 4 * 5  # at 100, 200, ... 500
    assert thespis.resume(folder, progress=False).status["state"] == "done"
    same(alone.path, folder)


LAUNCHERS = {  # what they tell the first and the second of two processes
    "srun": {
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_NODELIST": "localhost,elsewhere",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "01",
        "SLURM_LOCALID": "00",
    },
    "mpirun": {
        "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://127.0.0.1,10.96.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "01",
        "OMPI_COMM_WORLD_LOCAL_RANK": "01",
    },
}


def launch(launcher: str, *argv) -> list[subprocess.Popen]:
    """The same command, started as a launcher does, on a port that is free."""
    told = LAUNCHERS[launcher] | {"JAX_COORDINATOR_PORT": free_port().rpartition(":")[2]}
    own = ("RANK", "PROCID", "LOCALID")
    telling = lambda i: {k: x[i] if k.endswith(own) else x for k, x in told.items()}
    return [start(*argv, **telling(i)) for i in range(2)]


@pytest.mark.slow
def test_two_processes_of_slurm_train_together_without_being_told_more(tmp_path):
    small = {"steps": 60, "eval_freq": 60, "eval_episodes": 1, "members": None, "seeds": (3, 4)}
    given = words(**POPULATION | small)
    train = ["train", "td3", *given, "--coordinator", "auto", "--wait", 100, "--out", tmp_path]
    (_, said), silence = end(*launch("srun", *COMMAND, *train))
    assert "2 processes" in said
    assert silence == ("", "")
    run = thespis.load(tmp_path / "td3" / "jax-pendulum_1")
    assert run.status == {"state": "done", "step": 60}
    assert sorted(run.metrics["member"].tolist()) == [0, 1]


MET = """
import os
import numpy as np
from thespis.xla import multihost
multihost.join("auto", wait=100)
own = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["SLURM_PROCID"]
assert multihost.several() and multihost.leads() == (own == "0")
assert multihost.from_all(np.array(int(own))).tolist() == [0, 1]
assert multihost.of_leader({"x": np.array(int(own))})["x"] == 0
"""


@pytest.mark.parametrize("launcher", ["srun", pytest.param("mpirun", marks=pytest.mark.slow)])
def test_two_processes_of_a_launcher_meet_without_being_told_more(launcher):
    assert end(*launch(launcher, sys.executable, "-c", MET)) == [("", "")] * 2


def test_without_a_launcher_the_meeting_is_refused(monkeypatch):
    monkeypatch.setattr(threads, "started", lambda: False)
    for name in ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ThespisError, match="finds no launcher: start with srun, mpirun or Kub"):
        multihost.join("auto")


STEPPED = """
import sys
import jax, jax.numpy as jnp, numpy as np
from thespis import TD3, make
from thespis.tuning import hyper
from thespis.xla import multihost
multihost.join(sys.argv[1], 2, int(sys.argv[2]))
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import Loop
from thespis.xla.placement import mesh_for

env, seeds, hps = make("Pendulum-v1"), jnp.arange(2), hyper.fill(TD3.Hyper, {}, 2)

def trained(mesh):
    loop = Loop(TD3(env.spec, hidden=(4,), batch_size=8), env, capacity=30, mesh=mesh)
    driver = HostDriver(loop, seeds)
    x = driver.init(seeds, hps)
    for length, learn in ((10, False), (10, True)):
        x = driver.run(x, hps, None, seeds, length, "explore", learn)
    return len(driver.envs.envs), multihost.read((x.state, x.replay.rows))

here, found = trained(mesh_for(2, 1))
assert here == 1
if multihost.leads():
    both, wanted = trained(None)
    assert both == 2
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
"""


@pytest.mark.slow
def test_environments_of_python_are_stepped_by_the_process_of_their_members():
    at = free_port()
    end(*(start(sys.executable, "-c", STEPPED, at, i) for i in range(2)))


@pytest.mark.slow
def test_two_processes_tune_a_population_in_environments_of_python_as_one_does(tmp_path):
    short = {"env": "Pendulum-v1", "steps": 120, "eval_freq": 60, "eval_episodes": 1}
    options = words(**POPULATION | short | {"pbt.interval": 60, "pbt.replay": "parent"})
    train = ["train", "td3", "--json", *options, "--out"]
    alone, pair = start(*COMMAND, *train, tmp_path / "a"), together(*train, tmp_path / "b")
    end(alone, *pair)
    one, two = (tmp_path / out / "td3" / "Pendulum-v1_1" for out in "ab")
    same(one, two)
    assert len(metrics.read(two / "lineage.csv")["step"]) == 4


@pytest.mark.slow
def test_callbacks_of_the_first_process_count_for_all(tmp_path):
    short = {"steps": 120, "eval_freq": 30, "eval_episodes": 1, "pbt.interval": 60}
    options = [*words(**POPULATION | short), "--callback", "tests.xla.hooks:Tamper"]
    train = ["train", "td3", "--json", *options, "--out"]
    alone, pair = start(*COMMAND, *train, tmp_path / "a"), together(*train, tmp_path / "b")
    end(alone, *pair)
    one, two = (tmp_path / out / "td3" / "jax-pendulum_1" for out in "ab")
    assert differences(one, two) == []
    assert (one / "lineage.csv").read_bytes() == (two / "lineage.csv").read_bytes()
    status = json.loads((two / "status.json").read_text())
    assert status == {"state": "done", "step": 90, "reason": "Tamper: enough"}
    left, right = (metrics.read(folder / "metrics.csv") for folder in (one, two))
    assert left.keys() == right.keys()
    for name in (name for name in left if not name.startswith("time/")):
        # Losses are huge here, and their means were seen to differ in the last bit.
        assert left[name] == pytest.approx(right[name], rel=1e-6, nan_ok=True), name
    assert right["mine/rate"][-4:] == pytest.approx(right["hparams/critic_lr"][-4:])


# --- others who do not answer ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("process", "words"), [(0, "not all 2 processes came to"), (1, "nobody answers at")]
)
def test_a_host_that_does_not_answer_is_one_line(tmp_path, process, words):
    at = free_port()
    more = ["--coordinator", at, "--processes", 2, "--process", process, "--wait", 1]
    train = ["train", "sac", "--env", "jax:pendulum", "--out", tmp_path, *more]
    child = start(*COMMAND, *train)
    _, err = child.communicate(timeout=600)
    assert child.returncode == 2, err
    assert f"thespis: {words} {at} in 1 s: check the address" in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


PEER = """
import sys, time
import numpy as np
from thespis.xla import multihost
multihost.join(sys.argv[1], 2, int(sys.argv[2]))
assert multihost.several() and multihost.leads() == (sys.argv[2] == "0")
assert multihost.from_all(np.array(int(sys.argv[2]))).tolist() == [0, 1]
assert multihost.of_leader({"x": np.array(int(sys.argv[2]))})["x"] == 0
print("ready", flush=True)
while sys.argv[3] == "exchanges":
    multihost.from_all(np.zeros(1))
while sys.argv[3] == "works":
    time.sleep(0.01)
"""


@pytest.mark.cases(1)
@pytest.mark.parametrize(("who", "doing"), [(0, "exchanges"), (1, "works")])
def test_a_process_that_dies_ends_the_others_in_one_line(who, doing):
    at = free_port()
    pair = [start(sys.executable, "-c", PEER, at, i, doing) for i in range(2)]
    for child in pair:
        assert next(iter(child.stdout or ())) == "ready\n"
    pair[who].kill()
    other = pair[1 - who]
    _, err = other.communicate(timeout=600)
    pair[who].communicate()
    assert other.returncode == 2, err
    assert err == f"thespis: {multihost.GONE}\n"


@pytest.mark.slow  # those of a launcher part in silence too
def test_processes_that_have_done_their_work_part_in_silence():
    at = free_port()
    pair = [start(sys.executable, "-c", PEER, at, i, "ends") for i in range(2)]
    assert end(*pair) == [("ready\n", "")] * 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coordinator": "here:1"}, "needs processes, and the process's own number"),
        ({"coordinator": "here", "processes": 2, "process": 0}, "give HOST:PORT, or auto"),
        ({"coordinator": "here:1", "processes": 2, "process": 2}, "a number from 0 to 1"),
    ],
)
def test_processes_that_cannot_meet_are_refused(monkeypatch, given, message):
    monkeypatch.setattr(threads, "started", lambda: False)
    with pytest.raises(ThespisError, match=message):
        multihost.join(**given)


def test_after_jax_has_started_it_is_too_late():
    jnp.zeros(1)
    with pytest.raises(ThespisError, match="call join before any other function of JAX"):
        multihost.join("here:1", 2, 0)


def test_without_a_coordinator_a_process_trains_alone_whatever_the_launcher_says(monkeypatch):
    for name in ("JOB_ID", "STEP_NODELIST", "NTASKS", "PROCID", "LOCALID"):
        monkeypatch.setenv(f"SLURM_{name}", "2")
    assert threads.process_index_and_count() == (0, 1)
    assert multihost.leads()


def test_members_are_shared_by_devices_of_all_processes(monkeypatch):
    monkeypatch.setattr(threads, "process_index_and_count", lambda: (0, 2))
    make = lambda **given: configs.make("sac", {"env": "jax:pendulum", **given})
    assert make(members=6).devices == 1
    assert make(members=8, devices=4).devices == 4
    with pytest.raises(ThespisError, match="devices = 4 of 2 processes cannot share 4 members"):
        make(members=4, devices=4)


# --- alone ----------------------------------------------------------------------------------


def test_alone_all_is_ones_own():
    x = {"x": jnp.arange(3.0)}
    assert local_slice(None, 3) == slice(0, 3)
    assert local_part(None, x, MEMBERS) is x
    assert whole(None, x, MEMBERS) is x
    assert multihost.gather(x)["x"].tolist() == [0, 1, 2]
    assert multihost.from_all(x)["x"].tolist() == [[0, 1, 2]]
    assert multihost.of_leader(x) is x
    assert multihost.read(x)["x"].tolist() == [0, 1, 2]
    multihost.leave(3)  # is still here


def test_only_the_first_rows_are_written(tmp_path):
    ring = jnp.arange(12.0).reshape(6, 2)
    path = checkpoint.save(tmp_path, 1, {"replay": {"x": multihost.Rows(ring, 4)}}, {})
    found = checkpoint.load(path, {"replay": {"x": np.zeros((4, 2), np.float32)}})
    assert np.array_equal(found["replay"]["x"], ring[:4])


COPIED = """
import resource
import jax, numpy as np
from jax.sharding import NamedSharding
from thespis.xla import multihost
from thespis.xla.placement import ROWS_OF_MEMBERS, mesh_for

ring = jax.numpy.arange(2 * 10**7, dtype="float32").reshape(-1, 4)  # 80 MB
split = jax.device_put(ring, NamedSharding(mesh_for(4, 2), ROWS_OF_MEMBERS)).block_until_ready()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
multihost.BLOCK, rows = 2**20, len(ring) - 3
before, start = peak(), 0
for block in multihost.Rows(split, rows).blocks():
    assert np.array_equal(block, np.asarray(ring)[start : start + len(block)])
    start += len(block)
assert start == rows
assert peak() - before < 40_000, (before, peak())
"""


def test_rows_that_are_split_over_devices_are_written_without_a_copy_of_all():
    end(start(sys.executable, "-c", COPIED, flags=f"{threads.DEVICES}=2"))
