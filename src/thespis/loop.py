"""One training loop for every algorithm. Everything is a population; one agent is one member.

An iteration is: act on what the environments returned, store it as one row, learn, step the
environments. JAX environments run thousands of iterations in one program (`epoch`); host
environments call the two halves (`respond`, `absorb`) around each of their steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Bool, Float, Int

from thespis.core import Mean, Mode, Row, Step, where
from thespis.replay import Replay

INIT, TRAIN, EVALUATE = range(3)  # streams of randomness: key = f(seed, stream, time)


class Clock(NamedTuple):
    """Time, alike for all members: iterations and updates done, and the fraction of one due."""

    iteration: Int[Array, ""]
    updates: Int[Array, ""]
    remainder: Int[Array, ""]

    @classmethod
    def zero(cls) -> Clock:
        return cls(*(jnp.zeros((), jnp.int32) for _ in range(3)))


class Actors(eqx.Module):
    """What acting changes, leaves [members, envs, ...] (inside `each`, of one member)."""

    env: Any  # states of JAX environments; None for host environments
    arrived: Step  # what the environments returned last
    memory: Any
    begin: Bool[Array, "..."]  # `arrived` is the first observation of an episode
    ep_return: Float[Array, "..."]
    ep_length: Int[Array, "..."]
    transitions: Int[Array, "..."]


class Fault(NamedTuple):
    """The first number that was not finite, leaves [members]; `iteration` is -1 before."""

    iteration: Int[Array, "..."]
    what: Int[Array, "..."]  # position in `Loop.watched`
    env: Int[Array, "..."]


class Learner(eqx.Module):
    """Everything that training changes: what a checkpoint holds, what populations copy."""

    state: Any  # leaves [members, ...]
    actors: Actors
    replay: Replay  # leaves [capacity, members, envs, ...]
    tally: dict[str, Mean]  # sums since the last log, leaves [members]
    fault: Fault
    clock: Clock


@dataclass(frozen=True, eq=False)
class Loop:
    algo: Any
    env: Any
    envs: int = 1
    """Environments of each member."""
    capacity: int = 1_000_000
    """Rows kept per environment."""
    updates_per_step: Fraction = Fraction(1)
    """Gradient updates per row, whatever the number of environments; remainders are carried."""
    side_by_side: bool = False
    """Members by `vmap` (accelerators), or one after another by `lax.map` (CPU)."""

    # --- members ----------------------------------------------------------------------------

    def each(self, f):
        """`f` over the members. The replay never passes through here: it would be copied."""
        return jax.vmap(f) if self.side_by_side else (lambda *xs: jax.lax.map(lambda x: f(*x), xs))

    def keys(self, seeds: Int[Array, "members"], stream: int, time) -> Array:
        """One key per member, a function of its seed and the time alone: nothing to save."""
        key = lambda s: random.fold_in(random.fold_in(random.key(s), stream), time)
        return jax.vmap(key)(seeds)

    # --- start ------------------------------------------------------------------------------

    def init(self, seeds, hps, demos=None, arrived: Step | None = None) -> Learner:
        """`arrived` [members, envs, ...] is what host environments returned at their reset."""

        def one(key, hp):
            k_state, k_env, k_memory = random.split(key, 3)
            env, step = (None, None) if arrived is not None else self.env.reset(k_env, self.envs)
            return self.algo.init(k_state, hp), env, step, self.algo.memory(k_memory, self.envs)

        keys = self.keys(seeds, INIT, 0)
        state, env, step, memory = jax.vmap(one)(keys, hps)
        shape = (seeds.shape[0], self.envs)
        actors = Actors(
            env=env,
            arrived=step if arrived is None else arrived,
            memory=memory,
            begin=jnp.ones(shape, bool),
            ep_return=jnp.zeros(shape),
            ep_length=jnp.zeros(shape, jnp.int32),
            transitions=jnp.zeros(shape, jnp.int32),
        )
        clock = Clock.zero()
        row, _ = jax.eval_shape(
            partial(self.respond, mode="explore"), state, hps, actors, keys, clock
        )
        replay = Replay.empty(self.capacity, row)
        _, metrics = jax.eval_shape(self.learn, state, replay, hps, demos, keys, clock)
        zero, no = jnp.zeros(shape[:1]), jnp.full(shape[:1], -1, jnp.int32)
        names = ["rollout/ep_rew_mean", "rollout/ep_len_mean", *metrics]
        tally = {name: Mean(zero, zero) for name in names}
        return Learner(state, actors, replay, tally, Fault(no, no, no), clock)

    # --- one iteration ----------------------------------------------------------------------

    def respond(self, state, hps, actors: Actors, keys, clock: Clock, mode: Mode):
        """Act in every environment -> row [members, envs, ...], actors."""

        def one(state, hp, actors: Actors, key):
            k_act, k_memory = random.split(random.fold_in(key, 0))
            step, begin = actors.arrived, actors.begin
            memory = where(begin, self.algo.memory(k_memory, self.envs), actors.memory)
            rows = clock.iteration * self.envs
            action, memory, extra = self.algo.act(state, hp, memory, step.obs, k_act, rows, mode)
            row = Row(step.obs, step.reward, step.terminated, step.truncated, action, extra)
            lived = (~begin).astype(jnp.int32)
            actors = Actors(
                env=actors.env,
                arrived=step,
                memory=memory,
                begin=step.final,
                ep_return=jnp.where(begin, 0.0, actors.ep_return) + step.reward,
                ep_length=jnp.where(begin, 0, actors.ep_length) + lived,
                transitions=actors.transitions + lived,
            )
            return row, actors

        return self.each(one)(state, hps, actors, keys)

    def absorb(self, learner: Learner, hps, demos, row: Row, actors: Actors, keys, learn: bool):
        """Store one row of every environment, then learn from the replay."""
        clock = learner.clock
        replay = learner.replay.add(row)
        state = self.each(self.algo.observe)(learner.state, row)
        ended = row.final.astype(jnp.float32)
        sums = lambda x: Mean((x.astype(jnp.float32) * ended).sum(1), ended.sum(1))
        seen = {
            "rollout/ep_rew_mean": sums(actors.ep_return),
            "rollout/ep_len_mean": sums(actors.ep_length),
        }
        if learn:
            state, metrics = self.learn(state, replay, hps, demos, keys, clock)
            seen |= metrics
        tally = learner.tally | {
            k: jax.tree.map(jnp.add, learner.tally[k], v) for k, v in seen.items()
        }
        fault = self.watch(learner.fault, row, tally, clock)
        return Learner(state, actors, replay, tally, fault, self.tick(clock, learn))

    def learn(self, state, replay: Replay, hps, demos, keys, clock: Clock):
        """All updates of one iteration -> state, metrics {name: Mean of [members]}."""
        whole, part = self.quota
        slots = whole + (part > 0)
        if not slots:
            return state, {}
        due = clock.remainder + part.numerator >= part.denominator

        def draw(member, hp, key):
            def one(i):
                k_sample = random.fold_in(random.fold_in(key, 1), i)
                return self.algo.sample(replay.of(member), demos, hp, k_sample, clock.updates + i)

            return jax.vmap(one)(jnp.arange(slots))

        def updates(state, hp, batches, key):
            def one(state, slot):
                i, batch = slot
                k_update = random.fold_in(random.fold_in(key, 2), i)
                step = clock.updates + i
                state, metrics, _ = self.algo.update(state, hp, batch, k_update, step)
                return state, {f"train/{k}": _as_mean(v) for k, v in metrics.items()}

            slots_of = (jnp.arange(slots), batches)
            state, metrics = jax.lax.scan(one, state, jax.tree.map(lambda x: x[:whole], slots_of))
            metrics = jax.tree.map(lambda m: m.sum(0), metrics)
            if part:  # the clock is shared, so this stays a branch; no replay passes through it
                last, none = jax.tree.map(lambda x: x[whole], slots_of), _zeros(metrics)
                run, skip = lambda s: one(s, last), lambda s: (s, none)
                state, more = jax.lax.cond(due, run, skip, state)
                metrics = jax.tree.map(jnp.add, metrics, more)
            return state, metrics

        members = jnp.arange(keys.shape[0])
        return self.each(updates)(state, hps, jax.vmap(draw)(members, hps, keys), keys)

    @property
    def quota(self) -> tuple[int, Fraction]:
        """Updates per iteration: whole ones, and the fraction that is carried."""
        whole, part = divmod(self.updates_per_step * self.envs, 1)
        return int(whole), part

    def tick(self, clock: Clock, learn: bool) -> Clock:
        if not learn:
            return clock._replace(iteration=clock.iteration + 1)
        whole, part = self.quota
        total = clock.remainder + part.numerator
        updates = clock.updates + whole + total // part.denominator
        return Clock(clock.iteration + 1, updates, total % part.denominator)

    # --- many iterations --------------------------------------------------------------------

    def epoch(
        self, learner: Learner, hps, demos, seeds, length, mode: Mode, learn: bool
    ) -> Learner:
        """`length` iterations with JAX environments; any split into epochs gives the same."""

        def body(_, x: Learner) -> Learner:
            keys = self.keys(seeds, TRAIN, x.clock.iteration)
            row, actors = self.respond(x.state, hps, x.actors, keys, x.clock, mode)
            x = self.absorb(x, hps, demos, row, actors, keys, learn)
            step = lambda env, action, key: self.env.step(env, action, random.fold_in(key, 3))
            moved = self.each(step)(actors.env, row.action, keys)
            return eqx.tree_at(lambda x: (x.actors.env, x.actors.arrived), x, moved)

        return jax.lax.fori_loop(0, length, body, learner)

    # --- watching ---------------------------------------------------------------------------

    def watch(self, fault: Fault, row: Row, tally: dict[str, Mean], clock: Clock) -> Fault:
        """Remember the first number of each member that is not finite."""
        seen = [_not_finite(row.obs), _not_finite(row.reward)]  # each [members, envs]
        flags = jnp.stack(
            [*(x.any(1) for x in seen), *(~jnp.isfinite(tally[k].total) for k in sorted(tally))]
        )
        first = Fault(
            iteration=jnp.broadcast_to(clock.iteration, flags.shape[1:]),
            what=jnp.argmax(flags, 0).astype(jnp.int32),
            env=jnp.argmax(seen[0] | seen[1], 1).astype(jnp.int32),
        )
        new = flags.any(0) & (fault.iteration < 0)
        return jax.tree.map(lambda old, x: jnp.where(new, x, old), fault, first)

    @staticmethod
    def watched(learner: Learner) -> list[str]:
        """What `Fault.what` counts."""
        return ["observation", "reward", *sorted(learner.tally)]


def _as_mean(metric) -> Mean:
    return metric if isinstance(metric, Mean) else Mean(metric, jnp.ones(()))


def _zeros(tree):
    return jax.tree.map(jnp.zeros_like, tree)


def _not_finite(tree) -> Bool[Array, "members envs"]:
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    bad = [(~jnp.isfinite(x)).reshape(*x.shape[:2], -1).any(-1) for x in floats]
    return jnp.stack(bad).any(0) if bad else jnp.zeros(jax.tree.leaves(tree)[0].shape[:2], bool)


class DeviceDriver:
    """Runs a `Loop` whose environments are JAX code: many iterations in one program."""

    def __init__(self, loop: Loop, seeds):
        self.loop = loop
        # One program per phase; it reuses the learner's memory.
        self.epoch = jax.jit(loop.epoch, static_argnames=("mode", "learn"), donate_argnums=0)

    def init(self, seeds, hps, demos=None) -> Learner:
        return jax.jit(self.loop.init)(seeds, hps, demos)

    def resume(self, learner: Learner) -> Learner:
        return learner

    def run(
        self, learner: Learner, hps, demos, seeds, length: int, mode: Mode, learn: bool
    ) -> Learner:
        """`length` iterations, `learner` is used up."""
        return self.epoch(learner, hps, demos, seeds, jnp.int32(length), mode=mode, learn=learn)

    def close(self) -> None:
        pass
