"""The functions most users need: train, resume, load."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from thespis import envs, machine
from thespis.errors import ThespisError
from thespis.runs import config as configs
from thespis.runs.directory import create
from thespis.runs.run import Run
from thespis.runs.trainer import Trainer, build, status, write_config


def train(algo: str, env=None, *, out: str | Path = "runs", progress: bool = True, **given) -> Run:
    """Train and return the run: `train("sac", env="Pendulum-v1", steps=20_000, seed=0)`.

    `env` is a name, a `gymnasium.Env` class, a function that makes one, or a JAX task. All else
    is as on the command line: fields of the run (`steps`, `seeds`, `envs`, ...), choices of the
    algorithm (`hidden`, `batch_size`, ...) and hyper-parameters (`gamma`, `actor_lr`, ...).
    """
    config = configs.make(algo, {"env": env} | given)
    reporter = watch(config, progress)
    pieces = build(config)
    folder = create(out, algo, envs.label(pieces[0].env))
    write_config(folder, config, reporter.command)
    with reporter.watching(folder):
        return finish(Trainer(config, pieces, folder, reporter), Trainer.start)


def resume(
    path: str | Path,
    steps: int | None = None,
    member: int | str | None = None,
    env=None,
    out: str | Path = "runs",
    progress: bool = True,
) -> Run:
    """Go on exactly where a run stopped, to its own number of steps or another.

    `member` takes one member out of several and goes on with it in a run of its own.
    """
    run = Run(path, env)  # refuses an environment that was given as an object and is not now
    config, folder = run.config, run.path
    if steps is not None:
        config = dataclasses.replace(config, steps=steps)
    reporter = watch(config, progress)
    pieces = build(config, env)
    begin = Trainer.restore
    if member is not None and len(config.seeds) > 1:
        number = run.member(member)
        source = Trainer(config, pieces, folder, reporter)
        alone = {k: v[number] if isinstance(v, list) else v for k, v in config.hp.items()}
        config = dataclasses.replace(config, seeds=config.seeds[number : number + 1], hp=alone)
        folder = create(out, config.algo, envs.label(pieces[0].env))
        begin = partial(Trainer.adopt, source=source, member=number)
    write_config(folder, config, run.saved["command"])
    with reporter.watching(folder):
        return finish(Trainer(config, pieces, folder, reporter), begin)


def load(path: str | Path, env=None) -> Run:
    """A run on disk. `env` is needed only if it was trained on an environment without a name."""
    return Run(path, env)


def watch(config: configs.Config, progress: bool) -> Any:
    """Prepare the machine for this run, and somebody to watch it."""
    from thespis.show.progress import Silent, Terminal

    reporter = Terminal(config) if progress else Silent()
    machine.use_cache()
    if not machine.set_threads(config.threads):
        reporter.note(
            f"JAX had started before Thespis could give it {config.threads} thread(s), which suits "
            f"these networks: set NPROC={config.threads} before Python starts"
        )
    return reporter


def finish(trainer: Trainer, begin: Callable[[Trainer], None]) -> Run:
    """Run a trainer to its end, leave a learning curve, and close what it opened."""
    from thespis.show.plots import curves_of, learning_curve

    folder = trainer.folder
    try:
        begin(trainer)
        state = trainer.run()
    except ThespisError:
        status(folder, "failed", -1)
        raise
    finally:
        trainer.close()
    curve = folder / "plots" / "learning_curve.png"
    try:
        curve.parent.mkdir(exist_ok=True)
        learning_curve(curves_of([folder]), curve)
    except ThespisError:  # stopped before the first evaluation
        curve = None
    run = Run(folder, trainer.loop.env)
    trainer.reporter.done(run, state, curve)
    return run
