"""The vocabulary: what flows between environments, replay, algorithms and the loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from thespis.errors import ThespisError as ThespisError

Key = PRNGKeyArray
Metrics = dict[str, Any]  # scalars, a `Mean` where an update may have none, or a `Histogram`
Mode = Literal["random", "explore", "greedy"]  # static: warm-up, training, evaluation
MASK = "action_mask"  # key of a dict observation: which discrete actions are legal, bool [n]

# Keys of the observation of several agents: what each sees, leaves [agents, ...] (a `MASK` among
# them), and if the environment tells: the global state, who acts on this observation (bool
# [agents]), who has terminated for good, others going on (by default those who do not act), and
# who was paid the reward that came with it (by default all).
AGENTS, STATE, ALIVE, ENDED, PAID = "agents", "state", "alive", "ended", "paid"


class Mean(eqx.Module):
    """A metric that not every update has: its sum over `count` updates."""

    total: Array
    count: Array


class Histogram(eqx.Module):
    """How many values fell between each two edges; what lies beyond counts in the outer bins."""

    count: Int[Array, "... bins"]
    edges: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, x: Array, valid: Array, edges: tuple[float, ...]) -> Histogram:
        """Returns counts of every entry [...] by itself, none where it is not valid."""
        inner = edges[1:-1]
        bounds = np.array([[-np.inf, *inner], [*inner, np.inf]], np.float32)
        low, high = bounds.reshape(2, *(1 for _ in x.shape), -1)
        x = x.astype(jnp.float32)[..., None]
        inside = (x >= low) & (x < high) & valid.astype(bool)[..., None]
        return cls(inside.astype(jnp.int32), edges)

    def over(self, *axes: int) -> Histogram:
        """Returns the sum over some of the entries' axes."""
        return Histogram(self.count.sum(axes), self.edges)


# --- what an algorithm may know of an environment -------------------------------------------


@dataclass(frozen=True)
class Box:
    """Continuous actions. Algorithms act in [-1, 1]; adapters rescale to these bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = (np.reshape(x, self.shape).astype(np.float32) for x in (self.low, self.high))
        return low, high

    def to_env(self, action: Any) -> Any:
        """Returns flat vectors [n, size] in [-1, 1] in the environment's units and shape.

        They are arrays of NumPy or JAX. This is exact at -1 and 1, unlike
        low + (action + 1) / 2 * (high - low).
        """
        to = jnp if isinstance(action, jax.Array) else np
        low, high = (bound[None] for bound in self.bounds)
        action = to.clip(action, -1, 1).reshape(-1, *self.shape)
        return (0.5 * ((1 - action) * low + (1 + action) * high)).astype(np.float32)

    def rescaler(self, dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
        """Returns `to_env` for actions in the environment's shape, for those who step it in Python.

        In float64, which costs nothing there, and rounded to what the environment takes.
        """
        low, high = (np.reshape(x, self.shape).astype(np.float64) for x in (self.low, self.high))
        middle, half = (low + high) / 2, (high - low) / 2

        def rescale(action: np.ndarray) -> np.ndarray:
            return np.minimum(np.maximum(middle + half * action, low), high).astype(dtype)

        return rescale

    def to_unit(self, action: np.ndarray) -> np.ndarray:
        """Inverts `to_env`."""
        low, high = (x.astype(np.float64) for x in self.bounds)
        scaled = (2 * np.asarray(action, np.float64) - low - high) / (high - low)
        return np.clip(scaled, -1, 1).reshape(-1, self.size).astype(np.float32)

    def misfit(self, action: np.ndarray) -> str:
        """Says why these are no actions [n, ...] in the environment's units, if they are not."""
        if action.shape[1:] != self.shape:
            return f"have shape {action.shape[1:]}, but the environment's {self.shape}"
        (low, high), worst = self.bounds, (action.min(), action.max())
        slack = 1e-4 * (high - low)  # of rounding
        if ((action < low - slack) | (action > high + slack)).any():
            return f"reach from {worst[0]:g} to {worst[1]:g}, out of the bounds {low} to {high}"
        return ""


@dataclass(frozen=True)
class Discrete:
    """Algorithms act in 0 .. n-1; adapters count from `start`."""

    n: int
    start: int = 0

    def to_env(self, action: Any) -> Any:
        """Returns actions as the environment counts."""
        return action + self.start

    def to_unit(self, action: np.ndarray) -> np.ndarray:
        """Inverts `to_env`."""
        return (action - self.start).reshape(-1).astype(np.int32)

    def misfit(self, action: np.ndarray) -> str:
        """Says why these are no actions [n] as the environment counts, if they are not."""
        last = self.start + self.n - 1
        if action.ndim != 1 or not np.issubdtype(action.dtype, np.integer):
            have = f"{action.dtype} of shape {action.shape[1:]}"
            return f"are {have}, but the environment's are whole numbers, {self.start} to {last}"
        if action.min() < self.start or action.max() > last:
            return (
                f"reach from {action.min()} to {action.max()}, but the environment's from "
                f"{self.start} to {last}"
            )
        return ""


@dataclass(frozen=True)
class Spec:
    """`obs` is a pytree of `jax.ShapeDtypeStruct`: a vector, an image, or a dict of them."""

    obs: PyTree[jax.ShapeDtypeStruct]
    action: Box | Discrete | tuple[Box | Discrete, ...]
    """Of one agent, or of each of several; they act in [agents, largest size] or [agents]."""
    reward_dim: int | None = None
    """Numbers in a reward, which is then [..., reward_dim]; None where it is one number [...].
    With as many as there are agents, each has its own."""
    descriptor: str | None = None
    """Coordinates of the observation that tell where a state is, such as 0,1 or 0:2."""
    agents: tuple[str, ...] = ()
    """Names of several agents, whose observation is a dict (see `AGENTS`); none if there is one."""

    def __hash__(self):
        leaves, structure = jax.tree.flatten(self.obs)
        rest = self.action, self.reward_dim, self.descriptor, self.agents
        return hash((tuple(leaves), structure, *rest))

    @property
    def actions(self) -> tuple[Box | Discrete, ...]:
        """The action space of every agent."""
        return self.action if isinstance(self.action, tuple) else (self.action,)

    @property
    def single(self) -> Box | Discrete:
        """The action space of the one agent there is."""
        if self.agents:
            raise ThespisError(f"there are {len(self.agents)} agents: demonstrations are of one")
        return self.actions[0]

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of an action in one environment: one integer or a vector, for each agent."""
        sizes = [kind.size for kind in self.actions if isinstance(kind, Box)]
        return (*((len(self.agents),) if self.agents else ()), *((max(sizes),) if sizes else ()))

    @property
    def legal(self) -> np.ndarray:
        """The discrete actions that there are, bool [n], or [agents, n] of several."""
        sizes = [kind.n for kind in self.actions if isinstance(kind, Discrete)]
        legal = np.arange(max(sizes))[None] < np.array(sizes)[:, None]
        return legal if self.agents else legal[0]

    @property
    def rewards(self) -> tuple[str, ...]:
        """The names of the numbers in a vector reward; none where it is one number."""
        numbers = tuple(map(str, range(self.reward_dim or 0)))
        return self.agents if len(self.agents) == len(numbers) else numbers


# --- what flows -----------------------------------------------------------------------------


class Step(NamedTuple):
    """What n environments return, leaves [n, ...]; autoreset happens in the *next* step.

    The observation of a finished episode is its true final one (`terminated | truncated`).
    The step after it ignores the action and returns the first observation of a new episode,
    with reward 0 and both flags False. So an observation is never replaced or seen twice.
    """

    obs: PyTree
    reward: Array
    terminated: Array
    truncated: Array

    @property
    def final(self):  # no annotation: the arrays of host environments are NumPy's
        return self.terminated | self.truncated


@runtime_checkable
class JaxEnv(Protocol):
    """Environments as pure functions, which run inside compiled programs (envs/autoreset.py)."""

    @property
    def spec(self) -> Spec: ...
    @property
    def limit(self) -> int:
        """Steps after which an episode is truncated."""
        ...

    @property
    def name(self) -> str: ...

    def reset(self, key: Key, n: int) -> tuple[Any, Step]:
        """Begins n new episodes -> their states, and what arrived."""
        ...

    def step(self, state: Any, action: Array, key: Key) -> tuple[Any, Step]:
        """`action` [n, ...] in [-1, 1], or [n] integers; the key is for new episodes."""
        ...


@runtime_checkable
class HostEnv(Protocol):
    """An environment of which copies are opened in Python: Gymnasium, PettingZoo, EnvPool."""

    @property
    def spec(self) -> Spec: ...
    @property
    def limit(self) -> int | None:
        """Steps after which an episode is truncated, None where unknown."""
        ...

    @property
    def name(self) -> str: ...

    def open(self, n: int, seed: int | Sequence[int], render_mode: str | None = None) -> HostEnvs:
        """Opens n environments, with seed, seed + 1, ..., or one each."""
        ...


@runtime_checkable
class Adjustable(Protocol):
    """A JAX environment with parameters. Callbacks change them: programs are compiled anew."""

    def with_attr(self, **values: Any) -> JaxEnv:
        """Returns the environment with other values of some parameters."""
        ...


@runtime_checkable
class Adjusting(Protocol):
    """Environments in Python with attributes that callbacks may set while they are open."""

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute that they all have."""
        ...


class HostEnvs(Protocol):
    """What training, evaluations and exchanges ask of n running environments in Python.

    They reset by themselves in the step after an episode's end (see `Step`).
    """

    def reset(self) -> Step:
        """Begins a new episode everywhere."""
        ...

    def step(self, action: Any) -> Step:
        """`action` [n, ...] in [-1, 1], or [n] integers."""
        ...

    def end(self, which: Any) -> None:
        """Lets the next step start a new episode in these, bool [n], as well.

        Evaluations end what has no end of its own, exchanges what another member began.
        """
        ...

    def render(self) -> list[Any]:
        """Returns one frame per environment."""
        ...

    def close(self) -> None: ...


class Row(eqx.Module):
    """One stored moment of every environment: what arrived, and what was done about it.

    `reward`, `terminated` and `truncated` arrived together with `obs`; `action` answers it.
    A row is therefore half of two transitions, and each observation is stored once.
    """

    obs: PyTree
    reward: Array
    terminated: Array
    truncated: Array
    action: Array
    extra: PyTree = None  # what `act` wishes to remember (a skill, a switch, the policy's mean)

    @property
    def final(self) -> Array:
        """The episode ended here: the action was ignored and is never learned from."""
        return self.terminated | self.truncated


class Transition(eqx.Module):
    """(s, a, r, s') over `steps` environment steps, leaves [batch, ...], flags as 0.0 or 1.0.

    `reward` is discounted over those steps, `next_obs` is the true successor. `valid` is 0
    where the drawn row is no transition (it ends an episode): means leave it out. `weight`
    is an importance weight; `drawn` tells which rows to give the priorities back to.
    """

    obs: PyTree
    action: Array
    reward: Array
    next_obs: PyTree
    terminated: Array
    truncated: Array
    steps: Array
    valid: Array
    weight: Array
    extra: PyTree = None
    drawn: Any = None  # a `Drawn` (priorities.py) if the replay has priorities


class Algorithm(Protocol):
    """A frozen dataclass of static choices whose methods are pure functions of pytrees."""

    spec: Spec
    Hyper: Any  # every real hyper-parameter, as traced data: see tuning/hyper.py

    def init(self, key: Key, hp) -> Any:
        """Returns networks, targets, optimisers and statistics, as one pytree of arrays."""
        ...

    def memory(self, key: Key, n: int) -> PyTree:
        """Returns what each of n environments carries at the start of an episode; usually None."""
        ...

    def act(self, state, hp, memory, obs, key: Key, step: Array, mode: Mode) -> tuple:
        """Returns action [n, ...], memory, extra (stored in the row). `step` counts rows."""
        ...

    def observe(self, state, rows: Row) -> Any:
        """Updates running statistics: once per stored row, never in evaluation. Most have none."""
        ...

    def sample(self, replay, demos, hp, key: Key, step: Array) -> Any:
        """Draws the batch of one update from one member's view of the replay."""
        ...

    def update(self, state, hp, batch, key: Key, step: Array) -> tuple[Any, Metrics, Array]:
        """Does one gradient step of every network -> state, metrics, priorities [batch].

        The replay gets these back for the rows in `batch.drawn`, if it has any use for them.
        `step` counts updates, alike for all members, so delays stay real branches.
        """
        ...


# --- what an algorithm may have besides -----------------------------------------------------

T = TypeVar("T")


def capability(algo: Any, kind: type[T]) -> T | None:
    """Returns what to ask for a capability of an algorithm or its class; None if it lacks that.

    Nobody else looks for attributes of algorithms, so those around another need no more than
    to say what they offer (see `Wrapping`).
    """
    offered = algo.offered(kind) if isinstance(algo, Wrapping) else algo
    return offered if isinstance(offered, kind) else None


@runtime_checkable
class Wrapping(Protocol):
    """An algorithm around another. Only `capability` calls it."""

    def offered(self, kind: type) -> Any:
        """Returns who has that capability, if anybody: as a rule the algorithm inside."""
        ...


@runtime_checkable
class Prioritised(Protocol):
    """Its replay may have priorities. The loop asks when it makes the replay, draws and stores.

    Its `Hyper` has the exponent of priorities, `priority_alpha`.
    """

    def rule(self, envs: int) -> Any:
        """Returns a `Rule` (replay/priorities.py) of what may be drawn; None if all are alike."""
        ...

    def beta(self, hp, step: Array) -> Array:
        """Returns the exponent of importance weights after so many updates."""
        ...


@runtime_checkable
class Weighing(Protocol):
    """It makes one number of vector rewards: for whoever sums returns, with every reward."""

    def scalar_reward(self, reward: Any, obs: PyTree) -> Any:
        """Turns rewards [..., reward_dim] that came with these observations into [...]."""
        ...


@runtime_checkable
class Hiding(Protocol):
    """Only its critics see some keys of observations: whoever makes inputs leaves these out."""

    privileged: tuple[str, ...]


@runtime_checkable
class Imitating(Protocol):
    """It learns from demonstrations: a run refuses to begin without them, and `sample` gets them.

    Runs ask its class.
    """

    demonstrated: bool


@runtime_checkable
class Remembering(Protocol):
    """It learns from returns. The loop calls it with every new row, after `observe`."""

    def remember(self, state, rows: Row, returns: Float[Array, "n"]) -> Any:
        """Returns the state after new rows, given the returns of their episodes so far."""
        ...


@runtime_checkable
class NormalizingRewards(Protocol):
    """It may scale rewards by discounted returns. The loop keeps these, if it says so."""

    @property
    def normalizes_rewards(self) -> bool: ...

    def observe_returns(self, state, returns: Float[Array, "n"], valid: Float[Array, "n"]) -> Any:
        """The state after new rows: the discounted returns of their episodes, 0 if not valid.

        The first row of an episode has no reward and is not.
        """
        ...


@runtime_checkable
class Reporting(Protocol):
    """It tells more of what it did. The loop logs it of every new row as `rollout/`."""

    def report(self, rows: Row) -> dict[str, Mean | Histogram]:
        """Returns sums and counts of every row [...]."""
        ...


@runtime_checkable
class Resetting(Protocol):
    """It begins anew in part at some steps. The trainer calls it there, before training goes on."""

    resets: tuple[int, ...]  # environment steps of a member

    def reset(self, state, hp, key: Key) -> Any:
        """Returns the state of one member after a reset; its replay and environments stay."""
        ...


@runtime_checkable
class Complaining(Protocol):
    """It knows when learning cannot work. The trainer asks with every row of metrics it logs."""

    def complaint(self, metrics: dict[str, Any]) -> str | None:
        """Returns one line that says why, which ends the run; None if nothing is wrong."""
        ...


@runtime_checkable
class SelfRewarding(Protocol):
    """It rewards itself. Evaluations ask for it in every step of their episodes."""

    def diversity_reward(self, state, hp, row: Row, after: Row) -> Float[Array, "n"]:
        """Returns its own reward for the steps from rows to those after them, leaves [n, ...]."""
        ...

    def dependence_terms(self, state, hp, row: Row, after: Row) -> Float[Array, "n terms"]:
        """Returns what `dependence` needs of the same steps, summed over every episode."""
        ...

    def dependence(self, terms: Float[Array, "n terms"]) -> Float[Array, "n"]:
        """Returns how much each episode depended on its skill, whatever the hyper-parameters."""
        ...


@runtime_checkable
class Judged(Protocol):
    """It should not be judged by the environment's reward. Configs ask its class."""

    @classmethod
    def judged_by(cls, options: dict[str, Any]) -> str:
        """Returns the metric of an evaluation that says how well it does what it is for.

        The best policy is chosen by it, and populations are tuned by it unless told otherwise.
        """
        ...


@runtime_checkable
class WithSkills(Protocol):
    """Its policy follows skills: for whoever plays, plans with or builds on chosen ones."""

    skills: int  # numbers in a skill
    skill_kind: str  # "one-hot" if skills can be counted

    def draw_skills(self, key: Key, n: int) -> Float[Array, "n size"]:
        """Draws skills from their prior."""
        ...

    def nearest(self, skill: Float[Array, "... size"]) -> Float[Array, "... size"]:
        """Returns the skill that numbers are nearest to."""
        ...

    def follow(self, memory: Any, skill: Float[Array, "n size"]) -> Any:
        """Returns the memory of n environments that follow these skills from now on."""
        ...

    def describe(self, obs: PyTree) -> Float[Array, "... size"]:
        """Returns where a state is: that in which skills differ."""
        ...

    def diversity_between(self, state, hp, obs, next_obs, skill) -> Float[Array, "n"]:
        """Returns the diversity reward between observations."""
        ...


@runtime_checkable
class Repeating(Protocol):
    """A *memory* of an algorithm that may go on with what it did: videos and plots show it."""

    repeats: Any  # steps [n] that its trajectory has been followed, 1 where it acted anew


def privileged(algo: Any) -> tuple[str, ...]:
    """Returns the keys of an observation that only critics see."""
    hiding = capability(algo, Hiding)
    return hiding.privileged if hiding else ()


def imitates(algo: Any) -> bool:
    """Tells whether an algorithm, or its class, learns from demonstrations."""
    imitating = capability(algo, Imitating)
    return imitating is not None and imitating.demonstrated


def scalar_reward(algo: Any, reward: Any, obs: PyTree) -> Any:
    """Returns rewards as one number [...], which they are unless they are vectors."""
    weighing = None if algo.spec.reward_dim is None else capability(algo, Weighing)
    return weighing.scalar_reward(reward, obs) if weighing else reward


# --- episodes outside training --------------------------------------------------------------

LIMIT = 1000  # steps of an episode whose environment names no time limit


def longest(env: JaxEnv | HostEnv) -> int:
    """Returns the steps after which an episode is cut outside training, if nothing else ends it."""
    return env.limit or LIMIT


def cut_short(env: JaxEnv | HostEnv, lengths: Any) -> str:
    """Returns a note if episodes were cut that might have gone on; nothing if none was."""
    if env.limit is not None or np.max(lengths) < LIMIT:
        return ""
    return (
        f"{env.name} names no time limit: its episodes are cut after {LIMIT:,} steps in "
        "evaluations; if that is wrong, give it one (gymnasium.wrappers.TimeLimit)"
    )


# --- small things everybody needs -----------------------------------------------------------


def mean(x: Array, valid: Array) -> Array:
    """Returns the mean of x [..., batch] over its valid entries; 0 if there are none."""
    return (x * valid).sum(-1) / jnp.maximum(valid.sum(-1), 1.0)


def polyak(target, online, tau):
    """Returns (1 - tau) target + tau online."""
    return jax.tree.map(lambda t, o: t + tau * (o - t), target, online)


def where(mask: Array, a, b):
    """Chooses whole rows of two pytrees by a mask over their leading axes."""

    def pick(x, y):
        return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y)

    return jax.tree.map(pick, a, b)
