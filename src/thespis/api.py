"""The functions most users need: train, plan, resume, rerun, load, compare, push, pull."""

from __future__ import annotations

import atexit
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from thespis import envs
from thespis.engine.loop import Loop
from thespis.errors import ThespisError
from thespis.report.progress import Terminal, in_notebook
from thespis.runs import callback_names as hooks
from thespis.runs import checkpoint, config_file, files, option_file, zoo
from thespis.runs import config as configs
from thespis.runs import estimate as plans
from thespis.runs.build import SCHEDULE, build, spans_run, state_shapes
from thespis.runs.callbacks import Callback
from thespis.runs.config import DIVERSITY, RETURN, Config
from thespis.runs.config_checks import with_eval_freq
from thespis.runs.config_names import seed_list
from thespis.runs.directory import (
    GROUPS,
    create,
    create_at,
    how_to_resume,
    resumes_of,
    status,
    this_command,
    versions,
    write_json,
)
from thespis.runs.lineage import schedule
from thespis.runs.naming import folder_name
from thespis.runs.process import alone, held, stoppable
from thespis.runs.reporter import Mute, Silent
from thespis.runs.run import SavedRun, seed_of
from thespis.runs.trainer import Trainer
from thespis.runs.transplant import transplant
from thespis.runs.trust import check as check_trust
from thespis.runs.trust import remember
from thespis.runs.tuning_rounds import refuse_fitness
from thespis.values import convert, counted
from thespis.xla import compile_cache, multihost, threads
from thespis.xla.threads import Device, choose_device

if TYPE_CHECKING:
    from thespis.report.notebook import Comparison

RESUMED = ("steps", "device", "devices", "callbacks")  # fields that a resume may change


class Run(SavedRun):
    """The folder of a run, opened for reading: its metrics, its policies, and what is made of them.

    `env` and `eval_env` stand in for environments that were given as objects, not by name;
    `eval_env` may also be another environment with the same spaces. `trust` lets it import code
    that its config.json names.
    """

    def report(self, path: Path | str | None = None) -> Path:
        """Writes a page with everything about this run, by default its report.html."""
        from thespis.report.report import report

        return report([self.path], path)

    def play(
        self,
        path: Path | str | None = None,
        episodes: int = 1,
        member: int | str = "best",
        which: str = "last",
        seed: int = 0,
    ) -> Path:
        """Writes a video of whole episodes, .mp4 or .gif, by default among the run's videos."""
        from thespis.report.play import play

        file, _ = play(self, member, which, path, counted("episodes", episodes), seed_of(seed))
        return cast(Path, file)

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: state, results, curve, video, command."""
        from thespis.report.notebook import card

        return card(self.path)

    def export(
        self,
        folder: Path | str | None = None,
        format: str = "numpy",
        member: int | str = "best",
        which: str = "last",
    ) -> dict[str, Any]:
        """Writes a member's policy for elsewhere: "numpy", "onnx" or "all" (see thespis.export)."""
        from thespis.export import export

        return export(self, folder, format, member, which)


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
    with held():
        algo, options = option_file.merge(algo, {"env": env} | options, config)
        in_file = options.pop("out", None)
        grouped = bool(ray) and options.get("collectors") is None
        options = {"devices": 1, "threads": 1} | options if grouped else options
        config, out = configs.make(algo, options), in_file if out is None else out
        names, chosen = hooks.make(config.callbacks if callbacks is None else callbacks)
        config = dataclasses.replace(config, callbacks=names)
    reporter = speaker(progress)
    threads = set_threads(config)
    if threads != config.threads:
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
        transplant(state_shapes(config, pieces[0]), config.init_from, reporter.note)
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

    `member` takes one member out of several and goes on with it in a run of its own. Members may
    be on other `devices` and in other processes than before, also on another kind of `device`; by
    default it is the run's, if there is one. `demos` are needed only if they were given as an
    object, or are elsewhere now. `callbacks` take the place of the run's own, which are made again
    if none are given. `trust` is for runs of others that name code of their own. Groups that were
    trained with `ray` need it again, with any address and `deadline`; for collectors it is the
    address of their cluster.
    """
    run = Run(path, env, eval_env, demos, trust)
    if zoo.owns(run.path):
        refuse_without_replay(run)
    reporter = speaker(progress)
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
        number = run.member(member)
        if config.members > 1:
            return branch(run, config, number, out, reporter, callbacks)
    if run.status["state"] == "done" and (steps is None or config.steps == done):
        files.clear(folder)  # it may have been killed after that was known
        if trust and multihost.leads():
            remember(folder)
        reporter.note(f"{folder} is done at step {done}; to train on: {how_to_resume(folder, 'N')}")
        return run
    grouped = bool(ray) and config.collectors is None
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
    folder = folder if multihost.leads() else shadow(folder)
    with trainer_for(config, chosen, ray, None, deadline) as make:
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
    return derive(run, config, out, speaker(progress))


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


@contextmanager
def trainer_for(
    config: Config, callbacks: Any, ray: Any, group: int | None, deadline: float | None
) -> Iterator[Callable[..., Any]]:
    """Yields what makes the trainer of a run: in this process, or the head of groups on Ray."""
    grouped = bool(ray) and config.collectors is None
    if not grouped and (group, deadline) != (None, None):
        raise ThespisError("group and deadline are for groups on ray: give ray without collectors")
    if grouped:
        from thespis.cluster.head import on_ray

        with on_ray(config, callbacks, ray, group, deadline) as make:
            yield make
    elif config.collectors is not None:
        from thespis.cluster import collectors

        yield partial(collectors.trainer, ray)
    else:
        yield Trainer


def finish(
    config: Config,
    pieces: tuple[Loop, Any],
    folder: Path,
    reporter: Silent,
    restore: Callable[[Any], None] = lambda trainer: None,
    callbacks: Iterable[Callback] = (),
    make: Callable[..., Any] = Trainer,
) -> Run:
    """Trains from the start or what is restored to the end, and leaves plots and a report of it."""
    from thespis.report import lineage_plots
    from thespis.report.plots import curves_of, learning_curve
    from thespis.report.report import report
    from thespis.report.tracking import tracked

    reporter = tracked(reporter, config) if multihost.leads() else reporter
    with (
        alone(folder),
        stoppable(reporter.note) as stop,
        closing(make(config, pieces, folder, reporter, callbacks)) as trainer,
    ):
        files.clear(folder)
        restore(trainer)
        if trainer.saved < 0:
            trainer.open()
        if multihost.leads():
            remember(folder)
        with reporter.watching(config, folder, max(trainer.saved, 0)):
            try:
                if trainer.saved < 0:
                    trainer.start()
                state = trainer.run(stop)
            except BaseException as error:
                trainer.fail(error)
                fail(folder, error)
                raise
        run, curve = Run(folder, trust=True), None  # it has just been trained
        run.config = dataclasses.replace(run.config, trust=config.trust)
        run.signal = trainer.signal
        if not multihost.leads():
            return run
        with suppress(ThespisError):  # stopped before the first evaluation
            metric = DIVERSITY if DIVERSITY in run.metrics else RETURN
            file = files.inside(folder, "plots", "learning_curve.png")
            curve = learning_curve(curves_of([folder], metric), file, metric)
            if config.tuner:
                lineage_plots.draw(folder, config.judge)
        with suppress(ThespisError):
            report([folder])
        run.parts = pieces
        reporter.done(run, state, curve)
    return run


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
    """Goes on with one member of several, in a folder of its own; `callbacks` begin anew."""
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


def fail(folder: Path, error: BaseException) -> None:
    """Says in the folder, and in the message, what is left after an error."""
    if not newest(folder):
        return
    step = step_of(newest(folder))
    with suppress(ThespisError):  # the disk may be the reason
        if isinstance(error, KeyboardInterrupt):
            status(folder, "stopped", step)
        else:
            status(folder, "failed", step, error=str(error) or type(error).__name__)
    if isinstance(error, ThespisError) and step:
        raise ThespisError(f"{error}; saved up to step {step}: {how_to_resume(folder)}") from error


def set_threads(config: Config) -> int:
    """Gives XLA as many threads as the config says -> how many it has."""
    compile_cache.use_cache()
    wanted = config.threads or 1
    if threads.set_threads(wanted, config.devices or 1):
        return wanted
    return int(os.environ.get("NPROC", threads.cores()))


def speaker(progress: bool) -> Silent:
    """Returns who reports: of several processes only the first."""
    if not multihost.leads():
        return Mute()
    if not convert("progress", bool, progress):
        return Silent()
    if not in_notebook():
        return Terminal()
    from thespis.report.notebook import Notebook

    return Notebook()


@contextmanager
def new_folder(
    out: str | Path | None, config: Config, env: Any, chosen: str | Path | None = None
) -> Iterator[Path]:
    """Makes the folder of a run, and removes it if the run could not even begin.

    It may be `chosen`. Of several processes only the first keeps its own.
    """
    name = folder_name(config, envs.label(env))
    if not multihost.leads():
        folder = shadow()
    else:
        folder = create(out, config.algo, name) if chosen is None else create_at(chosen)
    try:
        yield folder
    finally:
        if not newest(folder):
            shutil.rmtree(folder, ignore_errors=True)


def shadow(folder: Path | None = None) -> Path:
    """Makes a folder that nobody sees, for what another process keeps of the same run.

    Of one that goes on it has what is read from there.
    """
    hidden = Path(tempfile.mkdtemp(prefix="thespis-"))
    atexit.register(shutil.rmtree, hidden, ignore_errors=True)
    if folder is not None:
        for name in ("config.json", "metrics.csv", "histograms.csv", "lineage.csv"):
            with suppress(OSError):
                files.write(hidden / name, files.read(folder / name))
    return hidden


def warn_of_changes(run: Run, config: Config, reporter: Silent) -> None:
    """Says what stands in the way of going on bit for bit, or at all."""
    if run.demos_missing:
        raise ThespisError(
            f"{run.path} has demos = {run.config.demos}, which were given as an object: pass them "
            "as demos, from Python"
        )
    wanted, threads = run.config.threads, set_threads(config)
    with suppress(ThespisError):  # elsewhere there may be none of its kind
        choose_device(config.device)
    changed = []
    if threads != wanted:
        changed.append(
            f"{wanted} thread(s) (now {threads}: set NPROC={wanted} before Python starts)"
        )
    before, now = run.saved.get("versions", {}), versions()
    for name in ("thespis", "jax", "jaxlib", "device"):
        if before.get(name) != now[name]:
            changed.append(f"{name} {before.get(name)} (now {now[name]})")
    if changed:
        reporter.note(
            f"{run.path} was trained with {', '.join(changed)}: what follows may differ in the "
            "last bits from a run that never stopped"
        )


def newest(folder: Path) -> Path | None:
    return next(iter(checkpoint.latest(folder / "checkpoints")), None)


def refuse_without_replay(run: Run) -> None:
    """Refuses to resume a run that was shared without its replay."""
    if (run.path / GROUPS).is_dir():
        raise ThespisError(
            f"{run.path} was trained with ray and has its replays there: {how_to_resume(run.path)}"
        )
    saved = checkpoint.latest(run.path / "checkpoints")
    if saved and not any((path / "replay.safetensors").exists() for path in saved):
        path = f"{zoo.PREFIX}{run.path.name}" if zoo.owns(run.path) else run.path
        raise ThespisError(
            f"{path} cannot be resumed: it has no replay, as runs that were shared without; "
            f"start from its weights: thespis train {run.config.algo} --init-from {path} ..."
        )


def step_of(path: Path | None) -> int:
    return int(path.name.rstrip(checkpoint.REPLACED)) if path else 0
