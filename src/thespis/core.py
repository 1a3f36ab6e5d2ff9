"""The vocabulary: the types that environments, replay, algorithms and the loop exchange."""

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

# Keys of a multi-agent observation. `AGENTS` holds what each agent sees, leaves [agents, ...],
# perhaps with a `MASK`. The others are optional: the global state, and three flags [agents]: who
# acts on this observation, who has terminated while others go on (by default those who do not
# act), and who received the reward that came with it (by default all).
AGENTS, STATE, ALIVE, ENDED, PAID = "agents", "state", "alive", "ended", "paid"


class Mean(eqx.Module):
    """A metric that some updates do not have: the sum of its values over `count` updates."""

    total: Array
    count: Array


class Histogram(eqx.Module):
    """Counts of values between edges; values beyond them count in the outer bins."""

    count: Int[Array, "... bins"]
    edges: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    def from_values(cls, x: Array, valid: Array, edges: tuple[float, ...]) -> Histogram:
        """Returns one histogram per entry of x [...], empty where the entry is not valid."""
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
        """Rescales flat vectors [n, size] in [-1, 1] to the environment's units and shape.

        Arrays may be NumPy's or JAX's. The result is exact at -1 and 1, unlike
        low + (action + 1) / 2 * (high - low).
        """
        xp = jnp if isinstance(action, jax.Array) else np
        low, high = (bound[None] for bound in self.bounds)
        action = xp.clip(action, -1, 1).reshape(-1, *self.shape)
        return (0.5 * ((1 - action) * low + (1 + action) * high)).astype(np.float32)

    def rescaler(self, dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
        """Returns `to_env` for actions that have the environment's shape, as NumPy code.

        It computes in float64, which costs nothing there, and rounds to the environment's dtype.
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
        """Returns why these are not actions [n, ...] of the environment; empty if they are."""
        if action.shape[1:] != self.shape:
            return f"have shape {action.shape[1:]}, but the environment's {self.shape}"
        (low, high), worst = self.bounds, (action.min(), action.max())
        slack = 1e-4 * (high - low)  # for rounding
        if ((action < low - slack) | (action > high + slack)).any():
            return f"reach from {worst[0]:g} to {worst[1]:g}, out of the bounds {low} to {high}"
        return ""


@dataclass(frozen=True)
class Discrete:
    """Algorithms act in 0 .. n-1; adapters count from `start`."""

    n: int
    start: int = 0

    def to_env(self, action: Any) -> Any:
        """Returns actions as the environment counts them."""
        return action + self.start

    def to_unit(self, action: np.ndarray) -> np.ndarray:
        """Inverts `to_env`."""
        return (action - self.start).reshape(-1).astype(np.int32)

    def misfit(self, action: np.ndarray) -> str:
        """Returns why these are not actions [n] of the environment; empty if they are."""
        last = self.start + self.n - 1
        if action.ndim != 1 or not np.issubdtype(action.dtype, np.integer):
            kind = f"{action.dtype} of shape {action.shape[1:]}"
            return f"are {kind}, but the environment's are whole numbers, {self.start} to {last}"
        if action.min() < self.start or action.max() > last:
            return (
                f"reach from {action.min()} to {action.max()}, but the environment's from "
                f"{self.start} to {last}"
            )
        return ""


@dataclass(frozen=True)
class Spec:
    """All that an algorithm knows of an environment: its observations, actions and rewards."""

    obs: PyTree[jax.ShapeDtypeStruct]
    """Shape and dtype of an observation: a vector, an image, or a dict of them."""
    action: Box | Discrete | tuple[Box | Discrete, ...]
    """The action space, or one per agent; several agents act in [agents, largest size] or
    [agents]."""
    reward_dim: int | None = None
    """Dimension of vector rewards [..., reward_dim]; None for scalar rewards [...]. If it is the
    number of agents, each agent has a reward of its own."""
    descriptor: str | None = None
    """Coordinates of the observation that tell where a state is, such as 0,1 or 0:2."""
    agents: tuple[str, ...] = ()
    """Names of the agents, whose observation is a dict (see `AGENTS`); empty for a single one."""

    def __hash__(self):
        leaves, structure = jax.tree.flatten(self.obs)
        rest = self.action, self.reward_dim, self.descriptor, self.agents
        return hash((tuple(leaves), structure, *rest))

    @property
    def actions(self) -> tuple[Box | Discrete, ...]:
        """Returns the action space of every agent."""
        return self.action if isinstance(self.action, tuple) else (self.action,)

    @property
    def single(self) -> Box | Discrete:
        """Returns the action space of the only agent."""
        if self.agents:
            raise ThespisError(f"there are {len(self.agents)} agents: demonstrations are of one")
        return self.actions[0]

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Returns the shape of one environment's action: an integer or a vector for each agent."""
        sizes = [kind.size for kind in self.actions if isinstance(kind, Box)]
        return (*((len(self.agents),) if self.agents else ()), *((max(sizes),) if sizes else ()))

    def to_env(self, action: Any) -> list[Any]:
        """Returns the actions [n, ...] of every agent in the environment's units."""
        if not self.agents:
            return [self.actions[0].to_env(action)]
        part = lambda i, kind: action[:, i, : kind.size] if isinstance(kind, Box) else action[:, i]
        return [kind.to_env(part(i, kind)) for i, kind in enumerate(self.actions)]

    @property
    def legal(self) -> np.ndarray:
        """Returns which discrete actions exist: bool [n], or [agents, n] for several agents."""
        sizes = [kind.n for kind in self.actions if isinstance(kind, Discrete)]
        legal = np.arange(max(sizes))[None] < np.array(sizes)[:, None]
        return legal if self.agents else legal[0]

    @property
    def rewards(self) -> tuple[str, ...]:
        """Returns the names of a vector reward's dimensions; none for a scalar reward."""
        numbers = tuple(map(str, range(self.reward_dim or 0)))
        return self.agents if len(self.agents) == len(numbers) else numbers


# --- steps, rows, transitions, and what they come from --------------------------------------


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
    """An environment made of pure functions, which run in compiled programs (envs/autoreset.py)."""

    @property
    def spec(self) -> Spec: ...
    @property
    def limit(self) -> int:
        """Steps after which an episode is truncated."""
        ...

    @property
    def name(self) -> str: ...

    def reset(self, key: Key, n: int) -> tuple[Any, Step]:
        """Begins n episodes -> their states, and the first step."""
        ...

    def step(self, state: Any, action: Array, key: Key) -> tuple[Any, Step]:
        """Steps by actions [n, ...] in [-1, 1], or integers [n]; the key is for new episodes."""
        ...


@runtime_checkable
class HostEnv(Protocol):
    """An environment in Python, of which copies can be opened: Gymnasium, PettingZoo, EnvPool."""

    @property
    def spec(self) -> Spec: ...
    @property
    def limit(self) -> int | None:
        """Steps after which an episode is truncated, None where unknown."""
        ...

    @property
    def name(self) -> str: ...

    def open(self, n: int, seed: int | Sequence[int], render_mode: str | None = None) -> HostEnvs:
        """Opens n environments with the seeds seed, seed + 1, ..., or with one seed each."""
        ...


@runtime_checkable
class Adjustable(Protocol):
    """A JAX environment with parameters that callbacks may change; programs then recompile."""

    def with_attr(self, **values: Any) -> JaxEnv:
        """Returns the environment with new values of some parameters."""
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
        """Steps by actions [n, ...] in [-1, 1], or integers [n]."""
        ...

    def end(self, which: Any) -> None:
        """Makes the next step begin a new episode in these environments, bool [n].

        Evaluations end episodes that would go on for ever, exchanges those of replaced members.
        """
        ...

    def render(self) -> list[Any]:
        """Returns one frame per environment."""
        ...

    def close(self) -> None: ...


class Row(eqx.Module):
    """One stored time step of every environment: what arrived, and the action that answered it.

    `reward`, `terminated` and `truncated` arrived together with `obs`; `action` answers it.
    A row is therefore half of two transitions, and each observation is stored once.
    """

    obs: PyTree
    reward: Array
    terminated: Array
    truncated: Array
    action: Array
    extra: PyTree = None  # what `act` wants to be stored (a skill, a switch, the policy's mean)

    @property
    def final(self) -> Array:
        """Tells where an episode ended: the action was ignored and is never learned from."""
        return self.terminated | self.truncated


class Transition(eqx.Module):
    """(s, a, r, s') over `steps` environment steps, leaves [batch, ...], flags as 0.0 or 1.0.

    `reward` is discounted over those steps, `next_obs` is the true successor. `valid` is 0
    where the drawn row begins no transition (it ends an episode): means leave it out. `weight`
    is an importance weight; `drawn` says which rows the new priorities are for.
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
        """Updates running statistics, if any: once per stored row, never in evaluations."""
        ...

    def sample(self, replay, demos, hp, key: Key, step: Array) -> Any:
        """Draws the batch of one update from one member's view of the replay."""
        ...

    def update(self, state, hp, batch, key: Key, step: Array) -> tuple[Any, Metrics, Array]:
        """Does one gradient step of every network -> state, metrics, priorities [batch].

        A prioritised replay stores the priorities of the rows in `batch.drawn`. `step` counts
        updates, alike for all members, so that delays stay real branches.
        """
        ...


# --- optional capabilities of algorithms ----------------------------------------------------

T = TypeVar("T")


def capability(algo: Any, kind: type[T]) -> T | None:
    """Returns the object that has a capability of an algorithm or class; None if there is none.

    Nothing else looks for attributes of algorithms, so an algorithm that wraps another only has
    to say what it offers (see `Wrapping`).
    """
    offered = algo.offered(kind) if isinstance(algo, Wrapping) else algo
    return offered if isinstance(offered, kind) else None


@runtime_checkable
class Wrapping(Protocol):
    """Wraps another algorithm. Only `capability` calls it."""

    def offered(self, kind: type) -> Any:
        """Returns the object that may have this capability: usually the wrapped algorithm."""
        ...


@runtime_checkable
class Prioritised(Protocol):
    """May use prioritised replay. The loop asks when it makes the replay, draws and stores.

    Its `Hyper` has the exponent of priorities, `priority_alpha`.
    """

    def rule(self, envs: int) -> Any:
        """Returns the `Rule` (replay/priorities.py) of what may be drawn; None draws uniformly."""
        ...

    def beta(self, hp, step: Array) -> Array:
        """Returns the exponent of importance weights after `step` updates."""
        ...


@runtime_checkable
class Weighing(Protocol):
    """Reduces vector rewards to scalars. Asked with every reward, wherever returns are summed."""

    def scalar_reward(self, reward: Any, obs: PyTree) -> Any:
        """Turns rewards [..., reward_dim] that came with these observations into [...]."""
        ...


@runtime_checkable
class Hiding(Protocol):
    """Hides some keys of observations from its actor. Asked wherever its inputs are made."""

    privileged: tuple[str, ...]


@runtime_checkable
class Imitating(Protocol):
    """Learns from demonstrations, which `sample` gets. Runs ask its class, and must have some."""

    demonstrated: bool


@runtime_checkable
class Remembering(Protocol):
    """Learns from returns. The loop calls it with every new row, after `observe`."""

    def remember(self, state, rows: Row, returns: Float[Array, "n"]) -> Any:
        """Returns the state after new rows, given the returns of their episodes so far."""
        ...


@runtime_checkable
class NormalizingRewards(Protocol):
    """May scale rewards by discounted returns, which the loop then keeps for it."""

    @property
    def normalizes_rewards(self) -> bool: ...

    def observe_returns(self, state, returns: Float[Array, "n"], valid: Float[Array, "n"]) -> Any:
        """Returns the state after new rows, given the discounted returns of their episodes.

        `valid` is 0 for the first row of an episode, which has no reward.
        """
        ...


@runtime_checkable
class Reporting(Protocol):
    """Reports on its actions. The loop asks for every new row, and logs it as `rollout/`."""

    def report(self, rows: Row) -> dict[str, Mean | Histogram]:
        """Returns sums and counts of every row [...]."""
        ...


@runtime_checkable
class Resetting(Protocol):
    """Resets its networks at some steps. The trainer calls it there, before training goes on."""

    resets: tuple[int, ...]  # environment steps of a member

    def reset(self, state, hp, key: Key) -> Any:
        """Returns the state of one member after a reset; its replay and environments stay."""
        ...


@runtime_checkable
class Complaining(Protocol):
    """Knows when learning cannot work. The trainer asks with every row of metrics it logs."""

    def complaint(self, metrics: dict[str, Any]) -> str | None:
        """Returns one line that says why, which ends the run; None if nothing is wrong."""
        ...


@runtime_checkable
class SelfRewarding(Protocol):
    """Rewards itself. Evaluations ask in every step of their episodes."""

    def diversity_reward(self, state, hp, row: Row, after: Row) -> Float[Array, "n"]:
        """Returns the intrinsic reward of the steps from `row` to `after`, leaves [n, ...]."""
        ...

    def dependence_terms(self, state, hp, row: Row, after: Row) -> Float[Array, "n terms"]:
        """Returns terms of the same steps, whose sums over an episode `dependence` needs."""
        ...

    def dependence(self, terms: Float[Array, "n terms"]) -> Float[Array, "n"]:
        """Returns how much each episode depended on its skill, whatever the hyper-parameters."""
        ...


@runtime_checkable
class Judged(Protocol):
    """Should not be judged by the environment's reward. Configs ask its class."""

    @classmethod
    def judged_by(cls, options: dict[str, Any]) -> str:
        """Returns the metric of evaluations by which the best policy is chosen.

        Populations are tuned by it, too, unless another is given.
        """
        ...


@runtime_checkable
class WithSkills(Protocol):
    """Has a policy that follows skills. Asked by all that plays, plans with or builds on them."""

    skills: int  # numbers in a skill
    skill_kind: str  # "one-hot" if skills can be counted

    def draw_skills(self, key: Key, n: int) -> Float[Array, "n size"]:
        """Draws skills from their prior."""
        ...

    def nearest(self, skill: Float[Array, "... size"]) -> Float[Array, "... size"]:
        """Returns the nearest skill."""
        ...

    def follow(self, memory: Any, skill: Float[Array, "n size"]) -> Any:
        """Returns the memory of n environments that follow these skills from now on."""
        ...

    def describe(self, obs: PyTree) -> Float[Array, "... size"]:
        """Returns the descriptor of states, in which skills should differ."""
        ...

    def diversity_between(self, state, hp, obs, next_obs, skill) -> Float[Array, "n"]:
        """Returns the diversity reward between observations."""
        ...


@runtime_checkable
class Repeating(Protocol):
    """A *memory* of an algorithm that may repeat its action: videos and plots show it."""

    repeats: Any  # steps [n] for which a trajectory has been followed, 1 where it is new


def has_mask(obs: PyTree) -> bool:
    """Tells whether an observation, or its spec, says which discrete actions are legal."""
    return isinstance(obs, dict) and MASK in obs


def privileged(algo: Any) -> tuple[str, ...]:
    """Returns the keys of an observation that only critics see."""
    hiding = capability(algo, Hiding)
    return hiding.privileged if hiding else ()


def imitates(algo: Any) -> bool:
    """Tells whether an algorithm, or its class, learns from demonstrations."""
    imitating = capability(algo, Imitating)
    return imitating is not None and imitating.demonstrated


def scalar_reward(algo: Any, reward: Any, obs: PyTree) -> Any:
    """Returns rewards as scalars [...]: vectors are reduced, scalars stay as they are."""
    weighing = None if algo.spec.reward_dim is None else capability(algo, Weighing)
    return weighing.scalar_reward(reward, obs) if weighing else reward


# --- episodes outside training --------------------------------------------------------------

LIMIT = 1000  # steps of an episode whose environment names no time limit


def longest(env: JaxEnv | HostEnv) -> int:
    """Returns the steps after which an episode is cut outside training, if nothing else ends it."""
    return env.limit or LIMIT


def cut_short(env: JaxEnv | HostEnv, lengths: Any) -> str:
    """Returns a note if an episode was cut that might have gone on; empty if none was."""
    if env.limit is not None or np.max(lengths) < LIMIT:
        return ""
    return (
        f"{env.name} names no time limit: its episodes are cut after {LIMIT:,} steps in "
        "evaluations; if that is wrong, give it one (gymnasium.wrappers.TimeLimit)"
    )


# --- helpers --------------------------------------------------------------------------------


def mean(x: Array, valid: Array) -> Array:
    """Returns the mean of x [..., batch] over its valid entries; 0 if there are none.

    It is the sum times 1/n: the compiler makes this of a division in some programs, but not in
    those for several devices, which would round differently.
    """
    return (x * valid).sum(-1) * (1.0 / jnp.maximum(valid.sum(-1), 1.0))


def polyak(target, online, tau):
    """Returns (1 - tau) target + tau online."""
    return jax.tree.map(lambda t, o: t + tau * (o - t), target, online)


def where(mask: Array, a, b):
    """Chooses whole rows of two pytrees by a mask over their leading axes."""

    def pick(x, y):
        return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y)

    return jax.tree.map(pick, a, b)
