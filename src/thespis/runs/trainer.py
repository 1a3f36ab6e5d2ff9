"""Training from start to finish: phases, evaluations, logs, checkpoints, and going on later."""

from __future__ import annotations

import dataclasses
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis import envs
from thespis.core import Complaining, HostEnv, Resetting, SelfRewarding, capability, cut_short
from thespis.engine.evaluation import Episodes, Evaluator
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import DeviceDriver, Learner, Loop
from thespis.engine.metric_sums import MetricSums
from thespis.engine.rollout import FrozenPolicy
from thespis.errors import ThespisError, or_all
from thespis.runs import checkpoint
from thespis.runs.best import Best
from thespis.runs.build import SCHEDULE, blank, hyper_parameters, resolve_schedule
from thespis.runs.config import DEPENDENCE, DIVERSITY, PER_EPISODE, RETURN, SIMILARITY, Config
from thespis.runs.directory import repair_status, status, write_json
from thespis.runs.dump import Found, of_one
from thespis.runs.expert import Demonstrations
from thespis.runs.faults import Faults
from thespis.runs.lineage import FILE
from thespis.runs.log_keys import other_names
from thespis.runs.metrics import FIRST, MetricsLog
from thespis.runs.metrics import read as read_metrics
from thespis.runs.parts import by_member, by_row, grow, resize, split
from thespis.runs.reporter import Reporter
from thespis.runs.transplant import transplant
from thespis.runs.tuning_rounds import Tuning, values
from thespis.tuning import hyper
from thespis.xla.compile_times import CompileTimes
from thespis.xla.multihost import Rows, collective, from_all, read
from thespis.xla.placement import MEMBERS, SHARED, spread, to_device
from thespis.xla.program_cache import compiled

CHUNK_SECONDS = 0.5  # how long a program may run before signals and the progress bar are served


class Trainer:
    """A run on its way: `start`, `restore` or `adopt`, then `run`."""

    def __init__(self, config: Config, pieces: tuple[Loop, Any], folder: Path, reporter: Reporter):
        self.config, self.folder, self.reporter = config, folder, reporter
        self.loop, eval_env = pieces
        self.seeds = jax.device_put(np.asarray(config.seeds, np.int32))
        self.hps = hyper_parameters(config)
        self.tuning = Tuning(config, self.loop, self.seeds) if config.tuner else None
        if self.tuning:
            self.hps = resolve_schedule(config, self.tuning.first)
        self.used = self.hps  # by the newest updates
        self.evaluate = Evaluator(self.loop, eval_env, config.eval_episodes)
        self.noted = False  # that evaluations cut episodes short
        driver = HostDriver if isinstance(self.loop.env, HostEnv) else DeviceDriver
        self.demos = Demonstrations(config, self.loop) if config.demos is not None else None
        self.driver = driver(self.loop, self.seeds)
        self.ledger = CompileTimes()
        self.elapsed = 0.0  # in earlier sessions
        self.began = time.monotonic()
        self.known: set[str] = set()  # what has been compiled
        self.signal = 0  # by which it was stopped
        self.saved = -1  # the step of the newest checkpoint, once there is one
        self.start_of_learning = self.iterations(config.learning_starts or 1)
        resetting = capability(self.loop.algo, Resetting)
        self.resets = tuple(map(self.iterations, resetting.resets)) if resetting else ()
        self.faults = Faults(config, self.loop, folder, self.start_of_learning)

    # --- beginnings -------------------------------------------------------------------------

    def start(self) -> None:
        self.learner = self.driver.init(self.seeds, self.hps, self.demos_at(0))
        if self.config.init_from:
            state = transplant(self.learner.state, self.config.init_from, self.reporter.note)
            self.learner = self.loop.place(dataclasses.replace(self.learner, state=state))
        self.best = Best.none(self.learner.state, self.hps)
        self.open_logs()
        self.save()

    def restore(self, folder: Path) -> None:
        """Go on from the newest checkpoint of this folder that is whole."""
        past = self.load(folder, self.config.members)
        self.saved = self.step
        self.best.write(self.folder / "best")
        self.open_logs(past)
        self.cut_log()

    def adopt(self, folder: Path, members: int, member: int) -> None:
        """Begin as one member of another run, with its past."""
        self.load(folder, members, member)
        self.best.write(self.folder / "best")
        self.open_logs()
        try:
            past = read_metrics(folder / "metrics.csv")
            counts = self.log.histograms.of(folder, member)
        except ThespisError as error:
            self.reporter.note(f"{error}; it goes on without its past")
            past, counts = {name: np.zeros(0) for name in FIRST}, {}
        for i in np.flatnonzero((past["member"] == member) & (past["step"] <= self.step)):
            row = {k: v[i] for k, v in past.items() if k in self.columns and np.isfinite(v[i])}
            step = int(past["step"][i])
            self.log.append(step, 0, row, counts.get(step))
        self.cut_log()
        self.save()

    def load(
        self, folder: Path, members: int, member: int | None = None
    ) -> tuple[int, bytes | None]:
        """The newest whole checkpoint of a run of `members`: all of them, or one.

        -> its lineage: the number of rows, and the file's content if it has that.
        """
        learner = blank(self.config, self.loop)
        template = split(learner, self.hps, Best.none(learner.state, self.hps), self.rounds)
        widen = lambda x, axis: resize(x, axis, members)

        saved = folder / "checkpoints"

        def of_size(manifest: dict[str, Any]) -> dict[str, Any]:
            wanted, info = by_member(widen, template), manifest["info"]
            if [type(info.get(k)) for k in ("rows", "elapsed", "env")] != [int, float, str]:
                raise checkpoint.Damaged(f"a checkpoint in {saved} does not say what it is of")
            cut = lambda x: resize(x, 0, info["rows"])
            if self.tuning and "lineage" in manifest["parts"]:
                wanted["lineage"] = checkpoint.shapes(saved, manifest, "lineage")
            return wanted | {"replay": by_row(cut, wanted["replay"])}

        defaults = hyper.defaults(self.config.Algorithm.Hyper)
        defaults |= {f"hyper.{name}": x for name, x in defaults.items()}  # of the best policies
        given = self.reporter.note, defaults, ("replay",)
        path, found = checkpoint.load_newest(saved, of_size, *given)
        if member is not None:
            found = by_member(lambda x, axis: np.take(x, [member], axis), found)
        info = checkpoint.manifest(path)["info"]
        label = envs.label(self.loop.env)
        if info["env"] != label:
            raise ThespisError(
                f"{path} was saved on env = {info['env']}, not {label}: resume with that one"
            )
        steps = set(from_all(np.array(checkpoint.manifest(path)["step"])).tolist())
        if len(steps) > 1:
            raise ThespisError(
                f"processes read checkpoints of steps {sorted(steps)} in {folder}: give all of "
                "them the same files"
            )
        self.elapsed = info["elapsed"]
        self.ledger.programs = info.get("programs", {})
        self.best, lineage = found.pop("best"), found.pop("lineage", {}).get(FILE)
        replay = grow(found.pop("replay"), self.loop.capacity, self.loop.rule, self.loop.mesh)
        found = to_device(found)
        self.hps = self.used = resolve_schedule(self.config, found["hyper"])
        before, now = (vars(hps).get(SCHEDULE, 0) for hps in (found["hyper"], self.hps))
        if np.any(before != now):
            text = f"{SCHEDULE} was {np.max(before):,.0f} and is {np.max(now):,.0f} from here on"
            self.reporter.note(f"{text}: all updates of {self.config.steps:,} steps")
        if self.tuning:
            self.tuning.rounds = found["tuning"]
        self.learner = self.driver.resume(
            Learner(
                state=found["state"],
                replay=replay,
                **found["actors"],
                **found["progress"],
            )
        )
        return info.get("lineage", 0), None if lineage is None else lineage.tobytes()

    def open_logs(self, past: tuple[int, bytes | None] = (0, None)) -> None:
        """metrics.csv, and of a tuned population lineage.csv with its past."""
        if self.demos:
            self.demos.pin(self.folder)
        names, note = other_names(self.config.log_keys), self.reporter.note
        edges, members = dict(self.learner.metric_sums.edges), self.config.members
        repair_status(self.folder, note)
        self.log = MetricsLog(self.folder, self.columns, members, names, edges, note)
        self.logged = self.step, self.spent - self.ledger.seconds
        if self.tuning:
            fitness, known = self.tuning.tuner.fitness, self.columns
            if fitness not in known:
                raise ThespisError(f"fitness = {fitness} is no metric{or_all(fitness, known)}")
            self.tuning.open(self.folder, past, self.hps, note)

    def cut_log(self) -> None:
        """Back to this step, without a row that only closed a shorter run."""
        self.log.cut(self.step if self.record_due else self.step - 1)

    # --- time -------------------------------------------------------------------------------

    @property
    def iteration(self) -> int:
        return int(np.asarray(self.learner.clock.time)[0])  # indexing on the device is slower

    @property
    def step(self) -> int:
        """Rows of each member so far."""
        return self.iteration * self.config.envs

    def iterations(self, steps: int) -> int:
        return max(1, -(-steps // self.config.envs))

    @property
    def rounds(self) -> Any:
        return self.tuning and self.tuning.rounds

    @property
    def frequencies(self) -> dict[str, int]:
        """What happens every so many iterations."""
        steps = {n: getattr(self.config, f"{n}_freq") for n in ("log", "eval", "checkpoint")}
        steps |= {"exchange": self.tuning.tuner.interval} if self.tuning else {}
        return {name: self.iterations(every) for name, every in steps.items()}

    def due(self, *names: str) -> bool:
        """Whether one of these falls on this iteration."""
        every = self.frequencies
        return any(self.iteration % every[name] == 0 for name in names if name in every)

    @property
    def record_due(self) -> bool:
        return self.due("log", "eval", "exchange")

    @property
    def spent(self) -> float:
        return self.elapsed + time.monotonic() - self.began

    # --- running ----------------------------------------------------------------------------

    def run(self, stop: list[int]) -> str:
        """Train until the end, or until `stop` is not empty -> "done" or "stopped"."""
        c = self.config
        total, start = self.iterations(c.steps), self.start_of_learning
        reached, chunk = False, 1
        self.write_status("running")
        while self.iteration < total and not reached:
            signals, chunks = from_all(np.array([stop[0] if stop else 0, chunk])).T
            if signals.any():
                self.signal = int(signals.max())
                break
            chunk = int(chunks[0])  # no two processes are equally fast
            self.prepare()
            learn = self.iteration >= start
            length = min(chunk, self.until_next(total if learn else min(start, total)))
            self.faults.remember(self.learner, length, self.until_record)
            mode = "explore" if learn or c.warm_up == "policy" else "random"
            self.first("learning" if learn else "warm-up")
            begin, compiled = time.monotonic(), self.ledger.seconds
            self.used = self.hps
            self.faults.demos = self.demos_at(self.iteration)
            given = self.learner, self.used, self.faults.demos, self.seeds
            self.learner = self.driver.run(*given, length, mode, learn)
            if self.tuning:
                self.tuning.compare(values(self.used), self.step)
            self.faults.look(self.learner, self.used, self.seeds)
            busy = time.monotonic() - begin - (self.ledger.seconds - compiled)
            chunk = max(1, min(4 * length, int(CHUNK_SECONDS * length / max(busy, 1e-6))))
            self.reporter.advance(self.step, total * c.envs, self.spent, self.ledger.seconds)
            ends = self.iteration == total
            if self.faults or self.record_due or ends:
                self.heal(now=self.record_due or ends)
            if self.record_due:
                reached = self.record(self.due("eval", "exchange") or ends)
            if self.due("checkpoint"):
                self.save()
        if self.saved != self.step:
            self.save()
        if self.iteration >= total and not self.record_due:
            self.record(evaluate=True)  # after saving: it is no part of a longer run
        state = "done" if reached or self.iteration >= total else "stopped"
        self.write_status(state)
        return state

    def first(self, program: str) -> None:
        """Say that a program is compiled now, if it was not before."""
        if program not in self.known:
            self.known.add(program)
            self.reporter.compiling()

    def write_status(self, state: str) -> None:
        """How far the run is, and what was compiled for it."""
        status(self.folder, state, self.saved)
        write_json(self.folder / "compiled.json", self.ledger.programs)

    def prepare(self) -> None:
        """Change hyper-parameters and members, if it is time.

        Exchanges and resets are done when training goes on and not when they fall due: so a run
        that ends there may yet become longer, and equals one that was meant to be long.
        """
        if self.tuning and self.due("exchange") and self.iteration > self.start_of_learning:
            self.learner, self.hps = self.tuning.round(self.learner, self.hps, self.driver)
            self.faults.forget()
        if self.config.schedule:
            now = {}
            for step, new in self.config.schedule:
                now |= new if self.iterations(step) <= self.iteration else {}
                if self.iterations(step) == self.iteration:
                    self.faults.forget()
            self.hps = hyper_parameters(self.config, now)
        for number, iteration in enumerate(self.resets):
            if iteration == self.iteration:
                given = self.learner.state, self.hps, self.seeds, np.int32(number)
                state = collective(self.reset, *given)
                self.learner = dataclasses.replace(self.learner, state=state)
                self.faults.forget()
                count = f"{number + 1} of {len(self.resets)}"
                self.reporter.note(f"step {self.step}: {self.config.algo} is reset ({count})")

    @cached_property
    def reset(self):
        """The program that resets all members."""
        loop, given = self.loop, (MEMBERS, MEMBERS, MEMBERS, SHARED)
        program = spread(loop.mesh, loop.reset, given, MEMBERS)
        return compiled(program, dataclasses.replace(loop, env=None))

    def demos_at(self, iteration: int) -> Any:
        """What is to be imitated then; an expert that plays on has new episodes now and then.

        These too come at times that do not depend on the speed of the machine.
        """
        return self.demos and self.demos.at(iteration // self.frequencies["eval"])

    def until_next(self, end: int) -> int:
        """Iterations until something is due, at most until `end`."""
        ends = [n - self.iteration % n for n in self.frequencies.values()]
        changes = *(self.iterations(step) for step, _ in self.config.schedule), *self.resets
        left = (end - self.iteration, *ends, *(n - self.iteration for n in changes))
        left = [n for n in left if n > 0]
        return min(*left, self.loop.capacity)

    @property
    def until_record(self) -> int:
        every = self.frequencies
        return min(every[n] - self.iteration % every[n] for n in every if n != "checkpoint")

    # --- records ----------------------------------------------------------------------------

    def record(self, evaluate: bool) -> bool:
        """Write a row of metrics per member -> whether that is enough."""
        reached, evaluated = False, [{} for _ in self.config.seeds]
        if evaluate:
            self.first("evaluation")
            played = self.evaluated()
            returns = played.returns
            evaluated = [
                {
                    "eval/mean_reward": returns[m].mean(),
                    "eval/std_reward": returns[m].std(),
                    "eval/mean_ep_length": played.lengths[m].mean(),
                    **{
                        f"eval/mean_reward/{name}": played.parts[m, :, i].mean()
                        for i, name in enumerate(self.loop.algo.spec.rewards)
                    },
                }
                for m in range(self.config.members)
            ]
            episodes = {RETURN: returns, DIVERSITY: played.diversity, DEPENDENCE: played.dependence}
            scores = {k: x.mean(1).astype(np.float32) for k, x in episodes.items() if x is not None}
            if self.demos:
                scores[SIMILARITY] = self.demos.similarity(self.policies)
            for m, row in enumerate(evaluated):
                row |= {name: x[m] for name, x in scores.items() if name not in row}
            score = scores[self.config.judge]
            if (score > self.best.reward).any():
                state = read(self.learner.state)
                self.best = self.best.challenge(score, self.step, state, self.hps)
                self.best.write(self.folder / "best")
            if self.tuning and self.tuning.tuner.fitness in PER_EPISODE:
                self.tuning.score(episodes[self.tuning.tuner.fitness])
            goal, enough = self.config.stop_reward, np.any if self.tuning else np.all
            reached = goal is not None and bool(enough(scores[RETURN] >= goal))
            reached |= self.waited >= (self.config.patience or np.inf)
        now = self.step, self.spent - self.ledger.seconds
        sums = read(self.learner.metric_sums)
        rows = [row | new for row, new in zip(self.rows(*now, sums), evaluated, strict=True)]
        if self.tuning and self.tuning.tuner.fitness not in PER_EPISODE:
            values_of = [[row.get(self.tuning.tuner.fitness, np.nan)] for row in rows]
            self.tuning.score(np.array(values_of))
        counts, edges = [sums.histograms(m) for m in range(len(rows))], dict(sums.edges)
        for m, row in enumerate(rows):
            self.log.append(self.step, m, row, counts[m])
        between = lambda mine: {name: (x, edges[name]) for name, x in mine.items()}
        self.reporter.row(self.step, rows, [between(mine) for mine in counts])
        if complaining := capability(self.loop.algo, Complaining):
            for complaint in filter(None, map(complaining.complaint, rows)):
                raise ThespisError(complaint)
        self.learner = dataclasses.replace(
            self.learner, metric_sums=self.learner.metric_sums.clear()
        )
        self.logged = now
        self.faults.forget()
        return reached

    @property
    def waited(self) -> float:
        """Evaluations since one of the members was at its best."""
        since = self.step - int(self.best.step.max())
        return since / (self.frequencies["eval"] * self.config.envs)

    def rows(self, step: int, seconds: float, sums: MetricSums) -> list[dict[str, Any]]:
        """What is known of every member without an evaluation."""
        x, used = self.learner, values(self.used)
        asked = self.tuning.asked if self.tuning else {}
        transitions = read(x.actors.transitions).sum(1)
        common = {
            "time/fps": (step - self.logged[0]) / max(seconds - self.logged[1], 1e-9),
            "time/elapsed_s": self.spent,
            "time/compile_s": self.ledger.seconds,
            "train/n_updates": int(x.clock.updates),
            "replay/size": int(x.replay.size) * self.config.envs,
        }
        return [
            {
                **common,
                "time/transitions": transitions[m],
                **sums.means(m),
                **{f"hparams/{name}": x[m] for name, x in used.items()},
                **{f"hparams_asked/{name}": x[m] for name, x in asked.items()},
            }
            for m in range(self.config.members)
        ]

    @property
    def columns(self) -> list[str]:
        return [
            *(f"time/{k}" for k in ("transitions", "fps", "elapsed_s", "compile_s")),
            *(f"eval/{k}" for k in ("mean_reward", "std_reward", "mean_ep_length")),
            *(f"eval/mean_reward/{k}" for k in self.loop.algo.spec.rewards),
            *([SIMILARITY] if self.demos else []),
            *((DIVERSITY, DEPENDENCE) if capability(self.loop.algo, SelfRewarding) else ()),
            *sorted([*self.learner.metric_sums.names, "train/n_updates", "replay/size"]),
            *(f"hparams/{k}" for k in vars(self.hps)),
            *(f"hparams_asked/{k}" for k in (self.tuning.names if self.tuning else ())),
        ]

    @property
    def policies(self) -> FrozenPolicy:
        """All members as they are now."""
        step = np.full(self.config.members, self.step, np.int32)
        return FrozenPolicy(self.learner.state, self.hps, jax.device_put(step))

    def evaluated(self) -> Episodes:
        """Episodes of all members, their returns all finite."""
        for attempt in (1, 2):
            x = self.learner
            played = self.evaluate.play(self.policies, self.seeds, x.clock.iteration)
            bad = np.flatnonzero(~np.isfinite(played.returns).all(1)).tolist()
            if not bad:
                if not self.noted and (text := cut_short(self.evaluate.env, played.lengths)):
                    self.reporter.note(text)
                    self.noted = True
                return played
            for m in bad:
                state, hp = jax.tree.map(lambda x: x[0], of_one((x.state, self.hps), m))
                self.faults.keep(m, Found("return", "return", self.iteration, 0, 0, state), hp)
            self.heal(now=True, attempt=attempt)
        raise ThespisError(f"step {self.step}: evaluations are not finite, whoever plays")

    # --- faults -----------------------------------------------------------------------------

    def heal(self, now: bool, attempt: int = 0) -> None:
        """Broken members of a tuned population go on as copies of others; other runs end here.

        Copies are made at times that do not depend on the speed of the machine.
        """
        if now:
            self.faults.look_closer(self.learner, self.used, self.seeds)
        sick = np.isin(np.arange(self.config.members), list(self.faults))
        if sick.all() or (sick.any() and not self.tuning):
            raise ThespisError(self.faults[int(np.flatnonzero(sick)[0])])
        if sick.any() and now and self.tuning:
            given = self.learner, self.hps, self.driver, sick, attempt
            self.learner, self.hps = self.tuning.heal(*given)
            self.used = self.hps
            for m, text in self.faults.items():
                parent = self.tuning.parents[m]
                self.reporter.note(f"{text}; member {m} goes on as a copy of member {parent}")
            self.faults.clear()
            self.faults.forget()

    # --- checkpoints ------------------------------------------------------------------------

    def save(self) -> None:
        """A checkpoint of everything; the one before is kept. None of what is broken."""
        x = self.learner
        if self.faults:
            return
        for path, leaf in jax.tree_util.tree_leaves_with_path(x.state):
            if not np.isfinite(read(leaf)).all():
                name = jax.tree_util.keystr(path, simple=True, separator=".")
                raise ThespisError(
                    f"{self.config.algo}, step {self.step}: {name} is not finite and not saved; "
                    "try smaller learning rates or rewards"
                )
        parts = split(x, self.hps, self.best, self.rounds)
        size = int(x.replay.size)
        parts["replay"] = by_row(lambda rows: Rows(rows, size), parts["replay"])
        info = {
            "rows": size,
            "elapsed": self.spent,
            "programs": self.ledger.programs,
            "env": envs.label(self.loop.env),
        }
        if self.tuning:
            info["lineage"] = self.tuning.lineage.rows
            parts["lineage"] = {FILE: np.frombuffer(self.tuning.lineage.content, np.uint8)}
        self.log.sync()
        checkpoints = self.folder / "checkpoints"
        checkpoint.save(checkpoints, self.step, parts, info)
        checkpoint.prune(checkpoints)
        self.saved = self.step
        self.write_status("running")

    def close(self) -> None:
        self.driver.close()
        self.ledger.close()
