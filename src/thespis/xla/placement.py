"""Where members run: split over devices, which do not communicate in training.

A placement is a mesh of devices along one axis, or None for a single device. Members that share
a device are mapped over by `Loop.map_members`. The devices may belong to several processes (see
xla/multihost.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from thespis.xla.threads import even_share

AXIS = "members"
SHARED, MEMBERS, ROWS_OF_MEMBERS = P(), P(AXIS), P(None, AXIS)  # members nowhere, first, second


def mesh_for(members: int, devices: int) -> Mesh | None:
    """Returns a mesh of at most `devices` of every process, with equally many members on each."""
    processes = jax.process_count()
    n = even_share(members // processes, min(devices, jax.local_device_count()))
    if n * processes == 1:
        return None
    of_process = lambda p: [d for d in jax.devices() if d.process_index == p][:n]
    return Mesh(np.array([of_process(p) for p in range(processes)]).reshape(-1), (AXIS,))


def spread(mesh: Mesh | None, f: Callable, in_specs: Any, out_specs: Any) -> Callable:
    """Runs f on every device, for the members on it. A spec may stand for a whole tree."""
    if mesh is None:
        return f
    return jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def all_of(spec: P, tree: Any) -> Any:
    """Returns the same spec for every leaf."""
    return jax.tree.map(lambda _: spec, tree)


def shardings(mesh: Mesh, specs: Any) -> Any:
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)


def put(mesh: Mesh | None, x: Any, specs: Any) -> Any:
    """Puts x on the devices of its members; `specs` has the structure of x."""
    if mesh is None:
        return x
    if not mesh.is_multi_process:
        return jax.device_put(x, shardings(mesh, specs))

    def one(x, sharding):
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            return jax.device_put(x, sharding)
        return jax.make_array_from_callback(x.shape, sharding, lambda at: np.asarray(x)[at])

    return jax.tree.map(one, x, shardings(mesh, specs))


def to_device(tree: Any, mesh: Mesh | None = None, spec: P = SHARED) -> Any:
    """Copies NumPy arrays to devices, so that programs may donate them, without compiling.

    They are split over the mesh if it belongs to this process; else they are on one device.
    """
    sharding = None if mesh is None or mesh.is_multi_process else NamedSharding(mesh, spec)
    return jax.device_put(tree, sharding, may_alias=False)


# --- the members of one process -------------------------------------------------------------


def local(mesh: Mesh | None) -> Mesh | None:
    """Returns the placement of this process's members."""
    if mesh is None or not mesh.is_multi_process:
        return mesh
    return Mesh(np.array(mesh.local_devices), (AXIS,)) if len(mesh.local_devices) > 1 else None


def local_slice(mesh: Mesh | None, members: int) -> slice:
    """Returns the range of this process's members."""
    if mesh is None or not mesh.is_multi_process:
        return slice(0, members)
    size = members // jax.process_count()
    return slice(jax.process_index() * size, (jax.process_index() + 1) * size)


def local_part(mesh: Mesh | None, x: Any, specs: Any) -> Any:
    """Returns this process's part of x, which may be split or whole; nothing is copied."""
    if mesh is None or not mesh.is_multi_process:
        return x
    here = local(mesh)

    def one(x, spec):
        axis = spec.index(AXIS) if AXIS in spec else None
        if not isinstance(x, jax.Array) or x.is_fully_addressable:
            whole = slice(None)
            return x if axis is None else x[(whole,) * axis + (local_slice(mesh, x.shape[axis]),)]
        parts = [shard.data for shard in x.addressable_shards]
        if here is None:
            return parts[0]
        return assembled(here, spec, parts)

    return jax.tree.map(one, x, specs)


def whole(mesh: Mesh | None, x: Any, specs: Any) -> Any:
    """Returns the parts of all processes as one; inverts `local_part`."""
    if mesh is None or not mesh.is_multi_process:
        return x
    parts = lambda x: [shard.data for shard in x.addressable_shards]
    return jax.tree.map(lambda x, spec: assembled(mesh, spec, parts(x)), x, specs)


def assembled(mesh: Mesh, spec: P, parts: list[jax.Array]) -> jax.Array:
    """Returns a global array, given the parts on this process's devices."""
    shape = list(parts[0].shape)
    if AXIS in spec:
        shape[spec.index(AXIS)] *= mesh.size
    return jax.make_array_from_single_device_arrays(tuple(shape), NamedSharding(mesh, spec), parts)
