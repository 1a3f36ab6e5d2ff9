"""Copies parts of another run's networks into new members, as `init_from` asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.errors import ThespisError, or_all
from thespis.runs import checkpoint
from thespis.runs.best import best_member
from thespis.runs.config_names import parse_init_from
from thespis.runs.directory import find, read_config
from thespis.values import show

SIZES = ("hidden", "critic_hidden")


def transplant(
    state: Any, source: str, note: Callable[[str], None], options: dict[str, Any] | None = None
) -> Any:
    """Returns `state` [members, ...] with parts replaced by those of RUN, or RUN:PART[,PART].

    `options` of the algorithm here say which sizes to change if the parts do not fit.
    """
    path, parts = parse_init_from(source)
    saved = arrays(find(path), note)
    parts = parts or sorted({name.split(".")[0] for name in saved})
    for part in parts:
        if not any(inside(name, part) for name in saved):
            tops = dict.fromkeys(name.split(".")[0] for name in saved)
            raise ThespisError(f"init_from = {source} has no part {part!r}{or_all(part, tops)}")

    leaves = jax.tree_util.tree_leaves_with_path(state)
    leaves_here = {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}
    taken = {name: x for name, x in saved.items() if any(inside(name, part) for part in parts)}
    here = lambda name: shape_of(leaves_here[name]) if name in leaves_here else "absent"
    different = [name for name, x in saved.items() if shape_of(x) != here(name)]
    for name in filter(taken.__contains__, different):
        tops = dict.fromkeys(name.split(".")[0] for name in saved)
        fit = [part for part in tops if not any(inside(name, part) for name in different)]
        raise ThespisError(
            f"init_from = {source}: {name} is {shape_of(saved[name])} there and {here(name)} here; "
            + (f"what fits is {path}:{','.join(fit)}" if fit else "no other part fits either")
            + other_sizes(find(path), options or {})
        )
    members = jax.tree.leaves(state)[0].shape[0]
    best = best_member(find(path))
    # Members are copied one to one if both runs have as many, else all are copies of the best.
    take = lambda x: x if len(x) == members else np.broadcast_to(x[best], (members, *x.shape[1:]))
    leaves_here |= {name: jnp.array(take(x)) for name, x in taken.items()}
    return jax.tree.unflatten(jax.tree.structure(state), list(leaves_here.values()))


def other_sizes(folder: Path, options: dict[str, Any]) -> str:
    """Returns the end of a message: the sizes of networks of a run, where they differ from ours."""
    saved = read_config(folder).get("options")
    saved = saved if isinstance(saved, dict) else {}
    there = {name: saved[name] for name in SIZES if saved.get(name)}
    here = {name: list(options.get(name) or ()) for name in SIZES}
    differences = [f"{name} = {show(x)}" for name, x in there.items() if x != here[name]]
    return f"; or give {' and '.join(differences)}, as there" if differences else ""


def arrays(folder: Path, note: Callable[[str], None]) -> dict[str, np.ndarray]:
    """Returns the newest state of a run as {name of leaf: array [members, ...]}."""
    saved = folder / "checkpoints"
    template = lambda manifest: {"state": checkpoint.shapes(saved, manifest, "state")}
    return checkpoint.load_newest(saved, template, note)[1]["state"]


def inside(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def shape_of(x: Any) -> str:
    """Describes the type and shape of one member's part."""
    return f"{x.dtype}{list(x.shape[1:])}"
