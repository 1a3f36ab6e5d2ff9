"""The names and values that users may write for options, and what they mean here."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from thespis.errors import ThespisError, require, shown
from thespis.runs import other_libraries, zoo
from thespis.tuning import hyper
from thespis.values import MOST, number, plain, show

SEEDS = 2**31  # seeds are 32-bit integers on devices

# Options that had another name in older versions and in runs written by these.
RENAMED = {"allotment": "assignment"}
# Names in Stable-Baselines3 and CleanRL: those that mean the same as one of ours ...
ALIASES = {
    **RENAMED,
    "total_timesteps": "steps",
    "n_timesteps": "steps",
    "n_envs": "envs",
    "lr": "learning_rate",
    "n_eval_episodes": "eval_episodes",
    "save_freq": "checkpoint_freq",
    "net_arch": "hidden",
    "n_critics": "critics",
    "n_steps": "n_step",
    "n_stack": "frame_stack",
    "target_update_interval": "target_every",
    "prioritized_replay_alpha": "priority_alpha",
    "prioritized_replay_beta0": "priority_beta",
    "prioritized_replay_beta_iters": "priority_anneal",
    "policy_delay": "delay",
    "target_policy_noise": "target_noise",
    "target_noise_clip": "noise_clip",
    "env_id": "env",
    "num_envs": "envs",
    "q_lr": "critic_lr",
    "policy_lr": "actor_lr",
    "policy_frequency": "delay",
    "target_network_frequency": "target_every",
    "exploration_noise": "noise",
    "policy_noise": "target_noise",
    "wandb_project_name": "wandb",
}
# ... and those that `translate` converts. Names without a counterpart are in other_libraries.py.
COMPUTED = {
    "learning_rate": str,
    "lr": str,
    "dtype": Literal["float32", "bfloat16"],
    "ent_coef": str,
    "target_entropy": str,
    "gradient_steps": int,
    "train_freq": int,
}


def translate(algorithm: type, values: dict[str, Any], form: str = "log") -> dict[str, Any]:
    """Returns the values with names of other libraries replaced by ours, and converted.

    `form` is how the temperature is learned unless the values set it (algos/temperature.py).
    """
    values = other_libraries.networks(values)
    out: dict[str, Any] = {}
    for name, value in values.items():
        ours = ALIASES.get(name, name)
        if value is not None and out.get(ours) is not None:
            both = f"both {as_written(ours, values)} and {name} are given"
            raise ThespisError(f"{both}, which mean the same: leave one of them out")
        out[ours] = out.get(ours) if value is None else value
    if out.keys() & {"seed", "seeds", "members"}:
        out["seeds"] = member_seeds(*(out.pop(name, None) for name in ("seed", "seeds", "members")))
    if "learning_rate" in out:
        rate = other_libraries.rate(out.pop("learning_rate"))
        rates = [name for name in hyper.declared(algorithm.Hyper) if name.endswith("_lr")]
        out = {f"hp.{name}": rate for name in rates} | out  # a network's own rate takes precedence
    if "dtype" in out:
        dtype = out.pop("dtype")
        out = {"actor.dtype": dtype, "critic.dtype": dtype} | out  # as does its own dtype
    if "ent_coef" in out:
        out |= other_libraries.temperature(algorithm, out.pop("ent_coef"), form)
    if "target_entropy" in out:
        out |= other_libraries.entropy(algorithm, out.pop("target_entropy"))
    if "gradient_steps" in out or "train_freq" in out:
        updates = number("gradient_steps", out.pop("gradient_steps", 1), whole=True)
        every = other_libraries.train_freq(out.pop("train_freq", 1))
        envs = number("envs", out.get("envs", 1), whole=True)
        require(every >= 1, f"train_freq = {every}: give at least 1")
        # In Stable-Baselines3, gradient_steps = -1 means one update per environment step.
        out["updates_per_step"] = 1.0 if updates < 0 else updates / (every * max(envs, 1))
    return out


def as_written(ours: str, values: Iterable[str]) -> str:
    """Returns the name by which the user wrote one of our options."""
    return next((name for name in values if ALIASES.get(name, name) == ours), ours)


def member_seeds(seed: Any, seeds: Any, members: Any) -> tuple[int, ...]:
    """Returns one seed per member: as listed, or counted upwards from the first one."""
    require(seed is None or seeds is None, "both seed and seeds are given: leave one of them out")
    if seeds is None:
        first = 0 if seed is None else int(number("seed", seed, whole=True))
        count = 1 if members is None else int(number("members", members, whole=True))
        require(count >= 1, f"members = {count}: give at least 1")
        return seed_list(first if count == 1 else f"{first}-{first + count - 1}")
    listed = seed_list(seeds)
    require(
        members is None or number("members", members, whole=True) == len(listed),
        f"members = {members}, but there are {len(listed)} seeds: leave one of them out",
    )
    return listed


def seed_list(text: Any) -> tuple[int, ...]:
    """Returns the seeds in a number, a range such as "0-4", or a list of these."""
    texts = text.replace(",", " ").split() if isinstance(text, str) else plain(text)
    seeds: list[int] = []
    for text in texts if isinstance(texts, list) else [texts]:
        match = re.fullmatch(r"(\d{1,99})(?:-(\d{1,99}))?", str(text))
        if not match:
            raise ThespisError(
                f"seeds = {shown(text)}: give a range such as 0-4, or numbers like 1 2 3"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        require(first <= last, f"seeds = {text} is empty: give a range such as {last}-{first}")
        require(last < SEEDS, f"seeds = {shown(str(text))}: give numbers below {SEEDS}")
        require(len(seeds) + last - first < MOST, f"seeds: give at most {MOST} of them")
        seeds += range(first, last + 1)
    require(seeds, "seeds is empty: give a range such as 0-4, or numbers like 1 2 3")
    twice = [seed for seed, times in Counter(seeds).items() if times > 1]
    require(
        not twice,
        f"seeds = {shown(show(seeds))}: {shown(show(twice))} is there twice; give each once",
    )
    return tuple(seeds)


def parse_init_from(init_from: str) -> tuple[str, list[str]]:
    """Splits RUN:PART[,PART] into the run and the parts; an empty list means all parts."""
    start = len(zoo.PREFIX) if zoo.is_named(init_from) else 0
    whole = ":" not in init_from[start:] or os.path.isdir(init_from)
    path, _, parts = (init_from, "", "") if whole else init_from.rpartition(":")
    return path, parts.split(",") if parts else []


def loads_actor(init_from: str | None) -> bool:
    """Returns whether `init_from` loads a whole actor from another run."""
    if init_from is None:
        return False
    _, parts = parse_init_from(init_from)
    return not parts or bool({"actor", "actor.params"} & set(parts))
