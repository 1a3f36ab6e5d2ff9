"""The configuration of a run, and how it is built from the options that users give."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from thespis import envs, tuning
from thespis.algos import registry
from thespis.core import Judged, Spec, capability
from thespis.errors import ThespisError, did_you_mean, one_line, or_all, shown
from thespis.runs.config_checks import complete
from thespis.runs.config_names import ALIASES, as_written, loads_actor, translate
from thespis.runs.config_presets import pop_tuner, preset_of
from thespis.runs.other_libraries import advice, refuse_total
from thespis.tuning import hyper
from thespis.values import convert, default_of, grouped, plain, type_hints
from thespis.values import fields as fields_of
from thespis.xla.threads import Device

RETURN = "eval/mean_reward"
DIVERSITY = "eval/diversity_reward"  # the intrinsic reward of algorithms that learn skills
DEPENDENCE = "eval/skill_dependence"  # a measure of skills that no hyper-parameter scales
SIMILARITY = "eval/similarity"  # of the policy to demonstrations that were held out
PER_EPISODE = (RETURN, DIVERSITY, DEPENDENCE)  # metrics that have a value for every episode
OBJECTS = ("env", "eval_env", "demos")  # fields that take objects of any kind, left as they are
# Fields of Config that users do not set by these names.
NOT_OPTIONS = ("algo", "options", "hp", "tuner", "pbt", "schedule", "callbacks")


@dataclass(frozen=True)
class Config:
    """The options of a run. Frequencies and sizes are counted in environment steps of a member."""

    algo: str
    env: Any
    """Environment: a Gymnasium id, jax:NAME, brax:NAME, ... (see `thespis list`), or MODULE:CLASS
    of your own."""
    steps: int = 100_000
    """Environment steps to train each member for."""
    seeds: tuple[int, ...] = (0,)
    """Random seeds, such as 0-4 or 1 2 3; one member per seed, all trained in one program."""
    preset: str | None = None
    """Named set of options that replaces the defaults (see `thespis list`)."""
    envs: int = 1
    """Number of parallel environments per member."""
    env_workers: int | None = None
    """Number of processes that step Gymnasium environments; by default the process that learns
    steps them one after another."""
    collectors: int | None = None
    """Number of Ray actors that step Gymnasium environments while the learner updates, on any node
    of a cluster."""
    sync_freq: int | None = None
    """Environment steps between two fetches of the actor's weights by collectors; by default ten
    of every environment."""
    max_lag: int | None = None
    """Largest number of environment steps that the weights of collectors may be behind those of
    the learner; by default twice sync_freq."""
    updates_per_step: float = 1.0
    """Gradient updates per environment step, whatever the number of environments."""
    buffer_size: int = 1_000_000
    """Capacity of the replay buffer, in environment steps."""
    frame_stack: int = 1
    """Number of consecutive observations of an episode that are stacked as the networks' input."""
    learning_starts: int | None = None
    """Environment steps before the first update; by default a tenth of the steps, at most 1000."""
    warm_up: Literal["random", "policy"] = "random"
    """How to act before learning starts: by uniformly random actions, or by the initial policy,
    which is the default if init_from loads an actor."""
    eval_freq: int | None = None
    """Environment steps between evaluations; by default a twentieth of the steps, and for
    environments in Python at least as many as an evaluation takes."""
    eval_episodes: int = 10
    """Episodes per evaluation."""
    eval_env: Any = None
    """Environment for evaluations; by default another copy of env."""
    log_freq: int | None = None
    """Environment steps between rows of metrics.csv; by default eval_freq if that is given, else a
    twentieth of the steps."""
    log_keys: tuple[str, ...] = ()
    """Names of metrics in TensorBoard and on trackers: those of cleanrl, brax or rllib, or
    OURS=THEIRS."""
    wandb: str | None = None
    """Weights & Biases project to log to; WANDB_MODE=offline keeps the logs on this machine."""
    mlflow: str | None = None
    """MLflow experiment to log to, in mlflow.db in the current folder or at
    MLFLOW_TRACKING_URI."""
    trackio: str | None = None
    """Trackio project to log to, on this machine."""
    name: str | None = None
    """Name of the run's folder, by default that of the environment; it may contain options, such as
    {env}-{critic_lr}."""
    tags: tuple[str, ...] = ()
    """Tags to find the run by, with `thespis runs` and on trackers."""
    notes: str | None = None
    """Description of the run, in your own words."""
    checkpoint_freq: int | None = None
    """Environment steps between checkpoints; by default a tenth of the steps."""
    demos: Any = None
    """Demonstrations to imitate: a trained RUN, whose policy plays new episodes, a .npz file or a
    Minari dataset."""
    demo_episodes: int | None = None
    """Number of demonstration episodes; by default all of a file, or 10 of a RUN at a time."""
    stop_reward: float | None = None
    """Stop when the mean evaluation reward reaches this value: for every member, or for the best
    member of a tuned population."""
    patience: int | None = None
    """Stop after this many evaluations in a row without an improvement of any member."""
    init_from: str | None = None
    """Start from the networks of another run: RUN or RUN:PART[,PART], e.g. runs/sac/x_1:actor."""
    skills_from: str | None = None
    """RUN with frozen skills to act by: the agent's actions then choose among these skills."""
    skill_steps: int = 10
    """Environment steps for which each chosen skill acts; all other options then count skills."""
    trust: bool = False
    """Allow runs given here to import the code that their config.json names (docs/security.md)."""
    device: Device = "auto"
    """Type of device to train on; by default the one that JAX selects, a TPU or GPU if it is
    installed for one."""
    threads: int | None = None
    """Threads of XLA's pool; by default one for narrow networks or several devices, else one per
    core."""
    devices: int | None = None
    """Devices per process to split members over; by default as many cores as share them evenly, and
    one if several processes train together."""
    options: dict[str, Any] = field(default_factory=dict)
    """Static options of the algorithm."""
    hp: dict[str, Any] = field(default_factory=dict)
    """Hyper-parameters: a number, or one per member."""
    tuner: str | None = None
    """Name of the tuner of the population in `thespis.tuning.TUNERS`."""
    pbt: dict[str, Any] = field(default_factory=dict)
    """The fields of the tuner."""
    schedule: tuple[tuple[int, dict[str, float]], ...] = ()
    """Steps at which hyper-parameters change, and their new values, as in another run's member."""
    callbacks: tuple[str, ...] = ()
    """Callbacks as MODULE:CLASS; those passed as objects are listed by the names of classes."""

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
        """Returns the number of iterations, each of one step in all environments of a member."""
        return max(1, -(-steps // self.envs))

    @property
    def tuning(self) -> Any:
        """The tuner (see tuning/pbt.py), or None."""
        return None if self.tuner is None else tuning.tuner(self.tuner, **self.pbt)

    @property
    def judge(self) -> str:
        """The metric by which the best policy is chosen and, by default, a population is tuned."""
        judged = capability(self.Algorithm, Judged)
        return judged.judged_by(self.options) if judged else RETURN

    @property
    def shared(self) -> bool:
        """Whether every member learns from the transitions of all members."""
        return self.tuner is not None and tuning.inherited(self.tuning).replay == "shared"

    @property
    def scores(self) -> int:
        """How many scores per member a tuner compares: one per episode, or one metric."""
        return self.eval_episodes if self.tuning.fitness in PER_EPISODE else 1


def make(algo: Any, values: dict[str, Any]) -> Config:
    """Returns the complete, checked `Config` of a run of an algorithm (see `gather`)."""
    return complete(gather(algo, values))


def gather(algo: Any, values: dict[str, Any]) -> Config:
    """Returns the `Config` of an algorithm, named or passed as a class, before `complete`.

    A name may be a field of the run, an option of the algorithm or a hyper-parameter (also as
    `algo.NAME`, `hp.NAME`), a field of the tuner (`pbt.NAME`), or the name that
    Stable-Baselines3 uses. Values override the preset, and the preset overrides the defaults.
    """
    algo = registry.name_of(algo)
    algorithm = registry.find(algo)
    values = {name.replace("-", "_"): value for name, value in values.items()}
    for name, value in values.items():
        values[name] = value if name.removeprefix("train.") in OBJECTS else plain(value)
    schedule = values.pop("schedule", ())  # only in the config.json of a rerun
    callbacks = convert("callbacks", tuple[str, ...], values.pop("callbacks", ()))
    preset = preset_of(algo, algorithm, values.get("preset"))
    tuner, tuner_fields = pop_tuner(values, preset.get("pbt", {}))
    if "tuned" in tuner_fields:
        preset = preset | {"hp": tuning.preset_hp(preset)}
    chosen = {group: dict(preset.get(group, {})) for group in ("train", "algo", "hp")}
    known = groups(algorithm)
    form = chosen["algo"].get("temperature", default_of(algorithm, "temperature", "log"))
    ours = translate(algorithm, grouped(algorithm, values), form)
    explicit = set()
    for name, value in ours.items():
        written = as_written(name, values)
        group, field_name = place(known, name, written)
        explicit.add(field_name)
        if group == "hp" and callable(value):
            value = follow_rule(field_name, value, ours)
        elif name == "target_entropy" and ours.get("env") and not ours.get("skills_from"):
            refuse_total(value, envs.make(ours["env"]).spec)
        chosen[group][field_name] = typed(known, group, field_name, value, written)
    start = 0 if "learning_starts" in explicit else preset.get("train", {}).get("learning_starts")
    if start and start >= chosen["train"].get("steps", Config.steps):
        del chosen["train"]["learning_starts"]  # a run shorter than the preset's warm-up learns too
    if loads_actor(chosen["train"].get("init_from")):
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
    """Returns an option's value with its type; a hyper-parameter is one number, or several.

    `written` is the name that the user wrote, for messages.
    """
    if group != "hp":
        return convert(written or name, known[group][name], value)
    numbers = hyper.numbers(name, value)
    return numbers[0] if len(numbers) == 1 else numbers


def follow_rule(name: str, rule: Any, values: dict[str, Any]) -> Any:
    """Returns the value of a hyper-parameter that a user's function computes from the spec."""
    if values.get("env") is None:
        raise ThespisError("env is missing: give env, for example jax:pendulum")
    spec: Spec = envs.make(values["env"]).spec
    try:
        return rule(spec)
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(f"hyper-parameter {name}: {shown(rule)} raised {text}") from error


def groups(algorithm: type) -> dict[str, dict[str, Any]]:
    """Returns {group: {name: type}} of the options of a run, its algorithm and its `Hyper`."""
    hints = type_hints(Config).items()
    return {
        "train": {name: kind for name, kind in hints if name not in NOT_OPTIONS},
        "algo": {o.name: o.kind for o in fields_of(algorithm, skip=("spec",))},
        "hp": dict.fromkeys(hyper.declared(algorithm.Hyper), float),
    }


def place(known: dict[str, dict[str, Any]], name: str, written: str) -> tuple[str, str]:
    """Returns the place of an option, ("train" | "algo" | "hp", field); `written` by the user."""
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
