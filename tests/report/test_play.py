"""Watching a policy: whole episodes, as a file or in a window."""

import itertools
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import thespis
from tests.small import Toy, arguments, stop_at
from thespis.core import ThespisError
from thespis.envs import Autoreset
from thespis.envs.classic import Pendulum
from thespis.envs.gymnasium import Gymnasium
from thespis.report import draw, video
from thespis.report.play import DeviceStage, HostStage, episode, offscreen, play

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return thespis.train("sac", out=tmp_path_factory.mktemp("jax"), **arguments(seeds=(0, 7)))


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return thespis.train(
        "sac", out=tmp_path_factory.mktemp("toy"), **arguments(env=Toy, updates_per_step=0)
    )


@pytest.fixture
def plain(monkeypatch):
    """Pictures that are drawn at once."""
    grey = itertools.cycle(range(0, 250, 50))  # a video joins frames that are equal
    monkeypatch.setattr(draw, "frame", lambda *_, **__: np.full((24, 32, 3), next(grey), np.uint8))


def frames(path) -> int:
    with Image.open(path) as gif:
        return gif.n_frames


def test_a_video_shows_whole_episodes_and_their_returns(run, tmp_path, plain):
    file, returns = play(run, member=0, path=tmp_path / "video.gif")
    assert file == tmp_path / "video.gif"
    assert frames(file) == 201  # Pendulum's 200 steps and the first observation
    assert len(returns) == 1
    assert -2000 < returns[0] < 0
    assert play(run, member=0, path=tmp_path / "again.gif")[1] == returns
    assert play(run, member=0, path=tmp_path / "other.gif", seed=1)[1] != returns
    assert play(run, member=1, path=tmp_path / "second.gif")[1] != returns


def test_an_environment_that_was_trained_in_workers_is_played_here():
    stage = HostStage(Gymnasium("Pendulum-v1").in_workers(1), 0, human=False)
    try:
        assert stage.frame(stage.reset(0)).ndim == 3
        assert stage.fps == 30
    finally:
        stage.close()


def test_an_environment_of_gymnasium_draws_itself(toy, tmp_path):
    file, returns = play(toy, path=tmp_path / "video.gif", episodes=2)
    assert len(returns) == 2
    assert frames(file) == 32  # two episodes of 15 steps and their first observations
    with Image.open(file) as gif:
        assert gif.size == (32, 24)


def test_videos_go_to_the_run_by_default(run, toy, plain):
    file, _ = play(run, member=1, episodes=1)
    assert file.parent == run.path / "videos"
    assert file.stem == "jax-pendulum_member1_seed0"
    file, _ = play(toy, seed=3)
    assert file.stem == "Toy_seed3"
    assert file.stat().st_size > 0


def test_an_episode_that_never_ends_is_cut(toy, monkeypatch, tmp_path):
    monkeypatch.setattr("thespis.core.LIMIT", 4)
    file, _ = play(toy, path=tmp_path / "video.gif", episodes=2)
    assert frames(file) == 10


def test_all_members_play_side_by_side_in_one_video(run, tmp_path, plain):
    file, returns = play(run, member="all", path=tmp_path / "video.gif")
    assert [len(each) for each in returns] == [1, 1]
    assert returns[0] == play(run, member=0, path=tmp_path / "one.gif")[1]
    assert frames(file) == 201
    with Image.open(file) as gif:
        assert gif.size == (64, 24)  # two of 32
    with pytest.raises(ThespisError, match="--human shows one member"):
        play(run, member="all", human=True)


class Repeater:
    """A policy that acts anew at every third step."""

    algo = SimpleNamespace(spec=Autoreset(Pendulum()).spec)

    def reset(self, seed):
        self.time, self.memory = 0, None

    def act(self, obs):
        self.memory = SimpleNamespace(repeats=np.array([1 + self.time % 3]))
        self.time += 1
        return np.zeros((1, 1), np.float32)


def test_frames_tell_when_the_agent_acts_anew(monkeypatch):
    seen = []
    monkeypatch.setattr(video, "beats", lambda frame, new: seen.append(list(new)) or frame)
    stage = DeviceStage(Autoreset(Pendulum(limit=5)), 0, False)
    pictures, _ = episode(stage, Repeater(), 0, 5, "")
    assert len(pictures) == 6
    assert seen[0] == [True]
    assert seen[4] == [True, False, False, True, False]
    assert seen[5] == seen[4]  # nobody acts on a final observation


def test_a_task_may_draw_itself():
    class Drawn(Pendulum):
        name, fps = "drawn", 12

        def picture(self, state):
            return np.full((4, 6, 3), 7, np.uint8)

    stage = DeviceStage(Autoreset(Drawn()), 0, False)
    assert stage.fps == 12
    assert stage.frame(stage.reset(0)).shape == (4, 6, 3)

    class Broken(Drawn):
        def picture(self, state):
            raise RuntimeError("no OpenGL\ncontext")

    stage = DeviceStage(Autoreset(Broken()), 0, False)
    with pytest.raises(ThespisError, match="drawn cannot be rendered.*no OpenGL context.*libegl1"):
        stage.frame(stage.reset(0))


@pytest.mark.parametrize(
    ("there", "given", "chosen"),
    [
        (("EGL", "OSMesa"), {}, "egl"),
        (("OSMesa",), {}, "osmesa"),
        ((), {}, None),
        (("EGL",), {"DISPLAY": ":0"}, None),
        (("EGL",), {"MUJOCO_GL": "glfw"}, "glfw"),
    ],
)
def test_mujoco_draws_without_a_display_by_what_there_is(monkeypatch, there, given, chosen):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("ctypes.util.find_library", lambda name: name if name in there else None)
    for name in ("DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    offscreen()
    assert os.environ.get("MUJOCO_GL") == chosen
    monkeypatch.delenv("MUJOCO_GL", raising=False)


class Window:
    """Stands for matplotlib's, which needs a display."""

    shown: list[np.ndarray] = []  # noqa: RUF012

    def __init__(self, title):
        self.shown.clear()

    def show(self, frame):
        self.shown.append(frame)

    def close(self):
        self.shown.append("closed")


def test_a_window_shows_every_frame_and_leaves_no_file(run, plain, monkeypatch):
    monkeypatch.setattr("thespis.report.play.Window", Window)
    before = set(run.path.rglob("*"))
    file, returns = play(run, human=True)
    assert file is None
    assert len(returns) == 1
    assert len(Window.shown) == 202
    assert Window.shown[0].shape == (24, 32, 3)
    assert Window.shown[-1] == "closed"
    assert set(run.path.rglob("*")) == before


def test_without_a_display_there_is_no_window(run):
    with pytest.raises(ThespisError, match="there is no display; leave it out to write a file"):
        play(run, human=True)


def test_a_task_without_a_picture_is_named(tmp_path, monkeypatch):
    class Unknown(Pendulum):
        name = "unknown"

    stop_at(monkeypatch, 1)
    run = thespis.train("sac", out=tmp_path, **arguments(env=Unknown(), updates_per_step=0))
    with pytest.raises(ThespisError, match="unknown cannot be rendered: its task has no"):
        play(run, path=tmp_path / "video.gif")
    assert not (tmp_path / "video.gif").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"episodes": 0}, "episodes = 0: give at least 1"),
        ({"seed": -1}, "seed = -1: give a number"),
        ({"member": 9}, "member = 9"),
        ({"which": "worst"}, "which = worst: give last or best"),
        ({"path": "video.avi"}, "cannot write video.avi: a video is .gif or .mp4"),
    ],
)
def test_what_cannot_be_played_is_refused(run, given, message):
    with pytest.raises(ThespisError, match=message):
        play(run, **given)


def test_a_video_that_cannot_be_written_is_refused_before_it_is_played(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr("thespis.report.play.episode", lambda *_: pytest.fail("it was played"))
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[video\]'"):
        play(run, path="video.mp4")
