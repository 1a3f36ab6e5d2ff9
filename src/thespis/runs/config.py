"""What a run is made of: everything that was chosen, checked before anything starts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from thespis import hyper, machine
from thespis.algos import ALGORITHMS
from thespis.errors import ThespisError, or_all


@dataclass(frozen=True)
class Config:
    """Choices of a run. All frequencies and sizes count rows: environment steps of one member."""

    algo: str
    env: Any
    """Environment: jax:NAME, brax:NAME or a Gymnasium id."""
    steps: int = 100_000
    """Environment steps of every member."""
    seeds: tuple[int, ...] = (0,)
    """One member per seed, all trained in one program."""
    preset: str | None = None
    """Defaults of another family (see `thespis list`)."""
    envs: int = 1
    """Environments of every member, stepped together."""
    updates_per_step: float = 1.0
    """Gradient updates per environment step, whatever the number of environments."""
    buffer_size: int = 1_000_000
    """Environment steps the replay keeps."""
    learning_starts: int | None = None
    """Steps of warm-up before learning; by default a tenth of the steps, at most 1000."""
    warm_up: Literal["random", "policy"] = "random"
    """Who acts before learning starts: uniform noise, or the untrained policy."""
    eval_freq: int | None = None
    """Steps between evaluations; by default a twentieth of the steps."""
    eval_episodes: int = 10
    """Episodes of every evaluation."""
    eval_env: Any = None
    """Environment of the evaluations; by default another copy of env."""
    log_freq: int | None = None
    """Steps between rows of metrics.csv; by default those of the evaluations."""
    checkpoint_freq: int | None = None
    """Steps between checkpoints; by default a tenth of the steps."""
    stop_reward: float | None = None
    """End when the evaluation's mean reward (of every member) reaches this."""
    init_from: str | None = None
    """RUN or RUN:PART[,PART]: start from the networks of another run, e.g. runs/sac/x_1:actor."""
    threads: int | None = None
    """Threads of XLA's pool; by default one for narrow networks, else all cores."""
    options: dict[str, Any] = field(default_factory=dict)
    """Static choices of the algorithm."""
    hp: dict[str, Any] = field(default_factory=dict)
    """Hyper-parameters: a number, or one per member."""

    @property
    def Algorithm(self) -> type:
        if self.algo not in ALGORITHMS:
            raise ThespisError(f"unknown algorithm {self.algo!r}{or_all(self.algo, ALGORITHMS)}")
        return ALGORITHMS[self.algo]


TRAIN_FIELDS = {
    f.name: f for f in dataclasses.fields(Config) if f.name not in ("algo", "options", "hp")
}


def option_fields(algorithm: type) -> dict[str, dataclasses.Field]:
    """The static choices of an algorithm."""
    return {f.name: f for f in dataclasses.fields(algorithm) if f.name != "spec"}


def make(algo: str, given: dict[str, Any]) -> Config:
    """A complete `Config` from names as users write them.

    A name may be a field of the run, a choice of the algorithm or a hyper-parameter (also as
    `algo.NAME`, `hp.NAME`), or what Stable-Baselines3 calls it. What is given wins over the
    preset, the preset over the defaults.
    """
    algorithm = Config(algo, None).Algorithm
    given = {name.replace("-", "_"): value for name, value in given.items()}
    chosen = {"train": {}, "algo": {}, "hp": {}}
    preset = given.get("preset")
    if preset is not None:
        if preset not in algorithm.presets:
            raise ThespisError(
                f"{algo} has no preset {preset!r}{or_all(preset, algorithm.presets)}"
            )
        for group, values in algorithm.presets[preset].items():
            chosen[group] |= values
    for name, value in translate(algorithm, given).items():
        group, field_name = place(algorithm, name)
        chosen[group][field_name] = value
    config = Config(algo, **chosen["train"], options=chosen["algo"], hp=chosen["hp"])
    return complete(config)


def place(algorithm: type, name: str) -> tuple[str, str]:
    """Where a name belongs: ("train" | "algo" | "hp", field)."""
    known = {
        "train": TRAIN_FIELDS,
        "algo": option_fields(algorithm),
        "hp": hyper.declared(algorithm.Hyper),
    }
    group, dot, rest = name.partition(".")
    if dot and group in known and rest in known[group]:
        return group, rest
    if not dot:
        for group, fields in known.items():
            if name in fields:
                return group, name
    prefix = {"train": "", "algo": "algo.", "hp": "hp."}
    if dot and group in known:
        every = [f"{prefix[group]}{field}" for field in known[group]]
    else:
        every = [f"{prefix[g]}{field}" for g, fields in known.items() for field in fields]
        every += [field for g in ("algo", "hp") for field in known[g]] + list(ALIASES)
    kind = "hyper-parameter" if group == "hp" and dot else "option"
    raise ThespisError(f"unknown {kind} {name!r}{or_all(name, every)}")


# --- Stable-Baselines3's names --------------------------------------------------------------

ALIASES = {
    "total_timesteps": "steps",
    "n_timesteps": "steps",
    "n_envs": "envs",
    "n_eval_episodes": "eval_episodes",
    "net_arch": "hidden",
    "n_critics": "critics",
    "n_steps": "n_step",
    "policy_delay": "delay",
    "target_policy_noise": "target_noise",
    "target_noise_clip": "noise_clip",
    "discount": "gamma",
    "seed": "seed",
    "learning_rate": "learning_rate",
    "ent_coef": "ent_coef",
    "gradient_steps": "gradient_steps",
    "train_freq": "train_freq",
}


def translate(algorithm: type, given: dict[str, Any]) -> dict[str, Any]:
    """Stable-Baselines3's names and meanings as ours; all else stays."""
    out = {ALIASES.get(name, name): value for name, value in given.items()}
    if "seed" in out:
        out["seeds"] = (out.pop("seed"),)
    if "seeds" in out:
        out["seeds"] = tuple(int(s) for s in out["seeds"])
    if "learning_rate" in out:
        rate = number("learning_rate", out.pop("learning_rate"))
        rates = [name for name in hyper.declared(algorithm.Hyper) if name.endswith("_lr")]
        out = {f"hp.{name}": rate for name in rates} | out
    if "ent_coef" in out:
        value = str(out.pop("ent_coef"))
        head, _, start = value.partition("_")
        if head == "auto":
            out |= {"alpha": number("ent_coef", start)} if start else {}
        else:
            out |= {"temperature": "fixed", "alpha": number("ent_coef", value)}
    if "gradient_steps" in out or "train_freq" in out:
        updates, every = (int(out.pop(k, 1)) for k in ("gradient_steps", "train_freq"))
        rows = every * int(out.get("envs", 1))
        out["updates_per_step"] = 1.0 if updates < 0 else updates / rows
    return out


def number(name: str, value) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ThespisError(f"{name} = {value!r} is not a number") from None


# --- completing and checking ----------------------------------------------------------------


def complete(config: Config) -> Config:
    """Fill in what follows from other fields, and refuse what cannot work."""
    require(config.env is not None, "env is missing: give --env, for example jax:pendulum")
    require(config.steps >= 1, f"steps = {config.steps}: give at least 1")
    require(config.envs >= 1, f"envs = {config.envs}: give at least 1")
    require(len(config.seeds) >= 1, "seeds is empty: give a range such as 0-4, or 3 5 8")
    require(len(set(config.seeds)) == len(config.seeds), f"seeds {config.seeds} repeat one of them")
    require(
        config.updates_per_step >= 0, f"updates_per_step = {config.updates_per_step} is negative"
    )
    require(config.eval_episodes >= 1, f"eval_episodes = {config.eval_episodes}: give at least 1")
    options = {f.name: f.default for f in option_fields(config.Algorithm).values()} | config.options
    batch = options["batch_size"]
    require(batch >= 1, f"batch_size = {batch}: give at least 1")
    start = config.learning_starts
    if start is None:
        start = max(batch, min(1000, config.steps // 10), (options["n_step"] + 2) * config.envs)
    fill = {
        "learning_starts": start,
        "eval_freq": config.eval_freq or max(1, config.steps // 20),
        "checkpoint_freq": config.checkpoint_freq or max(1, config.steps // 10),
        "threads": config.threads or machine.threads_for(options["hidden"]),
    }
    fill["log_freq"] = config.log_freq or fill["eval_freq"]
    for name, value in fill.items():
        require(value >= 1, f"{name} = {value}: give at least 1")
    require(
        start <= config.buffer_size,
        f"learning_starts = {start} is more than buffer_size = {config.buffer_size} holds: "
        "lower the one or raise the other",
    )
    require(
        batch <= start,
        f"batch_size = {batch} is more than the {start} steps stored when learning starts: "
        "lower it or raise learning_starts",
    )
    require(
        start < config.steps,
        f"steps = {config.steps} end before learning starts at {start}: raise steps or lower "
        "learning_starts (and batch_size)",
    )
    windows = (options["n_step"] + 2) * config.envs
    require(
        start >= windows,
        f"learning_starts = {start} holds no {options['n_step']}-step transition of "
        f"{config.envs} environments: give at least {windows}",
    )
    hyper.check(config.Algorithm.Hyper, config.hp, len(config.seeds))
    return dataclasses.replace(config, **fill, options=options)


def require(holds: bool, message: str) -> None:
    if not holds:
        raise ThespisError(message)
