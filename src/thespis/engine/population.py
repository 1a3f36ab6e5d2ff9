"""A population as data, and pure functions of it: begin, train, evaluate, exchange.

    p = jax.jit(partial(begin, loop, tuner))(seeds)
    for _ in range(rounds):
        p = train(loop, p, iterations)
        returns, _ = evaluate(loop, p, episodes=10)
        p, parents = exchange(loop, tuner, p, returns)

They need JAX environments and can all be jitted; `inherit` also serves host environments.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Bool, Float, Int

from thespis import tuning
from thespis.core import Mode, ThespisError, where
from thespis.engine.evaluation import Descriptor, Episodes, play
from thespis.engine.loop import Learner, Loop, World
from thespis.engine.metric_sums import MetricSums
from thespis.engine.rollout import FrozenPolicy
from thespis.engine.streams import Stream, Use, member_keys, population_key
from thespis.nn.normalization import ReturnScale, Running
from thespis.nn.train_state import TrainState
from thespis.replay.ring import Replay
from thespis.tuning import Inherit, Tuner, inherited, replaced

FINAL = Descriptor()  # the last observation of an episode
CHUNK = 1024  # rows copied at a time


class Population(eqx.Module):
    """Members that learn, their hyper-parameters, and the tuner's memory."""

    learner: Learner
    hps: Any  # the algorithm's `Hyper`, leaves [members]
    memory: Any
    age: Int[Array, "members"]  # environment steps since a member was replaced
    seeds: Int[Array, "members"]
    fixed: tuple[str, ...] = eqx.field(static=True, default=())  # hyper-parameters nobody changes


# --- a population's life --------------------------------------------------------------------


def begin(
    loop: Loop,
    tuner: Tuner,
    seeds: Int[Array, "members"],
    fixed: dict[str, Any] | None = None,
    demos=None,
) -> Population:
    """Returns a new population with one member per seed.

    Hyper-parameters that are `fixed`, as a number or one per member, stay with a member's slot.
    """
    if inherited(tuner).replay == "shared" and not loop.shared:
        raise ThespisError("replay = shared needs a loop that does so: Loop(..., shared=True)")
    members = seeds.shape[0]
    fixed = fixed or {}
    hps, memory = tuner.begin(population_key(seeds, Stream.BEGIN), loop.algo.Hyper, fixed, members)
    learner, age = loop.init(seeds, hps, demos), jnp.zeros(members, jnp.int32)
    return Population(learner, hps, memory, age, seeds, tuple(fixed))


def train(
    loop: Loop, p: Population, iterations, mode: Mode = "explore", learn: bool = True, demos=None
) -> Population:
    """Lets all members act and learn; metrics are in `p.learner.metric_sums`."""
    learner = loop.epoch(p.learner, p.hps, demos, p.seeds, iterations, mode, learn)
    return dataclasses.replace(p, learner=learner, age=p.age + iterations * loop.envs)


def evaluate(
    loop: Loop, p: Population, episodes: int, env=None, mode: Mode = "greedy"
) -> tuple[Float[Array, "members episodes"], Int[Array, "members episodes"]]:
    """Plays episodes of every member, also in another environment -> returns, lengths."""
    played = evaluate_qd(loop, p, episodes, None, env, mode)
    return played.returns, played.lengths


def evaluate_qd(
    loop: Loop,
    p: Population,
    episodes: int,
    descriptor: Descriptor | None = FINAL,
    env=None,
    mode: Mode = "greedy",
) -> Episodes:
    """Plays episodes of every member -> returns, lengths and descriptors."""
    env, x = loop.env if env is None else env, p.learner
    rows = jnp.broadcast_to(x.clock.iteration * loop.envs, p.seeds.shape)
    inputs = FrozenPolicy(x.state, p.hps, rows), p.seeds, x.clock.iteration
    return play(loop, env, episodes, mode, descriptor, *inputs)


def exchange(
    loop: Loop, tuner: Any, p: Population, scores: Float[Array, "members n"]
) -> tuple[Population, Int[Array, "members"]]:
    """Does one round of the tuner -> the population, and the parent of each member."""
    x = p.learner
    key = population_key(p.seeds, Stream.EXCHANGE, x.clock.iteration)
    memory, parents, hps = tuning.decide(tuner, p.fixed, p.memory, key, p.hps, scores, p.age)
    x = inherit(x, parents, tuner, sick=~jnp.isfinite(scores.mean(1)))
    x = restart(loop, x, p.seeds, replaced(parents))
    age = jnp.where(replaced(parents), 0, p.age)
    return Population(x, hps, memory, age, p.seeds, p.fixed), parents


# --- copying members ------------------------------------------------------------------------


def inherit(
    learner: Learner,
    parents: Int[Array, "members"],
    what: Inherit,
    sick: Bool[Array, "members"] | None = None,
    of_parents: Any = None,
) -> Learner:
    """Makes replaced members copies of their parents, as far as `what` says.

    Environments stay with their slot. Replays are copied in place if they are inherited. Members
    that diverged (`sick`) always get their parent's, since their own may hold the cause, and
    would make others diverge who learn from it. `of_parents` are the states [members, ...] of
    parents in other processes; then the caller copies the replays.
    """
    new = replaced(parents)
    adopts = new if what.replay == "parent" else jnp.zeros_like(new)
    if sick is not None:
        adopts = adopts | (new & sick)

    def member(member_state, parent, new):
        def part(mine, theirs):
            if isinstance(mine, Running | ReturnScale):
                return theirs if what.normalizer == "parent" else mine
            if not isinstance(mine, TrainState):
                return theirs if what.networks == "parent" else mine
            params = theirs.params if what.networks == "parent" else mine.params
            opt_state = (theirs if what.optimizer == "parent" else mine).opt_state
            if what.optimizer == "fresh":
                fresh = TrainState.create(mine.params, mine.optimizer).opt_state
                opt_state = where(new, fresh, opt_state)
            return TrainState(params, opt_state, mine.optimizer)

        whole = lambda x: isinstance(x, TrainState | Running | ReturnScale)
        return jax.tree.map(part, member_state, parent, is_leaf=whole)

    if of_parents is None:
        of_parents = jax.tree.map(lambda x: x[parents], learner.state)
    replay = learner.replay
    if what.replay == "parent" or sick is not None:
        replay = cut(adopt(replay, parents, adopts), adopts)
    return dataclasses.replace(
        learner,
        state=jax.vmap(member)(learner.state, of_parents, new),
        replay=replay,
        metric_sums=forget(learner.metric_sums, new),
    )


def adopt(replay: Replay, parents: Int[Array, "members"], who: Bool[Array, "members"]) -> Replay:
    """Copies the parents' rows to some members, in chunks, so that there is never a second ring."""
    source = jnp.where(who, parents, jnp.arange(parents.size))

    def copy_members(tree):
        """Copies leaves [n, members, ...]."""
        n = jax.tree.leaves(tree)[0].shape[0]
        chunk = min(CHUNK, n)

        def copy(i, tree):
            # The last chunk may overlap the one before. No row is copied twice, since a parent
            # that is itself replaced has the rows of another member by then.
            start = jnp.minimum(i * chunk, n - chunk)
            fresh = start + jnp.arange(chunk) >= i * chunk

            def write(x):
                part = jax.lax.dynamic_slice_in_dim(x, start, chunk)
                part = where(fresh, part[:, source], part)
                return jax.lax.dynamic_update_slice_in_dim(x, part, start, 0)

            return jax.tree.map(write, tree)

        return jax.lax.fori_loop(0, jnp.where(who.any(), -(-n // chunk), 0), copy, tree)

    new = dataclasses.replace(replay, rows=copy_members(replay.rows))
    if replay.priorities is None:
        return new
    names = ("weight", "uses", "nodes", "highest")
    copied = {name: jax.tree.map(copy_members, getattr(replay.priorities, name)) for name in names}
    return dataclasses.replace(new, priorities=dataclasses.replace(replay.priorities, **copied))


def cut(replay: Replay, who: Bool[Array, "members"]) -> Replay:
    """Truncates the newest row of some members, since what is stored next does not follow it."""
    newest = (replay.head - 1) % replay.capacity
    rows = replay.rows
    ended = rows.truncated[newest] | (who[:, None] & ~rows.terminated[newest])
    truncated = jax.lax.dynamic_update_index_in_dim(rows.truncated, ended, newest, 0)
    return dataclasses.replace(replay, rows=dataclasses.replace(rows, truncated=truncated))


def restart(
    loop: Loop, learner: Learner, seeds: Int[Array, "members"], who: Bool[Array, "members"]
) -> Learner:
    """Begins new episodes in all JAX environments of some members."""

    def fresh(key):
        return World(*loop.env.reset(random.fold_in(key, Use.RESTART), loop.envs))

    keys = member_keys(seeds, Stream.TRAIN, learner.clock.iteration)
    actors = dataclasses.replace(learner.actors, begin=learner.actors.begin | who[:, None])
    return dataclasses.replace(
        learner,
        world=where(who, jax.vmap(fresh)(keys), learner.world),
        actors=actors,
        replay=cut(learner.replay, who),
    )


def forget(sums: MetricSums, who: Bool[Array, "members"]) -> MetricSums:
    """Clears sums and faults of members that are replaced."""
    zero = lambda x: jnp.where(who[None], jnp.zeros_like(x), x)
    fault = jnp.where(who[None], -1, sums.fault)
    total, count, counts = jax.tree.map(zero, (sums.total, sums.count, sums.counts))
    return dataclasses.replace(sums, total=total, count=count, counts=counts, fault=fault)


# --- states in less memory ------------------------------------------------------------------


def empty(state):
    """Returns a state [members, ...] without optimiser moments and targets, to save memory."""
    bare = lambda x: TrainState(x.params, None, x.optimizer)
    networks = {name: bare(getattr(state, name)) for name in train_states(state)}
    return dataclasses.replace(state, **networks, **dict.fromkeys(targets(state)))


def rebuild(state):
    """Completes such a state: moments are zero, and targets equal to their networks."""
    fresh = lambda x: jax.vmap(lambda params: TrainState.create(params, x.optimizer))(x.params)
    networks = {name: fresh(getattr(state, name)) for name in train_states(state)}
    copies = {name: networks[network].params for name, network in targets(state).items()}
    return dataclasses.replace(state, **networks, **copies)


def train_states(state) -> list[str]:
    """Returns the names of the parts that have an optimiser."""
    return [name for name, part in vars(state).items() if isinstance(part, TrainState)]


def targets(state) -> dict[str, str]:
    """Returns the part that each target follows: NAME for `target_NAME`, critic for `target`."""
    names = [name for name in vars(state) if name.partition("_")[0] == "target"]
    return {name: name.partition("_")[2] or "critic" for name in names}
