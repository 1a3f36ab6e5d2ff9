"""Training from start to finish: epochs between evaluations, logs, checkpoints and exchanges."""

from __future__ import annotations

import dataclasses

import numpy as np

from thespis.core import Complaining, capability, cut_short
from thespis.engine.evaluation import Episodes
from thespis.errors import ThespisError
from thespis.runs import metric_rows
from thespis.runs.build import hyper_parameters
from thespis.runs.config import PER_EPISODE, RETURN
from thespis.runs.metric_rows import Evaluation
from thespis.runs.session import Session
from thespis.runs.tuning_rounds import values
from thespis.xla.multihost import from_all, read

CHUNK_SECONDS = 0.5  # how long a program may run before signals and the progress bar are handled


class Trainer(Session):
    """Trains a run: call `start`, `restore` or `adopt`, then `run`."""

    # --- running ----------------------------------------------------------------------------

    def run(self, stop: list[int]) -> str:
        """Trains until the end, or until `stop` is not empty; returns "done" or "stopped"."""
        total = self.iterations(self.config.steps)
        self.callbacks.start()
        self.write_status("running")
        reached = bool(self.callbacks.stopped) or self.train_until(total, stop)
        if self.saved != self.step:
            self.save()
        self.close_rows()
        state = "done" if reached or self.iteration >= total else "stopped"
        self.write_status(state)
        self.callbacks.end(state)
        return state

    def train_until(self, end: int, stop: list[int]) -> bool:
        """Trains until this iteration, or `stop` is not empty -> whether no more is wanted."""
        start, reached, chunk = self.start_of_learning, False, 1
        while self.iteration < end and not reached:
            signals, chunks = from_all(np.array([stop[0] if stop else 0, chunk])).T
            if signals.any():
                self.signal = int(signals.max())
                break
            chunk = int(chunks[0])  # that of the first process: others measure other times
            self.prepare()
            if reached := bool(self.callbacks.stopped):
                break
            learn = self.iteration >= start
            length = min(chunk, self.until_next(end if learn else min(start, end)))
            chunk = max(1, min(4 * length, int(CHUNK_SECONDS * length / self.epoch(length, learn))))
            total = self.iterations(self.config.steps) * self.config.envs
            self.reporter.advance(self.step, total, self.spent, self.ledger.seconds)
            reached = self.after_epoch()
            if self.due("checkpoint"):
                self.save()
        return reached

    def after_epoch(self) -> bool:
        """Heals, evaluates and writes rows if it is time; returns whether to end training."""
        reached, ends = False, self.iteration == self.iterations(self.config.steps)
        if self.faults or self.record_due or ends:
            self.heal(now=self.record_due or ends)
        if self.record_due:
            evaluates = self.due("eval", "exchange") or ends
            evaluation = self.evaluate_members() if evaluates else None
            self.write_rows(evaluation)
            reached = evaluation is not None and self.should_stop(evaluation)
        else:
            self.callbacks.step()
        self.callbacks.apply()
        return reached or bool(self.callbacks.stopped)

    def close_rows(self) -> None:
        """Writes the last rows of a run that ends between two: a longer run does not have them."""
        if self.iteration >= self.iterations(self.config.steps) and not self.record_due:
            self.write_rows(self.evaluate_members())

    def epoch(self, length: int, learn: bool) -> float:
        """Does `length` iterations; returns the seconds they took, without compilation."""
        demos = self.demos_at(self.iteration)
        self.faults.remember(
            self.learner, demos, length, self.timetable.until_record(self.iteration)
        )
        self.announce_compiling("learning" if learn else "warm-up")
        begin = self.busy
        mode = "explore" if learn or self.config.warm_up == "policy" else "random"
        self.used = self.hps
        self.learner = self.driver.run(
            self.learner, self.used, demos, self.seeds, length, mode, learn
        )
        if self.tuning:
            self.tuning.compare(values(self.used), self.step)
        self.faults.check_metrics(self.learner, self.used, self.seeds)
        return max(self.busy - begin, 1e-6)

    def prepare(self) -> None:
        """Changes hyper-parameters and members if an exchange, schedule or reset is due.

        This happens before the next epoch rather than after the last one: so a run that ended here
        and is then made longer equals one that was long from the start.
        """
        now = self.iteration
        if now in self.timetable.once:
            self.faults.forget()
        if self.tuning and self.due("exchange") and now > self.start_of_learning:
            before = self.tuning.rounds
            self.learner, self.hps = self.tuning.round(self.learner, self.hps, self.driver)
            if self.tuning.rounds is not before:
                self.callbacks.fire("on_exchange")
                self.callbacks.apply()
        if self.config.schedule:
            changes = [new for step, new in self.config.schedule if self.iterations(step) <= now]
            merged = {name: x for new in changes for name, x in new.items()}
            self.hps = hyper_parameters(self.config, merged)
        self.learner = self.resets(self.learner, self.hps, self.seeds, self.reporter.note)

    def announce_compiling(self, program: str) -> None:
        """Reports that a program is compiled, the first time it is needed."""
        if program not in self.announced:
            self.announced.add(program)
            self.reporter.compiling()

    # --- evaluations and metrics ------------------------------------------------------------

    def evaluate_members(self) -> Evaluation:
        """Evaluates all members, and saves the policies that are better than before."""
        self.announce_compiling("evaluation")
        played = self.play()
        similarity = self.demos.similarity(self.policies) if self.demos else None
        evaluation = Evaluation.from_episodes(played, self.loop.algo.spec.rewards, similarity)
        score = evaluation.scores[self.config.judge]
        if (score > self.best.reward).any():
            state = read(self.learner.state)
            self.best = self.best.challenge(score, self.step, state, self.hps)
            self.write_best()
        return evaluation

    def play(self) -> Episodes:
        """Returns episodes of all members, after replacing members with returns not finite."""
        for attempt in (1, 2):
            time = self.learner.clock.iteration
            played = self.evaluate.play(self.policies, self.seeds, time)
            self.faults.check_returns(played.returns, self.learner, self.hps)
            if not self.faults:
                text = cut_short(self.evaluate.env, played.lengths)
                if text and text not in self.announced:
                    self.announced.add(text)
                    self.reporter.note(text)
                return played
            self.heal(now=True, attempt=attempt)
        raise ThespisError(f"step {self.step}: the returns of evaluations are not finite")

    def write_rows(self, evaluation: Evaluation | None) -> None:
        """Writes a row of metrics per member, and gives the tuner its scores."""
        now, sums = (self.step, self.busy), read(self.learner.metric_sums)
        times = {
            "time/fps": (now[0] - self.logged[0]) / max(now[1] - self.logged[1], 1e-9),
            "time/elapsed_s": self.spent,
            "time/compile_s": self.ledger.seconds,
            **self.driver.measures(),
        }
        asked = self.tuning.asked if self.tuning else {}
        rows = metric_rows.training_rows(self.learner, sums, times, values(self.used), asked)
        if evaluation:
            rows = [row | new for row, new in zip(rows, evaluation.rows, strict=True)]
        if self.tuning and (fitness := self.tuning.tuner.fitness) not in PER_EPISODE:
            self.tuning.score(np.array([[row.get(fitness, np.nan)] for row in rows]))
        elif self.tuning and evaluation:
            self.tuning.score(evaluation.episodes[self.tuning.tuner.fitness])
        rows = self.callbacks.row(rows, evaluation is not None)
        counts, edges = [sums.histograms(m) for m in range(len(rows))], dict(sums.edges)
        for m, row in enumerate(rows):
            self.log.append(self.step, m, row, counts[m])
        with_edges = lambda histograms: {name: (x, edges[name]) for name, x in histograms.items()}
        self.reporter.row(self.step, rows, list(map(with_edges, counts)))
        if complaining := capability(self.loop.algo, Complaining):
            for complaint in filter(None, map(complaining.complaint, rows)):
                raise ThespisError(complaint)
        cleared = self.learner.metric_sums.clear()
        self.learner = dataclasses.replace(self.learner, metric_sums=cleared)
        self.logged = now
        self.faults.forget()

    def should_stop(self, evaluation: Evaluation) -> bool:
        """Returns whether `stop_reward` is reached, or `patience` is exhausted."""
        goal, patience = self.config.stop_reward, self.config.patience
        if goal is not None:
            reached = evaluation.scores[RETURN] >= goal
            if reached.any() if self.tuning else reached.all():
                return True
        waited = self.step - int(self.best.step.max())
        period = self.timetable.every["eval"] * self.config.envs
        return patience is not None and waited >= patience * period

    # --- faults -----------------------------------------------------------------------------

    def heal(self, now: bool, attempt: int = 0) -> None:
        """Replaces failed members of a tuned population by copies of others; other runs end.

        When members are replaced does not depend on the speed of the machine.
        """
        if now:
            self.faults.check_states(self.learner, self.used, self.seeds)
        failed = np.isin(np.arange(self.config.members), list(self.faults))
        if failed.all() or (failed.any() and not self.tuning):
            raise ThespisError(self.faults[int(np.flatnonzero(failed)[0])])
        if failed.any() and now and self.tuning:
            inputs = self.learner, self.hps, self.driver, failed, attempt
            self.learner, self.hps = self.tuning.heal(*inputs)
            self.used = self.hps
            for m, text in self.faults.items():
                parent = self.tuning.parents[m]
                self.reporter.note(f"{text}; member {m} continues as a copy of member {parent}")
            self.faults.clear()
            self.faults.forget()
