"""Runs a population's tuner: exchanges at its interval, replacement of failed members, lineage."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thespis import tuning
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import Learner, Loop
from thespis.engine.population import inherit, restart
from thespis.engine.streams import Stream, population_key
from thespis.errors import ThespisError, or_all
from thespis.runs import metric_rows
from thespis.runs.build import blank, hyper_parameters, resolve_schedule
from thespis.runs.config import Config
from thespis.runs.lineage import LineageLog
from thespis.runs.metrics import Note
from thespis.tuning import PBT, Inherit, inherited, replaced
from thespis.xla.multihost import collective, of_leader
from thespis.xla.placement import shardings


class Rounds(eqx.Module):
    """The state of tuning between rounds."""

    memory: Any  # the tuner's own state
    born: Int[Array, "members"]  # the step at which a member was last replaced
    scores: Float[Array, "members n"]  # not finite where there is none yet


class Decision(NamedTuple):
    """What a round comes to."""

    hps: Any  # of all members from now on
    parents: Int[Array, "members"]
    scores: Float[Array, "members n"]  # those that were compared, not finite of the sick
    what: Inherit


class Tuning:
    """The tuner of a run, its state and its lineage."""

    events = False  # whether its lineage has a column for them

    def __init__(self, config: Config, loop: Loop, seeds):
        self.loop, self.seeds, self.tuner = loop, seeds, config.tuning
        Hyper, members = config.Algorithm.Hyper, config.members
        self.names = tuning.varying(self.tuner, Hyper, config.hp)
        self.placed = tuple(config.hp)  # hyper-parameters that stay with a member's place
        key = population_key(seeds, Stream.BEGIN)
        first, memory = self.tuner.begin(key, Hyper, config.hp, members)
        self.first = resolve_schedule(config, first)
        born = jnp.zeros(members, jnp.int32)
        self.rounds = Rounds(memory, born, jnp.full((members, config.scores), jnp.nan))
        self.programs = Programs(loop)
        self.parents = np.arange(members)  # of the newest exchange

    def use(self, loop: Loop) -> None:
        """Continues with another loop, whose environment has changed."""
        self.loop, self.programs = loop, Programs(loop)

    def open(
        self,
        folder: Path,
        columns: list[str],
        past: tuple[int, bytes | None],
        hps: Any,
        note: Note,
    ) -> None:
        """Opens lineage.csv, cut back to the rows that a checkpoint has: their number and content.

        Older checkpoints have only the number. `columns` are those of metrics.csv.
        """
        rows, saved = past
        check_fitness(self.tuner.fitness, columns)
        self.lineage = LineageLog(folder, self.names, saved, note, self.events)
        if saved is None:
            self.lineage.cut(rows)
        self.asked = {name: x for name, x in values(hps).items() if name in self.names}

    def score(self, scores: np.ndarray) -> None:
        """Stores scores [members, n] for the next round; members without one keep the last."""
        new = jnp.asarray(scores, jnp.float32)
        newest = jnp.where(jnp.isfinite(new), new, self.rounds.scores)
        self.rounds = dataclasses.replace(self.rounds, scores=newest)

    def round(self, x: Learner, hps: Any, driver: Any) -> tuple[Learner, Any]:
        """Does an exchange, unless a member has no score yet; `x` is donated."""
        decision = self.exchange(x.clock.now, hps)
        return (x, hps) if decision is None else self.replace_members(x, driver, decision)

    def heal(self, x: Learner, hps: Any, driver: Any, failed: np.ndarray, attempt: int):
        """Replaces failed members by full copies of others, chosen at random."""
        return self.replace_members(x, driver, self.cure(x.clock.now, hps, failed, attempt))

    def exchange(self, now: int, hps: Any, absent: Sequence[int] = ()) -> Decision | None:
        """Decides the exchange of this iteration; None if a member has no score yet.

        Members that are `absent` stay as they are, and so do those that would copy one of them.
        """
        scores, there = np.asarray(self.rounds.scores), range(len(self.parents))
        if absent:
            there = [m for m in there if m not in absent]
            scores = scores.copy()
            scores[list(absent)] = scores[there].mean(0)
        if not np.isfinite(scores).all():
            return None
        key = population_key(self.seeds, Stream.EXCHANGE, now)
        rounds = dataclasses.replace(self.rounds, scores=jnp.asarray(scores))
        how = rounds, key, self.tuner, inherited(self.tuner)
        return self.decide(now, hps, *how, there, scores.mean(1), absent)

    def cure(self, now: int, hps: Any, failed: np.ndarray, attempt: int) -> Decision:
        """Decides which members the failed ones copy."""
        key = population_key(self.seeds, Stream.HEAL + attempt, now)
        before = self.rounds
        penalty = jnp.where(jnp.asarray(failed), jnp.nan, 0.0)[:, None]
        equal = dataclasses.replace(before, scores=jnp.zeros_like(before.scores) + penalty)
        tuner = self.tuner
        if isinstance(tuner, PBT):
            changes: Any = {"exploit": "truncation", "best": len(failed), "replaced": 0}
            tuner = dataclasses.replace(tuner, **changes)
        how = equal, key, tuner, Inherit()
        decision = self.decide(now, hps, *how, np.flatnonzero(failed), None)
        self.rounds = dataclasses.replace(before, born=self.rounds.born)
        return decision

    def decide(
        self, now: int, hps, rounds: Rounds, key, tuner, what: Inherit, listed, scores, absent=()
    ) -> Decision:
        """Decides which members copy which, the same in all processes.

        It writes the `listed` members to lineage.csv.
        """
        step = now * self.loop.envs
        before, age = values(hps), step - np.asarray(rounds.born)
        decide = self.programs.decide
        decided = decide(hps, rounds, jnp.int32(step), key, tuner=tuner, placed=self.placed)
        if absent:
            decided = without(decided, hps, rounds.born, list(absent))
        hps, self.rounds, parents = jax.tree.map(jnp.asarray, of_leader(decided))
        self.parents, after = np.asarray(parents), values(hps)
        self.asked = {name: after[name] for name in self.names}
        self.lineage.append(step, list(map(int, listed)), self.parents, scores, age, before, after)
        return Decision(hps, parents, rounds.scores, what)

    def replace_members(self, x: Learner, driver, decision: Decision) -> tuple[Learner, Any]:
        """Makes copies, as was decided; `x` is used up."""
        hps, parents, scores, what = decision
        x = collective(self.programs.copy, x, parents, scores, self.seeds, what=what)
        if isinstance(driver, HostDriver):
            end_episodes(driver, (self.parents != np.arange(self.parents.size))[driver.local_slice])
        return x, hps

    def record(self, step: int, before: dict[str, np.ndarray], after: dict[str, Any]) -> None:
        """Adds rows without a score for changes of hyper-parameters that callbacks made."""
        if any(not np.array_equal(before[name], after[name]) for name in self.names):
            members, age = np.arange(len(self.seeds)), step - np.asarray(self.rounds.born)
            self.asked = {name: after[name] for name in self.names}
            self.lineage.append(step, members.tolist(), members, None, age, before, after)

    def compare(self, used: dict[str, np.ndarray], step: int) -> None:
        """Raises an error if updates used other values than the tuner asked for."""
        for name in self.names:
            for m in np.flatnonzero(used[name] != self.asked[name]):
                raise ThespisError(
                    f"member {m}, step {step}: updates used {name} = {used[name][m]!s}, but "
                    f"{self.lineage.path} asks for {self.asked[name][m]!s}; please report this"
                )


def without(decided: tuple[Any, Rounds, Any], hps: Any, born: Any, absent: list[int]) -> Any:
    """Returns a decision in which the absent stay as they are, and who would copy one of them."""
    new, rounds, parents = decided
    still = jnp.isin(jnp.arange(parents.size), jnp.asarray(absent)) | jnp.isin(
        parents, jnp.asarray(absent)
    )
    keep = lambda old, new: jnp.where(still, old, new)
    parents = keep(jnp.arange(parents.size, dtype=parents.dtype), parents)
    rounds = dataclasses.replace(rounds, born=keep(born, rounds.born))
    return jax.tree.map(keep, hps, new), rounds, parents


def check_fitness(fitness: str, columns: list[str]) -> None:
    """Refuses a fitness that is not a column of metrics.csv."""
    if fitness not in columns:
        raise ThespisError(f"pbt.fitness = {fitness} is not a metric{or_all(fitness, columns)}")


def refuse_fitness(config: Config, loop: Loop) -> None:
    """Refuses an unknown `pbt.fitness` before anything is compiled."""
    hps, imitating = hyper_parameters(config), config.demos is not None
    varying = tuning.varying(config.tuning, config.Algorithm.Hyper, config.hp)
    columns = partial(metric_rows.columns, loop.algo)
    if config.tuning.fitness not in columns((), hps, varying, imitating):
        measured = blank(config, loop).metric_sums.names  # by tracing an update
        check_fitness(config.tuning.fitness, columns(measured, hps, varying, imitating))


@dataclass(frozen=True, eq=False)
class Programs:
    """The two compiled programs of an exchange, for JAX and host environments."""

    loop: Loop

    @cached_property
    def decide(self):
        def decide(hps, rounds: Rounds, step, key, tuner, placed):
            known = rounds.memory, key, hps, rounds.scores, step - rounds.born
            memory, parents, hps = tuning.decide(tuner, placed, *known)
            born = jnp.where(replaced(parents), step, rounds.born)
            return hps, Rounds(memory, born, jnp.full_like(rounds.scores, jnp.nan)), parents

        return jax.jit(decide, static_argnames=("tuner", "placed"))

    @cached_property
    def copy(self):
        def copy(x: Learner, parents, scores, seeds, what):
            x = inherit(x, parents, what, sick=~jnp.isfinite(scores.mean(1)))
            if x.world is not None:
                x = restart(self.loop, x, seeds, replaced(parents))
            if self.loop.mesh is None:
                return x
            return jax.lax.with_sharding_constraint(x, shardings(self.loop.mesh, x.specs))

        return jax.jit(copy, static_argnames="what", donate_argnums=0)


def end_episodes(driver: HostDriver, chosen: np.ndarray) -> None:
    """Truncates the episodes in all host environments of the `chosen` members [members]."""
    step = driver.arrived
    cut = np.asarray(step.truncated) | (chosen[:, None] & ~np.asarray(step.terminated))
    driver.arrived = step._replace(truncated=cut)
    driver.envs.end(cut.reshape(-1))


def values(hps: Any) -> dict[str, np.ndarray]:
    """Returns every hyper-parameter [members] by its name."""
    return {name: np.array(x) for name, x in vars(hps).items()}
