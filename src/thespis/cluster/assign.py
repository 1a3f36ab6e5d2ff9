"""Which groups a run has, and what the process of each is told when it begins."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from thespis.cluster import slices
from thespis.cluster.group import PROOF, Assignment
from thespis.cluster.workers import Worker, Workers, places
from thespis.errors import require
from thespis.runs import files
from thespis.runs.config import Config
from thespis.runs.directory import GROUPS, write_json
from thespis.xla import compile_cache


def make_workers(
    ray: Any,
    config: Config,
    folder: Path,
    names: list[str],
    first: dict[str, np.ndarray],
    size: int | None,
    fixed: bool,
) -> Workers:
    """Returns the groups of a run, none of them started: those in its folder, or new ones.

    Members differ in the hyper-parameters of these `names`, and began with the `first` ones. Where
    no size is given, groups fill the cluster; one that is `fixed` must have room for all.
    """
    groups, proof = files.inside(folder, GROUPS), secrets.token_hex(16)
    groups.mkdir(parents=True, exist_ok=True)
    files.write(groups / PROOF, proof.encode())
    file = groups / "groups.json"
    new = not os.path.lexists(file)
    if new:
        size = size or slices.default_size(config.members, max(1, places(ray, config)))
        parts = slices.split(config.members, size)
        write_json(file, [[part.start, part.stop] for part in parts])
    parts = slices.read(file, config.members)
    room = places(ray, config) if fixed else len(parts)
    ways = "fewer threads, or the address of a cluster" if new else "the address of a cluster"
    require(
        room,
        f"threads = {config.threads}, device = {config.device}: this machine has not enough for a "
        f"single group; give {ways}",
    )
    ways = "a larger group, or the address of a cluster" if new else "the address of a cluster"
    require(
        len(parts) <= room,
        f"{len(parts)} groups need more than this machine has, which is room for {room}: give "
        f"{ways}",
    )

    def assignment(worker: Worker) -> Assignment:
        return Assignment(
            worker.config,
            folder.absolute(),
            worker.folder.absolute(),
            proof,
            names,
            slices.cut_hyper(first, worker.members),
            worker.members.start,
            compile_cache.keeping,
        )

    place = lambda i: files.inside(folder, GROUPS, f"{i:03d}")
    worker = lambda i, part: Worker(i, part, slices.part(config, part), place(i))
    return Workers(ray, [worker(*x) for x in enumerate(parts)], assignment)
