"""Environments that other processes step: the same numbers, the same errors, nobody left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import jax
import numpy as np
import pytest

import thespis
from tests.envs.varied import Varied
from tests.small import arguments, differences, wait_for, words
from thespis.core import ThespisError
from thespis.envs.gymnasium import Gymnasium


def assert_same(x, y):
    for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
        assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


def play(envs, script):
    """What they return to a script of actions, ends of episodes and changes."""
    yield envs.reset()
    for action, which, speed in script:
        envs.end(which)
        envs.set_attr("speed", speed)
        yield envs.step(action)


def act(envs, steps):
    for _ in range(steps):
        envs.step(np.zeros((envs.n, 2)))


def alive(pids):
    def there(pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    return [pid for pid in pids if there(pid)]


# --- the same numbers -----------------------------------------------------------------------


@pytest.mark.posix
def test_numbers_are_those_of_one_process_bit_for_bit():
    """With ends of episodes by exchanges, attributes of callbacks, and a slice that is shorter."""
    draw = np.random.default_rng(0)
    script = [
        (draw.uniform(-1, 1, (5, 2)).astype(np.float32), draw.uniform(size=5) < 0.1, float(t // 9))
        for t in range(30)
    ]
    here, there = Gymnasium(Varied).open(5, 3), Gymnasium(Varied).in_workers(2).open(5, 3)
    for one, other in zip(play(here, script), play(there, script), strict=True):
        assert_same(one, other)
    pids = [process.pid for process in there.vector.processes]
    there.close()
    there.close()  # twice is once
    assert alive(pids) == []


@pytest.mark.posix
def test_training_and_evaluations_are_those_of_one_process_bit_for_bit(tmp_path):
    given = arguments(env="CartPole-v1", envs=3, steps=120, log_freq=60, checkpoint_freq=60)
    given |= {"updates_per_step": 0, "hidden": (8, 8), "learning_starts": 60, "eval_freq": 60}
    one = thespis.train("discrete-sac", out=tmp_path / "one", **given)
    two = thespis.train("discrete-sac", out=tmp_path / "two", **given, env_workers=2)
    assert differences(one.path, two.path) == []
    for name in ("eval/mean_reward", "rollout/ep_rew_mean"):
        np.testing.assert_array_equal(one.metrics[name], two.metrics[name])
    assert two.config.env_workers == 2


@pytest.mark.posix
def test_workers_import_no_jax_run_no_script_again_and_end_with_it(tmp_path):
    """The script has no `if __name__ == "__main__"`, and its class is found nowhere else."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, gymnasium, jax\n"
        "import numpy as np\n"
        "from thespis.envs.gymnasium import Gymnasium\n"
        "print('run')\n"
        "class Mine(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(0, 1, (1,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return np.float32([0]), {}\n"
        "    def step(self, action):\n"
        "        return np.float32([0]), float('jax' in sys.modules), False, False, {}\n"
        "envs = Gymnasium(Mine).in_workers(2).open(2, 0)\n"
        "envs.reset()\n"
        "print(envs.step([0, 0]).reward.tolist())\n"
        "print(*(process.pid for process in envs.vector.processes), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    *printed, pids, _ = done.stdout.split("\n")
    assert (printed, done.returncode) == (["run", "[0.0, 0.0]"], -signal.SIGKILL)
    wait_for(lambda: not alive(map(int, pids.split())))  # though nobody closed them


# --- faults ---------------------------------------------------------------------------------


@pytest.mark.posix
@pytest.mark.parametrize("fault", ["raise", "obs", "reward"])
def test_faults_are_told_as_by_one_process(fault):
    def failing(env):
        envs = env.open(3, 0)
        try:
            envs.reset()
            with pytest.raises(ThespisError) as caught:
                act(envs, 6)
        finally:
            envs.close()
        return str(caught.value)

    env = Gymnasium(partial(Varied, fault))
    text = failing(env)
    assert failing(env.in_workers(2)) == text
    assert "step 4" in text
    assert "\n" not in text


@pytest.mark.posix
def test_a_worker_that_dies_is_told_in_one_line():
    envs = Gymnasium(partial(Varied, "die")).in_workers(2).open(4, 0)
    pids = [process.pid for process in envs.vector.processes]
    envs.reset()
    with pytest.raises(ThespisError, match="environments [02] to [13] was ended by SIGKILL"):
        act(envs, 6)
    envs.close()
    assert alive(pids) == []


@pytest.mark.posix
def test_what_cannot_be_sent_is_refused_in_one_line():
    lock = threading.Lock()
    env = Gymnasium(lambda: (lock, Varied())[1]).in_workers(1)
    with pytest.raises(ThespisError, match="Varied cannot be sent to other processes: .*lock"):
        env.open(1, 0)


@pytest.mark.posix
def test_an_attribute_that_nobody_has_is_refused_as_by_one_process():
    envs = Gymnasium(Varied).in_workers(1).open(2, 0)
    envs.reset()
    with pytest.raises(ThespisError, match="Varied has no attribute 'sped': give Varied one"):
        envs.set_attr("sped", 1)
    envs.close()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"env": "jax:pendulum", "envs": 4}, "env_workers = 2 is for environments of Gymnasium"),
        ({"env": "Pendulum-v1"}, "env_workers = 2 is more than the 1 environment"),
        ({"env": "Pendulum-v1", "env_workers": 0}, "env_workers = 0: give at least 1"),
    ],
)
def test_where_workers_have_nothing_to_do_they_are_refused(tmp_path, given, text):
    with pytest.raises(ThespisError, match=text):
        thespis.train("sac", out=tmp_path, **arguments() | {"env_workers": 2} | given)
    assert not list(tmp_path.iterdir())


# --- nobody is left behind ------------------------------------------------------------------


def descendants(pid):
    """The processes below one, by Linux's own list."""
    below = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            for child in map(int, file.read().split()):
                below += [child, *descendants(child)]
    return below


@pytest.mark.slow
@pytest.mark.posix
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="Linux lists processes there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_training(tmp_path, number):
    """Ctrl-C goes to all processes of a terminal; a kill to one."""
    given = {"env": "Pendulum-v1", "steps": 10**6, "updates_per_step": 0, "hidden": (8, 8)}
    argv = words(**given, envs=2, env_workers=2, eval_freq=10**6, out=tmp_path)
    command = [sys.executable, "-m", "thespis", "train", "sac", *argv]
    with subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        wait_for(lambda: list(tmp_path.glob("*/*/status.json")))
        below = descendants(process.pid)
        assert len(below) >= 4  # two workers, the server they are forks of, and a tracker
        time.sleep(0.5)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        errors = process.stderr.read().decode()
    assert process.returncode in (130, -number)
    assert "Traceback" not in errors
    wait_for(lambda: not alive(below))
