"""The metrics of a run: metrics.csv, from which every plot is made, mirrored to TensorBoard."""

from __future__ import annotations

import math
import socket
import struct
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.runs.directory import sync, write, writing

Cells = list[str]  # one line of the file: step, member, then one cell per column


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
    ):
        """`names` are other names that columns have in TensorBoard."""
        self.folder = Path(folder)
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

    def append(self, step: int, member: int, values: Mapping[str, Any]) -> None:
        """Add one row and hand it to the system; columns without a value stay empty."""
        unknown = values.keys() - set(self.columns)
        assert not unknown, f"not among the columns: {sorted(unknown)}"
        assert 0 <= member < self.members
        numbers = (text(values[name]) if name in values else "" for name in self.columns)
        cells = [str(step), str(member), *numbers]
        with writing(self.path), open(self.path, "ab") as file:
            file.write(line(cells))
        if self._boards is None:
            self._mirror()
        elif self._boards:
            board = self._boards[member]
            with writing(board), open(board, "ab") as file:
                file.write(_event(self.tags, cells))

    def cut(self, step: int) -> None:
        """Forget all rows after `step`, as if the run had just come to it."""
        cut(self.path, step)
        self._mirror()

    def sync(self) -> None:
        """Return once the rows are on the disk."""
        with writing(self.path), open(self.path, "ab") as file:
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
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
            several = self.members > 1
            folders = [root / f"member_{i}" if several else root for i in range(self.members)]
            self._boards = [folder / name for folder in folders]
            for board, events in zip(self._boards, content, strict=True):
                board.parent.mkdir(parents=True, exist_ok=True)
                board.write_bytes(events)


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
