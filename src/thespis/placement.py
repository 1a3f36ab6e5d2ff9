"""Where members run: split over devices, one after another on each, without a word between them.

A placement is a mesh of devices along one axis, or None for a single device. Members that share
a device are mapped over by `Loop.each`; nothing in training crosses from one device to another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from thespis.machine import even_share

AXIS = "members"
SHARED, MEMBERS, ROWS_OF_MEMBERS = P(), P(AXIS), P(None, AXIS)  # members nowhere, first, second


def mesh_for(members: int, devices: int) -> Mesh | None:
    """At most that many of the devices there are, so that all have as many members each."""
    n = even_share(members, min(devices, jax.device_count()))
    return Mesh(jax.devices()[:n], (AXIS,)) if n > 1 else None


def spread(mesh: Mesh | None, f: Callable, in_specs: Any, out_specs: Any) -> Callable:
    """f of each device's own members. A spec may stand for a whole tree."""
    if mesh is None:
        return f
    return jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def all_of(spec: P, tree: Any) -> Any:
    """The same spec for every leaf."""
    return jax.tree.map(lambda _: spec, tree)


def shardings(mesh: Mesh, specs: Any) -> Any:
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)


def put(mesh: Mesh | None, x: Any, specs: Any) -> Any:
    """x where its members run; `specs` has the structure of x."""
    return x if mesh is None else jax.device_put(x, shardings(mesh, specs))
