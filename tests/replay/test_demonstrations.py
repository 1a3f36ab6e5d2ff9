"""Demonstrations: recorded, written, read back, checked, and drawn from like a replay."""

import errno
import io
import json
import os
import tracemalloc
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

from tests.algos import reference
from thespis.core import Box, Discrete, Spec, ThespisError
from thespis.replay import demonstrations
from thespis.replay.demonstrations import Episode

OBS = jax.ShapeDtypeStruct((2,), jnp.float32)
BOX, CHOICE = Box((-2.0, 0.0), (2.0, 6.0), (2,)), Discrete(3, start=1)
SPECS = {"continuous": Spec(OBS, BOX), "discrete": Spec(OBS, CHOICE)}
kinds = pytest.mark.parametrize("kind", SPECS)


def episodes(kind="continuous", lengths=(4, 1, 6), ended=(True, False, False)) -> list[Episode]:
    """Observations [episode, time]; actions in the environment's own units."""
    rng, found = np.random.default_rng(0), []
    for i, (n, end) in enumerate(zip(lengths, ended, strict=True)):
        obs = np.stack([np.full(n + 1, i), np.arange(n + 1)], -1).astype(np.float32)
        action = rng.uniform((-2, 0), (2, 6), (n, 2)).astype(np.float32)
        action = rng.integers(1, 4, n) if kind == "discrete" else action
        found.append(Episode(obs, action, rng.normal(size=n).astype(np.float32), end))
    return found


def same(a: list[Episode], b: list[Episode]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert jax.tree.structure(x.obs) == jax.tree.structure(y.obs)
        for left, right in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
            np.testing.assert_array_equal(left, right)


# --- files ----------------------------------------------------------------------------------


@kinds
def test_a_file_gives_back_what_was_written(kind, tmp_path):
    written, name = episodes(kind), str(tmp_path / "demos.npz")
    np.savez_compressed(name, **demonstrations.to_arrays(written))
    same(demonstrations.load(name), written)
    with np.load(name) as arrays:
        same(demonstrations.load(dict(arrays)), written)  # and so do its arrays


@kinds
def test_a_minari_dataset_gives_back_what_was_written(kind, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    written = episodes(kind)
    assert demonstrations.save_minari("toy/expert", written, SPECS[kind], "sac") == "toy/expert-v0"
    same(demonstrations.load("toy/expert-v0"), written)
    dataset = minari.load_dataset("toy/expert-v0")  # as any other program reads it
    same(demonstrations.load(dataset), written)
    assert dataset.total_episodes == 3
    assert [bool(e.terminations[-1]) for e in dataset.iterate_episodes()] == [True, False, False]
    with pytest.raises(ThespisError, match="toy/expert-v0: "):
        demonstrations.save_minari("toy/expert", written, SPECS[kind])  # there is one already


def test_a_minari_dataset_on_a_full_disk_is_one_line(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(minari, "create_dataset_from_buffers", refuse)
    with pytest.raises(ThespisError, match="cannot write toy-v0: .*No space left.*, and delete /"):
        demonstrations.save_minari("toy", episodes(), SPECS["continuous"])


@pytest.mark.parametrize("env_id", ["Strange-v0", "Pendulum-v1"])
def test_a_minari_dataset_runs_no_code_that_it_names(env_id, tmp_path, monkeypatch):
    """Minari makes the environment of a dataset without spaces, as the dataset says."""
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    demonstrations.save_minari("toy/expert", episodes(), SPECS["continuous"], "sac")
    file = tmp_path / "toy" / "expert-v0" / "data" / "metadata.json"
    about = json.loads(file.read_text())
    del about["observation_space"]
    spec = {"id": env_id, "entry_point": "os:system", "kwargs": {"command": f"touch {tmp_path}/x"}}
    more = {"reward_threshold": None, "nondeterministic": False, "max_episode_steps": None}
    more |= {"order_enforce": False, "disable_env_checker": True, "additional_wrappers": []}
    about["env_spec"] = json.dumps(spec | more | {"vector_entry_point": None})
    file.write_text(json.dumps(about))
    with pytest.raises(ThespisError, match="os:system"):
        demonstrations.load("toy/expert-v0")
    assert not (tmp_path / "x").exists()


def test_a_dataset_that_is_not_there_is_not_fetched(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setattr(minari.storage.hosting, "download_dataset", None)
    with pytest.raises(ThespisError, match="neither a run, a .npz file nor a local Minari dataset"):
        demonstrations.load("D4RL/pen/human-v2")


def test_without_the_library_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[minari\]'"):
        demonstrations.load("toy/expert-v0")


def test_parts_of_an_observation_have_names_in_the_file(tmp_path):
    spec = Spec({"a": OBS, "b": jax.ShapeDtypeStruct((2, 2), jnp.uint8)}, BOX)
    dicts = [
        e._replace(obs={"a": e.obs, "b": np.arange(4 * len(e.obs)).reshape(-1, 2, 2).astype("u1")})
        for e in episodes()
    ]
    name = str(tmp_path / "demos.npz")
    np.savez_compressed(name, **demonstrations.to_arrays(dicts))
    with np.load(name) as arrays:
        assert {"observations/a", "next_observations/b"} <= set(arrays)
    read = demonstrations.load(name)
    same(read, dicts)
    demonstrations.check(spec, read, name)
    assert demonstrations.view(spec, read).ring.rows.obs["b"].dtype == jnp.uint8


def test_episodes_part_where_the_next_observation_is_another_one():
    """Nobody has to mark a time limit: a break in the observations is an end, and no reset is
    taken for a successor."""
    arrays = demonstrations.to_arrays(episodes())
    del arrays["truncations"], arrays["rewards"]
    found = demonstrations.from_arrays(arrays, "demos")
    assert [(e.length, e.terminated) for e in found] == [(4, True), (1, False), (6, False)]


# --- what does not fit ----------------------------------------------------------------------


def changed(**parts) -> list[Episode]:
    return [e._replace(**{k: f(e) for k, f in parts.items()}) for e in episodes()]


WRONG = {
    "no step": ("continuous", [], "there is no step"),
    "obs shape": ("continuous", changed(obs=lambda e: e.obs[:, :1]), r"observations .*\(1,\).*\(2"),
    "obs NaN": ("continuous", changed(obs=lambda e: e.obs * np.nan), "observations are not all"),
    "obs names": ("continuous", changed(obs=lambda e: {"x": e.obs}), "observations/x"),
    "action shape": ("continuous", changed(action=lambda e: e.action[:, :1]), r"actions .*\(1,\)"),
    "action NaN": ("continuous", changed(action=lambda e: e.action * np.nan), "actions are not"),
    "bounds": ("continuous", changed(action=lambda e: e.action + 5), "actions reach .* bounds"),
    "no choice": ("discrete", changed(), "actions are float32 .* whole numbers, 1 to 3"),
    "no number": ("continuous", episodes("discrete"), r"actions have shape \(\)"),
    "range": ("discrete", [e._replace(action=e.action + 1) for e in episodes("discrete")],
              "actions reach from . to 4, but the environment's from 1 to 3"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_the_environment_is_refused_by_its_field(what):
    kind, given, message = WRONG[what]
    with pytest.raises(ThespisError, match=f"demos = file.npz: .*{message}") as caught:
        demonstrations.check(SPECS[kind], given, "file.npz")
    assert "\n" not in str(caught.value)


def test_floats_do_not_pass_for_bytes():
    spec = Spec(jax.ShapeDtypeStruct((2,), jnp.uint8), BOX)
    with pytest.raises(ThespisError, match="observations are float32, but .* uint8"):
        demonstrations.check(spec, episodes(), "x")


def test_doubles_pass_for_floats():
    given = changed(obs=lambda e: e.obs.astype(np.float64), action=lambda e: e.action.astype("f8"))
    demonstrations.check(SPECS["continuous"], given, "x")
    assert demonstrations.view(SPECS["continuous"], given).ring.rows.obs.dtype == jnp.float32


def test_a_file_that_lacks_an_array_or_is_none_is_refused(tmp_path):
    arrays = demonstrations.to_arrays(episodes())
    del arrays["terminations"]
    with pytest.raises(ThespisError, match="has no terminations"):
        demonstrations.from_arrays(arrays, "x")
    arrays["terminations"] = np.zeros(3, bool)
    with pytest.raises(ThespisError, match="has 3 terminations and 11 actions"):
        demonstrations.from_arrays(arrays, "x")
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(ThespisError, match="bad.npz is not an array archive"):
        demonstrations.load(tmp_path / "bad.npz")
    with pytest.raises(ThespisError, match="gone.npz is not there"):
        demonstrations.load(tmp_path / "gone.npz")


def npy(x: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, x)
    return out.getvalue()


ROWS = npy(np.zeros(10)).replace(b"(10,), }           ", b"(1000000000000,), }")
HOSTILE = {
    "more rows than there are": (ROWS, r"float64\[1000000000000\], in 80 bytes"),
    "fewer than none": (npy(np.zeros(10)).replace(b"(10,), } ", b"(-10,), }"), "-10"),
    "fewer than none, twice": (
        npy(np.zeros((2, 5))).replace(b"(2, 5), }  ", b"(-2, -5), }"),
        r"float64\[-2, -5\], in 80 bytes",
    ),
    "fewer rows than there are": (
        npy(np.zeros(10)).replace(b"(10,), }", b"(5,), } "),
        r"float64\[5\], in 80 bytes",
    ),
    "text": (npy(np.array(["a", "b"])), "<U1, not numbers"),
    "records": (npy(np.zeros(2, [("a", "f4"), ("b", "i4")])), "not numbers"),
    "objects": (npy(np.zeros(2)).replace(b"'<f8'", b"'|O' "), "object, not numbers"),
    "another version": (npy(np.zeros(2)).replace(b"NUMPY\x01", b"NUMPY\x09"), r"\(9, 0\)"),
    "no array": (b"nothing", "magic"),
    "a number": (npy(np.array(1.0)), r"actions is float64\[\]"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_is_not_what_it_says_is_refused_before_it_takes_memory(tmp_path, what):
    content, message = HOSTILE[what]
    with zipfile.ZipFile(tmp_path / "bad.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("actions.npy", content)
    tracemalloc.start()
    with pytest.raises(ThespisError, match=message) as caught:
        demonstrations.load(str(tmp_path / "bad.npz"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24
    assert "\n" not in str(caught.value)


def test_a_file_unpacks_to_so_much_and_no_more(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "bomb.npz", actions=np.zeros(2**20))
    monkeypatch.setattr(demonstrations, "ROOM", 2**22)
    tracemalloc.start()
    with pytest.raises(ThespisError, match=r"unpacks to 8,388,\d+ bytes"):
        demonstrations.load(str(tmp_path / "bomb.npz"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22
    noise = np.random.default_rng(0).random(2**20)  # a large file may hold as much as its size
    np.savez_compressed(tmp_path / "large.npz", actions=noise)
    with pytest.raises(ThespisError, match="has no observations"):
        demonstrations.load(str(tmp_path / "large.npz"))


@pytest.mark.posix
def test_nobody_waits_for_a_pipe_or_reads_a_device(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "device.npz").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(ThespisError, match="not a regular file"):
            demonstrations.load(str(tmp_path / f"{name}.npz"))


def test_arrays_of_text_are_refused():
    with pytest.raises(ThespisError, match=r"demos = demos: actions is <U1\[2\]; give numbers"):
        demonstrations.load({"actions": np.array(["a", "b"])})


def test_arrays_that_do_not_belong_together_are_refused():
    arrays = demonstrations.to_arrays(episodes())
    for change in (
        {"next_observations": arrays["next_observations"][:, :1]},
        {"next_observations": arrays["next_observations"][:-1]},
        {"rewards": np.array("none")},
    ):
        with pytest.raises(ThespisError, match=r"^demos = x: .*give"):
            demonstrations.from_arrays(arrays | change, "x")
    del arrays["terminations"]
    with pytest.raises(ThespisError, match="one array each"):
        demonstrations.from_arrays(arrays | {"terminations/a": np.zeros(11)}, "x")


def test_the_checksum_is_of_what_is_learned_from():
    one = demonstrations.checksum(episodes())
    assert one == demonstrations.checksum(episodes())
    assert one == demonstrations.checksum([e._replace(reward=e.reward + 1) for e in episodes()])
    for other in (episodes()[:2], episodes("discrete"), episodes(ended=(True, True, False))):
        assert demonstrations.checksum(other) != one
    assert demonstrations.checksum(changed(obs=lambda e: e.obs + 1)) != one


# --- units ----------------------------------------------------------------------------------


@given(st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=2))
def test_units_go_there_and_back(unit):
    unit = np.asarray([unit], np.float32)
    own = BOX.to_env(unit)
    assert ((own >= (-2, 0)) & (own <= (2, 6))).all()
    np.testing.assert_allclose(BOX.to_unit(own), unit, atol=1e-6)


def test_bounds_are_the_ends_of_the_units():
    np.testing.assert_array_equal(BOX.to_unit(np.array([[-2, 0], [2, 6]])), [[-1, -1], [1, 1]])
    np.testing.assert_array_equal(BOX.to_env(np.array([[-1, -1], [1, 1]])), [[-2, 0], [2, 6]])
    np.testing.assert_array_equal(CHOICE.to_unit(np.array([1, 3])), [0, 2])


# --- drawing --------------------------------------------------------------------------------


draw = jax.jit(lambda view, key: view.transitions(key, 32, 0.9))


@kinds
@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_every_transition_drawn_is_one_of_an_episode(kind, lengths, seed):
    """With its true successor, and a cut that is no end."""
    ended = [i % 2 == 0 for i in range(len(lengths))]
    shown = episodes(kind, lengths, ended)
    view = demonstrations.view(SPECS[kind], shown, capacity=30)
    b = jax.tree.map(np.asarray, draw(view, random.key(seed)))
    for k in np.flatnonzero(b.valid):
        i, t = b.obs[k].astype(int)
        last = t + 1 == lengths[i]
        np.testing.assert_array_equal(b.next_obs[k], shown[i].obs[t + 1])
        wanted = SPECS[kind].action.to_unit(shown[i].action[t : t + 1])[0]
        np.testing.assert_array_equal(b.action[k], wanted)
        assert (b.terminated[k], b.truncated[k]) == (last and ended[i], last and not ended[i])
        assert b.reward[k] == 0
    if sum(lengths) > 1:
        assert b.valid.any()


@pytest.mark.cases(6)
@pytest.mark.parametrize("n_step", [1, 3, 20])
@pytest.mark.parametrize("capacity", [None, 30, 10])
@pytest.mark.parametrize("frames", [1, 3])
def test_transitions_start_from_every_step_of_every_demonstration(n_step, capacity, frames):
    """Also from the last ones of the last, which end before n steps; and of one that was cut."""
    lengths, ended = [4, 6], [False, True]
    shown = episodes("continuous", lengths, ended)
    view = demonstrations.view(SPECS["continuous"], shown, capacity).stacked(frames)
    b = reference.quick(lambda key: view.transitions(key, 500, 0.9, n_step))(random.key(0))
    b = jax.tree.map(np.asarray, b)
    newest = (lambda x: x[:, -1]) if frames > 1 else lambda x: x
    kept = [4, 4] if capacity == 10 else lengths  # rows: 5, and 5 of 7
    drawn = {tuple(x) for x in newest(b.obs)[b.valid > 0].astype(int).tolist()}
    assert drawn == {(i, t) for i, n in enumerate(kept) for t in range(n)}
    for k in np.flatnonzero(b.valid):
        i, t = newest(b.obs)[k].astype(int)
        end = min(t + n_step, kept[i])
        np.testing.assert_array_equal(newest(b.next_obs)[k], shown[i].obs[end])
        last = end == kept[i]
        assert b.steps[k] == end - t
        assert b.terminated[k] == (last and end == lengths[i] and ended[i])
        assert b.truncated[k] == (last and not b.terminated[k])
