"""Videos of every kind of environment, each in a process of its own as the command has it."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow
TINY = "--steps 200 --hidden 8 --batch-size 16 --learning-starts 100 --eval-episodes 1"
SCRIPT = "import sys; from thespis.cli.command import main; sys.exit(main(sys.argv[1:]))"


def command(*words, cwd):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("algo", "env", "library"),
    [
        ("sac", "jax:pendulum", "numpy"),
        ("sac", "jax:mountain-car", "numpy"),
        ("discrete-sac", "CartPole-v1", "pygame"),
        ("discrete-sac", "Acrobot-v1", "pygame"),
        ("discrete-sac", "LunarLander-v3", "Box2D"),
        ("sac", "BipedalWalker-v3", "Box2D"),
        ("td3", "HalfCheetah-v5", "mujoco"),
        ("sac", "brax:inverted_pendulum", "brax"),
        ("sac", "brax:halfcheetah", "brax"),
        ("taac", "jax:pendulum", "numpy"),
    ],
)
def test_a_video_of(algo, env, library, tmp_path):
    pytest.importorskip(library)
    command("train", algo, "--env", env, *TINY.split(), "--json", cwd=tmp_path)
    (run,) = (tmp_path / "runs" / algo).iterdir()
    for video in ("video.gif", "video.mp4"):
        command("play", str(run), "-o", video, cwd=tmp_path)
        assert (tmp_path / video).stat().st_size > 5000
    with Image.open(tmp_path / "video.gif") as gif:
        assert gif.n_frames > 5
        gif.seek(gif.n_frames // 2)
        picture = np.asarray(gif.convert("RGB"))
    assert picture.shape[0] >= 240
    assert picture.std() > 5  # it is not empty
