"""Checkpoints: one safetensors file per part and a JSON manifest, written whole or not at all.

    checkpoints/000000050000/
      manifest.json        step, info, and per part: checksum, leaf names, shapes, types
      state.safetensors    ...one file per part, so that evaluation need not read the replay

Loading runs no code from a checkpoint, and any tool for safetensors opens the files.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core import ThespisError
from thespis.runs import files, formats
from thespis.runs.directory import JSON_BYTES, too_deep
from thespis.runs.files import new_folder, sync, sync_folder, writing
from thespis.runs.formats import FORMAT
from thespis.xla.multihost import BLOCK, Rows, leads, read

MANIFEST = "manifest.json"
REPLACED = "~"  # suffix of a checkpoint that is being replaced by a new one of the same step

CODES = {  # safetensors' names of the types
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


class Damaged(ThespisError):
    """The files of a checkpoint differ from what was written."""


# --- saving ---------------------------------------------------------------------------------


def save(folder: Path, step: int, parts: dict[str, PyTree], info: dict[str, Any]) -> Path:
    """Writes `<folder>/<step>/`; a crash at any moment leaves the old state, or all of the new.

    Of several processes, the first writes and the others send it their parts.
    """
    final = folder / f"{step:012d}"
    if not leads():
        for part in parts:
            for _ in _blocks(_leaves(part, parts[part])):
                pass
        return final
    replaced = final.with_name(final.name + REPLACED)
    files.refuse_link(folder)
    with writing(final):
        folder.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as aside:
            new = aside / final.name
            new.mkdir()
            saved = {part: _write_part(_file(new, part), part, parts[part]) for part in parts}
            _write_manifest(new, {"format": FORMAT, "step": step, "info": info, "parts": saved})
            sync_folder(new)
            # A folder cannot be renamed over another. In between, `latest` finds the old one
            # by its suffix.
            if final.exists():
                if replaced.exists():
                    os.rename(replaced, aside / "older")
                os.rename(final, replaced)
            os.rename(new, final)
            sync_folder(folder)
            if replaced.exists():
                os.rename(replaced, aside / "old")
    return final


def prune(folder: Path, keep: int = 2) -> None:
    """Deletes all but the newest `keep` checkpoints, and temporary files of crashed processes."""
    assert keep >= 1
    with writing(folder):
        existing = latest(folder)
        files.clear(folder)
        for old in existing[keep:]:
            remove(old)


def remove(path: Path) -> None:
    """Renames and then deletes a checkpoint, so that a half-deleted one never looks complete."""
    with writing(path), new_folder(path.parent) as aside:
        os.rename(path, aside / path.name)


def _write_part(path: Path, part: str, tree: PyTree) -> dict[str, Any]:
    """Streams the leaves to a safetensors file without copies; returns its manifest entry."""
    leaves = _leaves(part, tree)
    header, end = {}, 0
    for name in _order(leaves):
        spec, begin, end = _spec(leaves[name]), end, end + leaves[name].nbytes
        code = CODES[spec["dtype"]]
        header[name] = {"dtype": code, "shape": spec["shape"], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    digest = hashlib.sha256()
    with open(path, "wb") as file:

        def put(data):
            digest.update(data)
            file.write(data)

        put(len(text).to_bytes(8, "little") + text)
        for block in _blocks(leaves):
            put(np.asarray(block, order="C").reshape(-1).view(np.uint8).data)
        size = file.tell()
        sync(file)
    return {
        "file": path.name,
        "bytes": size,
        "sha256": digest.hexdigest(),
        "leaves": {name: _spec(leaf) for name, leaf in leaves.items()},
    }


def _order(leaves: dict[str, Any]) -> list[str]:
    """Sorts wide types first, so that every array starts at a multiple of its item size."""
    return sorted(leaves, key=lambda name: -leaves[name].dtype.itemsize)


def _blocks(leaves: dict[str, Any]) -> Iterator[np.ndarray]:
    """Yields the data of all leaves, in the order of the file."""
    for name in _order(leaves):
        leaf = leaves[name]
        yield from leaf.blocks() if isinstance(leaf, Rows) else [read(leaf)]


def _write_manifest(folder: Path, content: dict[str, Any]) -> None:
    content = json.loads(json.dumps(content))  # as it will be read: tuples are lists, ...
    with open(folder / MANIFEST, "w", encoding="utf-8") as file:
        json.dump({**content, "sha256": _digest(content)}, file, indent=1)
        sync(file)


# --- loading --------------------------------------------------------------------------------


def load(
    path: Path,
    templates: dict[str, PyTree],
    defaults: dict[str, float] | None = None,
    later: Sequence[str] = (),
) -> dict[str, PyTree]:
    """Fills the templates (arrays or `jax.ShapeDtypeStruct`) with the parts they name.

    Leaves are NumPy arrays: the caller moves them to devices. Those of parts to be read `later`
    are `Stored`, so that they need not all be in memory at once. A leaf that does not match its
    template is an error, and a file that has changed is `Damaged`. Leaves with a default may be
    missing, as in checkpoints of older versions.
    """
    content, specs, masks = manifest(path), {}, {}
    for part, tree in templates.items():
        if part not in content["parts"]:
            names = ", ".join(content["parts"])
            raise ThespisError(f"{path} has no part {part!r}: it has {names}; save it again")
        entry, leaves = content["parts"][part], _leaves(part, tree)
        names = formats.renamed(content["format"], entry["leaves"])
        expected = {name: _spec(leaf) for name, leaf in leaves.items()}
        new = {n: x for n, x in (defaults or {}).items() if n in expected and n not in names}
        saved = {name: entry["leaves"][old] for name, old in names.items()}
        if part == "tuning" and defaults:
            older = _older_masks(content, saved, expected, defaults)
            masks |= {name: places for name, places in older.items() if name in names}
        filled_in = {name: expected[name] for name in (*new, *(masks if part == "tuning" else ()))}
        _compare(path, part, saved | filled_in, expected)
        full = {n: np.full(leaves[n].shape, x, leaves[n].dtype) for n, x in new.items()}
        specs[part] = names, full
    filled = {}
    for part, tree in templates.items():
        names, new = specs[part]
        stored = _open_part(_file(path, part), content["parts"][part])
        leaves = (new[n] if n in new else stored[names[n]] for n in _leaves(part, tree))
        every = [x if part in later else np.asarray(x) for x in leaves]
        if part == "tuning":
            pairs = zip(_leaves(part, tree), every, strict=True)
            every = [_spread(np.asarray(x), masks[n]) if n in masks else x for n, x in pairs]
        filled[part] = jax.tree.unflatten(jax.tree.structure(tree), every)
    return filled


def _older_masks(
    content: dict[str, Any], saved: dict[str, Any], expected: dict[str, Any], known: Any
) -> dict[str, np.ndarray]:
    """Returns the index of each hyper-parameter in masks of older versions, -1 if it is new."""
    older = content["parts"].get("hyper", {}).get("leaves", {})
    now = [name for name in known if "." not in name]
    then = [name for name in now if name in older]
    places = np.array([then.index(name) if name in then else -1 for name in now])
    shape = lambda names: {"shape": [len(names)], "dtype": "bool"}
    both = then != now and {"saved": shape(then), "expected": shape(now)}
    return {
        name: places
        for name in ("memory", "memory.tuned")
        if both and {"saved": saved.get(name), "expected": expected.get(name)} == both
    }


def _spread(mask: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns an older mask extended to the hyper-parameters of this version."""
    return np.where(places < 0, False, mask[np.maximum(places, 0)])


def load_newest(
    folder: Path,
    templates: dict[str, PyTree] | Callable[[dict[str, Any]], dict[str, PyTree]],
    warn: Callable[[str], None],
    defaults: dict[str, float] | None = None,
    later: Sequence[str] = (),
) -> tuple[Path, dict[str, PyTree]]:
    """Returns the newest undamaged checkpoint and its parts, some of them to be read `later`.

    `templates` may be a function of the manifest, for parts whose sizes differ between steps.
    """
    tried: list[Path] = []
    # Listed again each time: a process that trains in this folder may save and prune meanwhile.
    while path := next((p for p in latest(folder) if p not in tried), None):
        try:
            chosen = templates(manifest(path)) if callable(templates) else templates
            return path, load(path, chosen, defaults, later)
        except Damaged as fault:
            tried.append(path)
            if path.exists():
                warn(f"{fault}; trying the checkpoint before it")
    state = f"all {len(tried)} are damaged" if tried else "there is none"
    raise ThespisError(f"no checkpoint to load in {folder}: {state}; start a new run")


def latest(folder: Path) -> list[Path]:
    """Returns the complete checkpoints in a folder, newest first."""

    def order(path: Path) -> tuple[int, bool]:
        return int(path.name.removesuffix(REPLACED)), not path.name.endswith(REPLACED)

    files.refuse_link(folder)
    named = (p for p in folder.glob("*") if re.fullmatch(rf"[0-9]{{12,18}}{REPLACED}?", p.name))
    complete = (p for p in named if not p.is_symlink() and files.regular(p / MANIFEST))
    return sorted(complete, key=order, reverse=True)


def manifest(path: Path) -> dict[str, Any]:
    """Returns the step, the info and the parts' leaves, without reading any array."""
    file = path / MANIFEST
    try:
        content = json.loads(files.read(file, JSON_BYTES))
        whole = content.pop("sha256") == _digest(content)
        if whole:
            formats.check(file, content["format"])
        whole &= type(content["step"]) is int and 0 <= content["step"] < 2**63
        whole &= isinstance(content["info"], dict) and not too_deep(content)
        whole &= all(map(_is_array, (x for p in content["parts"].values() for x in _specs(p))))
    except OSError as error:
        raise Damaged(f"{file} is damaged: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{file} is damaged: it is not a manifest") from error
    if not whole:
        raise Damaged(f"{file} is damaged: it does not match its checksum")
    return content


def _specs(part: dict[str, Any]) -> list[Any]:
    """Returns what a manifest says of the leaves of a part."""
    return list(part["leaves"].values())


def _is_array(spec: Any) -> bool:
    """Returns whether this is the shape and type of an array."""
    sizes = spec["shape"]
    return (
        isinstance(sizes, list)
        and all(type(n) is int and 0 <= n < 2**63 for n in sizes)
        and spec["dtype"] in CODES
    )


def shapes(path: Path, content: dict[str, Any], part: str) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns {name: shape and type} of the leaves of a part, from the manifest."""
    try:
        leaves = content["parts"][part]["leaves"]
        names = formats.renamed(content["format"], leaves)
        struct = lambda x: jax.ShapeDtypeStruct(tuple(x["shape"]), x["dtype"])
        return {name: struct(leaves[old]) for name, old in names.items()}
    except (KeyError, TypeError) as error:
        raise Damaged(f"{path / MANIFEST} is damaged: it does not describe {part}") from error


def moments(part: str, tree: PyTree) -> dict[str, float]:
    """Returns 0 for each moment of an optimiser, as defaults for reading the policy alone."""
    return {name: 0.0 for name in _leaves(part, tree) if formats.is_moment(name)}


def verified(path: Path, skip: Container[str] = ()) -> list[Path]:
    """Checks the files of all parts except those to `skip`, and returns their paths."""
    parts = {part: entry for part, entry in manifest(path)["parts"].items() if part not in skip}
    for part, entry in parts.items():
        _open_part(_file(path, part), entry)
    return [_file(path, part) for part in parts]


class OpenFile:
    """A file that stays open while it is referenced, even if its path is deleted or replaced."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path, self.number = path, os.dup(file.fileno())

    def __del__(self):
        os.close(self.number)


@dataclass(frozen=True)
class Stored:
    """An array in a verified file: `np.asarray` reads it, and `fill` does so without a copy."""

    file: OpenFile
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        array = np.empty(self.shape, self.dtype)
        self.fill(array)
        return array if dtype is None else array.astype(dtype, copy=False)

    def fill(self, array: np.ndarray) -> None:
        """Reads it into a contiguous array of its shape and type."""
        assert (array.shape, array.dtype) == (self.shape, self.dtype)
        assert array.flags.c_contiguous
        data, done = array.reshape(-1).view(np.uint8).data, 0
        try:
            while done < self.nbytes:
                place = self.start + done
                read = os.preadv(self.file.number, [data[done : done + BLOCK]], place)
                if not read:
                    raise Damaged(f"{self.file.path} is damaged: it ends too early")
                done += read
        except OSError as error:
            raise Damaged(f"{self.file.path} is damaged: {error.strerror}") from error


def _open_part(path: Path, entry: dict[str, Any]) -> dict[str, Stored]:
    """Verifies a safetensors file against its manifest entry, and returns its arrays."""
    try:
        with files.open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry["bytes"]:
                raise Damaged(f"{path} is damaged: {size} bytes, expected {entry['bytes']}")
            if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
                raise Damaged(f"{path} is damaged: it does not match its checksum")
            return _index(path, file, size, entry["leaves"])
    except OSError as error:
        raise Damaged(f"{path} is damaged: {error.strerror}") from error
    except KeyError as error:
        raise Damaged(f"{path} is damaged: {MANIFEST} has no {error} for it") from error


def _index(path: Path, file: BinaryIO, size: int, leaves: dict[str, Any]) -> dict[str, Stored]:
    """Returns the arrays, which follow 8 bytes with the header's length and the header."""
    types, opened = {code: name for name, code in CODES.items()}, OpenFile(path, file)
    arrays, fits = {}, False
    try:
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(length, JSON_BYTES)))
        specs = {n: {"shape": x["shape"], "dtype": types[x["dtype"]]} for n, x in header.items()}
        fits = specs == leaves
        for name, spec in leaves.items() if fits else ():
            begin, end = header[name]["data_offsets"]
            shape, dtype = tuple(spec["shape"]), np.dtype(spec["dtype"])
            arrays[name] = leaf = Stored(opened, 8 + length + begin, shape, dtype)
            fits &= begin >= 0 and end == begin + leaf.nbytes and 8 + length + end <= size
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: it is not a safetensors file") from error
    if not fits:
        raise Damaged(f"{path} is damaged: its content does not match {MANIFEST}")
    return arrays


def _compare(path: Path, part: str, saved: dict[str, Any], expected: dict[str, Any]) -> None:
    def show(spec: dict[str, Any] | None) -> str:
        return f"{spec['dtype']}{spec['shape']}" if spec else "absent"

    names = [*expected, *(name for name in saved if name not in expected)]
    faults = [
        f"{part}.{name} is {show(saved.get(name))}, expected {show(expected.get(name))}"
        for name in names
        if saved.get(name) != expected.get(name)
    ]
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        advice = "use the environment, algorithm and sizes it was saved with"
        raise ThespisError(f"{path} does not fit: {faults[0]}{more}; {advice}")


# --- leaves ---------------------------------------------------------------------------------


def _leaves(part: str, tree: PyTree) -> dict[str, Any]:
    """Returns {name: leaf}, in the tree's order; names such as `actor.layers.0.weight`."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    leaves = {
        jax.tree_util.keystr(path, simple=True, separator=".") or part: leaf for path, leaf in paths
    }
    assert len(leaves) == len(paths), f"two leaves of {part} have the same name"
    for name, leaf in leaves.items():
        if str(getattr(leaf, "dtype", None)) not in CODES:
            raise TypeError(f"{part}.{name} cannot be saved: {leaf!r} is not an array of numbers")
    return leaves


def _file(folder: Path, part: str) -> Path:
    return folder / f"{part}.safetensors"


def _spec(leaf) -> dict[str, Any]:
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
