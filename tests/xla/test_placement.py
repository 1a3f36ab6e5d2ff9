"""Members may be split over devices: each learns what it learns elsewhere, bit for bit."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from thespis.xla.placement import mesh_for
from thespis.xla.threads import even_share

HERE = Path(__file__).parent
FLAGS = os.environ.get("XLA_FLAGS", "")  # compiled as here
FOUR = {"NPROC": "1", "XLA_FLAGS": f"{FLAGS} --xla_force_host_platform_device_count=4"}


def placed(env: str, replay: str) -> list[dict]:
    """What a process with four devices makes of a population on one and on all of them."""
    command = [sys.executable, HERE / "placed.py", env, replay]
    done = subprocess.run(command, env=os.environ | FOUR, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("env", "replay"),
    [
        ("jax:pendulum", "prioritized"),
        pytest.param("Pendulum-v1", "uniform", marks=pytest.mark.slow),
    ],
)
def test_members_on_four_devices_equal_those_on_one(env, replay):
    one, four = placed(env, replay)
    assert (one["devices"], four["devices"]) == (1, 4)
    assert one["adopted"]
    assert four["adopted"]
    assert one["prints"] == four["prints"]
    assert one["metrics"] == four["metrics"]


BEGIN = """
import jax, jax.numpy as jnp
from thespis.algos import SAC
from thespis.engine.loop import Loop
from thespis.envs import make
from thespis.nn.networks import Network
from thespis.tuning import hyper
from thespis.xla.placement import mesh_for

env, wide = make("jax:pendulum"), Network(hidden=(128,), body="simba", init="orthogonal")
algo = SAC(env.spec, actor_network=wide, critic_network=wide)
loop = Loop(algo, env, capacity=100, mesh=mesh_for(8, 4))
x = loop.create(jnp.arange(8, dtype=jnp.int32), hyper.fill(SAC.Hyper, {}, 8))
print(jax.block_until_ready(x).clock.now, len(jax.tree.leaves(x.state)[0].sharding.device_set))
"""


def test_members_that_share_devices_begin_with_orthogonal_weights():
    """LAPACK's decompositions on several devices waited for each other."""
    more = {"env": os.environ | FOUR, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, "-c", BEGIN], **more)
    assert done.stdout.split() == ["0", "4"], done.stderr


SMALL = "--steps 40 --members 4 --pbt --learning-starts 20 --batch-size 16 --eval-episodes 1"
BODIES = "--critic.hidden 8 --actor.hidden 8"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "chosen",
    [
        "td7 --hidden 8 8",
        f"sac --preset simbav2 {BODIES}",
        f"sac --preset flashsac-cpu {BODIES}",
        "sac --preset tqc --hidden 8 8 --critic-hidden 8 8",
        "sac --preset fast --hidden 8 8",
        "sac --preset xqc-cpu --hidden 8 8",
    ],
)
def test_metrics_of_a_command_on_two_devices_equal_those_on_one(chosen, tmp_path):
    def metrics(devices: int) -> list[dict[str, str]]:
        out = tmp_path / str(devices)
        given = f"{chosen} --env jax:pendulum {SMALL} --log-freq 1 --threads 1 --devices {devices}"
        command = [sys.executable, "-m", "thespis", "train", *given.split(), "--out", out]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (file,) = out.glob("*/*/metrics.csv")
        rows = csv.DictReader(file.read_text().splitlines())
        return [{k: x for k, x in row.items() if not k.startswith("time/")} for row in rows]

    one, two = metrics(1), metrics(2)
    assert len(one) == 4 * 40
    assert one == two


def test_devices_share_members_evenly():
    assert [even_share(members, 4) for members in (1, 2, 5, 6, 8)] == [1, 2, 1, 3, 4]
    assert mesh_for(8, 1) is None  # tests have one device
