"""MuJoCo Playground's environments as tasks: `pip install 'thespis[playground]'`."""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from typing import Any

import jax
import numpy as np

from thespis.envs.autoreset import Autoreset
from thespis.envs.brax import BraxStyle, lenient
from thespis.errors import ThespisError, did_you_mean

NAMES = (  # tasks that need no download
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
class Playground(BraxStyle):
    """One of Playground's environments.

    Those of `locomotion` and `manipulation` download their models on first use. Observations that
    are a dict stay one: networks read all of it, `state` and `privileged_state`.
    """

    @property
    def env(self) -> Any:
        return load(self.environment)[0]

    @property
    def name(self) -> str:
        return f"playground:{self.environment}"

    @property
    def limit(self) -> int:
        return int(load(self.environment)[1].episode_length)

    def picture(self, state: Any) -> np.ndarray:
        """Renders one state, uint8 [height, width, 3]."""
        return self.env.render([state], height=240, width=320)[0]


def named(name: str) -> Autoreset:
    """Creates `playground:NAME`."""
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
    """Creates the environment without wrappers, and returns it with its settings."""
    known = registry()
    if environment not in known.ALL_ENVS:
        every = [f"playground:{name}" for name in known.ALL_ENVS]
        hint = did_you_mean(f"playground:{environment}", every)
        hint = hint or f"; there is {', '.join(names())}"
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
            raise ThespisError(f"playground:{environment} could not be created: {text}") from error
