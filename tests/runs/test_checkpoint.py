"""A checkpoint comes back bit for bit, is whole or absent, and says what does not fit."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from thespis.core import ThespisError
from thespis.runs import checkpoint, files
from thespis.runs.checkpoint import Damaged


class State(eqx.Module):
    layers: list
    temperature: jax.Array
    extra: object = None


def parts(fill=1.0):
    state = State([jnp.full((3, 2), fill, jnp.float32), {"bias": jnp.arange(3)}], jnp.float32(0.5))
    return {"state": state, "replay": {"obs": np.full((5, 4), 7, np.uint8)}}


def assert_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def abstract(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def damage(path, offset=-1):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


# --- round trips ----------------------------------------------------------------------------


def test_every_type_and_shape_comes_back_bit_for_bit(tmp_path):
    tree = {
        "float32": jnp.array([np.nan, -0.0, np.inf, 1e-42, 0.1], jnp.float32),
        "bfloat16": jnp.linspace(-3, 3, 6, dtype=jnp.bfloat16).reshape(2, 3),
        "numpy bfloat16": np.ones(3, ml_dtypes.bfloat16),
        "int32": jnp.arange(-3, 3),
        "uint8": np.arange(256, dtype=np.uint8).reshape(4, 8, 8),
        "uint32": jax.random.key_data(jax.random.key(3)),
        "bool": jnp.array([[True, False, True]]),
        "scalars": (jnp.float32(0.1), jnp.int32(7), np.array(True), np.float32(2.5)),
        "empty": jnp.zeros((0, 3)),
        "float64": np.array([0.1]),
        "int64": np.array(2**60),
        "float16": np.ones(1, np.float16),
        "none": None,
        "strided": np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1::3],
        "transposed": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    }
    path = checkpoint.save(tmp_path, 12, {"all": tree}, {})
    assert path == tmp_path / "000000000012"
    assert_equal(checkpoint.load(path, {"all": tree})["all"], tree)
    assert_equal(checkpoint.load(path, {"all": abstract(tree)})["all"], tree)


def test_other_tools_read_the_files_and_names_are_readable(tmp_path):
    path = checkpoint.save(tmp_path, 1, parts(), {})
    found = load_file(path / "state.safetensors")
    assert sorted(found) == ["layers.0", "layers.1.bias", "temperature"]
    np.testing.assert_array_equal(found["layers.1.bias"], [0, 1, 2])


def test_a_part_may_be_a_bare_array_or_hold_nothing(tmp_path):
    tree = {"clock": jnp.int32(5), "memory": None}
    path = checkpoint.save(tmp_path, 1, tree, {})
    assert_equal(checkpoint.load(path, tree), tree)


def test_loaded_state_computes_what_the_saved_one_did(tmp_path):
    net = eqx.filter(eqx.nn.MLP(3, 2, 8, 1, key=jax.random.key(0)), eqx.is_array)
    path = checkpoint.save(tmp_path, 1, {"net": net}, {})
    whole = eqx.nn.MLP(3, 2, 8, 1, key=jax.random.key(0))
    again = eqx.combine(checkpoint.load(path, {"net": abstract(net)})["net"], whole)
    np.testing.assert_array_equal(whole(jnp.ones(3)), again(jnp.ones(3)))


def test_the_manifest_tells_all_without_reading_arrays(tmp_path):
    path = checkpoint.save(tmp_path, 5000, parts(), {"rows": 5, "env": "point", "pair": (1, 2)})
    for file in path.glob("*.safetensors"):
        file.unlink()
    found = checkpoint.manifest(path)
    assert found["step"] == 5000
    assert found["info"] == {"rows": 5, "env": "point", "pair": [1, 2]}
    assert found["parts"]["replay"]["leaves"] == {"obs": {"shape": [5, 4], "dtype": "uint8"}}
    assert found["parts"]["replay"]["file"] == "replay.safetensors"


def test_only_the_named_parts_are_read(tmp_path):
    path = checkpoint.save(tmp_path, 1, parts(), {})
    (path / "replay.safetensors").unlink()  # playing needs no replay
    found = checkpoint.load(path, {"state": parts()["state"]})
    assert list(found) == ["state"]


def test_what_is_not_an_array_is_refused_by_name(tmp_path):
    for leaf in (jax.nn.relu, 3.0, jax.random.key(0)):
        with pytest.raises(TypeError, match=r"state\.net\.0"):
            checkpoint.save(tmp_path, 1, {"state": {"net": [leaf]}}, {})
    assert list(tmp_path.iterdir()) == []


# --- mismatches -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"w": jnp.zeros((2, 4))}, r"state\.w is float32\[2, 3\], expected float32\[2, 4\]"),
        ({"w": jnp.zeros((2, 3), jnp.bfloat16)}, r"state\.w is float32.*, expected bfloat16"),
        ({"w": jnp.zeros((2, 3)), "b": jnp.zeros(1)}, r"state\.b is absent, expected float32\[1\]"),
        ({}, r"state\.w is float32\[2, 3\], expected absent"),
        ({"v": jnp.zeros((2, 3))}, r"state\.v is absent, expected float32\[2, 3\] \(and 1 more\)"),
    ],
)
def test_whatever_does_not_fit_is_named_with_found_and_expected(tmp_path, template, words):
    path = checkpoint.save(tmp_path, 1, {"state": {"w": jnp.zeros((2, 3))}}, {})
    with pytest.raises(ThespisError, match=words) as caught:
        checkpoint.load(path, {"state": template})
    assert not isinstance(caught.value, Damaged)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_part_that_was_not_saved_is_named(tmp_path):
    path = checkpoint.save(tmp_path, 1, parts(), {})
    with pytest.raises(ThespisError, match="no part 'lineage': it has state, replay"):
        checkpoint.load(path, {"lineage": jnp.zeros(1)})


def test_a_mismatch_is_not_mistaken_for_damage(tmp_path):
    """Falling back would only hide it."""
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {"state": jnp.zeros(3)}, {})
    with pytest.raises(ThespisError, match="expected"):
        checkpoint.load_newest(tmp_path, {"state": jnp.zeros(4)}, pytest.fail)


def test_another_format_asks_for_an_update(tmp_path):
    path = checkpoint.save(tmp_path, 1, parts(), {})
    content = checkpoint.manifest(path) | {"format": 99}
    checkpoint._write_manifest(path, content)
    with pytest.raises(ThespisError, match="format 99.*update thespis"):
        checkpoint.manifest(path)


# --- damage ---------------------------------------------------------------------------------


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("file", ["state.safetensors", "manifest.json"])
@pytest.mark.parametrize(
    "harm",
    [damage, lambda p: damage(p, 9), lambda p: damage(p, 40), truncate, os.remove,
     lambda p: p.write_bytes(b""), lambda p: p.write_bytes(bytes(p.stat().st_size))],
    ids=["last byte", "byte 9", "byte 40", "half", "gone", "empty", "zeros"],
)  # fmt: skip
def test_any_harm_to_a_file_is_noticed_and_the_file_named(tmp_path, file, harm):
    path = checkpoint.save(tmp_path, 1, parts(), {})
    harm(path / file)
    with pytest.raises(Damaged, match=file) as caught:
        checkpoint.load(path, parts())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [{"data_offsets": [-4, 16]}, {"data_offsets": [0, 4000]}, {"data_offsets": [4000, 4020]},
     {"data_offsets": [0]}, {"data_offsets": ["", ""]}, {"shape": [10**9]}, {"dtype": "X"}],
    ids=str,
)  # fmt: skip
def test_a_header_that_lies_is_damage_whatever_the_checksums_say(tmp_path, change):
    path = checkpoint.save(tmp_path, 1, {"replay": {"obs": np.zeros((5, 4), np.uint8)}}, {})
    leaf = {"dtype": "U8", "shape": [5, 4], "data_offsets": [0, 20]} | change
    text = json.dumps({"obs": leaf}).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(20)
    (path / "replay.safetensors").write_bytes(data)
    content = checkpoint.manifest(path)
    digest = hashlib.sha256(data).hexdigest()
    content["parts"]["replay"] |= {"bytes": len(data), "sha256": digest}
    checkpoint._write_manifest(path, content)
    with pytest.raises(Damaged, match="replay.safetensors is damaged"):
        checkpoint.load(path, {"replay": {"obs": np.zeros((5, 4), np.uint8)}}, later=["replay"])


def test_what_is_to_be_read_later_is_checked_at_once_and_outlives_its_name(tmp_path):
    path = checkpoint.save(tmp_path, 1, parts(), {})
    found = checkpoint.load(path, parts(), later=["replay"])
    shutil.rmtree(path)  # by a training that saves and prunes meanwhile
    assert isinstance(found["replay"]["obs"], checkpoint.Stored)
    assert_equal(jax.tree.map(np.asarray, found), parts())

    path = checkpoint.save(tmp_path, 2, parts(), {})
    found = checkpoint.load(path, parts(), later=["replay"])
    os.truncate(path / "replay.safetensors", 10)
    with pytest.raises(Damaged, match="replay.safetensors is damaged: it ends too early"):
        np.asarray(found["replay"]["obs"])
    with pytest.raises(Damaged, match="replay.safetensors is damaged: 10 bytes, expected"):
        checkpoint.load(path, parts(), later=["replay"])


def test_a_damaged_newest_falls_back_and_says_so(tmp_path):
    for step in (100, 200, 300):
        checkpoint.save(tmp_path, step, parts(fill=step), {})
    damage(tmp_path / "000000000300" / "state.safetensors")
    warnings = []
    path, found = checkpoint.load_newest(tmp_path, abstract(parts()), warnings.append)
    assert path == tmp_path / "000000000200"
    assert_equal(found, parts(fill=200))
    assert len(warnings) == 1
    assert "000000000300" in warnings[0]
    assert "\n" not in warnings[0]


def test_an_undamaged_newest_is_loaded_silently(tmp_path):
    for step in (9, 10):
        checkpoint.save(tmp_path, step, parts(fill=step), {})
    path, found = checkpoint.load_newest(tmp_path, parts(), pytest.fail)
    assert path.name == "000000000010"
    assert_equal(found, parts(fill=10))


def test_templates_may_follow_each_manifest(tmp_path):
    """The fallback holds fewer replay rows than the newest."""
    for step in (10, 20):
        checkpoint.save(tmp_path, step, {"replay": np.full(step, 1.0, np.float32)}, {"rows": step})
    damage(tmp_path / "000000000020" / "replay.safetensors")
    sized = lambda m: {"replay": jax.ShapeDtypeStruct((m["info"]["rows"],), jnp.float32)}
    path, found = checkpoint.load_newest(tmp_path, sized, lambda line: None)
    assert path.name == "000000000010"
    assert found["replay"].shape == (10,)


def test_all_damaged_or_none_is_an_error(tmp_path):
    with pytest.raises(ThespisError, match="there is none"):
        checkpoint.load_newest(tmp_path / "nowhere", parts(), pytest.fail)
    for step in (1, 2):
        path = checkpoint.save(tmp_path, step, parts(), {})
        damage(path / "replay.safetensors")
    warnings = []
    with pytest.raises(ThespisError, match="all 2 are damaged"):
        checkpoint.load_newest(tmp_path, parts(), warnings.append)
    assert len(warnings) == 2


# --- order and pruning ----------------------------------------------------------------------


def test_latest_lists_complete_checkpoints_newest_first(tmp_path):
    for step in (900, 1000, 20):
        checkpoint.save(tmp_path, step, parts(), {})
    (tmp_path / "000000005000").mkdir()  # no manifest
    (tmp_path / ".tmp-abc").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "manifest.json").write_text("{}")
    assert [int(p.name) for p in checkpoint.latest(tmp_path)] == [1000, 900, 20]
    assert checkpoint.latest(tmp_path / "nowhere") == []


def test_pruning_keeps_the_newest_and_clears_what_crashes_left(tmp_path):
    for step in (1, 2, 3, 4):
        checkpoint.save(tmp_path, step, parts(fill=step), {})
    (tmp_path / ".tmp-abc" / "000000000005").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    checkpoint.prune(tmp_path, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000000003", "000000000004", "notes"]
    for step in (3, 4):
        found = checkpoint.load(tmp_path / f"{step:012d}", parts())
        assert_equal(found, parts(fill=step))
    checkpoint.prune(tmp_path / "nowhere")


def test_a_kill_while_pruning_never_leaves_half_a_checkpoint(tmp_path, monkeypatch):
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, parts(), {})
    # Neither temporary folder nor trash is ever emptied: as if killed before that.
    monkeypatch.setattr(files.shutil, "rmtree", lambda *args, **kwargs: None)
    checkpoint.prune(tmp_path, keep=1)
    assert [int(p.name) for p in checkpoint.latest(tmp_path)] == [3]
    monkeypatch.undo()
    checkpoint.prune(tmp_path, keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["000000000003"]


# --- crashes, full disks, read-only folders -------------------------------------------------


def test_the_same_step_may_be_saved_again(tmp_path):
    checkpoint.save(tmp_path, 1, parts(fill=1), {})
    path = checkpoint.save(tmp_path, 1, parts(fill=2), {})
    assert_equal(checkpoint.load(path, parts()), parts(fill=2))
    assert [p.name for p in tmp_path.iterdir()] == ["000000000001"]


KILLED = """
import os, sys
from pathlib import Path
import numpy as np
from thespis.runs import checkpoint

step = int(sys.argv[1])

def die_at(call, count):
    real, calls = getattr(os, call), iter(range(1, 100))

    def dying(*args, **kwargs):
        if next(calls) == count:
            os._exit(9)  # no cleaning up, as with kill -9
        return real(*args, **kwargs)

    setattr(os, call, dying)

for name in sys.argv[2:]:
    child = os.fork()
    if not child:
        call, count = Path(name).name.split("-")
        die_at(call, int(count))
        checkpoint.save(Path(name), step, {"state": np.full(4, 2, np.int32)}, {})
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.posix
@pytest.mark.parametrize("step", [1, 2])  # replacing the old one, and a new one beside it
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(tmp_path, step):
    template = {"state": np.full(4, 1, np.int32)}
    # The moments: before each sync (two files, two folders) and before each rename.
    moments = ["fsync-1", "fsync-2", "fsync-3", "fsync-4", "rename-1"]
    moments += ["rename-2", "rename-3"] if step == 1 else []
    folders = [tmp_path / moment for moment in moments]
    for folder in folders:
        checkpoint.save(folder, 1, template, {})
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(step), *map(str, folders)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["9"] * len(moments)

    seen = set()
    for folder in folders:
        _, found = checkpoint.load_newest(folder, template, pytest.fail)
        seen.add(tuple(found["state"].tolist()))
        checkpoint.save(folder, step, template, {})
        checkpoint.prune(folder)  # and the next save leaves no trace of the crash
        assert {p.name for p in folder.iterdir()} == {"000000000001", f"{step:012d}"}
    assert seen == {(1, 1, 1, 1), (2, 2, 2, 2)}


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_full_disk_is_explained_and_the_old_checkpoint_stays(tmp_path, monkeypatch, call, step):
    checkpoint.save(tmp_path, 1, parts(fill=1), {})

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(ThespisError) as caught:
            checkpoint.save(tmp_path, step, parts(fill=2), {})
    message = str(caught.value)
    assert message.startswith(f"cannot write {tmp_path / f'{step:012d}'}: No space left on device")
    assert "free some space" in message
    assert "\n" not in message
    assert [p.name for p in tmp_path.iterdir()] == ["000000000001"]
    assert_equal(checkpoint.load(tmp_path / "000000000001", parts()), parts(fill=1))


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder_is_explained(tmp_path, monkeypatch, code):
    checkpoint.save(tmp_path, 1, parts(), {})

    def refuse(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        with pytest.raises(ThespisError, match="choose a folder you may write to"):
            checkpoint.save(tmp_path, 2, parts(), {})
    assert [p.name for p in tmp_path.iterdir()] == ["000000000001"]


@pytest.mark.posix
@pytest.mark.skipif("os.geteuid() == 0", reason="the superuser may write anywhere")
def test_a_folder_without_permission_is_explained(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ThespisError, match="Permission denied"):
            checkpoint.save(tmp_path, 1, parts(), {})
    finally:
        tmp_path.chmod(0o700)


def test_an_interrupt_leaves_no_litter(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 1, parts(), {})
    assert list(tmp_path.iterdir()) == []


def forge(path, change):
    """Changes a manifest, as whoever made a run can: with the right checksum."""
    file = path / checkpoint.MANIFEST
    content = json.loads(file.read_text())
    del content["sha256"]
    change(content)
    file.write_text(json.dumps({**content, "sha256": checkpoint._digest(content)}))


DEEP = json.loads("[" * 100 + "]" * 100)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.update(step=10**400),
        lambda x: x.update(step=-1),
        lambda x: x.update(info=[]),
        lambda x: x.update(info={"deep": DEEP}),
        lambda x: x.update(parts=[]),
        lambda x: x["parts"].update(state={"leaves": {"w": 5}}),
        lambda x: x["parts"].update(state={"leaves": {"w": {"shape": [1], "dtype": "object"}}}),
        lambda x: x["parts"].update(state={"leaves": {"w": {"shape": [1], "dtype": None}}}),
        lambda x: x["parts"].update(state={"leaves": {"w": {"shape": [-1], "dtype": "int8"}}}),
        lambda x: x["parts"].update(state={"leaves": {"w": {"shape": 5, "dtype": "int8"}}}),
    ],
)
def test_a_manifest_with_the_right_checksum_is_not_believed_more(tmp_path, change):
    path = checkpoint.save(tmp_path, 5, parts(), {})
    forge(path, lambda x: None)
    assert checkpoint.manifest(path)["step"] == 5
    forge(path, change)
    with pytest.raises(Damaged, match="manifest.json is damaged"):
        checkpoint.manifest(path)
