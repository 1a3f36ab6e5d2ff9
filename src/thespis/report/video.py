"""Writes frames as an animated GIF, or as MP4 if imageio-ffmpeg is installed."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from thespis.errors import ThespisError
from thespis.runs.files import replacing, writing

MARK = (213, 94, 0)


def default_suffix() -> str:
    """Returns .mp4 if it can be written on this machine, else .gif."""
    return ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"


def check(path: Path) -> None:
    """Refuses a format that cannot be written, before anything is drawn."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise ThespisError(f"cannot write {path.name}: a video is .gif or .mp4")
    if path.suffix.lower() == ".mp4":
        ffmpeg(path)


def ffmpeg(path: Path) -> str:
    """Returns the path of the program ffmpeg."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise ThespisError(
            f"cannot write {path.name} without imageio-ffmpeg: "
            "pip install 'thespis[video]', or name the file .gif"
        ) from None


def write(frames: Sequence[np.ndarray], path: Path | str, fps: int) -> Path:
    """Writes frames, uint8 [height, width, 3], to a .gif or .mp4 file."""
    path = Path(path)
    check(path)
    writer = {".gif": _gif, ".mp4": _mp4}[path.suffix.lower()]
    if not len(frames):
        raise ThespisError(f"no frames for {path.name}: record at least one step")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        writer(frames, Path(file.name), fps)
    return path


def _gif(frames: Sequence[np.ndarray], path: Path, fps: int) -> None:
    # Players slow down frames shorter than 0.02 s, so fewer frames are shown at the right speed.
    every = -(-fps // 50)
    shown = [Image.fromarray(frame) for frame in frames[::every]]
    # A GIF counts in hundredths of a second; rounding times, not durations, keeps its length.
    moments = np.round(np.arange(len(shown) + 1) * every * 100 / fps).astype(int) * 10
    # One palette for all frames, without dithering: still parts do not flicker, and only the
    # rectangle that changes is stored.
    palette = _palette(shown)
    shown = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in shown]
    shown[0].save(
        path,
        save_all=True,
        append_images=shown[1:],
        duration=np.diff(moments).tolist(),
        loop=0,
        disposal=1,
        optimize=False,
    )


def _palette(images: Sequence[Image.Image]) -> Image.Image:
    """Returns 256 colours for all images, from at most 16 of them."""
    some = images[:: -(-len(images) // 16)]
    width, height = some[0].size
    sheet = Image.new("RGB", (width, height * len(some)))
    for i, image in enumerate(some):
        sheet.paste(image, (0, i * height))
    return sheet.quantize(256, method=Image.Quantize.FASTOCTREE)


def _mp4(frames: Sequence[np.ndarray], path: Path, fps: int) -> None:
    height, width = frames[0].shape[:2]
    source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps} -i -"
    # Colours have half the resolution, hence even sizes, and an explicit colour matrix.
    even = "crop=trunc(iw/2)*2:trunc(ih/2)*2"
    colours = "scale=out_color_matrix=bt709:flags=accurate_rnd+full_chroma_int"
    tags = "-colorspace bt709 -color_primaries bt709 -color_trc bt709"
    target = f"-vf {even},{colours} -c:v libx264 -crf 18 -pix_fmt yuv420p {tags}"
    # imageio-ffmpeg's own writer forks this process, which is not safe with JAX's threads.
    command = [ffmpeg(path), "-y", "-loglevel", "error", *source.split(), *target.split()]
    command += ["-movflags", "+faststart", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):  # the reason is read below
            for frame in frames:
                process.stdin.write(np.ascontiguousarray(frame).data)
        _, complaint = process.communicate()
    if process.returncode:
        reason = (complaint.decode(errors="replace").splitlines() or ["no reason given"])[-1]
        raise OSError(errno.EIO, f"ffmpeg failed with {reason!r}; a .gif may work")


def text_size(frame: np.ndarray) -> int:
    return max(10, round(frame.shape[0] / 24))


def colours(part: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the background colour of a part of a frame, and a text colour legible on it."""
    ground = np.median(part, axis=(0, 1))
    return tuple(map(int, ground)), (34, 48, 60) if ground.mean() > 127 else (255, 255, 255)


def caption(frame: np.ndarray, text: str) -> np.ndarray:
    """Returns the frame [height, width, 3] with a line of text in its lower left corner."""
    image, size = Image.fromarray(frame), text_size(frame)
    ground, ink = colours(frame[-2 * size :])
    # The outline has the colour of the background: it keeps text legible in front of anything.
    ImageDraw.Draw(image).text(
        (size, image.height - size),
        text,
        font=ImageFont.load_default(size),
        anchor="ls",  # the baseline, so that it does not move with the letters
        fill=ink,
        stroke_width=max(1, size // 7),
        stroke_fill=ground,
    )
    return np.asarray(image)


def beats(frame: np.ndarray, new_action: Sequence[bool], shown: int = 60) -> np.ndarray:
    """Returns the frame with a disc that is filled whenever the agent chooses a new action.

    A track beside the disc shows the last steps, the newest on the right: a stroke is a new
    action, and the line between strokes a repeated one.
    """
    image, size = Image.fromarray(frame), text_size(frame)
    _, ink = colours(frame[: 2 * size])
    pen, right, middle = ImageDraw.Draw(image), image.width - size, 1.5 * size
    radius = 0.55 * size
    box = (right - 2 * radius, middle - radius, right, middle + radius)
    pen.ellipse(box, fill=MARK if new_action[-1] else None, outline=MARK, width=max(1, size // 7))
    end, length = right - 3.2 * radius, 0.42 * image.width
    pen.line((end - length, middle, end, middle), fill=ink, width=1)
    for age, new in enumerate(reversed(new_action[-shown:])):
        if new:
            x = end - length * age / (shown - 1)
            pen.line((x, middle - radius, x, middle + radius), fill=MARK, width=max(2, size // 6))
    return np.asarray(image)


def side_by_side(videos: Sequence[Sequence[np.ndarray]], width: int = 1280) -> list[np.ndarray]:
    """Returns videos of one size in a grid; those that have ended stay at their last frame."""
    columns = int(np.ceil(np.sqrt(len(videos))))
    rows = -(-len(videos) // columns)
    height_0, width_0 = videos[0][0].shape[:2]
    scale = min(1.0, width / (columns * width_0))
    size = max(1, round(width_0 * scale)), max(1, round(height_0 * scale))
    small = lambda x: x if scale == 1 else np.asarray(Image.fromarray(x).resize(size))
    cells = [[small(frame) for frame in video] for video in videos]
    together = []
    for time in range(max(map(len, cells))):
        sheet = np.full((rows * size[1], columns * size[0], 3), 255, np.uint8)
        for i, video in enumerate(cells):
            top, left = i // columns * size[1], i % columns * size[0]
            sheet[top : top + size[1], left : left + size[0]] = video[min(time, len(video) - 1)]
        together.append(sheet)
    return together
