"""The metrics of a run: metrics.csv, from which every plot is made, mirrored to TensorBoard."""

from __future__ import annotations

import math
import socket
import struct
import time
import warnings
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.runs.directory import sync, write, writing

Cells = list[str]  # one line of the file: step, member, then one cell per column
Edges = tuple[float, ...]  # between which values are counted


class MetricsLog:
    """Appends rows to `<folder>/metrics.csv`, one per (step, member), and to `tensorboard/`.

    Nothing stays open between calls. The mirror is made anew from the csv whenever a log is
    opened or cut, so the two cannot disagree.
    """

    def __init__(
        self,
        folder: Path,
        columns: Sequence[str],
        members: int,
        names: Mapping[str, str] | None = None,
        histograms: Mapping[str, Edges] | None = None,
    ):
        """`names` are other names that columns have in TensorBoard."""
        self.folder = Path(folder)
        self.histograms = Histograms(self.folder, histograms or {})
        self.tags = tuple((names or {}).get(name, name) for name in columns)
        self.path = self.folder / "metrics.csv"
        self.columns = tuple(columns)
        self.members = members
        self._boards: list[Path] | None = None  # one event file per member, once there are rows
        header = ["step", "member", *columns]
        assert len(set(header)) == len(header), "two columns have the same name"
        assert not any(set(name) & set(',"\r\n') for name in header)
        if self.path.exists():
            compare(self.path, lines(self.path)[0], header)
            cut(self.path, math.inf)
        else:
            write(self.path, line(header))

    def append(
        self,
        step: int,
        member: int,
        values: Mapping[str, Any],
        counts: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one row and hand it to the system; columns without a value stay empty.

        `counts` are those of histograms, if there are any.
        """
        unknown = values.keys() - set(self.columns)
        assert not unknown, f"not among the columns: {sorted(unknown)}"
        assert 0 <= member < self.members
        numbers = (text(values[name]) if name in values else "" for name in self.columns)
        cells = [str(step), str(member), *numbers]
        with writing(self.path), open(self.path, "ab") as file:
            file.write(line(cells))
        counted = self.histograms.append(step, member, counts) if counts else None
        if self._boards is None:
            self._mirror()
        elif self._boards:
            board, events = self._boards[member], _event(self.tags, cells)
            if counted:
                events += self.histograms.event(counted)
            with writing(board), open(board, "ab") as file:
                file.write(events)

    def cut(self, step: int) -> None:
        """Forget all rows after `step`, as if the run had just come to it."""
        cut(self.path, step)
        self.histograms.cut(step)
        self._mirror()

    def sync(self) -> None:
        """Return once the rows are on the disk."""
        for path in (self.path, *self.histograms.files):
            with writing(path), open(path, "ab") as file:
                sync(file)

    def _mirror(self) -> None:
        """Write the event files anew from the csv."""
        root = self.folder / "tensorboard"
        with writing(root):
            for old in root.rglob("events.out.tfevents.*"):
                old.unlink()
            try:
                start = _record(file_version="brain.Event:2")
            except ImportError:
                warnings.warn("no tensorboardX: metrics go to metrics.csv alone", stacklevel=3)
                self._boards = []
                return
            content = [bytearray(start) for _ in range(self.members)]
            for cells in lines(self.path)[1]:
                content[int(cells[1])] += _event(self.tags, cells)
            for cells in self.histograms.lines:
                content[int(cells[1])] += self.histograms.event(cells)
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
            several = self.members > 1
            folders = [root / f"member_{i}" if several else root for i in range(self.members)]
            self._boards = [folder / name for folder in folders]
            for board, events in zip(self._boards, content, strict=True):
                board.parent.mkdir(parents=True, exist_ok=True)
                board.write_bytes(events)


class Histograms:
    """Appends counts between edges to `<folder>/histograms.csv`, if there are any to tell of.

    A column is NAME:LOW:HIGH; rows are those of metrics.csv.
    """

    def __init__(self, folder: Path, edges: Mapping[str, Edges]):
        self.path, self.edges = folder / "histograms.csv", dict(edges)
        bins = [(name, *ends) for name, x in self.edges.items() for ends in pairwise(x)]
        header = ["step", "member", *(f"{name}:{low:g}:{high:g}" for name, low, high in bins)]
        if edges and self.path.exists():
            compare(self.path, lines(self.path)[0], header)
            cut(self.path, math.inf)
        elif edges:
            write(self.path, line(header))

    @property
    def files(self) -> list[Path]:
        return [self.path] if self.edges else []

    @property
    def lines(self) -> list[Cells]:
        return [cells for path in self.files for cells in lines(path)[1]]

    def append(self, step: int, member: int, counts: Mapping[str, Any]) -> Cells:
        """Add one row."""
        numbers = (str(int(n)) for name in self.edges for n in counts[name])
        cells = [str(step), str(member), *numbers]
        with writing(self.path), open(self.path, "ab") as file:
            file.write(line(cells))
        return cells

    def cut(self, step: float) -> None:
        for path in self.files:
            cut(path, step)

    def counts(self, cells: Cells) -> dict[str, list[int]]:
        """Those of each histogram in a row."""
        numbers = iter(cells[2:])
        return {n: [int(x) for x in islice(numbers, len(e) - 1)] for n, e in self.edges.items()}

    def of(self, folder: Path, member: int) -> dict[int, dict[str, list[int]]]:
        """Counts of one member of another run, by step."""
        path = folder / self.path.name
        rows = lines(path)[1] if self.edges and path.exists() else []
        return {int(cells[0]): self.counts(cells) for cells in rows if int(cells[1]) == member}

    def event(self, cells: Cells) -> bytes:
        """One row for TensorBoard; values are taken to lie in the middle between edges."""
        from tensorboardX.proto.summary_pb2 import HistogramProto, Summary  # pyright: ignore

        values = []
        for name, counts in self.counts(cells).items():
            low, *limits = self.edges[name]
            middle = np.convolve(self.edges[name], [0.5, 0.5], "valid")
            about = {
                "min": low,
                "max": limits[-1],
                "num": sum(counts),
                "sum": counts @ middle,
                "sum_squares": counts @ middle**2,
                "bucket_limit": limits,
                "bucket": counts,
            }
            if any(counts):
                values.append(Summary.Value(tag=name, histo=HistogramProto(**about)))
        return _record(step=int(cells[0]), summary=Summary(value=values))


def read(path: Path) -> dict[str, np.ndarray]:
    """Every column as float64 [rows], NaN where a cell is empty; a torn last line is ignored."""
    header, rows = lines(path)
    numbers = [[float(cell or "nan") for cell in cells] for cells in rows]
    return dict(zip(header, np.array(numbers, float).reshape(-1, len(header)).T, strict=True))


def cut(path: Path, step: float) -> None:
    """Keep the complete lines of a csv whose first cell, the step, is at most `step`."""
    header, rows = lines(path)
    kept = b"".join(line(cells) for cells in [header, *(r for r in rows if int(r[0]) <= step)])
    if kept != path.read_bytes():
        write(path, kept)


def same(a: Path, b: Path) -> list[str]:
    """The differences between two metrics files; empty if they agree, `time/` columns apart."""
    (columns_a, rows_a), (columns_b, rows_b) = lines(a), lines(b)
    if columns_a != columns_b:
        return [f"columns: {columns_a} != {columns_b}"]
    faults = [f"rows: {len(rows_a)} != {len(rows_b)}"] if len(rows_a) != len(rows_b) else []
    for x, y in zip(rows_a, rows_b, strict=False):
        faults += [
            f"step {x[0]} member {x[1]} {name}: {left or 'empty'} != {right or 'empty'}"
            for name, left, right in zip(columns_a, x, y, strict=True)
            if left != right and not name.startswith("time/")
        ]
    return faults


# --- lines ----------------------------------------------------------------------------------


def lines(path: Path) -> tuple[Cells, list[Cells]]:
    """The header and the complete lines, split into cells."""
    try:
        content = path.read_text("utf-8", "replace")
    except OSError as error:
        raise ThespisError(f"cannot read {path}: {error.strerror}; check the path") from error
    first, *rows = [row.split(",") for row in content.split("\n")[:-1]] or [[]]
    if not first:
        raise ThespisError(f"{path} has no header line; restore it, or start a new run")
    # A crash of the machine may leave blocks of zeros where lines had been promised.
    whole = (x for x in rows if len(x) == len(first) and x[0].isdigit() and "\0" not in "".join(x))
    return first, list(whole)


def line(cells: Cells) -> bytes:
    return (",".join(cells) + "\n").encode()


def text(value: Any) -> str:
    """The shortest text that restores the number, taken as float32 if it is one."""
    exact = float(value)
    with np.errstate(over="ignore"):
        single = np.float32(exact)
    return str(single) if float(single) == exact else repr(exact)


def compare(path: Path, found: Cells, expected: Cells) -> None:
    if found == expected:
        return
    missing = [name for name in expected if name not in found]
    surplus = [name for name in found if name not in expected]
    faults = [f"lacks {', '.join(missing)}"] * bool(missing)
    faults += [f"has {', '.join(surplus)} besides"] * bool(surplus)
    what = " and ".join(faults) or "has its columns in another order"
    raise ThespisError(f"{path} {what}; resume with the options it began with, or start a new run")


# --- TensorBoard's event files --------------------------------------------------------------


def _event(tags: Sequence[str], cells: Cells) -> bytes:
    """One row. It is made from the text, so that rows just added and rows read are alike."""
    from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore

    filled = [(name, cell) for name, cell in zip(tags, cells[2:], strict=True) if cell]
    values = [Summary.Value(tag=name, simple_value=float(cell)) for name, cell in filled]
    return _record(step=int(cells[0]), summary=Summary(value=values))


def _record(**fields: Any) -> bytes:
    """An event between its length and the checksums of both."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore
    from tensorboardX.record_writer import masked_crc32c

    data = Event(wall_time=time.time(), **fields).SerializeToString()
    length = struct.pack("<Q", len(data))
    length_sum, data_sum = (struct.pack("<I", masked_crc32c(x)) for x in (length, data))
    return length + length_sum + data + data_sum
