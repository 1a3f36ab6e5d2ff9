"""metrics.csv keeps every digit, survives a crash, and TensorBoard always agrees with it."""

import builtins
import errno
import os
import struct
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thespis.core import ThespisError
from thespis.runs import metrics
from thespis.runs.metrics import MetricsLog

COLUMNS = ("rollout/ep_rew_mean", "train/critic_loss", "time/fps")


def fill(log, steps, members=1, fps=100.0):
    for step in steps:
        for i in range(members):
            x = np.float32(np.sin(step + 0.1 * i))
            log.append(step, i, {"train/critic_loss": x, "time/fps": fps + step})


def scalars(folder):
    """{path of the event files' folder: [(step, tag, value)]}, wall time left out."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    found = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        data, rows = path.read_bytes(), found.setdefault(str(path.parent.relative_to(folder)), [])
        while data:
            length, length_sum = struct.unpack("<QI", data[:12])
            body, (body_sum,) = data[12 : 12 + length], struct.unpack("<I", data[12 + length :][:4])
            assert length_sum == masked_crc32c(data[:8])
            assert body_sum == masked_crc32c(body)
            event = Event.FromString(body)
            rows += [(event.step, v.tag, v.simple_value) for v in event.summary.value]
            data = data[16 + length :]
    return found


def histograms(folder):
    """{(step, tag): (limits, counts)} of what is in the event files."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            for v in event.summary.value:
                if v.HasField("histo"):
                    shown = v.histo.min, *v.histo.bucket_limit
                    found[event.step, v.tag] = shown, list(v.histo.bucket)
            data = data[16 + length :]
    return found


def test_histograms_go_to_a_file_of_their_own_and_to_tensorboard(tmp_path):
    edges = {"train/chances": (0.0, 0.5, 1.0), "rollout/actions/0": (-1.0, 0.0, 0.25, 1.0)}
    counts = lambda i: {"train/chances": [i, 2], "rollout/actions/0": np.int32([3, 0, i])}
    log = MetricsLog(tmp_path, COLUMNS, 1, histograms=edges)
    for step in (10, 20, 30):
        log.append(step, 0, {"time/fps": 7}, counts(step))
    log.append(40, 0, {}, {"train/chances": [0, 0], "rollout/actions/0": [1, 1, 1]})
    log.sync()
    text = (tmp_path / "histograms.csv").read_text().splitlines()
    assert text[0] == (
        "step,member,train/chances:0:0.5,train/chances:0.5:1,"
        "rollout/actions/0:-1:0,rollout/actions/0:0:0.25,rollout/actions/0:0.25:1"
    )
    assert text[2] == "20,0,20,2,3,0,20"
    wanted = {
        (step, name): (edges[name], [float(x) for x in counts(step)[name]])
        for step in (10, 20, 30)
        for name in edges
    }
    last = {(40, "rollout/actions/0"): (edges["rollout/actions/0"], [1.0, 1.0, 1.0])}
    assert histograms(tmp_path) == wanted | last  # one that counted nothing is not drawn
    assert scalars(tmp_path / "tensorboard")["."]  # beside the metrics

    log = MetricsLog(tmp_path, COLUMNS, 1, histograms=edges)
    log.cut(20)  # as a run that goes on from there
    assert histograms(tmp_path) == {k: x for k, x in wanted.items() if k[0] <= 20}
    again = log.histograms.read_member(tmp_path, 0)
    assert again[20] == {"train/chances": [20, 2], "rollout/actions/0": [3, 0, 20]}
    assert log.histograms.read_member(tmp_path, 1) == {}
    assert [x[0] for x in log.histograms.lines] == ["10", "20"]


def test_without_histograms_there_is_no_file_of_them(tmp_path):
    log = MetricsLog(tmp_path, COLUMNS, 1)
    log.append(1, 0, {"time/fps": 7})
    log.cut(0)
    log.sync()
    assert not (tmp_path / "histograms.csv").exists()


def test_rows_come_back_with_their_columns(tmp_path):
    log = MetricsLog(tmp_path, COLUMNS, members=2)
    log.append(1000, 0, {"train/critic_loss": jnp.float32(0.1), "rollout/ep_rew_mean": -3.5})
    log.append(1000, 1, {"time/fps": 7})
    text = (tmp_path / "metrics.csv").read_text()
    assert text.splitlines()[0] == "step,member,rollout/ep_rew_mean,train/critic_loss,time/fps"
    assert text.splitlines()[1:] == ["1000,0,-3.5,0.1,", "1000,1,,,7.0"]
    found = metrics.read(tmp_path / "metrics.csv")
    assert list(found) == ["step", "member", *COLUMNS]
    np.testing.assert_array_equal(found["step"], [1000.0, 1000.0])
    np.testing.assert_array_equal(found["time/fps"], [np.nan, 7.0])


def test_a_log_without_rows_has_empty_columns(tmp_path):
    MetricsLog(tmp_path, COLUMNS, members=1)
    found = metrics.read(tmp_path / "metrics.csv")
    assert list(found) == ["step", "member", *COLUMNS]
    assert all(column.shape == (0,) for column in found.values())


@given(st.floats(width=32) | st.floats(width=64) | st.integers(0, 2**53))
def test_every_number_survives_the_text(value):
    read = float(metrics.text(value))
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if float(single) == value:  # a float32 comes back as that float32
        assert np.float32(read) == single
    else:  # wider numbers, such as large counts, come back exactly too
        np.testing.assert_equal(read, float(value))


def test_unknown_keys_and_members_are_mistakes(tmp_path):
    log = MetricsLog(tmp_path, COLUMNS, members=1)
    with pytest.raises(AssertionError, match="train/typo"):
        log.append(0, 0, {"train/typo": 1.0})
    with pytest.raises(AssertionError):
        log.append(0, 1, {})
    assert len(metrics.read(log.path)["step"]) == 0


def test_rows_are_in_the_file_as_soon_as_they_are_added(tmp_path):
    log = MetricsLog(tmp_path, COLUMNS, members=1)
    for n in range(1, 4):
        fill(log, [n])
        log.sync()
        assert len(metrics.read(log.path)["step"]) == n
        assert len(scalars(tmp_path)["tensorboard"]) == 2 * n


def test_columns_that_come_go_or_change_places_keep_their_values(tmp_path):
    fill(MetricsLog(tmp_path, COLUMNS, members=1), [1, 2])
    notes, columns = [], ("train/new", *COLUMNS[::-1])
    log = MetricsLog(tmp_path, columns, 1, note=notes.append)
    assert notes == []
    assert metrics.lines(log.path)[0] == ["step", "member", *columns]
    fill(log, [3])
    found = metrics.read(log.path)
    np.testing.assert_array_equal(found["time/fps"], [101, 102, 103])
    np.testing.assert_array_equal(found["train/new"], [np.nan] * 3)
    log = MetricsLog(tmp_path, ("train/critic_loss",), 1, note=notes.append)
    assert "that are not used any more (train/new, time/fps, rollout/ep_rew_mean)" in notes[0]
    loss = metrics.read(log.path)["train/critic_loss"]
    np.testing.assert_array_equal(
        loss, metrics.read(tmp_path / "metrics.csv.damaged-1")[COLUMNS[1]]
    )


HEADER = b"step,member,rollout/ep_rew_mean,train/critic_loss,time/fps\n"


@pytest.mark.parametrize(
    ("old", "new", "rows"),
    [
        (b"1,0,,", b"1,0,=0.5,", 3),  # a cell that is no number
        (b"1,0,,", b"1,8,,", 2),  # a member that there is not
        (b"1,0,,", b"1,-0,,", 2),
        (b"1,0,,", "²,0,,".encode(), 2),  # what is a digit, but no number
        (b"1,0,,", b"1" * 30 + b",0,,", 2),
        (b"1,0,,", b"1,0,", 2),  # a cell too few
        (b"1,0,,", b"1,0\n,", 2),
        (b"1,0,,", b"\0\0\0\0\n1,0,,", 3),  # zeros of a crash
        (b"1,0,,", b"\xff\xfe,0,,", 2),
        (b"step", b"stop", 3),  # a header of which one name is damaged
        (b"train/critic_loss", b"train/critic\xffloss", 3),
        (b"step,member", b"stop,mumber", 0),
        (HEADER, b"", 0),
        (HEADER, b"\n" + HEADER, 0),
    ],
)
def test_whatever_happened_to_the_file_a_log_goes_on_and_nothing_is_lost(tmp_path, old, new, rows):
    log, notes = MetricsLog(tmp_path, COLUMNS, members=1), []
    fill(log, [1, 2, 3])
    damaged = log.path.read_bytes().replace(old, new, 1)
    log.path.write_bytes(damaged)

    log = MetricsLog(tmp_path, COLUMNS, 1, note=notes.append)
    log.cut(3)
    fill(log, [4])

    assert log.path.read_bytes().startswith(HEADER)
    found = metrics.read(log.path, strict=True)
    assert len(found["step"]) == rows + 1
    steps = [step for step, tag, _ in scalars(tmp_path)["tensorboard"] if tag == "time/fps"]
    assert steps == found["step"].tolist()
    assert len(notes) == 1
    assert notes[0].endswith(str(tmp_path / "metrics.csv.damaged-1"))
    assert "\n" not in notes[0]
    assert (tmp_path / "metrics.csv.damaged-1").read_bytes() == damaged


@pytest.mark.posix
def test_a_log_that_is_no_file_at_all_begins_anew(tmp_path):
    (tmp_path / "secret").write_text("mine")
    for n, make in enumerate((os.mkfifo, os.mkdir, lambda x: os.symlink("secret", x)), 1):
        folder, notes = tmp_path / str(n), []
        folder.mkdir()
        for name in ("metrics.csv", "tensorboard"):
            make(folder / name)
        log = MetricsLog(folder, COLUMNS, 2, note=notes.append)
        fill(log, [1], members=2)
        assert len(metrics.read(log.path)["step"]) == 2
        assert len(scalars(folder)) == 2
        assert any("metrics.csv.damaged-1" in note for note in notes)
    assert (tmp_path / "secret").read_text() == "mine"


@pytest.mark.posix
def test_a_tensorboard_folder_that_leads_elsewhere_is_left_alone(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "events.out.tfevents.1.host").write_text("theirs")
    notes = []
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").symlink_to(tmp_path / "theirs")
    fill(MetricsLog(tmp_path / "run", COLUMNS, 1, note=notes.append), [1])
    assert [x.name for x in (tmp_path / "theirs").iterdir()] == ["events.out.tfevents.1.host"]
    assert len(scalars(tmp_path / "run")["tensorboard"]) == 2
    assert (tmp_path / "run" / "tensorboard.damaged-1").is_symlink()
    assert len(notes) == 1


def test_readers_leave_out_what_makes_no_sense_unless_they_are_strict(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"step,member,loss\n1,0,0.5\n2,0,=1\n3,7,0.5\n4,x,1\n5,0,0.25\n")
    np.testing.assert_array_equal(metrics.read(path, members=1)["loss"], [0.5, np.nan, 0.25])
    np.testing.assert_array_equal(metrics.read(path)["step"], [1, 2, 3, 5])
    with pytest.raises(ThespisError, match=r"is damaged: 3 line\(s\) or cell\(s\)"):
        metrics.read(path, members=1, strict=True)
    path.write_bytes(b"time,member,loss\n1,0,0.5\n")
    with pytest.raises(ThespisError, match="does not begin with the columns step and member"):
        metrics.read(path)


@pytest.mark.parametrize("members", [1, 3])
def test_cut_and_continue_equals_never_stopped(tmp_path, members):
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    fill(MetricsLog(tmp_path / "whole", COLUMNS, members), range(0, 60, 10), members)
    fill(MetricsLog(tmp_path / "broken", COLUMNS, members), range(0, 50, 10), members, fps=1.0)
    with open(tmp_path / "broken" / "metrics.csv", "ab") as file:
        file.write(b"50,0,1.0,0.12")  # killed while writing

    log = MetricsLog(tmp_path / "broken", COLUMNS, members)
    log.cut(20)
    fill(log, range(30, 60, 10), members)

    a, b = tmp_path / "whole" / "metrics.csv", tmp_path / "broken" / "metrics.csv"
    assert metrics.differences(a, b) == []
    drop = lambda x: [line.rsplit(",", 1)[0] for line in x.read_text().splitlines()]
    assert drop(a) == drop(b)
    timeless = lambda folder: {
        where: [row for row in rows if not row[1].startswith("time/")]
        for where, rows in scalars(folder).items()
    }
    expected = [f"tensorboard/member_{i}" for i in range(3)] if members > 1 else ["tensorboard"]
    assert list(timeless(tmp_path / "whole")) == expected
    assert timeless(tmp_path / "whole") == timeless(tmp_path / "broken")
    assert all(len(rows) == 6 for rows in timeless(tmp_path / "broken").values())


def test_tensorboard_is_rebuilt_to_the_very_same_scalars(tmp_path):
    log = MetricsLog(tmp_path, COLUMNS, members=2)
    fill(log, range(0, 100, 7), members=2)
    log.append(100, 0, {"rollout/ep_rew_mean": 0.1, "time/fps": 16777217.0})
    before = scalars(tmp_path)
    log.cut(100)
    assert scalars(tmp_path) == before
    log.cut(-1)
    assert scalars(tmp_path) == {"tensorboard/member_0": [], "tensorboard/member_1": []}


def test_opening_again_drops_the_torn_line_and_appends(tmp_path):
    fill(MetricsLog(tmp_path, COLUMNS, members=1), [1, 2])
    with open(tmp_path / "metrics.csv", "ab") as file:
        file.write(b"\0\0\0\0\n3,0,1.0,2.0,3.0")  # looks whole but has no end
    log = MetricsLog(tmp_path, COLUMNS, members=1)
    fill(log, [4])
    np.testing.assert_array_equal(metrics.read(log.path)["step"], [1, 2, 4])
    assert [step for step, _, _ in scalars(tmp_path)["tensorboard"]] == [1, 1, 2, 2, 4, 4]


def test_reading_ignores_a_torn_line_and_leaves_the_file_alone(tmp_path):
    log = MetricsLog(tmp_path, COLUMNS, members=1)
    fill(log, [1, 2])
    with open(log.path, "ab") as file:
        file.write(b"3,0,1.0")
    before = log.path.read_bytes()
    np.testing.assert_array_equal(metrics.read(log.path)["step"], [1, 2])
    assert log.path.read_bytes() == before


def test_a_crash_while_cutting_leaves_the_old_file(tmp_path, monkeypatch):
    log = MetricsLog(tmp_path, COLUMNS, members=1)
    fill(log, [1, 2, 3])
    before = log.path.read_bytes()

    def crash(*args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(ThespisError, match=r"metrics\.csv"):
        log.cut(1)
    assert log.path.read_bytes() == before


def test_a_full_disk_is_explained(tmp_path, monkeypatch):
    log = MetricsLog(tmp_path, COLUMNS, members=1)
    fill(log, [1])
    real = builtins.open

    def full(path, mode="r", *args, **kwargs):
        if mode == "ab":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, mode, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", full)
    with pytest.raises(ThespisError, match=r"metrics\.csv: No space left on device; free some"):
        fill(log, [2])


def test_a_missing_file_or_header_is_named(tmp_path):
    with pytest.raises(ThespisError, match=r"cannot read .*metrics\.csv"):
        metrics.read(tmp_path / "metrics.csv")
    (tmp_path / "metrics.csv").write_bytes(b"")
    with pytest.raises(ThespisError, match="no header"):
        metrics.read(tmp_path / "metrics.csv")


def test_same_lists_what_differs_but_time(tmp_path):
    for name, loss, fps in (("a", 0.1, 5.0), ("b", 0.1, 6.0), ("c", 0.2, 5.0)):
        (tmp_path / name).mkdir()
        log = MetricsLog(tmp_path / name, COLUMNS, members=1)
        log.append(8, 0, {"train/critic_loss": np.float32(loss), "time/fps": fps})
    a, b, c = (tmp_path / name / "metrics.csv" for name in "abc")
    assert metrics.differences(a, b) == []
    assert metrics.differences(a, c) == ["step 8 member 0 train/critic_loss: 0.1 != 0.2"]
    log.append(9, 0, {})
    assert metrics.differences(a, c)[0] == "rows: 1 != 2"


def test_without_tensorboardx_the_csv_is_still_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    for name in [name for name in sys.modules if name.startswith("tensorboardX.")]:
        monkeypatch.delitem(sys.modules, name)
    log = MetricsLog(tmp_path, COLUMNS, members=1)
    with pytest.warns(UserWarning, match="tensorboardX"):
        fill(log, [1])
    fill(log, [2])
    np.testing.assert_array_equal(metrics.read(log.path)["step"], [1, 2])


def test_opening_a_log_does_not_import_tensorboardx(tmp_path):
    code = (
        "import sys, pathlib; from thespis.runs.metrics import MetricsLog;"
        "MetricsLog(pathlib.Path(sys.argv[1]), ['a'], 1); assert 'tensorboardX' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
