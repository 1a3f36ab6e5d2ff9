"""Sends metrics to Weights & Biases. An extra: `pip install 'thespis[wandb]'`."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError, one_line
from thespis.runs.directory import read_json, write_json
from thespis.runs.log_keys import other_names
from thespis.runs.reporter import Counted, Silent


class Tracked(Silent):
    """Hands everything on to another reporter, and rows to W&B: a run per member, in one group."""

    def __init__(self, reporter: Silent, project: str):
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ThespisError(
                f"wandb = {project} needs a missing library: pip install 'thespis[wandb]'"
            ) from None
        self.wandb, self.reporter, self.project, self.runs = wandb, reporter, project, []
        self.advance, self.note, self.done = reporter.advance, reporter.note, reporter.done
        self.compiling = reporter.compiling

    def begin(self, config, folder: Path | str, step: int) -> None:
        self.reporter.begin(config, folder, step)
        self.names = other_names(config.log_keys)
        folder = Path(folder).absolute()
        ids = folder / "wandb.json"  # by which a resumed run continues the same one there
        known: Any = None
        with suppress(ThespisError, TypeError, KeyError):  # none yet, or it is damaged
            known = [str(identity) for identity in read_json(ids)["ids"]]
        if known is None or len(known) != len(config.seeds):
            known = [uuid.uuid4().hex for _ in config.seeds]
            write_json(ids, {"ids": known})
        group = f"{config.algo}_{folder.name}"
        for identity, seed in zip(known, config.seeds, strict=True):
            options = {
                "project": self.project,
                "group": group,
                "name": f"{group}_seed{seed}",
                "tags": config.tags,
                "notes": config.notes,
                "id": identity,
                "resume": "allow",
                "reinit": "create_new",  # several at a time
                "dir": str(folder),
                "config": read_json(folder / "config.json") | {"seed": seed},
                "settings": self.wandb.Settings(silent=True),
            }
            try:
                run = self.wandb.init(**options)
            except Exception as error:  # no login, or no connection
                raise ThespisError(f"wandb = {self.project}: {one_line(error)}") from error
            run.define_metric("*", step_metric="global_step")
            self.runs.append(run)

    def row(self, step: int, rows: list[dict[str, Any]], counted: Counted = None) -> None:
        self.reporter.row(step, rows, counted)
        for run, row, histograms in zip(self.runs, rows, counted or [{}] * len(rows), strict=True):
            values = {self.names.get(name, name): float(x) for name, x in row.items()}
            values |= {
                name: self.wandb.Histogram(np_histogram=(counts, edges))
                for name, (counts, edges) in histograms.items()
                if counts.any()
            }
            run.log(values | {"global_step": step})

    def media(self, step: int, member: int, name: str, image: Any, counted: Any) -> None:
        self.reporter.media(step, member, name, image, counted)
        to = self.wandb
        value = to.Image(image) if counted is None else to.Histogram(np_histogram=counted)
        self.runs[member].log({name: value, "global_step": step})

    def end(self) -> None:
        self.reporter.end()
        while self.runs:
            self.runs.pop().finish()
