"""Demonstrations: how they are read, written, checked, and turned into a replay to draw from.

Files and episodes are in the environment's units; algorithms see actions in [-1, 1] or from 0.
A file is a local Minari dataset, or a .npz with one entry per step in each of its arrays:

    observations  actions  next_observations  terminations  [truncations]  [rewards]

The parts of a dict observation are arrays of their own, such as observations/position.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core import Box, Row, Spec, ThespisError
from thespis.errors import one_line, or_all
from thespis.replay.ring import Replay, View

EXTRA = "Minari datasets need a missing library: pip install 'thespis[minari]'"
ROOM, PACKED = 2**30, 50  # what a file may unpack to: bytes, or a multiple of its size
NUMBERS = "biuf"  # kinds of dtypes that are accepted
HINT = "give a run, a .npz file or a Minari dataset"


class Episode(NamedTuple):
    """T steps: observations [T + 1, ...], the final one included, actions and rewards [T, ...]."""

    obs: Any
    action: np.ndarray
    reward: np.ndarray
    terminated: bool  # else truncated, as by a time limit

    @property
    def length(self) -> int:
        return len(self.action)


# --- files ----------------------------------------------------------------------------------


def load(source: Any) -> list[Episode]:
    """Loads episodes from a .npz file, a Minari dataset (or its name), or arrays like a file's."""
    if isinstance(source, list | tuple):
        return list(source)
    if isinstance(source, Mapping):
        return from_arrays(source, "demos")
    if hasattr(source, "iterate_episodes"):
        return from_minari(source)
    name = str(source)
    if not name.endswith(".npz"):
        return load_minari(name)
    try:
        arrays = read_archive(name)
    except FileNotFoundError as error:
        raise ThespisError(f"demos = {name} is not there; {HINT}") from error
    except Exception as error:  # a damaged archive raises many kinds
        what = one_line(error) or type(error).__name__
        raise ThespisError(f"demos = {name} is not an array archive: {what}; {HINT}") from error
    return from_arrays(arrays, name)


def nonblocking(name: str, flags: int) -> int:
    """Opens a file for `open`, without waiting if it is a pipe."""
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))  # which Windows does not have


def read_archive(name: str) -> dict[str, np.ndarray]:
    """Reads the arrays of a .npz file, which need not be trusted.

    Accepts only numbers, only as many as the file holds, and at most `ROOM` bytes unless the file
    is large.
    """
    with open(name, "rb", opener=nonblocking) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is not a regular file")
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            size, most = sum(e.file_size for e in entries), max(ROOM, PACKED * about.st_size)
            if size > most:
                raise ValueError(f"it unpacks to {size:,} bytes, of which {most:,} are allowed")
            return {e.filename.removesuffix(".npy"): read_array(archive, e) for e in entries}


def read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """Reads one array; its header is checked before anything is allocated."""
    headers = {(1, 0): np.lib.format.read_array_header_1_0}
    headers[2, 0] = np.lib.format.read_array_header_2_0
    with archive.open(entry) as file:
        shape, by_columns, dtype = headers[np.lib.format.read_magic(file)](file)
        if dtype.kind not in NUMBERS:
            raise ValueError(f"{entry.filename} holds {dtype}, not numbers")
        rest = entry.file_size - file.tell()
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != rest:
            raise ValueError(f"{entry.filename} says it is {dtype}{list(shape)}, in {rest:,} bytes")
        numbers = np.frombuffer(file.read(rest), dtype)
    return numbers.reshape(shape, order="F" if by_columns else "C")


def to_arrays(episodes: list[Episode]) -> dict[str, np.ndarray]:
    """Returns the arrays of a .npz file."""

    def flat(prefix: str, trees: list[Any]) -> dict[str, np.ndarray]:
        joined = jax.tree.map(lambda *x: np.concatenate(x), *trees)
        leaves = jax.tree_util.tree_leaves_with_path(joined)
        key = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
        return {"/".join(filter(None, (prefix, key(path)))): x for path, x in leaves}

    part = lambda tree, cut: jax.tree.map(lambda x: x[cut], tree)
    lengths, ended = [e.length for e in episodes], [e.terminated for e in episodes]
    last = np.zeros(sum(lengths), bool)
    last[np.cumsum(lengths) - 1] = True
    terminations = last & np.repeat(ended, lengths)
    return {
        **flat("observations", [part(e.obs, slice(None, -1)) for e in episodes]),
        **flat("next_observations", [part(e.obs, slice(1, None)) for e in episodes]),
        "actions": np.concatenate([e.action for e in episodes]),
        "rewards": np.concatenate([e.reward for e in episodes]),
        "terminations": terminations,
        "truncations": last & ~terminations,
    }


def from_arrays(arrays: Mapping[str, Any], name: str) -> list[Episode]:
    """Splits arrays into episodes: at flags, and where next_observations do not continue."""
    arrays = {key: np.asarray(x) for key, x in arrays.items()}

    def part(key: str) -> Any:
        parts = {k.removeprefix(f"{key}/"): x for k, x in arrays.items() if k.startswith(f"{key}/")}
        if key not in arrays and not parts:
            raise ThespisError(f"demos = {name} has no {key}{or_all(key, arrays)}")
        return arrays.get(key, parts)

    for key, x in arrays.items():
        if x.ndim == 0 or x.dtype.kind not in NUMBERS:
            what = f"{key} is {x.dtype}{list(x.shape)}"
            raise ThespisError(f"demos = {name}: {what}; give numbers, an entry per step")
    obs, after = part("observations"), part("next_observations")
    action, flags = part("actions"), part("terminations")
    shapes = lambda tree: jax.tree.map(np.shape, tree)
    if isinstance(action, dict) or isinstance(flags, dict) or shapes(obs) != shapes(after):
        raise ThespisError(
            f"demos = {name}: give actions and terminations as one array each, and "
            "next_observations in the shapes of observations"
        )
    n, flags = len(action), flags.astype(bool)
    for key, x in arrays.items():
        if len(x) != n:
            raise ThespisError(f"demos = {name} has {len(x)} {key} and {n} actions: give as many")
    if n == 0:
        return []
    same = lambda x, y: (x[1:] == y[:-1]).reshape(n - 1, -1).all(-1)
    goes_on = np.stack(jax.tree.leaves(jax.tree.map(same, obs, after))).all(0)
    cut = arrays.get("truncations", np.zeros(n)).astype(bool)
    ends = np.flatnonzero(flags | cut | ~np.append(goes_on, False)) + 1
    reward = arrays.get("rewards", np.zeros(n, np.float32))
    join = lambda x, y: np.concatenate([x, y[-1:]])
    return [
        Episode(
            jax.tree.map(lambda x, y, s=slice(a, b): join(x[s], y[s]), obs, after),
            action[a:b],
            reward[a:b],
            bool(flags[b - 1]),
        )
        for a, b in zip([0, *ends[:-1]], ends, strict=True)
    ]


def minari() -> Any:
    try:
        import h5py  # noqa: F401
        import minari
    except ImportError as error:
        raise ThespisError(EXTRA) from error
    return minari


def load_minari(name: str) -> list[Episode]:
    """Loads a dataset from the local storage; nothing is downloaded."""
    library = minari()
    refuse_code(name, library.storage.local.get_dataset_path(name) / "data" / "metadata.json")
    try:
        return from_minari(library.load_dataset(name, download=False))
    except (AssertionError, KeyError, OSError, TypeError, ValueError) as error:
        known = or_all(name, library.list_local_datasets())
        raise ThespisError(
            f"demos = {name} is neither a run, a .npz file nor a local Minari dataset{known}"
        ) from error


def refuse_code(name: str, file: Path) -> None:
    """Refuses a dataset that names code instead of having its spaces.

    Minari would run that code to make the environment. Registered environments are fine.
    """
    from gymnasium import registry

    try:
        about = json.loads(file.read_bytes())
        if all(isinstance(about.get(f"{kind}_space"), str) for kind in ("observation", "action")):
            return
        spec = json.loads(about["env_spec"])
        known = registry.get(spec["id"])
        code = spec["entry_point"], spec.get("kwargs", {}), spec.get("additional_wrappers") or []
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError):
        return  # there is no such dataset, or none for which Minari would run code
    if known is None or code != (known.entry_point, known.kwargs, []):
        raise ThespisError(
            f"demos = {name} does not have its spaces, but names code that would make its "
            f"environment: {code[0]}; load it with Minari if you trust it, and pass the dataset"
        )


def from_minari(dataset: Any) -> list[Episode]:
    return [
        Episode(e.observations, e.actions, e.rewards, bool(e.terminations[-1]))
        for e in dataset.iterate_episodes()
        if len(e.actions)
    ]


def save_minari(name: str, episodes: list[Episode], spec: Spec, algo: str | None = None) -> str:
    """Writes a local Minari dataset, and returns its name with a version."""
    from gymnasium import spaces

    library, kind = minari(), spec.single
    name = name if name.rpartition("-v")[2].isdigit() else f"{name}-v0"

    def space(s) -> spaces.Space:
        if np.issubdtype(s.dtype, np.floating):
            return spaces.Box(-np.inf, np.inf, s.shape, s.dtype)
        high = 1 if s.dtype == bool else np.iinfo(s.dtype).max
        return spaces.Box(0, high, s.shape, np.dtype(np.uint8) if s.dtype == bool else s.dtype)

    observed = jax.tree.map(space, spec.obs)
    if isinstance(observed, dict):
        observed = spaces.Dict(observed)
    if isinstance(kind, Box):
        low, high = (np.reshape(x, kind.shape).astype(np.float32) for x in (kind.low, kind.high))
        acted = spaces.Box(low, high, kind.shape, np.float32)
    else:
        acted = spaces.Discrete(kind.n, start=kind.start)
    number = lambda x: x.astype(np.uint8) if x.dtype == bool else x
    buffer = []
    for i, e in enumerate(episodes):
        last = np.arange(e.length) == e.length - 1
        buffer.append(
            library.data_collector.EpisodeBuffer(
                id=i,
                observations=jax.tree.map(number, e.obs),
                actions=e.action,  # type: ignore
                rewards=list(e.reward),
                terminations=list(last & e.terminated),
                truncations=list(last & (not e.terminated)),
            )
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about missing authors and addresses
            library.create_dataset_from_buffers(
                name,
                buffer,
                algorithm_name=algo,
                action_space=acted,
                observation_space=observed,
                jpeg_encoding=False,
            )
    except ValueError as error:
        raise ThespisError(f"{name}: {one_line(error)}") from error
    except OSError as error:
        place = library.storage.local.get_dataset_path(name)
        raise ThespisError(
            f"cannot write {name}: {one_line(error)}; check the disk, and delete {place}"
        ) from error
    return name


# --- checking -------------------------------------------------------------------------------


def check(spec: Spec, episodes: list[Episode], name: str) -> None:
    """Refuses episodes that do not fit the environment, and says which field does not."""

    def refuse(what: str) -> None:
        raise ThespisError(f"demos = {name}: {what}")

    if not episodes or not all(e.length for e in episodes):
        refuse("there is no step in it; record some with `thespis demos RUN`")
    path = lambda keys: "/".join(["observations", *(str(k) for k in keys)])
    key = lambda p: [jax.tree_util.keystr((k,), simple=True) for k in p]
    parts = lambda tree: {path(key(p)): x for p, x in jax.tree_util.tree_leaves_with_path(tree)}
    wanted = parts(spec.obs)
    for e in episodes:
        present = parts(e.obs)
        if present.keys() != wanted.keys():
            refuse(f"it has {', '.join(present)}, but the environment {', '.join(wanted)}")
        for field, s in wanted.items():
            x = present[field]
            if x.shape != (e.length + 1, *s.shape):
                refuse(f"{field} have shape {x.shape[1:]}, but the environment's {s.shape}")
            plain = np.uint8 if s.dtype == bool else s.dtype
            if not np.can_cast(x.dtype, plain, "same_kind"):
                refuse(f"{field} are {x.dtype}, but the environment's {np.dtype(s.dtype)}")
            if not np.isfinite(x).all():
                refuse(f"{field} are not all finite")
        if not np.isfinite(e.action).all():
            refuse("actions are not all finite")
        if problem := spec.single.misfit(e.action):
            refuse(f"actions {problem}")


def checksum(episodes: list[Episode]) -> str:
    """Returns a digest of observations, actions and terminations."""
    digest = hashlib.sha256()
    for e in episodes:
        leaves = [*jax.tree.leaves(e.obs), e.action]
        about = [[str(np.asarray(x).dtype), *np.shape(x)] for x in leaves]
        digest.update(json.dumps([bool(e.terminated), about]).encode())
        for x in leaves:
            digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()


# --- as a replay ----------------------------------------------------------------------------


def view(spec: Spec, episodes: list[Episode], capacity: int | None = None) -> View:
    """Returns a view to draw from, with the rows of all episodes as of one environment.

    Rewards are 0, since no algorithm learns from them. The ring has `capacity` rows, by default as
    many as there are; an episode that does not fit is cut.
    """
    ended = lambda e: np.arange(e.length + 1) == e.length
    pad = lambda x: np.concatenate([x, np.zeros_like(x[:1])])  # no action follows the last row
    size = sum(e.length + 1 for e in episodes)
    size, capacity = min(size, capacity or size), capacity or size

    def ring(*parts):
        x = np.concatenate(parts)
        out = np.zeros((capacity, 1, 1, *x.shape[1:]), x.dtype)
        out[:size, 0, 0] = x[:size]
        return jnp.asarray(out)

    obs = lambda s, *parts: ring(*(x.astype(s.dtype) for x in parts))
    terminated = ring(*(ended(e) & e.terminated for e in episodes))
    truncated = ring(*(ended(e) & (not e.terminated) for e in episodes))
    row = Row(
        obs=jax.tree.map(obs, spec.obs, *(e.obs for e in episodes)),
        reward=jnp.zeros((capacity, 1, 1)),
        terminated=terminated,
        truncated=truncated.at[size - 1].set(~terminated[size - 1]),
        action=ring(*(pad(spec.single.to_unit(e.action)) for e in episodes)),
    )
    return View(Replay(row, jnp.int32(0), jnp.int32(size)), jnp.int32(0), whole=True)


def blank(spec: Spec) -> View:
    """Returns the smallest view with the shapes of demonstrations."""
    kind = spec.single
    zeros = jax.tree.map(lambda s: np.zeros((2, *s.shape), s.dtype), spec.obs)
    action = kind.to_env(
        np.zeros((1, kind.size), np.float32) if isinstance(kind, Box) else np.zeros(1, int)
    )
    return view(spec, [Episode(zeros, action, np.zeros(1, np.float32), False)])
