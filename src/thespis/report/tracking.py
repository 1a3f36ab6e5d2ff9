"""Logs metrics to Weights & Biases, MLflow and Trackio, each an extra of the same name."""

from __future__ import annotations

import io
import re
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from contextvars import Context
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from thespis.errors import ThespisError, one_line
from thespis.runs.directory import read_json, write_json
from thespis.runs.log_keys import other_names
from thespis.runs.reporter import Counted, Silent
from thespis.runs.trust import IDENTITY

BATCH, LONGEST = 100, 500  # parameters in a request to MLflow, and characters of each
FORBIDDEN = re.compile(r"[^\w\-./ ]")  # characters that MLflow does not allow in names of metrics


@dataclass(frozen=True)
class Start:
    """The arguments for starting the run of a member on a tracker."""

    project: str
    group: str  # common to all members of this run
    name: str
    identity: str | None  # id of the run on the tracker to continue, if there is one
    settings: dict[str, Any]  # config.json, and the member's seed
    tags: tuple[str, ...]
    notes: str | None
    folder: Path


class TrackerRun(Protocol):
    """The run of one member on a tracker; `identity` is its id there."""

    identity: str

    def __init__(self, library: Any, start: Start) -> None: ...
    def log(self, step: int, values: dict[str, float], histograms: dict[str, tuple]) -> None: ...
    def image(self, step: int, name: str, image: Any) -> None:
        """Logs an image, bytes [height, width, channels]."""
        ...

    def end(self, failed: bool) -> None: ...


class WandbRun:
    """A run on Weights & Biases, with `global_step` as its step metric."""

    def __init__(self, library: Any, start: Start):
        self.library, self.identity = library, start.identity or uuid.uuid4().hex
        self.run = library.init(
            project=start.project,
            group=start.group,
            name=start.name,
            tags=start.tags,
            notes=start.notes,
            id=self.identity,
            resume="allow",
            reinit="create_new",  # several runs at a time
            dir=str(start.folder),
            config=start.settings,
            settings=library.Settings(silent=True),
        )
        self.run.define_metric("*", step_metric="global_step")

    def log(self, step: int, values: dict[str, float], histograms: dict[str, tuple]) -> None:
        Histogram = self.library.Histogram
        logged = {name: Histogram(np_histogram=counted) for name, counted in histograms.items()}
        self.run.log(values | logged | {"global_step": step})

    def image(self, step: int, name: str, image: Any) -> None:
        self.run.log({name: self.library.Image(image), "global_step": step})

    def end(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))


class MLflowRun:
    """A run of MLflow, at MLFLOW_TRACKING_URI or in the current folder; without histograms."""

    def __init__(self, library: Any, start: Start):
        self.entities, self.client = library.entities, library.MlflowClient()
        known = self.client.get_experiment_by_name(start.project)
        experiment = known.experiment_id if known else self.client.create_experiment(start.project)
        if start.identity and self.exists(start.identity, experiment):
            self.identity = start.identity
            self.client.update_run(self.identity, status="RUNNING")
            return
        tags = {"group": start.group, "tags": ", ".join(start.tags)}
        tags |= {"mlflow.note.content": start.notes or "", "mlflow.source.name": "thespis"}
        tags = {name: text for name, text in tags.items() if text}
        run = self.client.create_run(experiment, tags=tags, run_name=start.name)
        self.identity = run.info.run_id
        settings = {allowed(name): str(x)[:LONGEST] for name, x in flat(start.settings).items()}
        params = [self.entities.Param(*pair) for pair in settings.items()]
        for i in range(0, len(params), BATCH):
            self.client.log_batch(self.identity, params=params[i : i + BATCH])

    def exists(self, identity: str, experiment: str) -> bool:
        """Returns whether the experiment has this run, and it was not deleted."""
        try:
            info = self.client.get_run(identity).info
        except Exception:  # it may be on another server
            return False
        return info.lifecycle_stage == "active" and info.experiment_id == experiment

    def log(self, step: int, values: dict[str, float], histograms: dict[str, tuple]) -> None:
        now, Metric = int(1000 * time.time()), self.entities.Metric
        numbers = [Metric(allowed(name), x, now, step) for name, x in values.items()]
        if numbers:
            self.client.log_batch(self.identity, metrics=numbers)

    def image(self, step: int, name: str, image: Any) -> None:
        self.client.log_image(self.identity, image, key=allowed(name), step=step)

    def end(self, failed: bool) -> None:
        self.client.set_terminated(self.identity, "FAILED" if failed else "FINISHED")


class TrackioRun:
    """A run of Trackio, on this machine unless TRACKIO_SPACE_ID is set."""

    def __init__(self, library: Any, start: Start):
        self.library, self.identity = library, start.identity or uuid.uuid4().hex
        # In a common context, the next member's run would end this one.
        self.run = quietly(
            lambda: Context().run(
                library.init,
                project=start.project,
                name=f"{start.name}_{self.identity[:8]}",  # by which Trackio resumes it
                group=start.group,
                config=start.settings,
                resume="allow",
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )
        )

    def log(self, step: int, values: dict[str, float], histograms: dict[str, tuple]) -> None:
        Histogram = self.library.Histogram
        logged = {name: Histogram(np_histogram=counted) for name, counted in histograms.items()}
        self.run.log(values | logged, step=step)

    def image(self, step: int, name: str, image: Any) -> None:
        from PIL import Image

        picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
        self.run.log({name: self.library.Image(picture)}, step=step)

    def end(self, failed: bool) -> None:
        quietly(self.run.finish)


TRACKERS: dict[str, type[TrackerRun]] = {
    "wandb": WandbRun,
    "mlflow": MLflowRun,
    "trackio": TrackioRun,
}  # by the names of their libraries, their extras and their options


class Tracker:
    """Logs all members of a run to one tracker: a run per member, in one group."""

    def __init__(self, name: str, project: str):
        self.name, self.project, self.runs = name, project, []
        try:
            self.library = import_module(name)
        except ImportError:
            raise ThespisError(
                f"{self} needs a missing library: pip install 'thespis[{name}]'"
            ) from None

    def __str__(self) -> str:
        return f"{self.name} = {self.project}"

    def begin(self, config, folder: Path) -> None:
        """Starts a run per member, or continues those whose ids are in the folder."""
        file, known = folder / f"{self.name}.json", []
        with suppress(ThespisError, TypeError, KeyError):  # no such file, or it is damaged
            known = [str(identity) for identity in read_json(file)["ids"]]
        if len(known) != len(config.seeds):
            known = [None] * len(config.seeds)
        settings, group = read_json(folder / "config.json"), f"{config.algo}_{folder.name}"
        settings.pop(IDENTITY, None)  # which stays with this user
        for identity, seed in zip(known, config.seeds, strict=True):
            start = Start(
                self.project,
                group,
                f"{group}_seed{seed}",
                identity,
                settings | {"seed": seed},
                config.tags,
                config.notes,
                folder,
            )
            try:
                self.runs.append(TRACKERS[self.name](self.library, start))
            except Exception as error:  # no login, or no connection
                raise ThespisError(f"{self}: {one_line(error)}") from error
        if known != (identities := [run.identity for run in self.runs]):
            write_json(file, {"ids": identities})

    def end(self, failed: bool) -> None:
        while self.runs:
            self.runs.pop().end(failed)


class Tracked(Silent):
    """Forwards everything to another reporter, and metrics also to trackers."""

    def __init__(self, reporter: Silent, trackers: list[Tracker]):
        self.reporter, self.trackers = reporter, trackers
        self.advance, self.note, self.done = reporter.advance, reporter.note, reporter.done
        self.compiling = reporter.compiling

    def begin(self, config, folder: Path | str, step: int) -> None:
        self.reporter.begin(config, folder, step)
        self.names = other_names(config.log_keys)
        try:
            for tracker in self.trackers:
                tracker.begin(config, Path(folder).absolute())
        except BaseException:
            self.end()
            raise

    def row(self, step: int, rows: list[dict[str, Any]], counted: Counted = None) -> None:
        self.reporter.row(step, rows, counted)

        def log(tracker: Tracker) -> None:
            for run, row, counts in zip(
                tracker.runs, rows, counted or [{}] * len(rows), strict=True
            ):
                values = {self.names.get(name, name): float(x) for name, x in row.items()}
                run.log(step, values, {name: x for name, x in counts.items() if x[0].any()})

        self.send(log)

    def media(self, step: int, member: int, name: str, image: Any, counted: Any) -> None:
        self.reporter.media(step, member, name, image, counted)
        if counted is None:
            self.send(lambda tracker: tracker.runs[member].image(step, name, image))
        else:
            self.send(lambda tracker: tracker.runs[member].log(step, {}, {name: counted}))

    def end(self) -> None:
        self.reporter.end()
        failed = sys.exc_info()[0] is not None
        self.send(lambda tracker: tracker.end(failed))

    def send(self, call: Callable[[Tracker], None]) -> None:
        """Calls a function with every tracker; one that fails is dropped, and the run goes on."""
        for tracker in list(self.trackers):
            try:
                call(tracker)
            except Exception as error:
                self.trackers.remove(tracker)
                self.note(
                    f"{tracker} failed and is not used any more; metrics.csv still has all "
                    f"metrics: {one_line(error)}"
                )


def tracked(reporter: Silent, config) -> Silent:
    """Returns a reporter that also logs to the trackers of a config, if it has any."""
    chosen = [(name, getattr(config, name)) for name in TRACKERS]
    trackers = [Tracker(name, project) for name, project in chosen if project]
    return Tracked(reporter, trackers) if trackers else reporter


def allowed(name: str) -> str:
    """Returns a name without characters that MLflow does not allow."""
    parts = (part for part in FORBIDDEN.sub("_", name).split("/") if part.strip(". "))
    return "/".join(parts) or "_"


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens groups of settings to names such as hp.gamma, without those that are None."""
    flattened: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flattened |= flat(value, f"{prefix}{name}.")
        elif value is not None:
            flattened[f"{prefix}{name}"] = value
    return flattened


def quietly(call: Callable[[], Any]) -> Any:
    """Calls a function without its output, which would spoil that of `--json`."""
    with redirect_stdout(io.StringIO()):
        return call()
