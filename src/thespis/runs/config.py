"""What a run is made of: everything that was chosen, checked before anything starts."""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from thespis import envs, tuning
from thespis.algos import registry
from thespis.core import Judged, Spec, capability, imitates
from thespis.errors import ThespisError, one_line, or_all, shown
from thespis.runs import trust
from thespis.runs.directory import read_config, versions, write_json
from thespis.runs.formats import FORMAT
from thespis.runs.log_keys import other_names
from thespis.tuning import hyper
from thespis.values import MOST, Reference, convert, grouped, number, one_of, plain, show
from thespis.values import fields as fields_of
from thespis.xla import threads

COUNTS = SEEDS = 2**31  # steps, updates and seeds are 32-bit integers on devices
CRITICS = 1000  # networks that are made and compiled one by one
RETURN = "eval/mean_reward"
DIVERSITY = "eval/diversity_reward"  # what algorithms reward themselves with
DEPENDENCE = "eval/skill_dependence"  # and what it is worth, whatever their hyper-parameters
SIMILARITY = "eval/similarity"  # of imitators, to demonstrations they did not learn from
OF_EPISODES = (RETURN, DIVERSITY, DEPENDENCE)  # those that have a value per episode
TRUST = "trust"  # the field that is the user's alone: neither written nor read
APART = ("algo", "options", "hp", "tuner", "pbt", "schedule")  # no plain fields of a run


@dataclass(frozen=True)
class Config:
    """Choices of a run. All frequencies and sizes count rows: environment steps of one member."""

    algo: str
    env: Any
    """Environment: a Gymnasium id, jax:NAME, brax:NAME, ... (see `thespis list`), or MODULE:CLASS
    of your own."""
    steps: int = 100_000
    """Environment steps of every member."""
    seeds: tuple[int, ...] = (0,)
    """One member per seed, all trained in one program; such as 0-4, or 1 2 3."""
    preset: str | None = None
    """Defaults of another family (see `thespis list`)."""
    envs: int = 1
    """Environments of every member, stepped together."""
    updates_per_step: float = 1.0
    """Gradient updates per environment step, whatever the number of environments."""
    buffer_size: int = 1_000_000
    """Environment steps the replay keeps."""
    frame_stack: int = 1
    """Observations that networks see at once, the newest and those before it in its episode."""
    learning_starts: int | None = None
    """Steps of warm-up before learning; by default a tenth of the steps, at most 1000."""
    warm_up: Literal["random", "policy"] = "random"
    """Who acts before learning starts: uniform noise, or the policy as it is, which is the default
    where init_from gives the actor of another run."""
    eval_freq: int | None = None
    """Steps between evaluations; by default a twentieth of the steps."""
    eval_episodes: int = 10
    """Episodes of every evaluation."""
    eval_env: Any = None
    """Environment of the evaluations; by default another copy of env."""
    log_freq: int | None = None
    """Steps between rows of metrics.csv; by default those of the evaluations."""
    log_keys: tuple[str, ...] = ()
    """Other names of metrics in TensorBoard and on W&B: cleanrl, brax, rllib, or OURS=THEIRS."""
    wandb: str | None = None
    """Project on Weights & Biases that follows the metrics; WANDB_MODE=offline keeps them here."""
    checkpoint_freq: int | None = None
    """Steps between checkpoints; by default a tenth of the steps."""
    demos: Any = None
    """Demonstrations to imitate: a trained RUN, whose policy plays on, a .npz file or a Minari
    dataset."""
    demo_episodes: int | None = None
    """Episodes of demonstrations: by default all of a file, or 10 of a RUN at a time."""
    stop_reward: float | None = None
    """End when the evaluation's mean reward reaches this: of every member, or of the best one
    in a population that is tuned."""
    patience: int | None = None
    """End after so many evaluations in a row in which no member was better than before."""
    init_from: str | None = None
    """RUN or RUN:PART[,PART]: start from the networks of another run, e.g. runs/sac/x_1:actor."""
    skills_from: str | None = None
    """RUN: act by the frozen skills of a run on this environment; an action is then a skill."""
    skill_steps: int = 10
    """Environment steps that each of those skills is kept; all else counts skills."""
    trust: bool = False
    """Import code that the runs given here name in their config.json (docs/security.md)."""
    threads: int | None = None
    """Threads of XLA's pool; by default one for narrow networks or several devices, else all
    cores."""
    devices: int | None = None
    """Devices of every process that members are split over; by default the cores that share them
    evenly, and one where several processes train together."""
    options: dict[str, Any] = field(default_factory=dict)
    """Static choices of the algorithm."""
    hp: dict[str, Any] = field(default_factory=dict)
    """Hyper-parameters: a number, or one per member."""
    tuner: str | None = None
    """Who tunes the population, by its name in `thespis.tuning.TUNERS`."""
    pbt: dict[str, Any] = field(default_factory=dict)
    """The fields of the tuner."""
    schedule: tuple[tuple[int, dict[str, float]], ...] = ()
    """Steps at which hyper-parameters change, and to what: that of another run's member."""

    @property
    def Algorithm(self) -> type:
        """The class; of MODULE:CLASS that names it, the module is imported."""
        return registry.find(self.algo)

    @property
    def members(self) -> int:
        return len(self.seeds)

    @property
    def update_ratio(self) -> Fraction:
        """`updates_per_step`, exactly."""
        return Fraction(self.updates_per_step).limit_denominator(10**6)

    def iterations(self, steps: int) -> int:
        """Returns how often all environments of a member are stepped for so many steps."""
        return max(1, -(-steps // self.envs))

    @property
    def tuning(self) -> Any:
        """The tuner (see tuning/pbt.py), or None."""
        return None if self.tuner is None else tuning.tuner(self.tuner, **self.pbt)

    @property
    def judge(self) -> str:
        """The metric that chooses the best policy, and by default tunes a population."""
        judged = capability(self.Algorithm, Judged)
        return judged.judged_by(self.options) if judged else RETURN

    @property
    def shared(self) -> bool:
        """Whether every member learns from the rows of all."""
        return self.tuner is not None and getattr(self.tuning, "replay", "own") == "shared"

    @property
    def scores(self) -> int:
        """Numbers of each member by which a tuner compares: episodes, or one metric."""
        return self.eval_episodes if self.tuning.fitness in OF_EPISODES else 1


# --- from names as users write them ---------------------------------------------------------


def make(algo: Any, given: dict[str, Any]) -> Config:
    """A complete `Config` of an algorithm, by its name or its class.

    A name may be a field of the run, a choice of the algorithm or a hyper-parameter (also as
    `algo.NAME`, `hp.NAME`), a field of the tuner (`pbt.NAME`), or what Stable-Baselines3 calls
    it. What is given wins over the preset, the preset over the defaults.
    """
    algo = registry.name_of(algo)
    algorithm = registry.find(algo)
    given = {name.replace("-", "_"): value for name, value in given.items()}
    given = {name: x if objects(name) else plain(x) for name, x in given.items()}
    chosen: dict[str, dict[str, Any]] = {"train": {}, "algo": {}, "hp": {}}
    preset = preset_of(algo, algorithm, given.get("preset"))
    tuner, tuner_fields = tuner_of(given)
    if tuner is not None:
        tuner_fields = suitable(tuner, preset.get("pbt", {})) | tuner_fields
        if "tuned" in tuner_fields:
            preset = preset | {"hp": tuning.preset_hp(preset)}
    for group in chosen:
        chosen[group] |= preset.get(group, {})
    known = groups(algorithm)
    for name, value in translate(algorithm, grouped(algorithm, given)).items():
        group, field_name = place(known, name)
        if group == "hp":
            value = by_rule(field_name, value, spec_of(given)) if callable(value) else value
            values = hyper.numbers(field_name, value)
            chosen[group][field_name] = values[0] if len(values) == 1 else values
        else:
            chosen[group][field_name] = convert(field_name, known[group][field_name], value)
    if actor_given(chosen["train"].get("init_from")):
        chosen["train"].setdefault("warm_up", "policy")
    parts: Any = {
        "options": chosen["algo"],
        "hp": chosen["hp"],
        "tuner": tuner,
        "pbt": tuner_fields,
    }
    return complete(Config(algo, **chosen["train"], **parts))


def by_rule(name: str, rule: Any, spec: Spec) -> Any:
    """The value of a hyper-parameter that somebody's own function computes."""
    try:
        return rule(spec)
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(f"hyper-parameter {name}: {shown(rule)} raised {text}") from error


def spec_of(given: dict[str, Any]) -> Spec:
    """What a rule for a hyper-parameter is told: the environment's."""
    require(given.get("env") is not None, "env is missing: give env, for example jax:pendulum")
    return envs.make(given["env"]).spec


def objects(name: str) -> bool:
    """Whether a field takes objects of any kind, which are left as they are."""
    return name.removeprefix("train.") in ("env", "eval_env", "demos")


def preset_of(algo: str, algorithm: Any, preset: Any) -> dict[str, dict[str, Any]]:
    """What a preset says of each group; nothing if there is none."""
    if preset is None:
        return {}
    if not isinstance(preset, str) or preset not in algorithm.presets:
        name = shown(preset)
        hint = or_all(name, algorithm.presets)
        raise ThespisError(f"preset = {name}: {algo} has none of this name{hint}")
    return {group: what for group, what in algorithm.presets[preset].items() if group != "for"}


def tuner_of(given: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Take the tuner out of what is given -> its name and fields; None if there is none.

    `pbt` may be true, a dict of fields or a tuner; `tuner` a name; `pbt.FIELD` a single field.
    """
    fields = {name: given.pop(name) for name in list(given) if name.startswith("pbt.")}
    fields = {name.removeprefix("pbt."): value for name, value in fields.items()}
    whole, name = given.pop("pbt", None), given.pop("tuner", None)
    name = None if name is None else one_of("tuner", tuple(tuning.TUNERS), name)
    if dataclasses.is_dataclass(whole):
        named = [n for n, kind in tuning.TUNERS.items() if type(whole) is kind]
        require(named, f"pbt = {whole}: add its class to thespis.tuning.TUNERS first")
        require(name in (None, *named), f"both pbt = {named[0]} and tuner = {name} are given")
        name, fields = named[0], vars(whole) | fields
    elif isinstance(whole, dict):
        name, fields = name or "pbt", {str(k): x for k, x in whole.items()} | fields
    elif whole is not None and convert("pbt", bool, whole):
        require(name in (None, "pbt"), f"both pbt and tuner = {name} are given: leave one out")
        name = "pbt"
    elif whole is not None:  # false
        require(name is None and not fields, "pbt is false, but a tuner is given: leave one out")
    if fields and name is None:
        name = "pbt"
    return name, fields


def suitable(tuner: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Those of a preset's fields that this tuner has."""
    known = (
        {f.name for f in dataclasses.fields(tuning.TUNERS[tuner])} if tuner in tuning.TUNERS else ()
    )
    return {name: value for name, value in fields.items() if name in known}


def groups(algorithm: type) -> dict[str, dict[str, Any]]:
    """The fields of a run, of its algorithm and of its hyper-parameters, with their types."""
    kinds = lambda cls, *skip: {
        name: kind
        for name, kind in typing.get_type_hints(cls).items()
        if name not in skip and typing.get_origin(kind) is not typing.ClassVar
    }
    return {
        "train": kinds(Config, *APART),
        "algo": {o.name: o.kind for o in fields_of(algorithm, skip=("spec",))},
        "hp": dict.fromkeys(hyper.declared(algorithm.Hyper), float),
    }


def place(known: dict[str, dict[str, Any]], name: str) -> tuple[str, str]:
    """Where a name belongs: ("train" | "algo" | "hp", field)."""
    prefix, dot, rest = name.partition(".")
    if dot and rest in known.get(prefix, ()):
        return prefix, rest
    for group, fields in known.items():
        if name in fields:
            return group, name
    if dot and prefix in known:
        hint = or_all(rest, known[prefix])
    else:
        hint = or_all(name, [*(field for fields in known.values() for field in fields), *ALIASES])
    raise ThespisError(
        f"unknown {'hyper-parameter' if prefix == 'hp' else 'option'} {name!r}{hint}"
    )


# Options that had another name in older versions, and runs.
RENAMED = {"allotment": "assignment"}
# Stable-Baselines3's names: those that mean the same as one of ours ...
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
    "prioritized_replay_alpha": "priority_alpha",
    "prioritized_replay_beta0": "priority_beta",
    "prioritized_replay_beta_iters": "priority_anneal",
    "policy_delay": "delay",
    "target_policy_noise": "target_noise",
    "target_noise_clip": "noise_clip",
}
# ... and those that `translate` must compute.
COMPUTED = {
    "learning_rate": float,
    "lr": float,
    "ent_coef": str,
    "gradient_steps": int,
    "train_freq": int,
}


def translate(algorithm: type, given: dict[str, Any]) -> dict[str, Any]:
    """Stable-Baselines3's names and meanings as ours; all else stays."""
    out = {ALIASES.get(name, name): value for name, value in given.items()}
    if out.keys() & {"seed", "seeds", "members"}:
        out["seeds"] = seeds_of(*(out.pop(name, None) for name in ("seed", "seeds", "members")))
    if "learning_rate" in out:
        rate = number("learning_rate", out.pop("learning_rate"))
        rates = [name for name in hyper.declared(algorithm.Hyper) if name.endswith("_lr")]
        out = {f"hp.{name}": rate for name in rates} | out  # a rate of its own wins
    if "ent_coef" in out:
        value = str(out.pop("ent_coef"))
        learned, _, start = value.partition("_")
        if learned == "auto":
            out |= {"alpha": number("ent_coef", start)} if start else {}
        else:
            out |= {"temperature": "fixed", "alpha": number("ent_coef", value)}
    if "gradient_steps" in out or "train_freq" in out:
        both = ("gradient_steps", "train_freq")
        updates, every, envs = (
            number(name, value, whole=True)
            for name, value in [*((n, out.pop(n, 1)) for n in both), ("envs", out.get("envs", 1))]
        )
        require(every >= 1, f"train_freq = {every}: give at least 1")
        # A negative number of gradient steps is one for every environment step.
        out["updates_per_step"] = 1.0 if updates < 0 else updates / (every * max(envs, 1))
    return out


def seeds_of(seed: Any, seeds: Any, members: Any) -> tuple[int, ...]:
    """One seed per member: as listed, or as many as there are members from the seed on."""
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


def seed_list(given: Any) -> tuple[int, ...]:
    """Seeds from a number, a range such as "0-4", or several of them."""
    texts = given.replace(",", " ").split() if isinstance(given, str) else plain(given)
    seeds: list[int] = []
    for text in texts if isinstance(texts, list) else [texts]:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(text))
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


# --- completing and checking ----------------------------------------------------------------


def complete(config: Config) -> Config:
    """Fill in what follows from other fields, and refuse what cannot work."""
    require(config.env is not None, "env is missing: give --env, for example jax:pendulum")
    choices = fields_of(config.Algorithm, skip=("spec",))
    options: dict[str, Any] = {o.name: o.default for o in choices} | config.options
    config = dataclasses.replace(config, options=options)
    for name, value in [*vars(config).items(), *options.items()]:
        check_counts(name, value)
    batch, steps = options["batch_size"], config.steps
    window = (options["n_step"] + 2) * config.envs  # rows that hold at least one transition
    start = config.learning_starts or max(batch, window, min(1000, steps // 10))
    eval_freq = config.eval_freq or max(1, steps // 20)
    _, processes = threads.process_index_and_count()
    cores = threads.cores() if processes == 1 and not config.shared else 1
    devices = config.devices or threads.even_share(config.members, cores)
    config = dataclasses.replace(
        config,
        learning_starts=start,
        eval_freq=eval_freq,
        log_freq=config.log_freq or eval_freq,
        checkpoint_freq=config.checkpoint_freq or max(1, steps // 10),
        devices=devices,
        threads=config.threads or default_threads(options["hidden"] if devices == 1 else ()),
    )
    require(
        config.members % (devices * processes) == 0,
        f"devices = {devices} "
        + (f"of {processes} processes " if processes > 1 else "")
        + f"cannot share {config.members} members evenly: give a divisor of that",
    )
    require(
        config.updates_per_step >= 0,
        f"updates_per_step = {config.updates_per_step:g}: give 0 or more",
    )
    require(
        steps * max(1, config.updates_per_step) < COUNTS,
        f"steps = {steps}: give fewer than {COUNTS} steps and updates of a member",
    )
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
        window <= start,
        f"learning_starts = {start} holds no {options['n_step']}-step transition of "
        f"{config.envs} environments: give at least {window}",
    )
    require(
        start < steps,
        f"steps = {steps} end before learning starts at {start}: raise steps, or lower "
        "learning_starts and batch_size",
    )
    other_names(config.log_keys)
    hyper.check(config.Algorithm.Hyper, config.hp, config.members)
    require(
        config.demos is not None or not imitates(config.Algorithm),
        f"{config.algo} learns from demonstrations: give demos, a trained run, a .npz file or a "
        "Minari dataset",
    )
    require(
        config.demos is None or imitates(config.Algorithm),
        f"{config.algo} learns from no demonstrations: leave demos out, or take sqil",
    )
    return config if config.tuner is None else with_tuner(config)


def with_tuner(config: Config) -> Config:
    """All fields of the tuner, or why it cannot work."""
    tuner = config.tuning
    if tuner.interval is None:
        tuner = dataclasses.replace(tuner, interval=max(1, config.steps // 20))
    if tuner.fitness is None:
        tuner = dataclasses.replace(tuner, fitness=config.judge)
    for name, value in vars(tuner).items():
        if not name.startswith("min_"):
            check_counts(f"pbt.{name}", value)
    config = dataclasses.replace(config, pbt=vars(tuner))
    require(
        config.members > 1,
        f"tuner = {config.tuner} needs a population, not one member: give members, such as 8",
    )
    tuner.check(config.Algorithm.Hyper, config.members, config.scores)
    devices = (config.devices or 1) * threads.process_index_and_count()[1]
    require(
        devices == 1 or not config.shared,
        f"pbt.replay = shared needs all members on one device, not {devices}: give devices = 1 and "
        "one process, or another replay",
    )
    return config


def donor(init_from: str) -> tuple[str, list[str]]:
    """The run and the parts that RUN:PART[,PART] names; no parts are all of them."""
    whole = ":" not in init_from or os.path.isdir(init_from)
    path, _, parts = (init_from, "", "") if whole else init_from.rpartition(":")
    return path, parts.split(",") if parts else []


def actor_given(init_from: str | None) -> bool:
    """Whether a whole actor comes from another run."""
    if init_from is None:
        return False
    _, parts = donor(init_from)
    return not parts or bool({"actor", "actor.params"} & set(parts))


def check_counts(name: str, value: Any) -> None:
    """Whole numbers count something: steps, layers, critics. Seeds alone may be 0."""
    counts = [n for n in (value if isinstance(value, tuple) else [value]) if type(n) is int]
    require(
        name == "seeds" or min(counts, default=1) >= 1, f"{name} = {show(value)}: give at least 1"
    )
    most = CRITICS if name == "critics" else COUNTS - 1
    require(max(counts, default=1) <= most, f"{name} = {shown(show(value))}: give at most {most}")


def default_threads(hidden: tuple[int, ...]) -> int:
    """What the user asked of XLA, or else what suits the networks."""
    asked = os.environ.get("NPROC", "")
    return int(asked) if asked.isdecimal() and int(asked) else threads.threads_for(hidden)


def require(holds: Any, message: str) -> None:
    if not holds:
        raise ThespisError(message)


# --- config.json ----------------------------------------------------------------------------


def write(folder: Path, config: Config, command: str) -> None:
    """Enough to run it again, except for environments that have no name."""
    fields = {name: value for name, value in vars(config).items() if name != TRUST}
    if config.tuner is None:  # else only what is given stays as it is
        known = hyper.declared(config.Algorithm.Hyper)
        fields["hp"] = {name: config.hp.get(name, d.default) for name, d in known.items()}
    for name in ("env", "eval_env"):
        if fields[name] is not None and not isinstance(fields[name], str):
            fields[name], fields[f"{name}_given"] = envs.label(fields[name]), True
    source = getattr(config.demos, "path", config.demos)  # of a run, or as it is
    if isinstance(source, Path):
        fields["demos"] = str(source)
    elif source is not None and not isinstance(source, str):
        fields["demos"], fields["demos_given"] = type(source).__name__, True
    about = {"format": FORMAT, "command": command, "versions": versions()}
    if registry.module_of(config.algo):  # so that nobody must import it to know
        about["judge"] = config.judge
    write_json(folder / "config.json", fields | about)


def judge_of(folder: Path) -> str:
    """The metric that chooses the best policy of a run, without any code that the run names."""
    saved = read_config(folder)
    if not registry.module_of(saved["algo"]):
        return read(folder)[0].judge
    told = saved.get("judge")
    return told if isinstance(told, str) else RETURN


def read(folder: Path, trusted: bool = False) -> tuple[Config, dict[str, Any]]:
    """The config, and all that was written with it.

    Of an algorithm MODULE:CLASS that needs its class, which not every run may name (trust.py).
    """
    path = folder / "config.json"
    saved = read_config(folder)
    if registry.module_of(saved["algo"]):
        trust.check(folder, saved, trusted)
        registry.find(saved["algo"])  # or say what is wrong with it, and not with config.json
    try:
        return restored(saved), saved
    except (KeyError, TypeError, AttributeError, ValueError, ThespisError) as error:
        raise ThespisError(f"{path} is not the config of a run: check {error}") from error


def restored(saved: dict[str, Any]) -> Config:
    """The config of what was written."""
    none = {
        "devices": None,
        "frame_stack": 1,
        "tuner": None,
        "pbt": {},
        "schedule": [],
        "demos": None,
        "demo_episodes": None,
        "patience": None,
        "skills_from": None,
        "skill_steps": 10,
        "log_keys": [],
        "wandb": None,
    }  # as in runs older than these fields
    fields = {f.name: (none | saved)[f.name] for f in dataclasses.fields(Config) if f.name != TRUST}
    tuples = lambda x: tuple(x) if isinstance(x, list) else x
    fields |= {name: tuple(fields[name]) for name in ("seeds", "log_keys")}
    options = fields["options"].items()
    fields["options"] = {RENAMED.get(name, name): tuples(value) for name, value in options}
    fields["pbt"] = {name: tuples(value) for name, value in fields["pbt"].items()}
    fields["schedule"] = tuple((int(step), values) for step, values in fields["schedule"])
    return checked(Config(**fields))


def checked(config: Config) -> Config:
    """The same, with every value of its field's type: a file may have been changed by hand.

    Code that it names is not looked up here.
    """
    known, algorithm = groups(config.Algorithm), config.Algorithm

    def typed(group: str, values: dict[str, Any]) -> dict[str, Any]:
        new = {}
        for name, value in values.items():
            require(name in known[group], f"{config.algo} has no option {name}")
            kind = known[group][name]
            if kind is Any:  # an environment or demonstrations, by their names
                require(value is None or isinstance(value, str), f"{name} = {value!r}: give text")
            refers = Reference in (kind, *typing.get_args(kind))
            new[name] = value if refers else convert(name, kind, value)
            check_counts(name, new[name])
        return new

    for hp in (config.hp, *(changes for _, changes in config.schedule)):
        hyper.check(algorithm.Hyper, hp, config.members)
    if config.tuner is not None:
        config.tuning.check(algorithm.Hyper, config.members, config.scores)
    plain = {name: value for name, value in vars(config).items() if name in known["train"]}
    return dataclasses.replace(
        config, **typed("train", plain), options=typed("algo", config.options)
    )
