"""Reads the images and histograms that callbacks have logged, from TensorBoard's event files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thespis.runs import metrics

BINS = 30  # of a histogram on the page, at most
MOST, LARGEST = 10_000, 1e100  # bins of a histogram that is read, and numbers in it
PNG = b"\x89PNG\r\n\x1a\n"


class Histogram(NamedTuple):
    """The counts of values in bins, since the row before."""

    edges: tuple[float, ...]
    steps: np.ndarray  # [rows]
    counts: np.ndarray  # [rows, bins], of all members


class Picture(NamedTuple):
    """An image of a callback."""

    name: str
    step: int
    member: int
    content: bytes  # a PNG


class Logged(NamedTuple):
    """The newest image of each name and member, and all histograms by name."""

    pictures: list[Picture]
    histograms: dict[str, Histogram]


def read(folder: Path, members: int) -> Logged:
    """Reads the event files of a run as far as they are whole; other files are not followed."""
    pictures: dict[tuple[str, int], Picture] = {}
    rows: dict[str, list[Histogram]] = {}
    root = folder / "tensorboard"
    for member in range(members):
        place = root / f"member_{member}" if members > 1 else root
        if root.is_symlink() or place.is_symlink():
            continue
        for path in sorted(place.glob(f"{metrics.EVENTS}*")):
            for _, event in metrics.media_records(path):
                for value in event.summary.value:
                    name, kind = value.tag, value.WhichOneof("value")
                    content = value.image.encoded_image_string
                    if kind == "image" and content.startswith(PNG):
                        pictures[name, member] = Picture(name, event.step, member, content)
                    elif kind == "histo" and (row := histogram(event.step, value.histo)):
                        rows.setdefault(name, []).append(row)
    return Logged(list(pictures.values()), {name: total(x) for name, x in rows.items()})


def histogram(step: int, value: Any) -> Histogram | None:
    """Returns a histogram of one row; None if its numbers cannot be those of one."""
    edges, counts = np.array([value.min, *value.bucket_limit]), np.array(value.bucket)
    numbers = np.concatenate([edges, counts])
    fits = 1 < len(edges) == len(counts) + 1 <= MOST and (np.abs(numbers) < LARGEST).all()
    if not fits or (np.diff(edges) <= 0).any() or (counts < 0).any() or not counts.any():
        return None
    return Histogram(tuple(edges.tolist()), np.array([step]), counts[None])


def total(histograms: Sequence[Histogram]) -> Histogram:
    """Returns the sum of histograms, by step; in bins of their own if those differ."""
    edges = histograms[0].edges
    if any(x.edges != edges for x in histograms):
        edges = round_edges(
            min(x.edges[0] for x in histograms), max(x.edges[-1] for x in histograms)
        )
        histograms = [rebinned(x, edges) for x in histograms]
    steps, row = np.unique(np.concatenate([x.steps for x in histograms]), return_inverse=True)
    counts = np.zeros((len(steps), len(edges) - 1))
    np.add.at(counts, row, np.concatenate([x.counts for x in histograms]))
    return Histogram(edges, steps, counts)


def round_edges(low: float, high: float) -> tuple[float, ...]:
    """Returns edges at round numbers that include both ends."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(BINS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return tuple(map(float, ticks))


def rebinned(histogram: Histogram, edges: tuple[float, ...]) -> Histogram:
    """Returns the same counts in other bins, as if values were spread evenly within theirs."""
    below = np.pad(np.cumsum(histogram.counts, 1), ((0, 0), (1, 0)))
    at_edges = np.stack([np.interp(edges, histogram.edges, row) for row in below])
    return Histogram(edges, histogram.steps, np.diff(at_edges, axis=1))
