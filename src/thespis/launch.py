"""How a run begins, ends, and is opened again: what the functions of api.py share."""

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
from typing import Any, cast

from thespis import envs
from thespis.engine.loop import Loop
from thespis.errors import ThespisError, shown
from thespis.report.progress import Terminal, in_notebook
from thespis.runs import checkpoint, files, zoo
from thespis.runs.callbacks import Callback
from thespis.runs.config import DIVERSITY, RETURN, Config
from thespis.runs.directory import (
    GROUPS,
    create,
    create_at,
    how_to_resume,
    status,
    versions,
)
from thespis.runs.naming import folder_name
from thespis.runs.process import alone, stoppable
from thespis.runs.reporter import Mute, Silent
from thespis.runs.run import SavedRun, seed_of
from thespis.runs.trainer import Trainer
from thespis.runs.trust import remember
from thespis.values import convert, counted
from thespis.xla import compile_cache, multihost, threads
from thespis.xla.threads import choose_device


class Run(SavedRun):
    """The folder of a run, opened for reading: metrics, policies, reports, videos and exports.

    `env` and `eval_env` are needed if environments were given as objects, not by name; `eval_env`
    may also be another environment with the same spaces. `trust` lets it import code that its
    config.json names.
    """

    def report(self, path: Path | str | None = None) -> Path:
        """Writes the page of this run, by default its report.html."""
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
        """Writes a policy for use elsewhere: "numpy", "onnx" or "all" (see thespis.export)."""
        from thespis.export import export

        return export(self, folder, format, member, which)


def wants_ray(ray: Any) -> bool:
    """Returns whether members train on Ray: True, or the address of a cluster."""
    if ray is None or isinstance(ray, bool | str):
        return bool(ray)
    raise ThespisError(f"ray = {shown(ray)}: give True, or the address of a cluster")


@contextmanager
def trainer_for(
    config: Config, callbacks: Any, ray: Any, group: int | None, deadline: float | None
) -> Iterator[Callable[..., Any]]:
    """Yields the function that makes the trainer: in this process, or the head of groups on Ray."""
    grouped = wants_ray(ray) and config.collectors is None
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
    """Trains to the end, from the start or from what is restored; writes plots and a report.

    The caller keeps other processes from the folder.
    """
    from thespis.report import lineage_plots
    from thespis.report.plots import curves_of, learning_curve
    from thespis.report.report import report
    from thespis.report.tracking import tracked

    reporter = tracked(reporter, config) if multihost.leads() else reporter
    with (
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
        run, curve = Run(folder, trust=True), None  # this process has run its code already
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


def fail(folder: Path, error: BaseException) -> None:
    """Writes the error to the folder's status, and adds to its message how to resume."""
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


@contextmanager
def new_folder(
    out: str | Path | None, config: Config, env: Any, chosen: str | Path | None = None
) -> Iterator[Path]:
    """Makes the folder of a run, which may be `chosen`, and removes it if the run did not begin.

    No other process may train in it or remove it meanwhile. If there are several processes of this
    run, all but the first get a temporary one.
    """
    name = folder_name(config, envs.label(env))
    if not multihost.leads():
        folder = temporary_folder()
    else:
        folder = create(out, config.algo, name) if chosen is None else create_at(chosen)
    with alone(folder):
        if chosen is not None and multihost.leads():
            create_at(chosen)  # refuses what another process has written in the meantime
        try:
            yield folder
        finally:
            if not newest(folder):
                shutil.rmtree(folder, ignore_errors=True)


def temporary_folder(folder: Path | None = None) -> Path:
    """Makes a temporary folder for a process that is not the first of a run.

    For a run that is resumed, it has copies of the files that are read from its folder.
    """
    temporary = Path(tempfile.mkdtemp(prefix="thespis-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    if folder is not None:
        for name in ("config.json", "metrics.csv", "histograms.csv", "lineage.csv"):
            with suppress(OSError):
                files.write(temporary / name, files.read(folder / name))
    return temporary


def reporter_for(progress: bool) -> Silent:
    """Returns the reporter: of several processes only the first prints."""
    if not multihost.leads():
        return Mute()
    if not convert("progress", bool, progress):
        return Silent()
    if not in_notebook():
        return Terminal()
    from thespis.report.notebook import Notebook

    return Notebook()


def set_threads(config: Config) -> int:
    """Sets XLA's threads to those of the config, if JAX has not started -> how many it has."""
    compile_cache.use_cache()
    wanted = config.threads or 1
    if threads.set_threads(wanted, config.devices or 1):
        return wanted
    return int(os.environ.get("NPROC", threads.cores()))


def warn_of_changes(run: Run, config: Config, reporter: Silent) -> None:
    """Notes what keeps a resumed run from being the same bit for bit, and refuses if demos lack."""
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


def refuse_without_replay(run: Run) -> None:
    """Refuses to resume a run that was shared without its replay."""
    if (run.path / GROUPS).is_dir():
        raise ThespisError(
            f"{run.path} was trained with ray and has its replays there: {how_to_resume(run.path)}"
        )
    saved = checkpoint.latest(run.path / "checkpoints")
    if saved and not any((path / "replay.safetensors").exists() for path in saved):
        path = zoo.spelled(run.path)
        raise ThespisError(
            f"{path} cannot be resumed: it has no replay, as runs that were shared without; "
            f"start from its weights: thespis train {run.config.algo} --init-from {path} ..."
        )


def newest(folder: Path) -> Path | None:
    return next(iter(checkpoint.latest(folder / "checkpoints")), None)


def step_of(path: Path | None) -> int:
    return int(path.name.rstrip(checkpoint.REPLACED)) if path else 0
