"""Fills in options that follow from others, and refuses combinations that cannot work."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from thespis.core import HostEnv, JaxEnv, imitates, longest
from thespis.errors import require, shown
from thespis.runs.log_keys import other_names
from thespis.runs.naming import folder_name
from thespis.tuning import hyper
from thespis.values import fields, show
from thespis.xla import threads

if TYPE_CHECKING:
    from thespis.runs.config import Config

COUNTS = 2**31  # limit of steps and updates, which are 32-bit integers on devices
CRITICS = 1000  # limit of networks, which are built and compiled one by one
NEEDING = {  # without which it has no effect
    "demo_episodes": "demos",
    "skill_steps": "skills_from",
    "sync_freq": "collectors",
    "max_lag": "collectors",
}


def complete(config: Config) -> Config:
    """Returns the config with every default filled in, or refuses it if it cannot work."""
    require(config.env is not None, "env is missing: give --env, for example jax:pendulum")
    choices = fields(config.Algorithm, skip=("spec",))
    options: dict[str, Any] = {o.name: o.default for o in choices} | config.options
    hp = config.hp if config.tuner else hyper.defaults(config.Algorithm.Hyper) | config.hp
    config = dataclasses.replace(config, options=options, hp=hp)
    for name, value in [*vars(config).items(), *options.items()]:
        check_counts(name, value)
    batch, steps = options["batch_size"], config.steps
    window = (options["n_step"] + 2) * config.envs  # rows that hold at least one transition
    start = config.learning_starts or max(batch, window, min(1000, steps // 10))
    if config.learning_starts is None and start >= steps:  # as in a smoke test
        start = max(window, steps // 10)
    _, processes = threads.process_index_and_count()
    cores = threads.cores() if processes == 1 and not config.shared else 1
    devices = config.devices or threads.even_share(config.members, cores)
    config = dataclasses.replace(
        config,
        learning_starts=start,
        log_freq=config.log_freq or config.eval_freq or max(1, steps // 20),
        checkpoint_freq=config.checkpoint_freq or max(1, steps // 10),
        devices=devices,
        threads=config.threads or default_threads(options["hidden"] if devices == 1 else ()),
    )
    require(
        config.members % (devices * processes) == 0,
        f"devices = {devices} "
        + (f"of {processes} processes " if processes > 1 else "")
        + f"cannot share {config.members} members evenly: give a divisor of {config.members}",
    )
    require(
        config.updates_per_step >= 0,
        f"updates_per_step = {config.updates_per_step:g}: give 0 or more",
    )
    require(
        steps * max(1, config.updates_per_step) < COUNTS,
        f"steps = {steps}: give fewer than {COUNTS} steps and updates per member",
    )
    require(
        start <= config.buffer_size,
        f"learning_starts = {start} is more than buffer_size = {config.buffer_size} holds: "
        "lower learning_starts, or raise buffer_size",
    )
    require(
        window <= start,
        f"learning_starts = {start} holds no {options['n_step']}-step transition of "
        f"{config.envs} environments: give at least {window}",
    )
    require(
        start < steps,
        f"steps = {steps} ends before learning starts at {start}: raise steps, or lower "
        "learning_starts",
    )
    here = config.envs * config.members // processes
    require(
        (config.env_workers or 1) <= here,
        f"env_workers = {config.env_workers} is more than the {here} environment(s) there are: "
        "give fewer, or more envs",
    )
    other_names(config.log_keys)
    for hp in (config.hp, *(changes for _, changes in config.schedule)):
        hyper.check(config.Algorithm.Hyper, hp, config.members)
    require(
        config.demos is not None or not imitates(config.Algorithm),
        f"{config.algo} learns from demonstrations: give demos, a trained run, a .npz file or a "
        "Minari dataset",
    )
    require(
        config.demos is None or imitates(config.Algorithm),
        f"{config.algo} does not learn from demonstrations: leave demos out, or use sqil",
    )
    for name, needed in NEEDING.items():
        value = getattr(config, name)
        require(
            value == getattr(type(config), name) or getattr(config, needed) is not None,
            f"{name} = {value} is for {needed}: give {needed}, or leave it out",
        )
    config = config if config.collectors is None else with_collectors(config)
    config = config if config.tuner is None else with_tuner(config)
    folder_name(config, "env")  # refuses a name with unknown fields
    return config


def with_eval_freq(config: Config, eval_env: JaxEnv | HostEnv) -> Config:
    """Returns the config with a default for `eval_freq` that suits the environment.

    It is a twentieth of the run. An environment in Python steps as slowly in an evaluation as in
    training: there it is a multiple of that, and at least the steps of one evaluation.
    """
    if config.eval_freq is not None:
        return config
    every = max(1, config.steps // 20)
    steps = config.eval_episodes * longest(eval_env) if isinstance(eval_env, HostEnv) else 0
    return dataclasses.replace(config, eval_freq=every * max(1, -(-steps // every)))


def with_collectors(config: Config) -> Config:
    """Returns the config with all that collectors need, or refuses them."""
    many, envs = config.collectors or 1, config.envs
    require(
        envs % many == 0,
        f"collectors = {many} cannot share {envs} environment(s) evenly: give envs, such as {many}",
    )
    require(
        config.members == 1 and threads.process_index_and_count()[1] == 1,
        f"collectors = {many} are for one member in one process: leave out members and seeds",
    )
    require(
        config.env_workers is None,
        f"collectors = {many} step the environments themselves: leave env_workers out",
    )
    sync = config.sync_freq or 10 * envs
    sync = envs * config.iterations(sync)  # whole iterations
    lag = config.max_lag or 2 * sync
    require(
        lag >= sync,
        f"max_lag = {lag} is less than sync_freq = {sync}: rows of a block are that far behind; "
        "raise max_lag, or lower sync_freq",
    )
    return dataclasses.replace(config, sync_freq=sync, max_lag=lag)


def with_tuner(config: Config) -> Config:
    """Returns the config with every field of its tuner filled in, or refuses it."""
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


def check_counts(name: str, value: Any) -> None:
    """Refuses counts (of steps, layers, critics, ...) below 1 or too large; seeds may be 0."""
    counts = [n for n in (value if isinstance(value, tuple) else [value]) if type(n) is int]
    least = 0 if name == "dropped_quantiles" else 1
    require(
        name == "seeds" or min(counts, default=1) >= least,
        f"{name} = {show(value)}: give at least {least}",
    )
    most = CRITICS if name == "critics" else COUNTS - 1
    require(max(counts, default=1) <= most, f"{name} = {shown(show(value))}: give at most {most}")


def default_threads(hidden: tuple[int, ...]) -> int:
    """Returns XLA's number of threads: $NPROC if it is set, else one that suits the networks."""
    nproc = os.environ.get("NPROC", "")
    return int(nproc) if nproc.isdecimal() and int(nproc) else threads.threads_for(hidden)
