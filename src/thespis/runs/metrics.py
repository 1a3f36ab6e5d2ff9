"""The metrics of a run: metrics.csv, the source of every plot, mirrored to TensorBoard."""

from __future__ import annotations

import math
import os
import socket
import struct
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thespis.errors import ThespisError
from thespis.runs import files
from thespis.runs.files import write, writing

Cells = list[str]  # one line of the file: step, member, then one cell per column
Edges = tuple[float, ...]  # of the bins of a histogram
Note = Callable[[str], None]
FIRST = ["step", "member"]
EVENTS = "events.out.tfevents."  # prefix of the names of TensorBoard's files


class MetricsLog:
    """Appends rows to `<folder>/metrics.csv`, one per (step, member), and to `tensorboard/`.

    Nothing stays open between calls. TensorBoard's files are rewritten from the csv whenever a log
    is opened or cut, so the two cannot disagree. Damaged files are repaired, with a note.
    """

    def __init__(
        self,
        folder: Path,
        columns: Sequence[str],
        members: int,
        names: Mapping[str, str] | None = None,
        histograms: Mapping[str, Edges] | None = None,
        note: Note = lambda text: None,
        last: float = math.inf,
    ):
        """Opens the log; `names` rename columns in TensorBoard, and `last` is the last valid step.

        The caller cuts the log at that step afterwards.
        """
        self.folder, self.names = Path(folder), names or {}
        self.histograms = Histograms(self.folder, histograms or {}, members, note)
        self.path = self.folder / "metrics.csv"
        self.columns = tuple(columns)
        self.members, self.note = members, note
        self._boards: list[Path] | None = None  # one event file per member, once there are rows
        self._open(last)

    def _open(self, last: float = math.inf) -> None:
        """Creates the file with these columns, or repairs it."""
        header = [*FIRST, *self.columns]
        assert len(set(header)) == len(header), "two columns have the same name"
        assert all(map(loggable, header))
        repair(self.path, header, self.note, self.members, last)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.names.get(name, name) for name in self.columns)

    def extend(self, columns: Iterable[str]) -> None:
        """Adds missing columns at the end; earlier rows have no value in them."""
        new = tuple(name for name in columns if name not in self.columns)
        if new:
            self.columns += new
            self._open()

    def append(
        self,
        step: int,
        member: int,
        values: Mapping[str, Any],
        counts: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds one row and hands it to the system; columns without a value stay empty.

        `counts` are those of histograms, if there are any.
        """
        unknown = values.keys() - set(self.columns)
        assert not unknown, f"not among the columns: {sorted(unknown)}"
        assert 0 <= member < self.members
        numbers = (text(values[name]) if name in values else "" for name in self.columns)
        cells = [str(step), str(member), *numbers]
        files.append(self.path, line(cells))
        counted = self.histograms.append(step, member, counts) if counts else None
        if self._boards is None:
            self._mirror()
        elif self._boards:
            events = _event(self.tags, cells)
            if counted:
                events += self.histograms.event(counted)
            files.append(self._boards[member], events)

    def show(self, step: int, member: int, value: Callable[[], Any]) -> None:
        """Adds an image or a histogram to TensorBoard only."""
        if self._boards is None:
            self._mirror()
        if self._boards:
            from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore

            event = _record(step=step, summary=Summary(value=[value()]))
            files.append(self._boards[member], event)

    def copy_rows(self, folder: Path, member: int, last: int) -> None:
        """Appends the rows of another run's member up to the step `last`, as those of member 0."""
        past, counts = read(folder / "metrics.csv"), self.histograms.read_member(folder, member)
        for i in np.flatnonzero((past["member"] == member) & (past["step"] <= last)):
            row = {k: x[i] for k, x in past.items() if k in self.columns and np.isfinite(x[i])}
            step = int(past["step"][i])
            self.append(step, 0, row, counts.get(step))

    def cut(self, step: int, media: int | None = None) -> None:
        """Removes all rows after `step`, and images and histograms after `media`, if given."""
        cut(self.path, step)
        self.histograms.cut(step)
        self._mirror(step if media is None else media)

    def sync(self) -> None:
        """Returns once the rows are on the disk."""
        for path in (self.path, *self.histograms.files):
            files.append(path, b"", durable=True)

    def _mirror(self, last: float = math.inf) -> None:
        """Rewrites the event files from the csv, with the images and histograms up to `last`."""
        root, several = self.folder / "tensorboard", self.members > 1
        folders = [root / f"member_{i}" if several else root for i in range(self.members)]
        if any(os.path.lexists(x) and (x.is_symlink() or not x.is_dir()) for x in (root, *folders)):
            aside = files.set_aside(root)
            self.note(f"{root} is not a plain folder: it is now {aside}")
        with writing(root):
            existing = [x for x in root.rglob(f"{EVENTS}*") if x.is_symlink() or not x.is_dir()]
            try:
                start = _record(file_version="brain.Event:2")
            except ImportError:
                for old in existing:
                    old.unlink()
                warnings.warn("no tensorboardX: metrics go to metrics.csv only", stacklevel=3)
                self._boards = []
                return
            content = [bytearray(start) for _ in range(self.members)]
            for cells in lines(self.path)[1]:
                content[int(cells[1])] += _event(self.tags, cells)
            for cells in self.histograms.lines:
                content[int(cells[1])] += self.histograms.event(cells)
            for folder, events in zip(folders, content, strict=True):
                old = (path for path in existing if path.parent == folder)
                edges = self.histograms.edges
                media = (x for path in old for x, _ in media_records(path, last, edges))
                events += b"".join(dict.fromkeys(media))  # without duplicates of a killed process
                folder.mkdir(parents=True, exist_ok=True)
                files.write(folder / f"{EVENTS}new", bytes(events))
            for old in existing:
                if old.name != f"{EVENTS}new":
                    old.unlink()
            name = f"{EVENTS}{int(time.time())}.{socket.gethostname()}"
            self._boards = [folder / name for folder in folders]
            for board in self._boards:
                os.replace(board.with_name(f"{EVENTS}new"), board)


class Histograms:
    """Appends the counts of histograms to `<folder>/histograms.csv`, if there are histograms.

    Columns are called NAME:LOW:HIGH; there is a row for each one of metrics.csv.
    """

    def __init__(self, folder: Path, edges: Mapping[str, Edges], members: int, note: Note):
        self.path, self.edges = folder / "histograms.csv", dict(edges)
        bins = [(name, *ends) for name, x in self.edges.items() for ends in pairwise(x)]
        header = [*FIRST, *(f"{name}:{low:g}:{high:g}" for name, low, high in bins)]
        if edges:
            repair(self.path, header, note, members)

    @property
    def files(self) -> list[Path]:
        return [self.path] if self.edges else []

    @property
    def lines(self) -> list[Cells]:
        return [cells for path in self.files for cells in lines(path)[1]]

    def append(self, step: int, member: int, counts: Mapping[str, Any]) -> Cells:
        """Adds one row."""
        numbers = (str(int(n)) for name in self.edges for n in counts[name])
        cells = [str(step), str(member), *numbers]
        files.append(self.path, line(cells))
        return cells

    def cut(self, step: float) -> None:
        for path in self.files:
            cut(path, step)

    def counts(self, cells: Cells) -> dict[str, list[int]]:
        """Returns the counts of each histogram in a row, 0 where there is no number."""
        numbers = (int(x) if _is_integer(x) else 0 for x in cells[2:])
        return {name: list(islice(numbers, len(e) - 1)) for name, e in self.edges.items()}

    def read_member(self, folder: Path, member: int) -> dict[int, dict[str, list[int]]]:
        """Returns the counts of another run's member, by step."""
        path = folder / self.path.name
        rows = lines(path)[1] if self.edges and os.path.lexists(path) else []
        return {int(cells[0]): self.counts(cells) for cells in rows if int(cells[1]) == member}

    def event(self, cells: Cells) -> bytes:
        """Returns a TensorBoard event of one row; values count as the middles of their bins."""
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore

        counted = self.counts(cells).items()
        values = [histogram_value(name, x, self.edges[name]) for name, x in counted if any(x)]
        return _record(step=int(cells[0]), summary=Summary(value=values))


def read(path: Path, members: int | None = None, strict: bool = False) -> dict[str, np.ndarray]:
    """Returns every column as float64 [rows], NaN where a cell is empty.

    An incomplete last line is ignored. Cells that are not numbers and rows of other members than
    `members` are ignored too, or an error if `strict`.
    """
    header, rows, bad = parse(path, load(path), members)
    numbers, wrong = to_numbers(rows)
    bad += wrong
    if bad and strict:
        raise ThespisError(
            f"{path} is damaged: {bad} line(s) or cell(s) cannot be read; restore it, or "
            "resume the run, which repairs it"
        )
    columns = np.array(numbers, float).reshape(-1, len(header)).T
    return dict(zip(header, columns, strict=True))


def cut(path: Path, step: float) -> None:
    """Keeps the complete lines of a csv whose first cell, the step, is at most `step`."""
    header, rows = lines(path)
    content = b"".join(line(cells) for cells in [header, *(r for r in rows if int(r[0]) <= step)])
    if content != load(path):
        write(path, content)


def differences(a: Path, b: Path) -> list[str]:
    """Returns the differences between two metrics files, except in `time/` columns."""
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


class Lines(NamedTuple):
    header: Cells
    rows: list[Cells]
    bad: int
    """The number of lines that are left out because they cannot be read."""


def lines(path: Path) -> tuple[Cells, list[Cells]]:
    """Returns the header and the complete lines, split into cells."""
    return parse(path, load(path))[:2]


def load(path: Path) -> bytes:
    try:
        return files.read(path)
    except OSError as error:
        raise ThespisError(f"cannot read {path}: {error.strerror}; check the path") from error


def parse(path: Path, content: bytes, members: int | None = None) -> Lines:
    """Splits the complete lines of the `members` into cells."""
    header, *rows = _split(content)
    if header[:2] != FIRST or len(set(header)) < len(header):
        what = "does not begin with the columns step and member" if any(header) else "has no header"
        raise ThespisError(f"{path} {what}: restore it, or resume the run, which repairs it")
    good = [row for row in rows if _is_complete(row, len(header), members)]
    return Lines(header, good, len(rows) - len(good))


def _split(content: bytes) -> list[Cells]:
    return [row.split(",") for row in content.decode("utf-8", "replace").split("\n")[:-1]] or [[]]


def _is_complete(row: Cells, width: int, members: int | None) -> bool:
    """Returns whether a line is valid; a crash of the machine may leave blocks of zeros instead."""
    valid = len(row) == width and _is_integer(row[0]) and _is_integer(row[1])
    return valid and (members is None or int(row[1]) < members)


def _is_integer(cell: str) -> bool:
    return cell.isascii() and cell.isdigit() and len(cell) < 16


def repair(
    path: Path, header: Cells, note: Note, members: int | None = None, last: float = math.inf
) -> None:
    """Creates a log, or repairs it such that rows can be appended.

    Readable cells stay in their columns. If any cannot be read, they are left out and the old file
    is kept under another name. If rows after the step `last` will be cut, columns without a value
    up to then are dropped silently.
    """
    if not os.path.lexists(path):
        write(path, line(header))
        return
    try:
        content = files.read(path)
    except OSError as error:
        aside = files.set_aside(path)
        note(f"cannot read {path}: {error.strerror}; a new file replaces it, and it is now {aside}")
        write(path, line(header))
        return
    first, *rows = _split(content)
    absent = [b for a, b in zip(first, header, strict=False) if a != b]
    renamed = len(first) == len(header) and len(absent) == 1 and absent[0] not in first
    names = header if renamed else first
    known = names[:2] == header[:2]
    good = [row for row in rows if known and _is_complete(row, len(first), members)]
    bad, place = len(rows) - len(good), {name: i for i, name in enumerate(names)}
    cells = [[row[place[name]] if name in place else "" for name in header] for row in good]
    numbers, wrong = to_numbers(cells)
    if wrong:  # empty the cells that are not numbers
        cells = [
            ["" if x != x else cell for cell, x in zip(row, values, strict=True)]
            for row, values in zip(cells, numbers, strict=True)
        ]
    bad += wrong
    repaired = b"".join(map(line, [header, *cells]))
    dropped = [name for name in names if name not in header]
    if last < math.inf:  # later rows will be cut
        valid = [row for row in good if int(row[0]) <= last]
        dropped = [name for name in dropped if any(row[place[name]] for row in valid)]
    faults = {
        f"{bad} line(s) or cell(s) that cannot be read": bad,
        f"columns that are not used any more ({', '.join(dropped)})": dropped and known,
        "a damaged header": renamed or not known,
        "an incomplete last line": not content.endswith(b"\n"),
    }
    if any(faults.values()):
        what = " and ".join(fault for fault, present in faults.items() if present)
        aside = files.set_aside(path, content)
        note(f"{path} had {what}, and was repaired; the old file is now {aside}")
    if repaired != content:
        write(path, repaired)


def to_numbers(rows: list[Cells]) -> tuple[list[list[float]], int]:
    """Returns the numbers in all cells, NaN for empty ones, and how many are not numbers."""
    with suppress(ValueError):  # the usual case, and faster
        return [[float(cell or "nan") for cell in row] for row in rows], 0
    wrong, numbers = 0, []
    for row in rows:
        numbers.append([])
        for cell in row:
            try:
                numbers[-1].append(float(cell or "nan"))
            except ValueError:
                numbers[-1].append(math.nan)
                wrong += 1
    return numbers, wrong


def loggable(name: Any) -> bool:
    """Returns whether this may be the name of a column."""
    return isinstance(name, str) and name != "" and not set(name) & set(',"\r\n')


def line(cells: Cells) -> bytes:
    return (",".join(cells) + "\n").encode()


def text(value: Any) -> str:
    """Returns the shortest text that restores the number, as a float32 if it is exactly one."""
    exact = float(value)
    with np.errstate(over="ignore"):
        single = np.float32(exact)
    return str(single) if float(single) == exact else repr(exact)


# --- TensorBoard's event files --------------------------------------------------------------


def _event(tags: Sequence[str], cells: Cells) -> bytes:
    """Returns an event of one row, from its text, so that appended and rewritten rows agree."""
    from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore

    filled = [(name, cell) for name, cell in zip(tags, cells[2:], strict=True) if cell]
    values = [Summary.Value(tag=name, simple_value=float(cell)) for name, cell in filled]
    return _record(step=int(cells[0]), summary=Summary(value=values))


def histogram_value(name: str, counts: Sequence[int] | np.ndarray, edges: Edges) -> Any:
    """Returns a histogram as TensorBoard stores it; values count as the middles of their bins."""
    from tensorboardX.proto.summary_pb2 import HistogramProto, Summary  # pyright: ignore

    low, *limits = edges
    middle = np.convolve(edges, [0.5, 0.5], "valid")
    about = {
        "min": low,
        "max": limits[-1],
        "num": sum(counts),
        "sum": counts @ middle,
        "sum_squares": counts @ middle**2,
        "bucket_limit": limits,
        "bucket": counts,
    }
    return Summary.Value(tag=name, histo=HistogramProto(**about))


def media_records(
    path: Path, last: float = math.inf, skip: Iterable[str] = ()
) -> Iterator[tuple[bytes, Any]]:
    """Yields the records and events that only a file of TensorBoard has, up to the step `last`.

    They are images, and histograms not to `skip`.
    """
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore

    try:
        content = files.read(path)
    except OSError:
        return
    place = 0
    while place + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        record, place = content[place : place + length + 16], place + length + 16
        try:
            event = Event.FromString(record[12:-4])
        except Exception:  # incomplete or damaged
            return
        kinds = [(value.WhichOneof("value"), value.tag) for value in event.summary.value]
        if event.step <= last and any(
            kind == "image" or (kind == "histo" and tag not in skip) for kind, tag in kinds
        ):
            yield record, event


def _record(**fields: Any) -> bytes:
    """Returns an event with its length and the checksums of both."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore
    from tensorboardX.record_writer import masked_crc32c

    data = Event(wall_time=time.time(), **fields).SerializeToString()
    length = struct.pack("<Q", len(data))
    length_sum, data_sum = (struct.pack("<I", masked_crc32c(x)) for x in (length, data))
    return length + length_sum + data + data_sum
