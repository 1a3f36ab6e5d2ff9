"""Plans with skills that were learned without a task: chooses those that lead to a goal.

The skill dynamics predict where a skill leads, and model-predictive path integral control searches
for the best plan. Sharma et al. 2020, https://arxiv.org/abs/1907.01657, algorithm 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import nn, random
from jaxtyping import Array, Float

from thespis.engine.rollout import Copies, episode
from thespis.errors import ThespisError
from thespis.runs.skilled import Skilled
from thespis.selection import DESCRIPTOR

MOST = 10_000  # largest number of plans that are enumerated


@dataclass(frozen=True)
class Planner:
    """Settings of the search for plans; the defaults are the paper's."""

    horizon: int = 1
    """Number of skills in a plan."""
    hold: int = 10
    """Environment steps for which each skill acts."""
    candidates: int = 50
    """Number of plans that are sampled per round."""
    rounds: int = 10
    """Number of rounds; each samples plans around the best of the round before."""
    sharpness: float = 10.0
    """Inverse temperature of the weights of plans in a round."""
    variance: float = 1.5
    """Variance of plans in the first round; it shrinks to a tenth in the last."""
    smoothing: float = 0.9
    """Correlation of the noise of successive skills in a plan."""


def predict(algo: Any, state: Any, hp: Any, x: Array, skill: Array) -> Array:
    """Returns the expected x [..., n] after one step of a skill [..., size]."""
    base, coordinates = algo.views["dynamics_sees"]
    inputs = (numbers(algo, base, x) if coordinates else x)[..., np.asarray(coordinates, int)]
    if state.input_stats is not None:
        inputs = state.input_stats(inputs, floor=1e-12)
    change = algo.intrinsic_objective.predict(state.dynamics.params, hp, inputs, skill).expect()
    stats = state.change_stats
    if stats is not None:
        lead = (1,) * (x.ndim - 1)
        scale = jnp.sqrt(jnp.clip(stats.var, 1e-12, 1e6)).reshape(*lead, -1)
        change = stats.mean.reshape(*lead, -1) + scale * change
    return x + change


def numbers(algo: Any, base: str, x: Array) -> Array:
    """Returns the observation or the descriptor, from the dynamics' prediction."""
    predicted, coordinates = algo.views["predicts"]
    plain = isinstance(algo.spec.obs, jax.ShapeDtypeStruct)
    if (
        coordinates != tuple(range(len(coordinates)))
        or len(coordinates) != algo.views.sizes[predicted]
    ):
        predicted = "a part"
    if predicted == base:
        return x
    if predicted == "observation" and base == DESCRIPTOR and plain:
        return algo.describe(x)
    raise ThespisError(
        f"plans need the {base}, but the skill dynamics predict {algo.predicts}: train with "
        "dynamics_sees = none or descriptor, or with predicts = observation"
    )


def lead(algo: Any, state: Any, x: Array, goal: Array) -> Float[Array, "... size"]:
    """Returns METRA's skill from descriptors [..., n] to goals: the direction between their phi."""
    base, coordinates = algo.views["dynamics_sees"]
    if base != DESCRIPTOR and not algo.views.describes_all:
        raise ThespisError(
            f"a goal is a descriptor, but metra's representation sees the {base}: train with "
            "dynamics_sees = descriptor"
        )
    place = lambda x: algo.scaled(state, x[..., np.asarray(coordinates, int)])
    phi = state.dynamics.params
    return algo.nearest(phi(place(goal)) - phi(place(x)))


def plan(
    algo: Any,
    state: Any,
    hp: Any,
    planner: Planner,
    x: Float[Array, "n"],
    reward: Callable[[Array], Array],
    key: Any,
) -> Float[Array, "horizon size"]:
    """Returns the skills with the most predicted reward, a function [..., size] -> [...]."""
    if algo.objective == "metra":
        raise ThespisError("metra has no dynamics to plan with: it pursues goals only; use dads")

    def worth(skills: Float[Array, "plans horizon size"]) -> Array:
        """Returns the predicted sum of rewards."""
        by_step = jnp.repeat(skills, planner.hold, 1).swapaxes(0, 1)

        def step(x, skill):
            x = predict(algo, state, hp, x, skill)
            return x, reward(numbers(algo, DESCRIPTOR, x))

        start = jnp.broadcast_to(x[None], (skills.shape[0], x.shape[0]))
        return jax.lax.scan(step, start, by_step)[1].sum(0)

    size = algo.skills
    if algo.skill_kind == "one-hot":
        if size**planner.horizon > MOST:
            raise ThespisError(
                f"horizon = {planner.horizon}: {size} skills make more than {MOST} plans"
            )
        plans = np.array(list(itertools.product(np.eye(size), repeat=planner.horizon)), np.float32)
        return jnp.asarray(plans)[worth(jnp.asarray(plans)).argmax()]

    k_first, k_rounds = random.split(key)
    shape = (planner.candidates, planner.horizon, size)

    def round_(mean, i):
        noise = random.normal(random.fold_in(k_rounds, i), shape)
        shrink = 0.1 ** (i.astype(jnp.float32) / max(planner.rounds - 1, 1))
        noise = jnp.sqrt(planner.variance * shrink) * smooth(noise, planner.smoothing)
        plans = jnp.clip(mean[None] + noise, -1, 1)
        value = worth(plans)
        # The paper's rewards are metres; divided by their range, the unit does not matter.
        value = (value - value.max()) / jnp.maximum(value.max() - value.min(), 1e-12)
        weight = nn.softmax(planner.sharpness * value)
        return (weight[:, None, None] * plans).sum(0), None

    start = jnp.clip(random.normal(k_first, shape[1:]), -1, 1)
    return jax.lax.scan(round_, start, jnp.arange(planner.rounds))[0]


def smooth(noise: Float[Array, "plans horizon size"], by: float) -> Array:
    """Returns noise that is correlated along the horizon, with the same variance."""
    keep, new = by, np.sqrt(1 - by**2)
    steps = [noise[:, 0]]
    for i in range(1, noise.shape[1]):
        steps.append(keep * steps[-1] + new * noise[:, i])
    return jnp.stack(steps, 1)


class Pursuit(NamedTuple):
    """The paths to goals, leaves [goals, ...]."""

    goals: np.ndarray  # [goals, size]
    paths: np.ndarray  # [goals, steps + 1, size]
    skills: np.ndarray  # [goals, plans, size]
    scores: np.ndarray  # [goals]

    @property
    def distances(self) -> np.ndarray:
        """Distances from the goal after every step [goals, steps]."""
        return np.linalg.norm(self.paths[:, 1:] - self.goals[:, None], axis=-1)


def pursue(
    skilled: Skilled,
    goals: np.ndarray,
    planner: Planner | None = None,
    steps: int | None = None,
    seed: int = 0,
    blind: bool = False,
) -> Pursuit:
    """Pursues goals [n, size] in descriptor space; `blind` chooses random skills instead.

    The score is minus the mean distance from the goal over an episode, in units of the goal's
    distance from the origin: 0 if it is reached at once, -1 if the agent never moves. After the end
    of an episode its last position counts.
    """
    algo, n = skilled.algo, len(goals)
    size = algo.views.sizes[DESCRIPTOR]
    if goals.ndim != 2 or goals.shape[1] != size:
        raise ThespisError(f"goal = {goals.tolist()}: give {size} numbers, one per descriptor axis")
    span = min(steps or skilled.limit, skilled.limit)
    targets = jnp.asarray(goals, jnp.float32)
    planner = planner or Planner()

    @jax.jit
    def choose(obs, time):
        keys = random.split(random.fold_in(random.key(seed), time), n)
        if blind:
            return jax.vmap(lambda k: algo.draw_skills(k, 1)[0])(keys)
        if algo.objective == "metra":
            return lead(algo, skilled.state, algo.describe(obs), targets)
        x = algo.views.look("predicts", obs)

        def one(x, goal, key):
            towards = lambda place: -jnp.linalg.norm(place - goal[None], axis=-1)
            return plan(algo, skilled.state, skilled.hp, planner, x, towards, key)[0]

        return jax.vmap(one)(x, targets, keys)

    chosen: list[Any] = []
    paths: list[np.ndarray] = []

    def act(obs, t):
        if t % planner.hold == 0:
            chosen.append(choose(obs, t))
        return skilled.act(obs, chosen[-1])[0]

    with closing(Copies(skilled.env, n)) as copies:
        copies.open(seed)
        for step, over, _ in episode(copies.reset(), copies.step, act, span, early=False):
            place = np.asarray(skilled.describe(step.obs))
            paths.append(np.where(over[:, None], paths[-1], place) if paths else place)
    path = np.stack(paths, 1)
    away = np.linalg.norm(path[:, 1:] - goals[:, None], axis=-1).mean(1)
    scores = -away / np.linalg.norm(goals, axis=-1)
    return Pursuit(goals, path, np.stack([np.asarray(x) for x in chosen], 1), scores)
