"""A population's tuner at work in a run: rounds at its interval, healing, and their lineage."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

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
from thespis.errors import ThespisError
from thespis.runs.config import Config
from thespis.runs.lineage import LineageLog
from thespis.runs.metrics import Note
from thespis.tuning import Inherit, replaced
from thespis.xla.multihost import collective, of_leader
from thespis.xla.placement import shardings

INHERITED = {f.name for f in dataclasses.fields(Inherit)} - {"interval", "fitness"}


class Rounds(eqx.Module):
    """What is to be known for the next round."""

    memory: Any  # the tuner's own
    born: Int[Array, "members"]  # the step at which a member was last replaced
    scores: Float[Array, "members n"]  # not finite where there is none yet


class Tuning:
    """The tuner of a run, and all that it has done."""

    def __init__(self, config: Config, loop: Loop, seeds):
        self.loop, self.seeds, self.tuner = loop, seeds, config.tuning
        Hyper, given, members = config.Algorithm.Hyper, config.hp, config.members
        self.names = tuning.varying(self.tuner, Hyper, given)
        self.first, memory = self.tuner.begin(
            population_key(seeds, Stream.BEGIN), Hyper, given, members
        )
        born = jnp.zeros(members, jnp.int32)
        self.rounds = Rounds(memory, born, jnp.full((members, config.scores), jnp.nan))
        self.exchange = Exchange(loop, self.tuner, tuple(given))

    def open(self, folder: Path, past: tuple[int, bytes | None], hps: Any, note: Note) -> None:
        """Begin or go on with lineage.csv, as a checkpoint has it: its number of rows, and them.

        Checkpoints older than that know the number alone.
        """
        rows, saved = past
        self.lineage = LineageLog(folder, self.names, saved, note)
        if saved is None:
            self.lineage.cut(rows)
        self.asked = {name: x for name, x in values(hps).items() if name in self.names}

    def score(self, scores: np.ndarray) -> None:
        """Keep [members, n] for the next round; who has none now keeps the one before."""
        new = jnp.asarray(scores, jnp.float32)
        kept = jnp.where(jnp.isfinite(new), new, self.rounds.scores)
        self.rounds = dataclasses.replace(self.rounds, scores=kept)

    def round(self, x: Learner, hps: Any, driver: Any) -> tuple[Learner, Any]:
        """Members exchange, unless somebody has no score yet; `x` is used up."""
        scores = np.asarray(self.rounds.scores)
        if not np.isfinite(scores).all():
            return x, hps
        everybody = np.ones(len(scores), bool)
        return self.change(self.exchange, x, hps, driver, everybody, scores.mean(1))

    def heal(self, x: Learner, hps: Any, driver: Any, sick: np.ndarray, attempt: int):
        """Those who are sick become copies of others."""
        heal = partial(self.exchange.heal, sick=sick, attempt=attempt)
        return self.change(heal, x, hps, driver, sick, None)

    def change(self, one_round, x: Learner, hps, driver, who, scores) -> tuple[Learner, Any]:
        """Let a round replace members, and write down what it did to some of them."""
        step = x.clock.now * self.loop.envs
        before, age = values(hps), step - np.asarray(self.rounds.born)
        x, hps, self.rounds, parents = one_round(x, hps, self.rounds, self.seeds)
        self.parents, after = np.asarray(parents), values(hps)
        if isinstance(driver, HostDriver):
            end_episodes(driver, (self.parents != np.arange(len(who)))[driver.mine])
        self.asked = {name: after[name] for name in self.names}
        self.lineage.append(
            step, np.flatnonzero(who).tolist(), self.parents, scores, age, before, after
        )
        return x, hps

    def compare(self, used: dict[str, np.ndarray], step: int) -> None:
        """What updates were given must be what was asked for, bit for bit."""
        for name in self.names:
            for m in np.flatnonzero(used[name] != self.asked[name]):
                raise ThespisError(
                    f"member {m}, step {step}: updates used {name} = {used[name][m]!s}, but "
                    f"{self.lineage.path} asks for {self.asked[name][m]!s}; please report this"
                )


@dataclass(frozen=True, eq=False)
class Exchange:
    """Rounds of a tuner on learners, whose environments may be JAX code or not."""

    loop: Loop
    tuner: Any
    given: tuple[str, ...] = ()
    """Hyper-parameters that belong to members' places."""

    def __call__(self, x: Learner, hps, rounds: Rounds, seeds):
        """One round -> learner, hps, rounds, parents; `x` is used up."""
        key = population_key(seeds, Stream.EXCHANGE, x.clock.now)
        kept = {name: getattr(self.tuner, name) for name in INHERITED if hasattr(self.tuner, name)}
        return self.change(x, hps, rounds, seeds, key, self.tuner, Inherit(**kept))

    def heal(self, x: Learner, hps, rounds: Rounds, seeds, sick: np.ndarray, attempt: int):
        """The same, but only those who are sick are replaced, and by all of any other."""
        key = population_key(seeds, Stream.HEAL + attempt, x.clock.now)
        scores = jnp.zeros_like(rounds.scores) + jnp.where(jnp.asarray(sick), jnp.nan, 0.0)[:, None]
        alike = dataclasses.replace(rounds, scores=scores)
        changes: dict[str, Any] = {"exploit": "truncation", "best": len(sick), "replaced": 0}
        changes = {name: x for name, x in changes.items() if hasattr(self.tuner, name)}
        tuner = dataclasses.replace(self.tuner, **changes)
        x, hps, after, parents = self.change(x, hps, alike, seeds, key, tuner, Inherit())
        return x, hps, dataclasses.replace(rounds, born=after.born), parents

    def change(self, x: Learner, hps, rounds: Rounds, seeds, key, tuner, what):
        """Decide, the same in all processes, and let members become copies."""
        step = jnp.int32(x.clock.now * self.loop.envs)
        decided = of_leader(self.decide(hps, rounds, step, key, tuner=tuner, given=self.given))
        hps, after, parents = jax.tree.map(jnp.asarray, decided)
        x = collective(self.copy, x, parents, rounds.scores, seeds, what=what)
        return x, hps, after, parents

    @cached_property
    def decide(self):
        def decide(hps, rounds: Rounds, step, key, tuner, given):
            known = rounds.memory, key, hps, rounds.scores, step - rounds.born
            memory, parents, hps = tuning.exchange(tuner, given, *known)
            born = jnp.where(replaced(parents), step, rounds.born)
            return hps, Rounds(memory, born, jnp.full_like(rounds.scores, jnp.nan)), parents

        return jax.jit(decide, static_argnames=("tuner", "given"))

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


def end_episodes(driver: HostDriver, who: np.ndarray) -> None:
    """New episodes in all host environments of some members, as if a time limit had come."""
    step = driver.arrived
    cut = np.asarray(step.truncated) | (who[:, None] & ~np.asarray(step.terminated))
    driver.arrived = step._replace(truncated=cut)
    driver.envs.end(cut.reshape(-1))


def values(hps: Any) -> dict[str, np.ndarray]:
    """Every hyper-parameter [members] by its name."""
    return {name: np.array(x) for name, x in vars(hps).items()}
