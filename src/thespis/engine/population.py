"""A population as data, and pure functions of it: begin, train, evaluate, exchange.

    p = jax.jit(partial(begin, loop, tuner))(seeds)
    for _ in range(rounds):
        p = train(loop, p, iterations)
        returns, _ = evaluate(loop, p, episodes=10)
        p, parents = exchange(loop, tuner, p, returns)

These need JAX environments and are all fit for `jax.jit`; `inherit` serves others as well.
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
from thespis.nn.normalization import Running
from thespis.nn.train_state import TrainState
from thespis.replay.ring import Replay
from thespis.tuning import Inherit, Tuner, replaced

FINAL = Descriptor()  # the last observation of an episode
CHUNK = 1024  # rows that are copied at a time


class Population(eqx.Module):
    """Members that learn, their hyper-parameters, and what the tuner remembers."""

    learner: Learner
    hps: Any  # the algorithm's `Hyper`, leaves [members]
    memory: Any
    age: Int[Array, "members"]  # environment steps since a member was replaced
    seeds: Int[Array, "members"]
    given: tuple[str, ...] = eqx.field(static=True, default=())  # hyper-parameters nobody changes


# --- a population's life --------------------------------------------------------------------


def begin(
    loop: Loop,
    tuner: Tuner,
    seeds: Int[Array, "members"],
    given: dict[str, Any] | None = None,
    demos=None,
) -> Population:
    """Makes new members, one per seed.

    Hyper-parameters that are `given`, a number or one per member, stay with a member's place.
    """
    if getattr(tuner, "replay", "own") == "shared" and not loop.shared:
        raise ThespisError("replay = shared needs a loop that does so: Loop(..., shared=True)")
    members = seeds.shape[0]
    given = given or {}
    hps, memory = tuner.begin(population_key(seeds, Stream.BEGIN), loop.algo.Hyper, given, members)
    learner, age = loop.init(seeds, hps, demos), jnp.zeros(members, jnp.int32)
    return Population(learner, hps, memory, age, seeds, tuple(given))


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
    """Does one round of the tuner -> the population, and whom each member copied."""
    x = p.learner
    key = population_key(p.seeds, Stream.EXCHANGE, x.clock.iteration)
    memory, parents, hps = tuning.decide(tuner, p.given, p.memory, key, p.hps, scores, p.age)
    x = inherit(x, parents, tuner, sick=~jnp.isfinite(scores.mean(1)))
    x = restart(loop, x, p.seeds, replaced(parents))
    age = jnp.where(replaced(parents), 0, p.age)
    return Population(x, hps, memory, age, p.seeds, p.given), parents


# --- copying members ------------------------------------------------------------------------


def inherit(
    learner: Learner,
    parents: Int[Array, "members"],
    what: Inherit,
    sick: Bool[Array, "members"] | None = None,
    of_parents: Any = None,
) -> Learner:
    """Makes members copies of their parents in what they are to inherit.

    Environments stay with their slot. A replay that is not inherited is passed on as it is; one
    that is, is copied in place. Those who are sick get their parent's in any case, since their
    own may hold what broke them, and would break others who learn from it. `of_parents` are the
    states of parents who are elsewhere [members, ...]; then replays are copied by the caller.
    """
    new = replaced(parents)
    taken = new if what.replay == "parent" else jnp.zeros_like(new)
    if sick is not None:
        taken = taken | (new & sick)

    def member(member_state, parent, new):
        def part(mine, theirs):
            if isinstance(mine, Running):
                return theirs if what.normalizer == "parent" else mine
            if not isinstance(mine, TrainState):
                return theirs if what.networks == "parent" else mine
            params = theirs.params if what.networks == "parent" else mine.params
            opt_state = (theirs if what.optimizer == "parent" else mine).opt_state
            if what.optimizer == "fresh":
                fresh = TrainState.create(mine.params, mine.optimizer).opt_state
                opt_state = where(new, fresh, opt_state)
            return TrainState(params, opt_state, mine.optimizer)

        whole = lambda x: isinstance(x, TrainState | Running)
        return jax.tree.map(part, member_state, parent, is_leaf=whole)

    if of_parents is None:
        of_parents = jax.tree.map(lambda x: x[parents], learner.state)
    replay = learner.replay
    if what.replay == "parent" or sick is not None:
        replay = cut(adopt(replay, parents, taken), taken)
    return dataclasses.replace(
        learner,
        state=jax.vmap(member)(learner.state, of_parents, new),
        replay=replay,
        metric_sums=forget(learner.metric_sums, new),
    )


def adopt(replay: Replay, parents: Int[Array, "members"], taken: Bool[Array, "members"]) -> Replay:
    """Copies the parents' rows, a few at a time, so that there is never a second ring."""
    source = jnp.where(taken, parents, jnp.arange(parents.size))

    def whole(tree):
        """Copies leaves [n, members, ...]."""
        n = jax.tree.leaves(tree)[0].shape[0]
        chunk = min(CHUNK, n)

        def copy(i, tree):
            # The last chunk may overlap the one before. No row is copied twice: a parent that is
            # itself replaced has another's rows by then.
            start = jnp.minimum(i * chunk, n - chunk)
            left = start + jnp.arange(chunk) >= i * chunk

            def write(x):
                part = jax.lax.dynamic_slice_in_dim(x, start, chunk)
                part = where(left, part[:, source], part)
                return jax.lax.dynamic_update_slice_in_dim(x, part, start, 0)

            return jax.tree.map(write, tree)

        return jax.lax.fori_loop(0, jnp.where(taken.any(), -(-n // chunk), 0), copy, tree)

    new = dataclasses.replace(replay, rows=whole(replay.rows))
    if replay.priorities is None:
        return new
    names = ("weight", "uses", "nodes", "highest")
    copied = {name: jax.tree.map(whole, getattr(replay.priorities, name)) for name in names}
    return dataclasses.replace(new, priorities=dataclasses.replace(replay.priorities, **copied))


def cut(replay: Replay, who: Bool[Array, "members"]) -> Replay:
    """Ends the newest row's episode as by a time limit: what is stored next does not follow it."""
    newest = (replay.head - 1) % replay.capacity
    rows = replay.rows
    ended = rows.truncated[newest] | (who[:, None] & ~rows.terminated[newest])
    truncated = jax.lax.dynamic_update_index_in_dim(rows.truncated, ended, newest, 0)
    return dataclasses.replace(replay, rows=dataclasses.replace(rows, truncated=truncated))


def restart(
    loop: Loop, learner: Learner, seeds: Int[Array, "members"], who: Bool[Array, "members"]
) -> Learner:
    """Begins new episodes in all JAX environments of some members, which others had begun."""

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
    """Clears sums and faults of members that are no more."""
    zero = lambda x: jnp.where(who[None], jnp.zeros_like(x), x)
    fault = jnp.where(who[None], -1, sums.fault)
    total, count, counts = jax.tree.map(zero, (sums.total, sums.count, sums.counts))
    return dataclasses.replace(sums, total=total, count=count, counts=counts, fault=fault)


# --- memory that can be made again ----------------------------------------------------------


def empty(state):
    """Returns a state [members, ...] without optimiser moments and targets, to keep many."""
    bare = lambda x: TrainState(x.params, None, x.optimizer)
    kept = {name: bare(getattr(state, name)) for name in learned(state)}
    return dataclasses.replace(state, **kept, **dict.fromkeys(targets(state)))


def rebuild(state):
    """Makes it whole again: moments of zero, and targets equal to their networks."""
    fresh = lambda x: jax.vmap(lambda params: TrainState.create(params, x.optimizer))(x.params)
    made = {name: fresh(getattr(state, name)) for name in learned(state)}
    copies = {name: made[network].params for name, network in targets(state).items()}
    return dataclasses.replace(state, **made, **copies)


def learned(state) -> list[str]:
    """Returns the parts that have optimiser moments."""
    return [name for name, part in vars(state).items() if isinstance(part, TrainState)]


def targets(state) -> dict[str, str]:
    """Returns the part that each target follows: `target_NAME` NAME, `target` the critic."""
    names = [name for name in vars(state) if name.partition("_")[0] == "target"]
    return {name: name.partition("_")[2] or "critic" for name in names}
