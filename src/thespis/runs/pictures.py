"""Converts images and histograms of callbacks for TensorBoard and trackers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.runs.metrics import Edges

BINS = 30


def pixels(name: str, image: Any) -> np.ndarray:
    """Returns bytes [height, width, 1, 3 or 4], from an image or a Matplotlib figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if isinstance(image, Figure):
        canvas = FigureCanvasAgg(image)
        canvas.draw()
        return np.array(canvas.buffer_rgba())[..., :3]
    x = np.asarray(image)
    x = x[..., None] if x.ndim == 2 else x
    if x.ndim != 3 or x.shape[2] not in (1, 3, 4) or 0 in x.shape or x.dtype.kind not in "biuf":
        raise ThespisError(
            f"log_image({name!r}): {x.dtype} of shape {x.shape} is not an image: give "
            "[height, width] or [height, width, 3]"
        )
    x = 255 * np.clip(np.nan_to_num(x), 0, 1) + 0.5 if x.dtype.kind in "bf" else np.clip(x, 0, 255)
    return x.astype(np.uint8)


def image_value(name: str, image: np.ndarray) -> Any:
    """Returns an image, bytes [height, width, channels], as TensorBoard stores it."""
    from PIL import Image
    from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore

    height, width, channels = image.shape
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if channels == 1 else image).save(file, format="png")
    content = Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue()
    )
    return Summary.Value(tag=name, image=content)


def histogram(name: str, values: Any) -> tuple[np.ndarray, Edges]:
    """Returns the counts and the edges of a histogram of the finite values."""
    x = np.asarray(values)
    if x.dtype.kind not in "biuf" or not np.isfinite(x).any():
        raise ThespisError(f"log_histogram({name!r}): there is no finite number to count")
    x = x.astype(np.float64)
    counts, edges = np.histogram(x[np.isfinite(x)], BINS)
    return counts, tuple(edges.tolist())
