"""The plan of a sweep: algorithms, environments, choices, and the jobs that follow from them."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from thespis import envs
from thespis.algos import registry
from thespis.errors import ThespisError, or_all, require, shown
from thespis.runs import config, files, trust
from thespis.runs.config_names import ALIASES, seed_list, translate
from thespis.runs.naming import safe
from thespis.runs.option_file import flat
from thespis.runs.option_toml import toml
from thespis.tuning import hyper
from thespis.values import convert, counted, plain, show

Sampler = Literal["grid", "random", "optuna"]
PRIOR = "prior"  # instead of values: draw from the prior of the hyper-parameter
RANGE = re.compile(rf"({'|'.join(hyper.KINDS)}):[^:,]+:[^:,]+")
FIELDS = ("algo", "env", "seeds", "set", "sampler", "trials", "sampler_seed", "prune")
FIELDS += ("startup_trials", "metric")
RUNNING = ("executor", "jobs", "ray", "slurm")  # how jobs are run, which changes no result
PLACE = ("name", "out")  # options of the folder itself, in a file that users write
REFUSED = {  # options of a run that a sweep does not take, and what to do instead
    "seed": "give seeds, which are members of every job",
    "seeds": "give seeds to the sweep: they are members of every job",
    "env": "give several environments to the sweep",
    "algo": "give several algorithms to the sweep",
    "name": "jobs are named after their choices",
    "callbacks": "jobs are other processes, and have no callbacks",
    "trust": "it is yours to give, not a file's: leave it out",
}
SUBMITTED = ("cluster", "timeout_min", "mem_gb", "nodes", "tasks_per_node", "cpus_per_task", "name")
SUBMITTED += ("gpus_per_node", "gpus_per_task", "cpus_per_gpu", "mem", "mem_per_cpu", "mem_per_gpu")
SUBMITTED += ("partition", "qos", "account", "constraint", "time", "gres", "nodelist", "exclude")
SUBMITTED += ("exclusive", "array_parallelism", "max_num_timeout", "signal_delay_s", "comment")
HERE = ("auto", "local", "")  # addresses of Ray on this machine
MOST = 10_000  # jobs
LONGEST = 80  # bytes of a job's name without its number
BYTES = 2**24  # maximum size of a TOML file


@dataclass(frozen=True)
class Job:
    """One training: an algorithm on an environment, its seeds as members."""

    name: str
    algo: str
    env: str
    choices: dict[str, Any]
    """The values that the sampler chose, by the user's names."""
    options: dict[str, Any]
    """All options of the run but algorithm and environment."""


@dataclass(frozen=True)
class Plan:
    """A sweep as it was asked for, and as sweep.toml holds it."""

    algo: tuple[str, ...]
    env: tuple[str, ...]
    seeds: tuple[int, ...] | None = None
    set: dict[str, Any] = field(default_factory=dict)
    """Choices: a list of values, "prior", or a range KIND:LOW:HIGH."""
    sampler: Sampler = "grid"
    trials: int | None = None
    """Number of settings of each algorithm that are tried, unless all are."""
    sampler_seed: int = 0
    prune: bool = True
    startup_trials: int = 5
    metric: str = config.RETURN
    options: dict[str, Any] = field(default_factory=dict)
    """Options that all jobs share."""

    @property
    def cores(self) -> int:
        """Returns the cores that a job uses at most: one, unless options or choices say more."""
        options: dict[str, list[Any]] = {"threads": [1], "devices": [1]}
        options |= {plain_name(name): [x or 1] for name, x in self.options.items()}
        options |= {plain_name(name): x for name, x in self.set.items() if isinstance(x, list)}
        largest = lambda name: max(counted(name, n) for n in options[name])
        return largest("threads") * largest("devices")

    @property
    def asked(self) -> dict[str, Any]:
        """Returns all that is set, as plain data."""
        values = {name: plain(getattr(self, name)) for name in FIELDS if name != "set"}
        values |= self.options | {"set": self.set}
        return {name: x for name, x in values.items() if x is not None and x != {}}

    def choices(self, algo: str) -> dict[str, list[Any] | hyper.Uniform]:
        """Returns the choices of an algorithm: lists of values, or priors to draw from."""
        Hyper = registry.find(algo).Hyper
        choices = self.set
        if not choices and self.sampler != "grid":
            options = translate(registry.find(algo), self.options)
            fixed = {name.removeprefix("hp.") for name in options}
            known = hyper.declared(Hyper).items()
            choices = {n: PRIOR for n, d in known if not d.special and n not in fixed}
        return {
            name: value if isinstance(value, list) else prior_of(Hyper, name, value)
            for name, value in choices.items()
        }

    def job(self, number: int, algo: str, env: str, choices: dict[str, Any]) -> Job:
        """Returns the job with this number."""
        words = [algo, env, *(f"{name}-{show(value)}" for name, value in choices.items())]
        text = safe("-".join(words)).encode()[:LONGEST].decode(errors="ignore").strip(".-")
        options = {"threads": 1, "devices": 1} | self.options | choices
        if self.seeds is not None:
            options["seeds"] = list(self.seeds)
        return Job(f"{number:03d}-{text}", algo, env, choices, options)

    def check(self, job: Job) -> None:
        """Refuses a job whose config is wrong; nothing is built."""
        try:
            config.make(job.algo, {"env": job.env} | job.options)
        except ThespisError as error:
            raise ThespisError(f"{job.algo} on {job.env}: {error}") from error


# --- from options as users write them -------------------------------------------------------


def make(options: Mapping[str, Any]) -> Plan:
    """Returns the plan of a user's options, by name, and refuses what is wrong.

    Jobs that a sampler draws later are not checked yet.
    """
    plan = draft(options)
    check(plan)
    return plan


def draft(options: Mapping[str, Any]) -> Plan:
    """Returns the plan of a user's options before its names are looked up: nothing is imported."""
    chosen, options = separate(options)
    for name in options:
        require(plain_name(name) not in REFUSED, f"{name}: {REFUSED.get(plain_name(name))}")
    algos = names("algo", chosen.get("algo"), "algorithm, such as sac")
    environments = names("env", chosen.get("env"), "environment, such as jax:pendulum")
    kinds = {"sampler": Sampler, "prune": bool, "metric": str, "sampler_seed": int}
    fields = {name: convert(name, kinds[name], chosen[name]) for name in kinds if name in chosen}
    counts = ("trials", "startup_trials")
    fields |= {name: counted(name, chosen[name]) for name in counts if name in chosen}
    seeds = None if "seeds" not in chosen else seed_list(chosen["seeds"])
    choices = choices_of(chosen.get("set"))
    return Plan(algos, environments, seeds, choices, options=options, **fields)


def separate(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the options of the sweep itself and those of its jobs, by name."""
    options = {name.replace("-", "_"): x for name, x in options.items() if x is not None}
    chosen = {name: options.pop(name) for name in FIELDS if name in options}
    return chosen, {name: plain_value(name, x) for name, x in flat(options).items()}


def plain_name(name: str) -> str:
    """Returns the usual name of an option, without its group: env of train.env and env_id."""
    return ALIASES.get(name, name).rpartition(".")[2]


def check(plan: Plan) -> None:
    """Refuses unknown names, and choices that cannot be made."""
    for env in plan.env:
        envs.check_name(env)
    for name in plan.set:
        require(plain_name(name) not in REFUSED, f"set {name}: {REFUSED.get(plain_name(name))}")
        require(name not in plan.options, f"{name} is given, and a choice too: leave one out")
    drawn = plan.sampler != "grid"
    require(plan.trials or not drawn, f"sampler = {plan.sampler}: say how many trials, such as 20")
    require(drawn or plan.trials is None, "trials: a grid tries all; give sampler random or optuna")
    require(
        len(plan.env) == 1 or plan.sampler != "optuna",
        "sampler = optuna tunes on one environment: give one, or take the sampler random",
    )
    for algo in plan.algo:
        choices = plan.choices(algo)
        ranges = [name for name, x in choices.items() if not isinstance(x, list)]
        require(drawn or not ranges, f"set {ranges[:1]}: give values, or the sampler random")
        first = {name: ends(x)[0] for name, x in choices.items()}
        plan.check(plan.job(0, algo, plan.env[0], first))
        for name, x in choices.items():  # one at a time; samplers know combinations
            for value in ends(x)[1:]:
                plan.check(plan.job(0, algo, plan.env[0], first | {name: value}))


def names(name: str, value: Any, example: str) -> tuple[str, ...]:
    """Returns names from a list, or from text with commas."""
    if name == "algo":
        items = value if isinstance(value, list | tuple) else [value]
        value = [registry.name_of(item) for item in items if item is not None]
    items = [value] if isinstance(value, str) else plain(value)
    require(items, f"{name} is missing: give an {example}")
    for item in items if isinstance(items, list) else [items]:
        if not isinstance(item, str):
            raise ThespisError(f"{name} = {shown(item)}: jobs are other processes; give a name")
    words = [word.strip() for item in items for word in item.split(",") if word.strip()]
    require(words, f"{name} is empty: give an {example}")
    twice = sorted({word for word in words if words.count(word) > 1})
    require(not twice, f"{name} = {', '.join(twice)} is there twice: give each once")
    return tuple(words)


def choices_of(source: Any) -> dict[str, Any]:
    """Returns {name: values or range} of a dict, or of texts such as critic_lr=3e-4,1e-3."""
    if source is None:
        return {}
    if not isinstance(source, Mapping):
        pairs = pairs_of("set", source)
        source = {}
        for name, equals, text in pairs:
            name = name.strip().replace("-", "_")
            require(name not in source, f"set {name} is there twice: give all its values at once")
            source[name] = text if equals else PRIOR
    choices = {}
    for name, value in flat(dict(source)).items():
        name = str(name).replace("-", "_").removeprefix("hp.")
        require(name not in choices, f"set {name} is there twice: give all its values at once")
        value = plain(value)
        if isinstance(value, str) and (value == PRIOR or RANGE.fullmatch(value)):
            choices[name] = value
            continue
        if isinstance(value, str):
            value = [value_of(text) for text in value.split(",") if text.strip()]
        value = value if isinstance(value, list) else [value]
        require(value, f"set {name}: give values, such as {name}=1,2")
        values = choices[name] = [plain_value(name, x) for x in value]
        twice = [x for i, x in enumerate(values) if x in values[:i]]
        require(not twice, f"set {name}: {show(twice[:1])} is there twice; give each once")
    return choices


def pairs_of(name: str, value: Any) -> list[tuple[str, str, str]]:
    """Returns (name, equals, value) of texts such as critic_lr=3e-4,1e-3."""
    texts = [value] if isinstance(value, str) else plain(value)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ThespisError(f"{name} = {shown(value)}: give NAME=VALUE")
    return [text.partition("=") for text in texts]


def value_of(text: str) -> Any:
    """Returns the number, bool or list of numbers that a text stands for; else the text."""
    words = text.split()
    if len(words) > 1:
        items = [value_of(word) for word in words]
        return items if all(isinstance(x, int | float) for x in items) else text
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def plain_value(name: str, value: Any) -> Any:
    """Returns a value as plain data, which jobs in other processes can read, or refuses it."""
    value = plain(value)
    items = value if isinstance(value, list) else [value]
    if not all(x is None or isinstance(x, str | bool | int | float) for x in items):
        raise ThespisError(
            f"{name} = {shown(value)}: jobs are other processes; give text or numbers"
        )
    return value


def prior_of(Hyper: Any, name: str, text: str) -> hyper.Uniform:
    """Returns the prior of a hyper-parameter: the declared one, or a range of the user."""
    known = hyper.declared(Hyper)
    if name not in known:
        raise ThespisError(
            f"set {name}: only a hyper-parameter has a prior{or_all(name, known)}; else give values"
        )
    prior = known[name].prior if text == PRIOR else hyper.parse(name, text)
    hyper.check(Hyper, {name: list(prior.limits)}, 2)
    return prior


def ends(choice: list[Any] | hyper.Uniform) -> list[Any]:
    """Returns all values of a choice, or the limits of its range."""
    return choice if isinstance(choice, list) else list(choice.limits)


# --- files ----------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any]:
    """Reads the options in a sweep.toml."""
    try:
        return tomllib.loads(files.read(Path(os.path.realpath(path)), BYTES).decode())
    except OSError as error:
        raise ThespisError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise ThespisError(f"{path} is not valid TOML ({error}); fix it") from error


def to_toml(values: Mapping[str, Any]) -> str:
    """Returns values as TOML, with dicts as tables."""
    key = lambda name: name if re.fullmatch(r"[\w-]+", name) else toml(name)
    line = lambda name, x: f"{key(name)} = {toml(x)}"
    tables = {name: x for name, x in values.items() if isinstance(x, Mapping)}
    lines = [line(name, x) for name, x in values.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{key(name)}]", *(line(n, x) for n, x in table.items())]
    return "\n".join(lines) + "\n"


def refuse_code(path: Path, options: Mapping[str, Any], trusted: bool) -> None:
    """Refuses options of a file that name code, or who would run it, unless the user trusts it."""
    if trusted:
        return
    if places := code_in(options):
        raise ThespisError(
            f"{path} names code: {trust.described(places)}; if you trust it, give --trust (in "
            "Python trust=True), or name it on the command line yourself"
        )
    if commands := commands_in(options):
        raise ThespisError(
            f"{path} says {commands}, which may run commands of others; if you trust it, give "
            "--trust (in Python trust=True), or say it on the command line yourself"
        )


def code_in(said: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns {option: (module, file)} of the code that a file names, as `make` would read it."""
    chosen, options = separate({name: x for name, x in said.items() if name not in RUNNING})
    present = [name for name in ("algo", "env") if name in chosen]
    named = [(name, word) for name in present for word in names(name, chosen[name], name)]
    values = [*options.items(), *choices_of(chosen.get("set")).items()]
    named += [(name, text) for name, value in values for text in texts(value)]
    places: dict[str, tuple[str, str]] = {}
    for name, text in named:
        known = plain_name(name) in ("algo", "env", "eval_env")
        places |= trust.places({plain_name(name): text} if known else {"options": {name: text}})
    return places


def texts(value: Any) -> list[str]:
    """Returns all text in a value, which may be a list of lists."""
    if isinstance(value, list | tuple):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def commands_in(said: Mapping[str, Any]) -> str:
    """Returns what a file says about running jobs by which it could run anything; or nothing.

    Workers of a Ray cluster and parameters of submitit, such as `setup`, are code of others.
    """
    address, slurm = said.get("ray"), said.get("slurm") or {}
    if address is not None and address not in HERE:
        return f"ray = {shown(address)}"
    if not isinstance(slurm, Mapping):
        slurm = {name.strip(): text for name, _, text in pairs_of("slurm", slurm)}
    for name, value in slurm.items():
        number = isinstance(value, int | float)
        fine = number or (isinstance(value, str) and value.isprintable())  # on one line of a script
        if name.removeprefix("slurm_") not in SUBMITTED or not fine:
            return f"slurm.{shown(name)} = {shown(value)}"
    return ""


def job_file(job: Job) -> str:
    """Returns the options of a job, as `thespis train --config` reads them."""
    return to_toml({"algo": job.algo, "env": job.env} | job.options)


def read_job(path: Path, chosen: Iterable[str]) -> Job:
    """Reads the file of a job; its choices have the names `chosen`."""
    options = read(path)
    algo, env = (convert(name, str, options.pop(name, None)) for name in ("algo", "env"))
    choices = {name: options[name] for name in chosen if name in options}
    return Job(path.name.removesuffix(".toml"), algo, env, choices, options)
