"""The iterations at which events of a run are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thespis.runs.config import Config

RECORDS = ("log", "eval", "exchange")  # events with a row of metrics


@dataclass(frozen=True)
class Timetable:
    """The periods of repeated events, and the iterations of single ones."""

    every: dict[str, int]
    """Iterations between logs, evaluations, checkpoints, a population's exchanges, callbacks."""
    once: tuple[int, ...]
    """Iterations at which members or their hyper-parameters change."""

    @classmethod
    def from_config(
        cls, config: Config, resets: Sequence[int], callbacks: Mapping[str, int]
    ) -> Timetable:
        """Returns the timetable of a run.

        `resets` are iterations; `callbacks` are environment steps between calls, by name.
        """
        steps = {name: getattr(config, f"{name}_freq") for name in ("log", "eval", "checkpoint")}
        if config.tuner:
            steps["exchange"] = config.tuning.interval
        changes = (config.iterations(step) for step, _ in config.schedule)
        every = {name: config.iterations(n) for name, n in {**steps, **callbacks}.items()}
        return cls(every, (*changes, *resets))

    def due(self, iteration: int, *names: str) -> bool:
        """Returns whether one of these events is due at this iteration."""
        return any(iteration % self.every[name] == 0 for name in names if name in self.every)

    def until_next(self, iteration: int, end: int) -> int:
        """Returns the iterations until the next event, at most until `end`."""
        repeated = (n - iteration % n for n in self.every.values())
        return min(end - iteration, *repeated, *(n - iteration for n in self.once if n > iteration))

    def until_record(self, iteration: int) -> int:
        """Returns the iterations until the next row of metrics."""
        names = (name for name in RECORDS if name in self.every)
        return min(self.every[name] - iteration % self.every[name] for name in names)
