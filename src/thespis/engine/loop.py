"""One training loop for every algorithm. Everything is a population; one agent is one member.

An iteration acts on what the environments returned, learns, stores the row, and steps the
environments. JAX environments run thousands of iterations in one program (`epoch`); host
environments call the two halves (`act`, `store_and_learn`) around each of their steps.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from thespis.core import (
    Histogram,
    Mean,
    Mode,
    NormalizingRewards,
    Prioritised,
    Remembering,
    Reporting,
    Resetting,
    Row,
    Step,
    capability,
    scalar_reward,
    where,
)
from thespis.engine.metric_sums import MetricSums
from thespis.engine.streams import Stream, Use, member_keys
from thespis.replay.priorities import Rule
from thespis.replay.ring import Replay
from thespis.xla.ordering import no_inline
from thespis.xla.placement import MEMBERS, ROWS_OF_MEMBERS, SHARED, put, shardings, spread
from thespis.xla.program_cache import compiled

WITHOUT_MEMBERS = {"replay.head", "replay.size", "replay.priorities.written"}


class Clock(eqx.Module):
    """The time of all members: iterations and updates so far, and the carried part of an update."""

    time: Int[Array, "3"]

    @classmethod
    def zero(cls) -> Clock:
        return cls(jnp.zeros(3, jnp.int32))

    iteration = property(lambda self: self.time[0])
    updates = property(lambda self: self.time[1])
    remainder = property(lambda self: self.time[2])

    @property
    def now(self) -> int:
        """Returns the iteration, outside of compiled programs."""
        return int(np.asarray(self.time)[0])


class Actors(eqx.Module):
    """What acting changes, leaves [members, envs, ...], or [envs, ...] inside `map_members`."""

    memory: Any
    begin: Bool[Array, "..."]  # the next observation is the first of an episode
    ep_return: Float[Array, "..."]  # the sum of `Loop.paid`
    ep_length: Int[Array, "..."]
    transitions: Int[Array, "..."]
    discounted: Float[Array, "..."] | None = None  # discounted returns, if rewards are scaled


class World(eqx.Module):
    """JAX environments, leaves [members, envs, ...]: their states, and their last step."""

    env: Any
    arrived: Step


class Learner(eqx.Module):
    """Everything that training changes: the content of checkpoints, and what populations copy."""

    state: Any  # leaves [members, ...]
    actors: Actors
    world: Any  # a `World`; None for host environments
    replay: Replay  # leaves [capacity, members, envs, ...]
    metric_sums: MetricSums
    clock: Clock

    @property
    def specs(self) -> Learner:
        """Returns how each leaf is split over devices."""

        def spec(path, _):
            part = path[0].name
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            if part == "clock" or name in WITHOUT_MEMBERS:
                return SHARED
            return ROWS_OF_MEMBERS if part in ("replay", "metric_sums") else MEMBERS

        return jax.tree_util.tree_map_with_path(spec, self)


@dataclass(frozen=True, eq=False)
class Loop:
    """Trains a population: one algorithm in one environment, and how their members run."""

    algo: Any
    env: Any
    envs: int = 1
    """Number of environments of each member."""
    capacity: int = 1_000_000
    """Number of rows in the replay, each of all environments."""
    updates_per_step: Fraction = Fraction(1)
    """Gradient updates per environment step; fractions are carried to the next iteration."""
    side_by_side: bool = False
    """Map over members by `vmap` (accelerators), instead of one after another (CPUs)."""
    mesh: Mesh | None = None
    """The devices that members are split over, if there are several."""
    shared: bool = False
    """Let every member learn from the rows of all, which must be on one device."""

    # --- members ----------------------------------------------------------------------------

    def map_members(self, f, carried, *xs) -> tuple[Any, Any]:
        """Does `carried, out = f(carried, *xs)` for every member; the replay is never an argument.

        On CPUs it does one member after another, each in a call of its own. Otherwise the
        compiler would merge a single member with its surroundings and round it differently; as
        it is, a member of a population equals a run of its own, bit for bit.
        """
        if self.side_by_side:
            return jax.vmap(f)(carried, *xs)

        def visit(carried, x):
            i, inputs = x
            at = lambda leaf: jax.lax.dynamic_index_in_dim(leaf, i, 0, keepdims=False)
            put = lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new, i, 0)
            member, out = no_inline(f)(jax.tree.map(at, carried), *inputs)
            return jax.tree.map(put, carried, member), out

        members = jnp.arange(jax.tree.leaves(xs)[0].shape[0])
        return jax.lax.scan(visit, carried, (members, xs))  # in place, unlike `lax.map`

    # --- start ------------------------------------------------------------------------------

    def init(self, seeds, hps, demos=None, arrived: Step | None = None) -> Learner:
        """Returns a new learner; `arrived` is the first step of host environments, if any.

        Its leaves are [members, envs, ...]. Shapes of rows and names of metrics are traced.
        """

        def one(_, key, hp):
            k_state, k_env, k_memory = random.split(key, 3)
            state, memory = self.algo.init(k_state, hp), self.algo.memory(k_memory, self.envs)
            world = None if arrived is not None else World(*self.env.reset(k_env, self.envs))
            return None, (state, memory, world)

        keys, clock = member_keys(seeds, Stream.INIT, 0), Clock.zero()
        _, (state, memory, world) = self.map_members(one, None, keys, hps)
        shape = (seeds.shape[0], self.envs)
        zeros = jnp.zeros(shape, jnp.int32)
        step = world.arrived if arrived is None else arrived  # pyright: ignore
        returns = jnp.zeros_like(self.paid(jnp.zeros(step.reward.shape), step.obs))
        discounted = jnp.zeros(shape) if self.normalizing else None
        actors = Actors(memory, jnp.ones(shape, bool), returns, zeros, zeros, discounted)

        def first_row(step: Step) -> Row:
            action, _, extra = self.act(state, hps, actors, step.obs, keys, clock, "explore")
            return Row(*step, action, extra)

        row = jax.eval_shape(first_row, step)
        replay = Replay.empty(self.capacity, row, self.rule)
        batches = jax.eval_shape(self.draw, replay, hps, demos, keys, clock)
        _, metrics, _ = jax.eval_shape(self.learn, state, hps, row, batches, keys, clock)
        metric_shapes = self.episodes(actors) | jax.eval_shape(self.rollout, row) | metrics
        sums = MetricSums.empty(metric_shapes, shape[0])
        return Learner(state, actors, world, replay, sums, clock)

    # --- one iteration ----------------------------------------------------------------------

    def act(self, state, hps, actors: Actors, obs, keys, clock: Clock, mode: Mode):
        """Acts in every environment -> action, memory, extra, leaves [members, envs, ...]."""

        def one(_, state, hp, actors: Actors, obs, key):
            k_act, k_memory = random.split(random.fold_in(key, Use.ACT))
            fresh = self.algo.memory(k_memory, self.envs)
            memory = where(actors.begin, fresh, actors.memory)
            rows = clock.iteration * self.envs
            return None, self.algo.act(state, hp, memory, obs, k_act, rows, mode)

        return self.map_members(one, None, state, hps, actors, obs, keys)[1]

    def store_and_learn(
        self, x: Learner, hps, demos, arrived: Step, answer, keys, learn: bool
    ) -> Learner:
        """Stores what arrived with the answer to it, and learns from the rows before."""
        action, memory, extra = answer
        row = Row(*arrived, action, extra)
        begin, lived = x.actors.begin, (~x.actors.begin).astype(jnp.int32)
        paid = self.paid(row.reward, row.obs)
        actors = Actors(
            memory=memory,
            begin=row.final,
            ep_return=where(~begin, x.actors.ep_return, jnp.zeros_like(paid)) + paid,
            ep_length=jnp.where(begin, 0, x.actors.ep_length) + lived,
            transitions=x.actors.transitions + lived,
            discounted=self.discount(x.actors, hps, row),
        )
        ended = row.final.astype(jnp.float32)
        sums = lambda v: Mean((v.astype(jnp.float32) * ended).sum(1), ended.sum(1))
        episodes = self.episodes(actors)
        metrics_now = {name: sums(numbers) for name, numbers in episodes.items()}
        metrics_now |= self.rollout(row)
        batches = self.draw(x.replay, hps, demos, keys, x.clock) if learn else None
        returns = episodes["rollout/ep_rew_mean"] if capability(self.algo, Remembering) else None
        scaled = (actors.discounted, lived.astype(jnp.float32)) if self.normalizing else None
        inputs = hps, row, batches, keys, x.clock, returns, scaled
        state, metrics, priorities = self.learn(x.state, *inputs)
        metrics_now |= metrics
        replay = self.store(x.replay, hps, row, batches, priorities)
        sums = x.metric_sums.add(metrics_now, row, x.clock.iteration)
        return Learner(state, actors, x.world, replay, sums, self.tick(x.clock, learn))

    def discount(self, actors: Actors, hps, row: Row) -> Array | None:
        """Returns the discounted returns [members, envs] of episodes, if they are used."""
        if actors.discounted is None:
            return None
        before = jnp.where(actors.begin, 0.0, actors.discounted)
        return hps.gamma[:, None] * before + scalar_reward(self.algo, row.reward, row.obs)

    @property
    def normalizing(self) -> NormalizingRewards | None:
        """Returns the algorithm if it scales rewards by discounted returns, else None."""
        algo = capability(self.algo, NormalizingRewards)
        return algo if algo and algo.normalizes_rewards else None

    def episodes(self, actors: Actors) -> dict[str, Array]:
        """Returns metrics of episodes [members, envs]: return, also by dimension, and length."""
        spec, returns = self.algo.spec, actors.ep_return
        total = returns if spec.reward_dim is None else returns[..., 0]
        parts = {f"rollout/ep_rew_mean/{n}": returns[..., i] for i, n in enumerate(spec.rewards, 1)}
        return {"rollout/ep_rew_mean": total, **parts, "rollout/ep_len_mean": actors.ep_length}

    def rollout(self, row: Row) -> dict[str, Mean | Histogram]:
        """Returns what the algorithm reports of new rows [members]; empty if it does not report."""
        if (reporting := capability(self.algo, Reporting)) is None:
            return {}
        over_envs = jax.tree.map(lambda x: x.sum(1), reporting.report(row))
        return {f"rollout/{name}": x for name, x in over_envs.items()}

    def paid(self, reward, obs):
        """Returns what is summed to returns: scalar rewards [...] as they are.

        Of vector rewards it is the scalar and all dimensions: [..., 1 + reward_dim].
        """
        if self.algo.spec.reward_dim is None:
            return reward
        xp = np if isinstance(reward, np.ndarray) else jnp
        return xp.concatenate([scalar_reward(self.algo, reward, obs)[..., None], reward], -1)

    def draw(self, replay: Replay, hps, demos, keys, clock: Clock):
        """Draws the batches of one iteration's updates, leaves [members, updates, ...]."""
        prioritised = capability(self.algo, Prioritised) if self.rule else None

        def of_member(member, hp, key):
            def one(i):
                k_sample = random.fold_in(random.fold_in(key, Use.SAMPLE), i)
                step = clock.updates + i
                beta = prioritised.beta(hp, step) if prioritised else None
                view = replay.view(None if self.shared else member, beta)
                return self.algo.sample(view, demos, hp, k_sample, step)

            return jax.vmap(one)(jnp.arange(self.slots))

        return jax.vmap(of_member)(jnp.arange(keys.shape[0]), hps, keys) if self.slots else None

    def learn(self, state, hps, row: Row, batches, keys, clock: Clock, returns=None, scaled=None):
        """Observes the new row, and does the updates of one iteration if there are batches.

        `returns` [members, envs] are those of episodes so far, for `Remembering` algorithms;
        `scaled` are the discounted ones and which of them count, for `NormalizingRewards`.

        Returns the state, metrics {name: Mean of [members]}, and priorities [members, updates,
        batch], which are None without prioritised replay, and negative if an update was not due.
        """
        whole, part = self.quota
        due = clock.remainder + part.numerator >= part.denominator
        remembering = None if returns is None else capability(self.algo, Remembering)

        def one(state, hp, row, batches, key, returns, scaled):
            def update(state, slot):
                i, batch = slot
                k_update = random.fold_in(random.fold_in(key, Use.UPDATE), i)
                step = clock.updates + i
                state, metrics, priorities = self.algo.update(state, hp, batch, k_update, step)
                means = {f"train/{k}": _as_sum(v) for k, v in metrics.items()}
                return state, (means, None if self.rule is None else priorities)

            state = self.algo.observe(state, row)
            if remembering:
                state = remembering.remember(state, row, returns)
            if scaled is not None and self.normalizing:
                state = self.normalizing.observe_returns(state, *scaled)
            if batches is None:
                return state, ({}, None)
            slots = (jnp.arange(self.slots), batches)
            state, (metrics, priorities) = jax.lax.scan(
                update, state, jax.tree.map(lambda x: x[:whole], slots)
            )
            metrics = jax.tree.map(lambda m: m.sum(0), metrics)
            if part:  # the clock is shared, so this stays a branch; no replay passes through it
                last = jax.tree.map(lambda x: x[whole], slots)
                zeros = jax.tree.map(jnp.zeros_like, metrics)
                negative = jax.tree.map(lambda p: -jnp.ones_like(p[0]), priorities)
                run, skip = lambda s: update(s, last), lambda s: (s, (zeros, negative))
                state, (more, last_priorities) = jax.lax.cond(due, run, skip, state)
                metrics = jax.tree.map(jnp.add, metrics, more)
                append = lambda p, q: jnp.concatenate([p, q[None]])
                priorities = jax.tree.map(append, priorities, last_priorities)
            return state, (metrics, priorities)

        state, (metrics, priorities) = self.map_members(
            one, state, hps, row, batches, keys, returns, scaled
        )
        return state, metrics, priorities

    def store(self, replay: Replay, hps, row: Row, batches, priorities) -> Replay:
        """Updates the priorities, in the order of the updates, and adds the row."""
        if self.rule is None:
            return replay.add(row, after=batches)
        alpha = hps.priority_alpha
        if batches is not None:
            row_of = jnp.where(priorities >= 0, batches.drawn.row, -1)
            drawn = dataclasses.replace(batches.drawn, row=row_of)

            def update(i, tree):
                at = lambda x: jax.lax.dynamic_index_in_dim(x, i, 1, keepdims=False)
                return tree.update(jax.tree.map(at, drawn), at(priorities), alpha)

            tree = jax.lax.fori_loop(0, self.slots, update, replay.priorities)
            replay = dataclasses.replace(replay, priorities=tree)
        return replay.add(row, after=batches, alpha=alpha)

    @property
    def rule(self) -> Rule | None:
        """Returns the rule of prioritised replay; None for uniform draws."""
        prioritised = capability(self.algo, Prioritised)
        return prioritised.rule(self.envs) if prioritised else None

    @property
    def quota(self) -> tuple[int, Fraction]:
        """Returns the updates per iteration: a whole number, and the fraction that is carried."""
        whole, part = divmod(self.updates_per_step * self.envs, 1)
        return int(whole), part

    @property
    def slots(self) -> int:
        """Returns the batches drawn per iteration; with a fraction, the last may stay unused."""
        whole, part = self.quota
        return whole + (part > 0)

    def tick(self, clock: Clock, learn: bool) -> Clock:
        """Returns the clock after one iteration."""
        if not learn:
            return Clock(clock.time.at[0].add(1))
        whole, part = self.quota
        total = clock.remainder + part.numerator
        updates = clock.updates + whole + total // part.denominator
        return Clock(jnp.stack([clock.iteration + 1, updates, total % part.denominator]))

    # --- many iterations --------------------------------------------------------------------

    def epoch(self, x: Learner, hps, demos, seeds, length, mode: Mode, learn: bool) -> Learner:
        """Does `length` iterations with JAX environments; how they are split changes nothing."""

        def body(_, x: Learner) -> Learner:
            keys, world = member_keys(seeds, Stream.TRAIN, x.clock.iteration), x.world
            answer = self.act(x.state, hps, x.actors, world.arrived.obs, keys, x.clock, mode)
            x = self.store_and_learn(x, hps, demos, world.arrived, answer, keys, learn)
            world = World(*self.map_members(self.step, world.env, answer[0], keys))
            return dataclasses.replace(x, world=world)

        return jax.lax.fori_loop(0, length, body, x)

    def reset(self, state, hps, seeds, number):
        """Returns the state of all members after their `number`-th reset, from 0."""
        resetting = capability(self.algo, Resetting)
        assert resetting is not None
        keys = member_keys(seeds, Stream.RESET, number)
        one = lambda state, hp, key: (resetting.reset(state, hp, key), None)
        return self.map_members(one, state, hps, keys)[0]

    def step(self, env, action, key):
        """Steps the environments of a member -> their states, and the step."""
        return self.env.step(env, action, random.fold_in(key, Use.STEP))

    # --- placement --------------------------------------------------------------------------

    def create(self, seeds, hps, demos=None, arrived: Step | None = None) -> Learner:
        """Compiles and runs `init`, every member on its device; no two leaves share a buffer."""
        if self.mesh is None:
            recipe = self if arrived is None else dataclasses.replace(self, env=None)
            return compiled(self.init, recipe)(seeds, hps, demos, arrived)
        learner = jax.eval_shape(self.init, seeds, hps, demos, arrived)
        placement = shardings(self.mesh, learner.specs)
        return jax.jit(self.init, out_shardings=placement)(seeds, hps, demos, arrived)

    def place(self, learner: Learner) -> Learner:
        """Puts every member on its device."""
        return put(self.mesh, learner, learner.specs)


def _as_sum(metric) -> Mean | Histogram:
    return metric if isinstance(metric, Mean | Histogram) else Mean(metric, jnp.ones(()))


class DeviceDriver:
    """Runs a `Loop` whose environments are JAX code: many iterations in one program."""

    measured: tuple[str, ...] = ()  # names of the metrics that `measures` returns

    def __init__(self, loop: Loop, seeds):
        self.loop = loop
        self.programs = cache(self.compile)

    def prepare(self) -> None:
        """Does nothing: there are no environments to open."""

    def init(self, seeds, hps, demos=None) -> Learner:
        return self.loop.create(seeds, hps, demos)

    def resume(self, learner: Learner) -> Learner:
        return self.loop.place(learner)

    def run(
        self, learner: Learner, hps, demos, seeds, length: int, mode: Mode, learn: bool
    ) -> Learner:
        """Does `length` iterations; the buffers of `learner` are donated."""
        epoch = self.programs(jax.tree.structure(learner), mode, learn)
        return epoch(learner, hps, demos, seeds, jnp.int32(length))

    def compile(self, structure, mode: Mode, learn: bool):
        """Returns the program of a phase, which reuses the learner's memory."""

        def epoch(x, hps, demos, seeds, length):
            return self.loop.epoch(x, hps, demos, seeds, length, mode, learn)

        specs = jax.tree.unflatten(structure, range(structure.num_leaves)).specs
        in_specs = (specs, MEMBERS, SHARED, MEMBERS, SHARED)
        program = spread(self.loop.mesh, epoch, in_specs, specs)
        return compiled(program, (self.loop, mode, learn), donate_argnums=0)

    def measures(self) -> dict[str, float]:
        """Returns metrics of the driver since the last call: none here."""
        return {}

    def close(self) -> None:
        pass
