"""The demonstrations of a run: a file, or another run's policy, which keeps playing episodes."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis.core import Spec, longest
from thespis.engine import recorder
from thespis.engine.loop import Loop
from thespis.engine.recorder import Recorder
from thespis.engine.rollout import FrozenPolicy
from thespis.errors import ThespisError
from thespis.replay import demonstrations
from thespis.replay.demonstrations import Episode
from thespis.replay.ring import View
from thespis.runs import zoo
from thespis.runs.build import shapes
from thespis.runs.config import Config
from thespis.runs.directory import read_json, write_json
from thespis.runs.files import regular, replacing
from thespis.xla.multihost import read
from thespis.xla.placement import MEMBERS, SHARED, all_of, put, spread

EPISODES = 10  # that an expert plays at a time
HELD_OUT = 0.1  # share of the episodes that is used for evaluation only


class Demonstrations:
    """The demonstrations of a run, shared by all members and the same after a resume.

    Of two or more episodes some are held out, to measure how similarly a policy acts.
    """

    def __init__(self, config: Config, loop: Loop):
        self.loop, self.spec, self.source = loop, loop.env.spec, config.demos
        episodes = config.demo_episodes or EPISODES
        self.expert = expert_of(self.source, loop, episodes, config.trust)
        self.time = -1
        if self.expert:
            self.checksum = self.expert.checksum
        else:
            episodes = chosen(demonstrations.load(self.source), config.demo_episodes, self.name)
            demonstrations.check(self.spec, episodes, self.name)
            self.checksum = demonstrations.checksum(episodes)
            self.put(episodes)

    @property
    def name(self) -> str:
        return label(self.source)

    def at(self, time: int) -> View:
        """Returns the training demonstrations at that time; only those of an expert change."""
        if self.expert and time != self.time:
            self.put(self.expert(time))
        self.time = time
        return self.view

    def put(self, episodes: list[Episode]) -> None:
        """Splits episodes into those for training and those that are held out."""
        held = max(1, round(HELD_OUT * len(episodes))) if len(episodes) > 1 else 0
        learned, judged = episodes[: len(episodes) - held], episodes[len(episodes) - held :]
        self.view, self.held_out = map(self.placed, (learned, judged or episodes))

    def placed(self, episodes: list[Episode]) -> View:
        """Puts episodes on the members' devices, padded to the longest if an expert plays them.

        So programs compile once, whatever the lengths of new episodes.
        """
        rows = len(episodes) * (longest(self.loop.env) + 1) if self.expert else None
        view = demonstrations.view(self.spec, episodes, rows)
        return put(self.loop.mesh, view, all_of(SHARED, view))

    def similarity(self, policies: FrozenPolicy) -> np.ndarray:
        """Returns how similarly every member [members] acts: see `recorder.similarity`."""
        return read(self.judge(policies, self.held_out))

    @cached_property
    def judge(self):
        def all_members(policies, held_out):
            def one(_, policy):
                return None, recorder.similarity(self.loop.algo, policy, held_out)

            return self.loop.map_members(one, None, policies)[1]

        in_specs = (MEMBERS, SHARED)
        return jax.jit(spread(self.loop.mesh, all_members, in_specs, MEMBERS))

    def pin(self, folder: Path) -> None:
        """Writes their checksum to config.json, or checks it if there is one."""
        saved = read_json(folder / "config.json")
        known = saved.setdefault("demos_checksum", self.checksum)
        if known != self.checksum:
            raise ThespisError(
                f"demos = {self.name} has changed since {folder} began (checksum "
                f"{self.checksum[:12]}, not {known[:12]}): restore it"
            )
        write_json(folder / "config.json", saved)


class Expert:
    """The trained policy of another run, in this run's environment."""

    def __init__(self, run: Any, loop: Loop, episodes: int):
        expert, env = run.parts[0], loop.env
        there, here = shapes(expert.env.spec), shapes(env.spec)
        if there != here or expert.env.spec.action != env.spec.action:
            raise ThespisError(
                f"demos = {run.path} was trained on {there}, {expert.env.spec.action}, but env "
                f"has {here}, {env.spec.action}: give a run on the same environment"
            )
        self.policy = run.frozen(run.member("best"), "last")
        self.recorder = Recorder(expert.algo, env, episodes)

    def __call__(self, time: int) -> list[Episode]:
        return self.recorder(self.policy, time)

    @property
    def checksum(self) -> str:
        digest = hashlib.sha256()
        learned = self.policy.state, self.policy.hp
        for path, x in jax.tree_util.tree_leaves_with_path(learned):
            digest.update(f"{jax.tree_util.keystr(path)} {x.dtype} {x.shape}".encode())
            digest.update(np.asarray(x).tobytes())
        return digest.hexdigest()


def expert_of(source: Any, loop: Loop, episodes: int, trust: bool) -> Expert | None:
    """Returns the expert if the source is a run or its folder, else None."""
    from thespis.runs.run import SavedRun

    if isinstance(source, str | Path):
        if not regular(zoo.located(source) / "config.json"):
            return None
        source = SavedRun(source, trust=trust)
        if source.saved.get("env_given"):
            source.env = loop.env
    return Expert(source, loop, episodes) if isinstance(source, SavedRun) else None


def chosen(episodes: list[Episode], n: int | None, name: str) -> list[Episode]:
    """Returns the first n episodes, or all if n is None."""
    if n is not None and n > len(episodes):
        raise ThespisError(f"demo_episodes = {n}: demos = {name} has {len(episodes)}; give fewer")
    return episodes[:n]


def save(name: str, episodes: list[Episode], spec: Spec, algo: str | None = None) -> str:
    """Writes a .npz file, as a whole or not at all, or a Minari dataset; returns its name."""
    if not name.endswith(".npz"):
        return demonstrations.save_minari(name, episodes, spec, algo)
    arrays: Any = demonstrations.to_arrays(episodes)
    with replacing(Path(name)) as file:
        np.savez_compressed(file, **arrays)
    return name


def label(source: Any) -> str:
    """Returns the name of demonstrations for config.json and messages."""
    path = getattr(source, "path", source)
    return str(path) if isinstance(path, str | Path) else f"a {type(source).__name__}"
