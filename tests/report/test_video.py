import builtins

import numpy as np
import pytest
from PIL import Image

from thespis.core import ThespisError
from thespis.report import draw, video


@pytest.fixture(scope="module")
def frames():
    angles = np.linspace(0, 3, 12)
    return [draw.frame("pendulum", np.array([np.cos(a), np.sin(a), 1]), (121, 90)) for a in angles]


def read_gif(path):
    with Image.open(path) as image:
        for i in range(image.n_frames):
            image.seek(i)
            yield np.asarray(image.convert("RGB")), image.info["duration"]


def test_a_gif_holds_every_frame_in_time(tmp_path, frames):
    path = video.write(frames, tmp_path / "videos" / "swing.gif", fps=30)
    found, durations = zip(*read_gif(path), strict=True)
    assert len(found) == 12
    assert sum(durations) == pytest.approx(12 * 1000 / 30, abs=5)
    for before, after in zip(frames, found, strict=True):
        assert np.abs(before.astype(int) - after).mean() < 3


def test_what_stands_still_in_a_gif_does_not_flicker(tmp_path, frames):
    path = video.write(frames, tmp_path / "swing.gif", fps=30)
    still = (np.stack(frames) == frames[0]).all((0, 3))
    found = np.stack([picture for picture, _ in read_gif(path)])
    assert (found == found[0]).all((0, 3))[still].all()


def test_a_fast_gif_drops_frames_to_keep_its_speed(tmp_path, frames):
    durations = [d for _, d in read_gif(video.write(frames, tmp_path / "fast.gif", fps=100))]
    assert durations == [20] * 6  # players slow anything shorter down


def test_a_gif_is_small(tmp_path, frames):
    path = video.write(frames, tmp_path / "swing.gif", fps=30)
    assert path.stat().st_size < sum(frame.nbytes for frame in frames) / 10


def test_an_mp4_holds_every_frame(tmp_path, frames, monkeypatch):
    monkeypatch.setenv("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")  # or its reader forks
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = video.write(frames, tmp_path / "swing.mp4", fps=30)
    count, seconds = ffmpeg.count_frames_and_secs(str(path))
    assert count == 12
    assert seconds == pytest.approx(12 / 30, abs=0.05)
    reader = ffmpeg.read_frames(str(path))
    assert next(reader)["size"] == (120, 90)  # its colour format wants even sizes
    first = np.frombuffer(next(reader), np.uint8).reshape(90, 120, 3)
    reader.close()
    assert np.abs(first.astype(int) - frames[0][:, :120]).mean() < 5


def test_without_imageio_ffmpeg_mp4_says_what_to_install(tmp_path, frames, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "imageio_ffmpeg":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[video\]'"):
        video.write(frames, tmp_path / "swing.mp4", fps=30)


def test_the_default_suffix_can_be_written(tmp_path, frames, monkeypatch):
    video.write(frames, tmp_path / f"swing{video.default_suffix()}", fps=30)
    monkeypatch.setattr(video.importlib.util, "find_spec", lambda name: None)
    assert video.default_suffix() == ".gif"


def test_what_cannot_be_written_is_an_error(tmp_path, frames):
    with pytest.raises(ThespisError, match=r"\.gif or \.mp4"):
        video.write(frames, tmp_path / "swing.avi", fps=30)
    with pytest.raises(ThespisError, match="no frames"):
        video.write([], tmp_path / "swing.gif", fps=30)
    (tmp_path / "file").touch()
    with pytest.raises(ThespisError, match="cannot write"):
        video.write(frames, tmp_path / "file" / "swing.gif", fps=30)


def test_what_ffmpeg_refuses_is_an_error(tmp_path, frames):
    pytest.importorskip("imageio_ffmpeg")
    with pytest.raises(ThespisError, match=r"cannot write .*swing\.mp4: ffmpeg failed"):
        video.write([frame[:1, :1] for frame in frames], tmp_path / "swing.mp4", fps=30)
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(ThespisError, match="Is a directory"):
        video.write(frames, tmp_path / "folder.mp4", fps=30)
    assert [x.name for x in tmp_path.iterdir()] == ["folder.mp4"]


@pytest.mark.parametrize("shade", [20, 240])
def test_a_caption_is_legible_on_any_ground_and_leaves_the_frame_alone(shade):
    plain = np.full((180, 240, 3), shade, np.uint8)
    told = video.caption(plain, "SAC  step 20000  return -142.3")
    assert told.shape == plain.shape
    assert told.dtype == np.uint8
    assert (plain == shade).all()
    contrast = np.abs(told.astype(int) - shade).max(-1)
    assert contrast.max() > 150
    assert (contrast[:120] == 0).all()  # it is small, and at the bottom
    assert (video.caption(plain, "TD3") != told).any()


# --- marks and grids ------------------------------------------------------------------------


def test_a_disc_is_filled_when_the_agent_acts_anew_and_strokes_tell_when_it_did():
    plain = np.full((240, 320, 3), 255, np.uint8)
    orange = lambda frame: (frame == video.MARK).all(-1)
    held, new = video.beats(plain, [True, False]), video.beats(plain, [False, True])
    assert orange(new).sum() > orange(held).sum() > 0
    disc = new[15, 320 - 10 - 5]  # its middle
    assert tuple(disc) == video.MARK
    assert tuple(held[15, 320 - 10 - 5]) == (255, 255, 255)
    strokes = [orange(video.beats(plain, [i < n for i in range(40)])).sum() for n in (1, 5, 9)]
    assert strokes[0] < strokes[1] < strokes[2]
    assert (plain == 255).all()


def test_videos_stand_side_by_side_and_who_has_ended_stays():
    videos = [
        [np.full((60, 80, 3), 10 * i + t, np.uint8) for t in range(n)]
        for i, n in enumerate([2, 4, 3])
    ]
    together = video.side_by_side(videos)
    assert len(together) == 4
    assert together[0].shape == (120, 160, 3)
    corners = [(0, 0), (0, 80), (60, 0), (60, 80)]
    assert [together[3][y, x, 0] for y, x in corners] == [1, 13, 22, 255]
    assert video.side_by_side(videos, width=80)[0].shape == (60, 80, 3)
