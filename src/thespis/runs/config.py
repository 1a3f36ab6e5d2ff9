"""What a run is made of: the config, and how it is made from what users give."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from thespis import envs, tuning
from thespis.algos import registry
from thespis.core import Judged, Spec, capability
from thespis.errors import ThespisError, did_you_mean, one_line, or_all, shown
from thespis.runs.config_checks import complete
from thespis.runs.config_names import ALIASES, actor_given, as_written, translate
from thespis.runs.config_presets import pop_tuner, preset_of
from thespis.runs.other_libraries import advice, refuse_total
from thespis.tuning import hyper
from thespis.values import convert, grouped, plain
from thespis.values import fields as fields_of
from thespis.xla.threads import Device

RETURN = "eval/mean_reward"
DIVERSITY = "eval/diversity_reward"  # what algorithms reward themselves with
DEPENDENCE = "eval/skill_dependence"  # and what it is worth, whatever their hyper-parameters
SIMILARITY = "eval/similarity"  # of imitators, to demonstrations they did not learn from
PER_EPISODE = (RETURN, DIVERSITY, DEPENDENCE)  # metrics that have a value for every episode
OBJECTS = ("env", "eval_env", "demos")  # fields that take objects of any kind, left as they are
NOT_OPTIONS = ("algo", "options", "hp", "tuner", "pbt", "schedule", "callbacks")  # not by name


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
    env_workers: int | None = None
    """Processes that step Gymnasium environments; by default they step one after another, in the
    process that learns."""
    collectors: int | None = None
    """Ray actors that step Gymnasium environments while others learn, on any node of a cluster."""
    sync_freq: int | None = None
    """Steps between two times that collectors fetch the weights of the actor; by default ten of
    every environment."""
    max_lag: int | None = None
    """Steps that the weights of collectors may at most be behind those of the learner; by default
    twice sync_freq."""
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
    """Steps between evaluations; by default a twentieth of the steps, and in environments in Python
    no fewer than the episodes of an evaluation have."""
    eval_episodes: int = 10
    """Episodes of every evaluation."""
    eval_env: Any = None
    """Environment of the evaluations; by default another copy of env."""
    log_freq: int | None = None
    """Steps between rows of metrics.csv; by default a twentieth of the steps, or eval_freq if that
    is given."""
    log_keys: tuple[str, ...] = ()
    """Other names of metrics in TensorBoard and on trackers: cleanrl, brax, rllib, or
    OURS=THEIRS."""
    wandb: str | None = None
    """Project on Weights & Biases that follows the metrics; WANDB_MODE=offline keeps them here."""
    mlflow: str | None = None
    """Experiment of MLflow that follows the metrics: in mlflow.db here, or where
    MLFLOW_TRACKING_URI says."""
    trackio: str | None = None
    """Project of Trackio that follows the metrics, on this machine."""
    name: str | None = None
    """Name of the run's folder instead of the environment's; it may hold fields of the run, such as
    {env}-{critic_lr}."""
    tags: tuple[str, ...] = ()
    """Words by which `thespis runs` and trackers find the run."""
    notes: str | None = None
    """What the run is for, in your words."""
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
    device: Device = "auto"
    """Kind of device that trains; by default what JAX takes, a TPU or GPU if it is installed for
    one."""
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
    callbacks: tuple[str, ...] = ()
    """Callbacks, as MODULE:CLASS; those that were given as objects have the names of classes."""

    @property
    def Algorithm(self) -> type:
        """The class of the algorithm; if it is named MODULE:CLASS, the module is imported."""
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
        return self.eval_episodes if self.tuning.fitness in PER_EPISODE else 1


def make(algo: Any, values: dict[str, Any]) -> Config:
    """Returns a complete `Config` of an algorithm, or refuses what cannot work (see `gather`)."""
    return complete(gather(algo, values))


def gather(algo: Any, values: dict[str, Any]) -> Config:
    """Returns the `Config` of an algorithm, given by its name or its class, as far as it is given.

    A name may be a field of the run, a choice of the algorithm or a hyper-parameter (also as
    `algo.NAME`, `hp.NAME`), a field of the tuner (`pbt.NAME`), or what Stable-Baselines3 calls
    it. Values win over the preset, the preset over the defaults.
    """
    algo = registry.name_of(algo)
    algorithm = registry.find(algo)
    values = {name.replace("-", "_"): value for name, value in values.items()}
    for name, value in values.items():
        values[name] = value if name.removeprefix("train.") in OBJECTS else plain(value)
    schedule = values.pop("schedule", ())  # that of a rerun, by its config.json
    callbacks = convert("callbacks", tuple[str, ...], values.pop("callbacks", ()))
    preset = preset_of(algo, algorithm, values.get("preset"))
    tuner, tuner_fields = pop_tuner(values, preset.get("pbt", {}))
    if "tuned" in tuner_fields:
        preset = preset | {"hp": tuning.preset_hp(preset)}
    chosen = {group: dict(preset.get(group, {})) for group in ("train", "algo", "hp")}
    known = groups(algorithm)
    form = chosen["algo"].get("temperature", getattr(algorithm, "temperature", "log"))
    ours = translate(algorithm, grouped(algorithm, values), form)
    given = set()
    for name, value in ours.items():
        written = as_written(name, values)
        group, field_name = place(known, name, written)
        given.add(field_name)
        if group == "hp" and callable(value):
            value = follow_rule(field_name, value, ours)
        elif name == "target_entropy" and ours.get("env") and not ours.get("skills_from"):
            refuse_total(value, envs.make(ours["env"]).spec)
        chosen[group][field_name] = typed(known, group, field_name, value, written)
    late = 0 if "learning_starts" in given else preset.get("train", {}).get("learning_starts", 0)
    if late and late >= chosen["train"].get("steps", Config.steps):
        del chosen["train"]["learning_starts"]  # the preset's: a short run learns, too
    if actor_given(chosen["train"].get("init_from")):
        chosen["train"].setdefault("warm_up", "policy")
    rest: Any = {"options": chosen["algo"], "hp": chosen["hp"], "tuner": tuner, "pbt": tuner_fields}
    rest["callbacks"] = callbacks
    try:
        rest["schedule"] = tuple((int(step), dict(changes)) for step, changes in schedule)
    except (TypeError, ValueError):
        raise ThespisError(f"schedule = {shown(schedule)}: give [step, values] pairs") from None
    return Config(algo, **{"env": None} | chosen["train"], **rest)


def typed(
    known: dict[str, dict[str, Any]], group: str, name: str, value: Any, written: str = ""
) -> Any:
    """Returns the value of an option with its type; of a hyper-parameter one or several numbers.

    `written` is how the user calls it.
    """
    if group != "hp":
        return convert(written or name, known[group][name], value)
    numbers = hyper.numbers(name, value)
    return numbers[0] if len(numbers) == 1 else numbers


def follow_rule(name: str, rule: Any, values: dict[str, Any]) -> Any:
    """Returns what a user's function makes of the environment's spec, for a hyper-parameter."""
    if values.get("env") is None:
        raise ThespisError("env is missing: give env, for example jax:pendulum")
    spec: Spec = envs.make(values["env"]).spec
    try:
        return rule(spec)
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(f"hyper-parameter {name}: {shown(rule)} raised {text}") from error


def groups(algorithm: type) -> dict[str, dict[str, Any]]:
    """Returns the options of a run, of its algorithm and its hyper-parameters, with their types."""
    hints = typing.get_type_hints(Config).items()
    return {
        "train": {name: kind for name, kind in hints if name not in NOT_OPTIONS},
        "algo": {o.name: o.kind for o in fields_of(algorithm, skip=("spec",))},
        "hp": dict.fromkeys(hyper.declared(algorithm.Hyper), float),
    }


def place(known: dict[str, dict[str, Any]], name: str, written: str) -> tuple[str, str]:
    """Returns where a name, `written` by the user, belongs: ("train" | "algo" | "hp", field)."""
    prefix, dot, rest = name.partition(".")
    if dot and rest in known.get(prefix, ()):
        return prefix, rest
    for group, fields in known.items():
        if name in fields:
            return group, name
    if written != name:
        raise ThespisError(
            f"unknown option {written!r}: this algorithm has no {name}, its name here"
        )
    if dot and prefix in known:
        hint = or_all(rest, known[prefix])
    else:
        every = [*(field for fields in known.values() for field in fields), *ALIASES]
        hint = did_you_mean(name, every) or "; `thespis train ALGO --help-all` lists them all"
    noun = "hyper-parameter" if prefix == "hp" else "option"
    raise ThespisError(advice(written) or f"unknown {noun} {written!r}{hint}")
