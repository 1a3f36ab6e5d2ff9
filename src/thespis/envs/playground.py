"""MuJoCo Playground as tasks. It is an extra: `pip install 'thespis[playground]'`."""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache, cached_property
from io import StringIO
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, PyTree

from thespis.core import Box, Key
from thespis.envs.autoreset import Autoreset
from thespis.envs.brax import lenient
from thespis.errors import ThespisError, did_you_mean

NAMES = (  # of tasks that need no files from elsewhere
    "AcrobotSwingup",
    "BallInCup",
    "CartpoleBalance",
    "CartpoleSwingup",
    "CheetahRun",
    "FingerSpin",
    "FishSwim",
    "HopperHop",
    "HopperStand",
    "HumanoidRun",
    "HumanoidStand",
    "HumanoidWalk",
    "PendulumSwingup",
    "PointMass",
    "ReacherEasy",
    "ReacherHard",
    "SwimmerSwimmer6",
    "WalkerRun",
    "WalkerStand",
    "WalkerWalk",
)


@dataclass(frozen=True)
class Playground:
    """One of its environments, which terminates where it says `done`.

    Those of the robots `locomotion` and `manipulation` fetch their models when first made. A
    dict of observations stays one: networks read all of it, `state` and `privileged_state`.
    """

    environment: str
    kind: type = field(init=False, repr=False)
    """The class behind the name, which anybody may register: xla/program_cache.py looks at it."""

    def __post_init__(self):
        # Here, never first within a traced function.
        object.__setattr__(self, "kind", type(load(self.environment)[0]))

    @property
    def name(self) -> str:
        return f"playground:{self.environment}"

    @property
    def limit(self) -> int:
        return int(load(self.environment)[1].episode_length)

    @cached_property
    def obs(self) -> PyTree:
        return jax.eval_shape(lambda: self.observe(self.start(random.key(0))))

    @property
    def action(self) -> Box:
        size = load(self.environment)[0].action_size
        return Box(low=(-1.0,) * size, high=(1.0,) * size, shape=(size,))

    def start(self, key: Key) -> Any:
        with lenient():
            return load(self.environment)[0].reset(random.key_data(key))

    def observe(self, state: Any) -> PyTree:
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), state.obs)

    def step(self, state: Any, action: Array) -> tuple[Any, Array, Array]:
        with lenient():
            state = load(self.environment)[0].step(state, action)
        return state, jnp.asarray(state.reward, jnp.float32), jnp.asarray(state.done) > 0

    def picture(self, state: Any) -> np.ndarray:
        """Draws one state by MuJoCo's own camera."""
        return load(self.environment)[0].render([state], height=240, width=320)[0]


def named(name: str) -> Autoreset:
    """Makes `playground:NAME`."""
    return Autoreset(Playground(name))


def installed() -> bool:
    return importlib.util.find_spec("mujoco_playground") is not None


def names() -> list[str]:
    return [f"playground:{name}" for name in NAMES]


@cache
def registry() -> Any:
    if not installed():
        raise ThespisError("playground: needs a missing library: pip install 'thespis[playground]'")
    with lenient(), warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        from mujoco_playground import registry  # pyright: ignore[reportMissingImports]
    return registry


@cache
def load(environment: str) -> tuple[Any, Any]:
    """Makes the environment without any wrapper, and returns it with its settings."""
    known = registry()
    if environment not in known.ALL_ENVS:
        hint = did_you_mean(environment, known.ALL_ENVS) or f"; there is {', '.join(NAMES)}"
        raise ThespisError(f"unknown environment 'playground:{environment}'{hint}")
    settings = known.get_default_config(environment)
    if "impl" in settings and jax.default_backend() == "cpu":
        settings.impl = "jax"  # the other one, Warp, is made for GPUs
    with lenient(), warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        try:
            return known.load(environment, config=settings), settings
        except (OSError, RuntimeError) as error:
            text = " ".join(str(error).split())
            raise ThespisError(f"playground:{environment} could not be made: {text}") from error
