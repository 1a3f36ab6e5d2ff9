"""Members in groups: who belongs to which, what each group is told, and when all meet."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError, require
from thespis.runs.config import Config
from thespis.runs.directory import read_json
from thespis.runs.timetable import Timetable


def split(members: int, size: int) -> list[range]:
    """Returns the members of every group, at most `size` in each and as even as can be."""
    groups = -(-members // size)
    ends = [members * i // groups for i in range(groups + 1)]
    return [range(a, b) for a, b in pairwise(ends)]


def read(path: Path, members: int) -> list[range]:
    """Reads which members are in which group: all, in their order."""
    groups = read_json(path)
    pairs = isinstance(groups, list) and all(isinstance(x, list) and len(x) == 2 for x in groups)
    ends = [0, *(stop for _, stop in groups)] if pairs else []
    rising = all(type(x) is int for x in ends) and all(a < b for a, b in pairwise(ends))
    if not rising or ends[-1:] != [members] or groups != [[a, b] for a, b in pairwise(ends)]:
        raise ThespisError(f"{path} is damaged: it does not name {members} members; restore it")
    return [range(a, b) for a, b in pairwise(ends)]


def default_size(members: int, places: int) -> int:
    """Returns the members of a group with which a cluster of so many places is full."""
    return -(-members // places)


def part(config: Config, members: range) -> Config:
    """Returns the config of some members alone; who tunes them is decided elsewhere."""
    one_each = lambda x: isinstance(x, list | tuple) and len(x) == config.members
    of_members = lambda x: [x[m] for m in members] if one_each(x) else x
    hp = {name: of_members(value) for name, value in config.hp.items()}
    seeds = tuple(config.seeds[m] for m in members)
    return dataclasses.replace(config, seeds=seeds, hp=hp, devices=1)


def cut_hyper(hps: dict[str, Any], members: range) -> dict[str, Any]:
    """Returns the hyper-parameters [members] of a group."""
    return {name: x[members.start : members.stop] for name, x in hps.items()}


def meeting_after(config: Config, timetable: Timetable, iteration: int) -> int:
    """Returns the iteration at which groups save and report next: exchanges, or checkpoints.

    Where a run may end sooner, all evaluations are: whether it does is for all to know.
    """
    names = ["exchange" if config.tuner else "checkpoint"]
    if config.stop_reward is not None or config.patience is not None:
        names.append("eval")
    every = (timetable.every[name] for name in names)
    return min([*((iteration // n + 1) * n for n in every), config.iterations(config.steps)])


def refuse(config: Config, callbacks: Any) -> None:
    """Refuses what cannot be done in groups on other machines."""
    require(not callbacks, "callbacks do not work with ray: leave one of them out")
    require(config.demos is None, "demos do not work with ray: leave one of them out")
    for name in ("env", "eval_env"):
        value = getattr(config, name)
        require(
            value is None or isinstance(value, str),
            f"{name} must be a name with ray, such as MODULE:CLASS: objects stay on this machine",
        )
    require(
        not config.shared,
        "pbt.replay = shared does not work with ray: groups have replays of their own; take own or "
        "parent",
    )
    require(
        (config.devices or 1) == 1,
        f"devices = {config.devices} does not work with ray: every group has one; leave it out",
    )
