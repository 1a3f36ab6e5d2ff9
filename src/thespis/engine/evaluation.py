"""Evaluation: whole episodes of frozen policies, with one result per episode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property, partial, update_wrapper
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Bool, Float, Int

from thespis.core import HostEnv, Mode, Row, SelfRewarding, capability, where
from thespis.engine.loop import Loop
from thespis.engine.rollout import FrozenPolicy, Look, moments, watch
from thespis.engine.streams import Stream, environment_seeds, member_keys
from thespis.errors import Fault
from thespis.xla.multihost import gather, read
from thespis.xla.placement import MEMBERS, SHARED, all_of, local, local_part, spread
from thespis.xla.program_cache import compiled

WIDTH = 10  # maximum number of host environments per member


def first_episode(final: Bool[Array, "rows n"]) -> Bool[Array, "rows n"]:
    """Returns True for the rows of each environment's first episode, the final one included."""
    ended = jnp.cumsum(final, 0) - final.astype(int) > 0
    return ~ended


def outcome(rows: Row) -> tuple[Float[Array, "n ..."], Int[Array, "n"]]:
    """Returns undiscounted return and length of every environment's first episode."""
    first = first_episode(rows.final)
    return where(first, rows.reward, jnp.zeros_like(rows.reward)).sum(0), first.sum(0) - 1


def intrinsic_terms(
    algo: SelfRewarding, policy: FrozenPolicy, row: Row, after: Row
) -> Float[Array, "n terms"]:
    """Returns the intrinsic reward of steps, and the terms of their dependence on skills."""
    steps = policy.state, policy.hp, row, after
    return jnp.concatenate(
        [algo.diversity_reward(*steps)[:, None], algo.dependence_terms(*steps)], -1
    )


def diversity(algo, policy: FrozenPolicy, rows: Row) -> Float[Array, "n terms"] | None:
    """Sums these over every environment's first episode; None without intrinsic rewards."""
    if (rewarding := capability(algo, SelfRewarding)) is None:
        return None
    now, after = (jax.tree.map(lambda x, s=s: x[s], rows) for s in (slice(-1), slice(1, None)))
    terms = jax.lax.map(lambda x: intrinsic_terms(rewarding, policy, *x), (now, after))
    return where(first_episode(rows.final)[1:], terms, jnp.zeros_like(terms)).sum(0)


# --- descriptors ----------------------------------------------------------------------------


def final(
    observed: Float[Array, "rows n size"], stepped: Bool[Array, "rows n"]
) -> Float[Array, "n size"]:
    """Returns the observation after the last step of every episode."""
    last = stepped.shape[0] - 1 - jnp.argmax(stepped[::-1], 0)
    return observed[last, jnp.arange(last.size)]


def average(
    observed: Float[Array, "rows n size"], stepped: Bool[Array, "rows n"]
) -> Float[Array, "n size"]:
    """Returns the mean over all steps: of contacts, for example, the share of the time."""
    # Selected, not multiplied by 0: what follows the episode may be NaN.
    total = jnp.where(stepped[..., None], observed, 0.0).sum(0)
    return total / jnp.maximum(stepped.sum(0), 1).astype(jnp.float32)[:, None]


@dataclass(frozen=True)
class Descriptor:
    """How an episode is described, besides its return.

    `look(obs, env_state)` returns what matters in one row [n, size]; the state of host
    environments is None. `reduce` reduces all rows [rows, n, size] to one vector per episode
    [n, size]; its second argument tells which rows follow a step of the episode.
    """

    reduce: Callable[..., Any] = final
    look: Look = lambda obs, env_state: obs


def describe(descriptor: Descriptor, observations: dict, lengths: np.ndarray) -> Array:
    """Returns descriptors [members, episodes, size] from observations after each step."""
    rows = lengths.max()
    pad = lambda steps: np.stack([*steps, *[np.zeros_like(steps[0])] * (rows - len(steps))])
    observed = np.stack([pad(observations[slot]) for slot in np.ndindex(lengths.shape)], 1)
    stepped = np.arange(rows)[:, None] < lengths.reshape(-1)[None]
    descriptors = descriptor.reduce(jnp.asarray(observed), jnp.asarray(stepped))
    return descriptors.reshape(*lengths.shape, -1)


class Episodes(NamedTuple):
    """The results of episodes, leaves [members, episodes]; descriptors [members, episodes, size].

    `diversity` is the sum of intrinsic rewards, if the algorithm has them, and `dependence` how
    much the episode depended on its skill. `parts` are the returns by dimension [members,
    episodes, reward_dim] if rewards are vectors.
    """

    returns: Any
    lengths: Any
    descriptors: Any = None
    diversity: Any = None
    parts: Any = None
    dependence: Any = None

    @classmethod
    def from_returns(cls, algo, returns, lengths, descriptors=None, terms=None) -> Episodes:
        """Returns the results of one member or of all, from returns as `Loop.paid` makes them.

        `terms` [..., episodes, terms] are the sums of `intrinsic_terms`.
        """
        parts = None if algo.spec.reward_dim is None else returns[..., 1:]
        returns = returns if parts is None else returns[..., 0]
        rewarding = capability(algo, SelfRewarding)
        if terms is None or rewarding is None:
            return cls(returns, lengths, descriptors, None, parts)
        dependence = rewarding.dependence if terms.ndim == 2 else jax.vmap(rewarding.dependence)
        return cls(returns, lengths, descriptors, terms[..., 0], parts, dependence(terms[..., 1:]))


# --- all members ----------------------------------------------------------------------------


def play(
    loop: Loop,
    env,
    episodes: int,
    mode: Mode,
    descriptor: Descriptor | None,
    policies: FrozenPolicy,
    seeds,
    time,
) -> Episodes:
    """Plays episodes of every member in a JAX environment."""
    look = descriptor.look if descriptor else lambda obs, env_state: None

    def one(_, policy, key):
        k_unroll = random.fold_in(key, 0)  # keys of members may be folded, but not consumed
        length = env.limit + 1
        rows, observed = watch(loop.algo, env, policy, k_unroll, episodes, length, mode, look)
        stepped = first_episode(rows.final).at[0].set(False)
        descriptors = descriptor.reduce(observed, stepped) if descriptor else None
        terms = diversity(loop.algo, policy, rows)
        paid = dataclasses.replace(rows, reward=loop.paid(rows.reward, rows.obs))
        return None, Episodes.from_returns(loop.algo, *outcome(paid), descriptors, terms)

    return loop.map_members(one, None, policies, member_keys(seeds, Stream.EVALUATE, time))[1]


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Plays episodes of every member in its own environments."""

    loop: Loop
    env: Any
    episodes: int
    mode: Mode = "greedy"
    descriptor: Descriptor | None = None

    def __call__(self, policies: FrozenPolicy, seeds, time) -> tuple[np.ndarray, np.ndarray]:
        """Plays episodes -> returns, lengths [members, episodes], determined by seeds and time."""
        played = self.play(policies, seeds, time)
        return played.returns, played.lengths

    @cached_property
    def rewarding(self) -> Any:
        """Returns the algorithm if it is `SelfRewarding`, else None."""
        return capability(self.loop.algo, SelfRewarding)

    def play(self, policies: FrozenPolicy, seeds, time) -> Episodes:
        """Plays episodes and returns all their results, with descriptors if there is one."""
        if not isinstance(self.env, HostEnv):
            return read(self.on_device(policies, seeds, time))
        members = policies, seeds
        policies, seeds = local_part(self.loop.mesh, members, all_of(MEMBERS, members))
        return gather(self.on_host(policies, seeds, time))

    @cached_property
    def on_device(self):
        choices = self.loop, self.env, self.episodes, self.mode, self.descriptor
        f, in_specs = update_wrapper(partial(play, *choices), play), (MEMBERS, MEMBERS, SHARED)
        return compiled(spread(self.loop.mesh, f, in_specs, MEMBERS), choices)

    # --- host environments ------------------------------------------------------------------

    def on_host(self, policies: FrozenPolicy, seeds, time):
        """Plays a fixed share of the episodes in each environment: short ones are not favoured."""
        members, width = len(seeds), min(self.episodes, WIDTH)
        share = np.array([len(range(i, self.episodes, width)) for i in range(width)])
        starts = environment_seeds(np.asarray(seeds), Stream.EVALUATE, time, width)
        fold = lambda x: x.reshape(members, width, *x.shape[1:])
        dim = self.env.spec.reward_dim
        vector = () if dim is None else (1 + dim,)
        returns = np.zeros((members, self.episodes, *vector), np.float32)
        lengths = np.zeros((members, self.episodes), int)
        total = np.zeros((members, width, *vector))
        done = np.zeros((members, width), int)
        observed = {slot: [] for slot in np.ndindex(members, width)}
        observations = {}  # of each episode
        algo, before, terms = self.loop.algo, None, np.zeros((members, width, 1))
        sums = {}  # of `intrinsic_terms` in each episode
        leaves, structure = jax.tree.flatten(policies)  # once: it is the same at every step
        program = self.act(structure)
        zeros = lambda x: np.zeros((members, *x.shape), x.dtype)
        blank = jax.tree.map(zeros, self.memory_shapes)  # made anew where an episode begins

        def act(memory, begin, obs, t):
            obs = jax.tree.map(fold, obs)
            memory = blank if memory is None else memory
            return program(leaves, memory, fold(begin), obs, seeds, np.int32(time), np.int32(t))

        try:
            with closing(moments(self.env, starts, act)) as played:
                for step, begin, length, action, extra in played:
                    begin, final = fold(begin), fold(np.asarray(step.final))
                    # What arrives with a first observation belongs to no step.
                    total = total + fold(self.loop.paid(np.asarray(step.reward), step.obs))
                    total[begin] = 0
                    if self.rewarding:
                        obs, reward = jax.tree.map(fold, step.obs), fold(np.asarray(step.reward))
                        if before is not None:
                            flags = fold(step.terminated), fold(step.truncated)
                            new = self.judge(policies, *before, obs, reward, *flags)
                            terms = np.where(begin[..., None], 0, terms + np.asarray(new))
                        before = obs, action, extra
                    if self.descriptor:
                        looked = fold(np.asarray(self.descriptor.look(step.obs, None)))
                        for slot in observed:
                            if begin[slot]:
                                observed[slot] = []
                            else:
                                observed[slot].append(looked[slot])
                    if not final.any():
                        continue
                    steps = fold(length)
                    for m, w in zip(*np.nonzero(final & (done < share)), strict=True):
                        episode = w + done[m, w] * width
                        returns[m, episode], lengths[m, episode] = total[m, w], steps[m, w]
                        observations[m, episode], sums[m, episode] = observed[m, w], terms[m, w]
                        done[m, w] += 1
                    if (done >= share).all():
                        break
        except Fault as fault:
            m, w = divmod(fault.environment, width)
            step = f"{fault.step} of an evaluation"
            raise fault.at(w, step, int(seeds[m])) from fault.__cause__
        descriptors = describe(self.descriptor, observations, lengths) if self.descriptor else None
        if not self.rewarding:
            return Episodes.from_returns(algo, returns, lengths, descriptors)
        terms = np.stack([sums[slot] for slot in np.ndindex(lengths.shape)])
        terms = jnp.asarray(terms.reshape(*lengths.shape, -1), jnp.float32)
        return Episodes.from_returns(algo, returns, lengths, descriptors, terms)

    @cached_property
    def memory_shapes(self) -> Any:
        """Returns the shapes and types of one member's memory."""
        width = min(self.episodes, WIDTH)
        return jax.eval_shape(lambda: self.loop.algo.memory(random.key(0), width))

    @cached_property
    def act(self) -> Callable[[Any], Callable]:
        """Returns the program that acts for all members, for policies of a structure.

        It takes their leaves as a list, which is passed faster, and returns the action [members,
        n, ...], the memory, and the extra if the algorithm rewards itself.
        """
        return cache(self.compile_act)

    def compile_act(self, structure: Any) -> Callable:
        loop, algo = self.loop, self.loop.algo

        def act_in_evaluation(leaves, memory, begin, obs, seeds, time, t):
            def one(_, policy, memory, begin, obs, key):
                k_act = random.fold_in(key, t)
                action, memory, extra = policy.answer(algo, memory, begin, obs, k_act, self.mode)
                return None, (action, memory, extra if self.rewarding else None)

            policies = jax.tree.unflatten(structure, leaves)
            keys = member_keys(seeds, Stream.EVALUATE, time)
            return loop.map_members(one, None, policies, memory, begin, obs, keys)[1]

        in_specs = (MEMBERS,) * 5 + (SHARED, SHARED)
        f = spread(local(loop.mesh), act_in_evaluation, in_specs, MEMBERS)
        return compiled(f, (algo, loop.side_by_side, loop.mesh, self.mode))

    @cached_property
    def judge(self):
        """Returns the program of `intrinsic_terms` for all members [members, n, terms]."""

        def all_members(*inputs):
            def one(_, policy, obs, action, extra, *arrived):
                next_obs, reward, terminated, truncated = arrived
                no = jnp.zeros_like(terminated)
                row = Row(obs, reward, no, no, action, extra)
                after = Row(next_obs, reward, terminated, truncated, action, extra)
                return None, intrinsic_terms(self.rewarding, policy, row, after)

            return self.loop.map_members(one, None, *inputs)[1]

        return jax.jit(spread(local(self.loop.mesh), all_members, (MEMBERS,) * 8, MEMBERS))
