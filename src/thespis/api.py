"""The functions most users need: train, plan, resume, rerun, load, compare, push, pull."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thespis.errors import ThespisError, require
from thespis.launch import (
    Run,
    finish,
    new_folder,
    newest,
    refuse_without_replay,
    reporter_for,
    set_threads,
    step_of,
    temporary_folder,
    trainer_for,
    wants_ray,
    warn_of_changes,
)
from thespis.runs import callback_names as hooks
from thespis.runs import config as configs
from thespis.runs import config_file, files, option_file, zoo
from thespis.runs import estimate as plans
from thespis.runs.build import SCHEDULE, build, spans_run, state_shapes
from thespis.runs.callbacks import Callback
from thespis.runs.config import Config
from thespis.runs.config_checks import with_eval_freq
from thespis.runs.config_names import seed_list
from thespis.runs.directory import (
    GROUPS,
    how_to_resume,
    resumes_of,
    this_command,
    write_json,
)
from thespis.runs.lineage import schedule
from thespis.runs.process import alone, held
from thespis.runs.reporter import Silent
from thespis.runs.trainer import Trainer
from thespis.runs.transplant import transplant
from thespis.runs.trust import check as check_trust
from thespis.runs.trust import remember
from thespis.runs.tuning_rounds import refuse_fitness
from thespis.values import convert, counted
from thespis.xla import multihost, threads
from thespis.xla.threads import Device, choose_device

if TYPE_CHECKING:
    from thespis.report.notebook import Comparison

RESUMED = ("steps", "device", "devices", "callbacks")  # fields that a resume may change


def train(
    algo: str | type | None = None,
    env: Any = None,
    *,
    config: Any = None,
    out: str | Path | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
    callbacks: Any = None,
    ray: str | bool | None = None,
    group: int | None = None,
    deadline: float | None = None,
    **options: Any,
) -> Run:
    """Trains and returns the run: `train("sac", env="Pendulum-v1", steps=20_000, seed=0)`.

    `algo` is a name, or a class of your own (docs/add-an-algorithm.md). `env` is a name, a
    `gymnasium.Env` class, a function that makes one, or a JAX task. All else
    is as on the command line: fields of the run (`steps`, `seeds`, `envs`, ...), choices of the
    algorithm (`hidden`, `batch_size`, ...) and hyper-parameters (`gamma`, `actor_lr`, ...). With
    `members=8, pbt=True` (or `pbt=PBT(...)`) it is a population that tunes itself. `config` is a
    file with some or all of these, or the folder of a run that has them; what is given here wins.
    The run is a new folder in `out`, by default $THESPIS_RUNS, or else `runs`; or it is `folder`
    itself. `callbacks` are called at events of the run (docs/callbacks.md). With `ray`, True or the
    address of a cluster, members train in groups of `group` there, and exchanges wait `deadline`
    seconds for late groups, or else for all; `collectors` are there, too (docs/scale.md).
    """
    unused = {"out": out, "name": options.get("name")} if folder is not None else {}
    unused = [name for name, x in unused.items() if x is not None]
    require(not unused, f"folder = {folder} is that of the run: leave {' and '.join(unused)} out")
    with held():
        replaced = {} if callbacks is None else {"callbacks": ()}  # those of the file
        given = {"env": env} | options | replaced
        algo, options = option_file.merge(algo, given, config, wants_ray(ray))
        in_file = options.pop("out", None)
        grouped = wants_ray(ray) and options.get("collectors") is None
        options = {"devices": 1, "threads": 1} | options if grouped else options
        config, out = configs.make(algo, options), in_file if out is None else out
        names, chosen = hooks.make(config.callbacks if callbacks is None else callbacks)
        config = dataclasses.replace(config, callbacks=names)
    reporter = reporter_for(progress)
    threads = set_threads(config)
    if not grouped and threads != config.threads:  # groups are processes of their own
        reporter.note(
            f"JAX has started with {threads} threads; {config.threads} would suit these networks "
            f"better: set NPROC={config.threads} before Python starts, or use the command line"
        )
        config = dataclasses.replace(config, threads=threads)
    with held():
        choose_device(config.device)
        pieces = build(config, training=not grouped)
        config = with_eval_freq(config, pieces[1])
    if pieces[0].mesh is None and (config.devices or 1) > 1 and not pieces[0].side_by_side:
        reporter.note(
            f"JAX has started with one device: members run one after another; {config.devices} "
            f"would be faster: use the command line, or call train before any JAX function"
        )
    if config.init_from:  # refuse what does not fit before there is a folder
        shapes = state_shapes(config, pieces[0])
        transplant(shapes, config.init_from, reporter.note, config.options)
    if config.tuner:
        refuse_fitness(config, pieces[0])
    if (batch := config.options["batch_size"]) > (config.learning_starts or batch):
        reporter.note(
            f"learning starts at step {config.learning_starts}, before there are {batch} for a "
            "batch: until then batches hold some of them several times"
        )
    with (
        trainer_for(config, chosen, ray, group, deadline) as make,
        new_folder(out, config, pieces[0].env, folder) as place,
    ):
        config_file.write(place, config, this_command())
        return finish(config, pieces, place, reporter, callbacks=chosen, make=make)


def plan(
    algo: str | type | None = None,
    env: Any = None,
    *,
    config: Any = None,
    probe: bool = True,
    **options: Any,
) -> plans.Plan:
    """Returns what `train` with the same arguments would take: memory, placement, time by a probe.

    `print` it, or read `fits`, `largest` (the largest population), `member` (bytes), `times`.
    """
    algo, options = option_file.merge(algo, {"env": env} | options, config)
    options.pop("out", None)
    config = configs.make(algo, options)
    threads = set_threads(config)
    choose_device(config.device)
    return plans.plan(dataclasses.replace(config, threads=threads), probe)


def resume(
    path: str | Path,
    steps: int | None = None,
    *,
    member: int | str | None = None,
    env: Any = None,
    eval_env: Any = None,
    demos: Any = None,
    out: str | Path | None = None,
    device: Device | None = None,
    devices: int | None = None,
    progress: bool = True,
    callbacks: Any = None,
    trust: bool = False,
    ray: str | bool | None = None,
    deadline: float | None = None,
) -> Run:
    """Goes on exactly where a run stopped, to its own number of steps or another.

    `member` goes on with one member in a run of its own, a new folder in `out`. Members may
    be on other `devices` and in other processes than before, also on another kind of `device`; by
    default it is the run's, if there is one. `demos` are needed only if they were given as an
    object, or are elsewhere now. `callbacks` take the place of the run's own, which are made again
    if none are given. `trust` is for runs of others that name code of their own. Groups that were
    trained with `ray` need it again, with any address and `deadline`; for collectors it is the
    address of their cluster.
    """
    run = Run(path, env, eval_env, demos, trust)
    require(
        out is None or member is not None,
        f"out = {out} is for a new run, and {run.path} goes on in its own folder: give no out, or "
        "also a member",
    )
    if zoo.owns(run.path):
        refuse_without_replay(run)
    reporter = reporter_for(progress)
    config, folder, done = run.config, run.path, step_of(newest(run.path))
    share = config.members // threads.process_index_and_count()[1]
    asked = (config.devices or 1) if devices is None else counted("devices", devices)
    devices = threads.even_share(share, asked)
    config = dataclasses.replace(config, devices=devices)
    if device is not None:
        config = dataclasses.replace(config, device=convert("device", Device, device))
        set_threads(config)
        choose_device(config.device)
    if steps is not None:
        config = dataclasses.replace(config, steps=counted("steps", steps))
        if config.steps < done:
            raise ThespisError(f"steps = {steps}: {folder} has {done} already; give more")
    if member is not None:
        return branch(run, config, run.member(member), out, reporter, callbacks)
    if run.status["state"] == "done" and (steps is None or config.steps == done):
        files.clear(folder)  # it may have been killed after that was known
        if trust and multihost.leads():
            remember(folder)
        reporter.note(f"{folder} is done at step {done}; to train on: {how_to_resume(folder, 'N')}")
        return run
    grouped = wants_ray(ray) and config.collectors is None
    if grouped and not (folder / GROUPS).is_dir():
        raise ThespisError(f"{folder} was trained without ray: resume it without")
    if not grouped:
        refuse_without_replay(run)
    warn_of_changes(run, config, reporter)
    if callbacks is None:
        hooks.check_found(run.path, config.callbacks)
        check_trust(run.path, run.saved, trust, callbacks=True)
    names, chosen = hooks.make(config.callbacks if callbacks is None else callbacks)
    config = dataclasses.replace(config, callbacks=names)
    folder = folder if multihost.leads() else temporary_folder(folder)
    with alone(folder), trainer_for(config, chosen, ray, None, deadline) as make:
        pieces = run.build(config, training=not grouped)
        return finish(config, pieces, folder, reporter, partial(go_on, run=run), chosen, make)


def rerun(
    path: str | Path,
    member: int | str = "best",
    *,
    seed: int | None = None,
    env: Any = None,
    eval_env: Any = None,
    demos: Any = None,
    out: str | Path | None = None,
    progress: bool = True,
    trust: bool = False,
) -> Run:
    """Trains one agent with the hyper-parameters that a member and its ancestors had, step by step.

    The seed is that of the member, unless another is given.
    """
    run = Run(path, env, eval_env, demos, trust)
    number = run.member(member)
    if changed := hooks.untraced(run.path):
        raise ThespisError(
            f"rerun follows lineage.csv, and callbacks of {run.path} changed {', '.join(changed)} "
            "beside it: train anew with these callbacks"
        )
    hp, changes = schedule(run.path, number)
    seeds = seed_list(run.config.seeds[number] if seed is None else seed)
    config = one_member(run.config, number, hp)
    config = dataclasses.replace(config, seeds=seeds[:1], schedule=tuple(changes))
    return derive(run, config, out, reporter_for(progress))


def load(path: str | Path, env: Any = None, eval_env: Any = None, *, trust: bool = False) -> Run:
    """Opens a run on disk; `env` is needed only if it was trained on an environment without a name.

    A run that you did not train here may name code in its config.json, such as an environment
    MODULE:ID: that is imported only if you `trust` it (docs/security.md).
    """
    return Run(path, env, eval_env, trust=trust)


def compare(*runs: Run | str | Path) -> Comparison:
    """Returns several runs side by side: a notebook shows curves and a table, `print` the table.

    A folder that is no run stands for all runs in it.
    """
    from thespis.report.notebook import Comparison

    return Comparison([run.path if isinstance(run, Run) else run for run in runs])


def push(run: Run | str | Path, name: str, *, replay: bool = False, private: bool = False) -> str:
    """Uploads a run to the Hugging Face hub as the model OWNER/NAME, and returns its address.

    With its `replay` it can also be resumed there. See docs/sharing.md.
    """
    from thespis.report import hub

    return hub.push(run.path if isinstance(run, Run) else run, name, replay, private)


def pull(
    name: str,
    out: str | Path | None = None,
    env: Any = None,
    *,
    max_gb: float = 4.0,
    trust: bool = False,
) -> Run:
    """Downloads a run from the Hugging Face hub into `out`/hub/OWNER/NAME, and opens it.

    `out` is the folder of the runs as for `train`; `env` and `trust` are as for `load`.
    """
    from thespis.report import hub

    return Run(hub.pull(name, out, trust, max_gb), env, trust=trust)


# --- what they share ------------------------------------------------------------------------


def go_on(trainer: Any, run: Run) -> None:
    """Restores a run, unless it was killed before it had saved anything: then it starts."""
    if newest(run.path):
        trainer.restore(run.path)
    changed = {name: getattr(trainer.config, name) for name in RESUMED}
    changed["resumes"] = [*resumes_of(run.saved), this_command()]
    write_json(trainer.folder / "config.json", run.saved | changed)


def branch(
    run: Run, config: Config, number: int, out: str | Path | None, reporter: Silent, callbacks: Any
) -> Run:
    """Goes on with one member, in a folder of its own; `callbacks` begin anew."""
    refuse_without_replay(run)
    if config.callbacks and callbacks is None:
        left = ", ".join(config.callbacks)
        reporter.note(f"callbacks of {run.path} stay behind ({left}): give callbacks to have any")
    hp = {name: x[number] if isinstance(x, list) else x for name, x in config.hp.items()}
    if config.tuner:
        hp = {name: float(x[number]) for name, x in vars(run.hypers()).items()}
    adopt = partial(Trainer.adopt, folder=run.path, members=config.members, member=number)
    names, chosen = hooks.make(callbacks or ())
    config = dataclasses.replace(one_member(config, number, hp), callbacks=names)
    return derive(run, config, out, reporter, adopt, chosen)


def one_member(config: Config, number: int, hp: dict[str, Any]) -> Config:
    """Returns the config of one member as an agent of its own, which nobody tunes."""
    if spans_run(config)[number]:
        hp = hp | {SCHEDULE: 0}  # of the new run
    seeds = (config.seeds[number],)
    alone: Any = {"tuner": None, "pbt": {}, "devices": 1, "callbacks": ()}
    return dataclasses.replace(config, seeds=seeds, hp=hp, **alone)


def derive(
    run: Run,
    config: Config,
    out: str | Path | None,
    reporter: Silent,
    restore: Callable[[Any], None] = lambda trainer: None,
    callbacks: Iterable[Callback] = (),
) -> Run:
    """Trains a run made of another one, in a folder of its own."""
    warn_of_changes(run, config, reporter)
    pieces = run.build(config)
    names = ("seeds", "hp", "tuner", "pbt", "schedule", *RESUMED)
    changed = {name: getattr(config, name) for name in names} | {"command": this_command()}
    with new_folder(out, config, pieces[0].env) as folder:
        saved = {name: x for name, x in run.saved.items() if name != "resumes"}
        write_json(folder / "config.json", saved | changed)
        with trainer_for(config, callbacks, None, None, None) as make:
            return finish(config, pieces, folder, reporter, restore, callbacks, make)
