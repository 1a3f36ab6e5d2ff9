"""Checks that play an environment with random actions, the same for all kinds of environments."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.core import AGENTS, MASK, Box, HostEnv, Spec, Step, longest
from thespis.envs.autoreset import Autoreset
from thespis.envs.check.report import Report, Stop

COPIES = 8  # environments that are played in parallel
SECONDS = 20.0  # time limit for one play of a host environment
FEW = 50  # rows of plays that are only compared with each other


# --- playing --------------------------------------------------------------------------------


class Play(NamedTuple):
    """The steps of random play, NumPy arrays [rows, copies, ...], and their duration."""

    steps: Step
    seconds: float

    @property
    def obs(self) -> np.ndarray:
        """Observations as one array [rows, copies, size]."""
        leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(self.steps.obs)]
        shape = self.steps.terminated.shape[:2]
        return np.concatenate([x.reshape(*shape, -1) for x in leaves], -1)


def player(env: Any, copies: int, rows: int) -> Callable[..., Play]:
    """Returns a function play(seed, action_seed), with seeds of environments and actions."""
    if isinstance(env, HostEnv):
        return lambda seed, action_seed=0: play_on_host(env, copies, rows, seed, action_seed)
    run = program(env, copies, rows)

    def play_on_device(seed: int, action_seed: int = 0) -> Play:
        began = time.perf_counter()
        steps = jax.block_until_ready(run(random.key(seed), random.key(action_seed)))
        seconds = time.perf_counter() - began
        return Play(jax.tree.map(np.asarray, steps), seconds)

    return play_on_device


def program(env: Autoreset, copies: int, rows: int) -> Callable:
    """Returns a compiled function (key of environments, key of actions) -> all rows."""

    def advance(carry, t):
        state, step, k_world, k_choice = carry
        k_action, k_step = random.fold_in(k_choice, t), random.fold_in(k_world, t)
        action = random_action(env.spec, step.obs, copies, k_action)
        state, after = env.step(state, action, k_step)
        return (state, after, k_world, k_choice), after

    def run(k_world, k_choice):
        state, first = env.reset(random.fold_in(k_world, rows), copies)
        start = state, first, k_world, k_choice
        steps = jax.lax.scan(advance, start, jnp.arange(rows - 1))[1]
        return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first, steps)

    return jax.jit(run)


def mask_of(spec: Spec, obs: Any) -> Any:
    """Returns the mask of legal actions in an observation, or None if it has none."""
    obs = obs[AGENTS] if spec.agents else obs
    return obs.get(MASK) if isinstance(obs, dict) else None


def random_action(spec: Spec, obs: Any, copies: int, key) -> jax.Array:
    """Samples actions uniformly from the legal ones."""
    if isinstance(spec.actions[0], Box):
        return random.uniform(key, (copies, *spec.action_shape), jnp.float32, -1.0, 1.0)
    legal = jnp.broadcast_to(spec.legal[None], (copies, *spec.legal.shape))
    mask = mask_of(spec, obs)
    legal = legal if mask is None else legal & jnp.asarray(mask, bool)
    return random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))


def play_on_host(
    env: Any, copies: int, rows: int, seed: int, action_seed: int, others: int = 0
) -> Play:
    """Plays some copies, next to `others` that take the first one's actions and are ignored."""
    rng, seeds = np.random.default_rng(action_seed), [seed + i for i in range(copies)]
    reported = lambda step: jax.tree.map(lambda x: x[:copies], step)
    with closing(env.open(copies + others, [*seeds, *range(7, 7 + others)])) as opened:
        steps, began = [reported(opened.reset())], time.perf_counter()
        while len(steps) < rows and time.perf_counter() - began < SECONDS:
            action = host_action(env.spec, steps[-1].obs, copies, rng)
            action = np.concatenate([action, np.repeat(action[:1], others, 0)])
            steps.append(reported(opened.step(action)))
        seconds = time.perf_counter() - began
    return Play(jax.tree.map(lambda *xs: np.stack(xs), *steps), seconds)


def host_action(spec: Spec, obs: Any, copies: int, rng: np.random.Generator) -> np.ndarray:
    if isinstance(spec.actions[0], Box):
        return rng.uniform(-1, 1, (copies, *spec.action_shape)).astype(np.float32)
    chance = np.where(spec.legal[None], rng.random((copies, *spec.legal.shape)), -1.0)
    mask = mask_of(spec, obs)
    chance = chance if mask is None else np.where(mask, chance, -1.0)
    return chance.argmax(-1).astype(np.int32)


# --- checks ---------------------------------------------------------------------------------


def check_play(report: Report, env: Any, seed: int) -> None:
    """Checks autoreset, ends, final observations, start states, seeds, copies and speed."""
    # At least two episodes, or as long as evaluations wait for the end of one.
    rows = min(max(300, 2 * env.limit + 3), 2500) if env.limit else longest(env) + 1
    host = isinstance(env, HostEnv)
    copies = 2 if host else COPIES
    play = player(env, copies, rows)
    briefly = player(env, copies, FEW) if host else play  # a compiled program is reused
    fix = "fix the error, which the environment raised during random play"
    with report.blame("plays", fix):
        played = play(seed)
        starts = first_rows(env, seed)
    report.add("plays", "ok", f"{played.steps.terminated.size:,} random steps")
    report.add("finite", *finite(played))
    if not report.ok:
        raise Stop
    report.add("autoreset", *autoreset(played))
    report.add("ends", *ends(played, env))
    report.add("final observation", *final_observation(played, starts))
    report.add("start states", *start_states(played, starts))
    with report.blame("seed", fix):
        again, other = briefly(seed), briefly(seed, 1)
    same = same_again(played, again)
    report.add("seed", *same)
    report.add("actions matter", *actions_matter(again, other))
    if host:
        with report.blame("copies", fix):
            alone, among = (play_on_host(env, 1, FEW, seed, 0, others) for others in (0, 3))
        report.add("copies", *independent(alone, among, same[0] == "ok"))
    timed = played if host else again  # the first play includes compiling
    speed = (timed.steps.terminated.size - copies) / max(timed.seconds, 1e-9)
    report.steps_per_second = round(speed, 1)
    where = "in one process" if host else f"{copies} copies in one program"
    report.add("speed", "ok", f"{speed:,.0f} steps per second, {where}")


def first_rows(env: Any, seed: int) -> np.ndarray:
    """Returns observations of start states [starts, size]."""
    if not isinstance(env, HostEnv):
        first = jax.jit(lambda key: env.reset(key, 64)[1])(random.key(seed + 1))
        return Play(jax.tree.map(lambda x: np.asarray(x)[None], first), 0.0).obs[0]
    with closing(env.open(1, [seed + 100])) as opened:
        starts, began = [opened.reset()], time.perf_counter()
        while len(starts) < 64 and time.perf_counter() - began < SECONDS / 4:
            starts.append(opened.reset())
    return Play(jax.tree.map(lambda *xs: np.stack(xs), *starts), 0.0).obs[:, 0]


def finite(played: Play) -> tuple:
    for name, x in (("reward", np.asarray(played.steps.reward)), ("obs", played.obs)):
        bad = np.argwhere(~np.isfinite(x))
        if len(bad):
            t, copy, *rest = bad[0].tolist()
            index = f" at index {rest[0]}" if rest else ""
            return (
                "wrong",
                f"the {name} is {x[tuple(bad[0])]}{index}, copy {copy}, step {t}",
                "bound the state, or terminate before it diverges",
            )
    return "ok", "observations and rewards are finite numbers"


def autoreset(played: Play) -> tuple:
    """Checks that the row after an end begins a new episode, with no reward and no end."""
    s = played.steps
    fix = "in the step after an end, return the first observation of a new episode and reward 0"
    both = s.terminated & s.truncated
    if both.any():
        return (
            "wrong",
            "an end is both terminated and truncated",
            "return truncated = False if it is terminated",
        )
    after = np.asarray(s.final)[:-1]
    if not after.any():
        return "cannot say", "no episode ended"
    reward = np.asarray(s.reward)[1:][after]
    if np.any(reward != 0):
        return "wrong", f"the row after an end has reward {np.ravel(reward)[0]:g}, not 0", fix
    if np.asarray(s.final)[1:][after].any():
        return "wrong", "an episode ends in its first row", fix
    return "ok", f"new episodes start in the step after an end ({int(after.sum())} times)"


def ends(played: Play, env: Any) -> tuple:
    """Checks that time limits truncate: after a termination no reward could follow."""
    s, obs = played.steps, played.obs
    lengths, clock = [], np.zeros(s.terminated.shape, int)
    for copy in range(s.terminated.shape[1]):
        begin = 0
        for t in range(len(s.terminated)):
            clock[t, copy] = t - begin
            if s.terminated[t, copy] or s.truncated[t, copy]:
                lengths.append((t - begin, bool(s.terminated[t, copy])))
                begin = t + 1
    if not lengths:
        message = f"no episode ended in {len(s.terminated) - 1:,} steps"
        if env.limit:
            return "cannot say", f"{message}; its limit is {env.limit}"
        fix = "give it a time limit (gymnasium.wrappers.TimeLimit, or return truncated = True)"
        if len(s.terminated) > longest(env):
            return (
                "wrong",
                f"{message}, the longest that evaluations play: it has no known time limit",
                fix,
            )
        return (
            "cannot say",
            f"{message}, and it has no known time limit",
            f"if it never ends, {fix}",
        )
    terminated = [n for n, over in lengths if over]
    truncated = len(lengths) - len(terminated)
    if len(lengths) >= 5 and not truncated and len(set(terminated)) == 1 and terminated[0] > 1:
        length = terminated[0]
        if shows_time(obs, clock) < 0.9:
            return (
                "wrong",
                f"all {len(lengths)} episodes terminate after exactly {length} steps, and "
                "observations do not show the time",
                "return truncated = True at a time limit (terminated only if the task itself has "
                "ended), or add the remaining time to observations",
            )
    length = np.mean([n for n, _ in lengths])
    return "ok", (
        f"{len(terminated)} terminations, {truncated} time limits, {length:,.0f} steps on average"
    )


def shows_time(obs: np.ndarray, clock: np.ndarray) -> float:
    """Returns how well observations predict the time linearly: R^2 on held-out copies."""
    split = max(1, obs.shape[1] // 2)
    sides = [
        (obs[:, part].reshape(-1, obs.shape[-1]), clock[:, part].reshape(-1).astype(float))
        for part in (slice(split), slice(split, None))
    ]
    (x, y), (x_new, y_new) = sides
    mean, std = x.mean(0), x.std(0) + 1e-9
    widen = lambda a: np.concatenate([(a - mean) / std, np.ones((len(a), 1))], 1)
    fit = np.linalg.solve(widen(x).T @ widen(x) + 1e-3 * np.eye(x.shape[1] + 1), widen(x).T @ y)
    error = np.mean((widen(x_new) @ fit - y_new) ** 2)
    return float(1 - error / max(np.var(y_new), 1e-9))


def final_observation(played: Play, starts: np.ndarray) -> tuple:
    """Checks that the last observation of an episode is its own, not the next one's first."""
    obs, s = played.obs, played.steps
    over = np.argwhere(np.asarray(s.final)[1:]) + np.array([[1, 0]])
    if not len(over):
        return "cannot say", "no episode ended"
    last, before = (obs[over[:, 0] - back, over[:, 1]] for back in (0, 1))
    going = ~np.asarray(s.final)[1:] & ~np.asarray(s.final)[:-1]
    moving = (obs[1:] != obs[:-1]).any(-1)[going]
    fix = "return the observation after the last action; Thespis resets the environment"
    if len(over) > 1 and (last == before).all() and moving.mean() > 0.9:
        return "wrong", "the last observation of an episode repeats the one before it", fix
    if len(over) > 1 and not last.any() and before.any(-1).mean() > 0.9:
        return "wrong", "the last observation of an episode is all zeros", fix
    # Distance from the start states, in units of their standard deviation.
    centre, spread = starts.mean(0), starts.std(0) + 1e-6 * (1 + np.abs(starts).max(0))
    far = lambda x: np.median(np.mean(np.abs(x - centre) / spread, -1))
    like_a_start, walked = far(last) <= 2 * far(starts), far(before) > 4 * far(starts)
    if (last[:, None] == starts[None]).all(-1).any(-1).mean() > 0.9:
        like_a_start, walked = True, not (before[:, None] == starts[None]).all(-1).any(-1).all()
    if like_a_start and walked:
        return (
            "wrong",
            "the last observation of an episode looks like the first of another: it resets itself",
            fix,
        )
    if like_a_start:
        return "cannot say", "start states look like all others"
    return "ok", "the last observation of an episode is not a start state"


def start_states(played: Play, starts: np.ndarray) -> tuple:
    obs, after = played.obs, np.asarray(played.steps.final)[:-1]
    again = [(obs[0, copy], obs[t + 1, copy]) for t, copy in np.argwhere(after)]
    differ = len(np.unique(obs[0], axis=0)) > 1
    if again and differ and all((a == b).all() for a, b in again):
        return (
            "wrong",
            "every episode of a copy begins in the same state, though copies differ by seed",
            "seed in reset only if a seed is given, and keep drawing from self.np_random",
        )
    if not differ and len(np.unique(starts, axis=0)) > 1:
        return (
            "wrong",
            "copies with different seeds begin in the same state, though later episodes differ",
            "call super().reset(seed=seed) and draw from self.np_random, or from the key",
        )
    kinds = len(np.unique(starts, axis=0))
    several = f"{kinds} different ones in {len(starts)} starts"
    return "ok", several if kinds > 1 else "always the same one"


def same_again(one: Play, two: Play) -> tuple:
    rows = min(len(one.obs), len(two.obs))  # the time limit may have ended one earlier
    for name, a, b in (
        ("observation", one.obs, two.obs),
        ("reward", *(np.asarray(p.steps.reward) for p in (one, two))),
        ("end", *(np.asarray(p.steps.final) for p in (one, two))),
    ):
        a, b = a[:rows], b[:rows]
        if (a != b).any():
            t = int(np.argwhere(a != b)[0][0])
            return (
                "wrong",
                f"the same seed and actions give another {name} at step {t}",
                "call super().reset(seed=seed) and draw from self.np_random only (not np.random)",
            )
    return "ok", "the same seed and actions give the same episodes"


def independent(alone: Play, among: Play, repeats: bool) -> tuple:
    if not repeats:
        return "cannot say", "episodes are not reproducible by their seed"
    if same_again(alone, among)[0] == "ok":
        return "ok", "copies do not influence each other"
    return (
        "wrong",
        "a copy behaves differently when there are more copies",
        "keep all state in self, none in the class, in globals or in files",
    )


def actions_matter(one: Play, other: Play) -> tuple:
    if same_again(one, other)[0] == "ok":
        return "cannot say", "other actions changed nothing", "check that step uses its action"
    return "ok", "other actions have other results"
