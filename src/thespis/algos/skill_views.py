"""What the networks of DADS see of an observation: all of it, a descriptor, or parts of either.

Skills should differ in the descriptor, which says where a state is: coordinates of the
observation, a function of it, or numbers that the environment gives besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thespis.core import Spec, ThespisError
from thespis.errors import one_line
from thespis.nn.encoders import features
from thespis.selection import DESCRIPTOR, choice, name_of


@dataclass(frozen=True)
class SkillViews:
    """Selects what policy and skill dynamics see, and what the dynamics predict.

    There are three views: "policy_sees", "dynamics_sees" and "predicts". `views[name]` is a pair:
    the base, observation or descriptor, and the coordinates of it.
    """

    spec: Spec
    descriptor: str | Callable[[Any], Array] | None
    policy_sees: str | None
    dynamics_sees: str | None
    predicts: str
    hides_coordinates: bool
    """By default the policy does not see coordinates of the observation that are the descriptor."""
    blind_dynamics: bool
    """By default the dynamics see nothing where the policy does not see the descriptor."""

    def __getitem__(self, view: str) -> tuple[str, tuple[int, ...]]:
        return self.selected[view]

    def look(self, view: str, obs) -> Float[Array, "... n"]:
        """Returns the part of observations that a view selects."""
        base, coordinates = self[view]
        numbers = self.describe(obs) if base == DESCRIPTOR else self.observation(obs)
        return pick(numbers, coordinates)

    def size(self, view: str) -> int:
        """Returns the number of coordinates of a view."""
        return len(self[view][1])

    def observation(self, obs) -> Array:
        """Returns observations as vectors [..., n], without the environment's descriptor."""
        spec = self.spec.obs
        if isinstance(spec, dict) and DESCRIPTOR in spec:
            spec, obs = ({k: v for k, v in x.items() if k != DESCRIPTOR} for x in (spec, obs))
        return features(spec, obs)

    def describe(self, obs) -> Float[Array, "... size"]:
        """Returns the descriptor of observations."""
        by = self.described_by
        if by == DESCRIPTOR:
            return features(self.spec.obs[DESCRIPTOR], obs[DESCRIPTOR])
        if callable(by):
            return by(obs)
        numbers = self.observation(obs)
        return pick(numbers, choice("descriptor", by, {"observation": numbers.shape[-1]})[1])

    @cached_property
    def described_by(self) -> str | Callable[[Any], Array]:
        """Returns coordinates, a function, or the key of the environment's descriptor."""
        if self.descriptor is not None:
            return self.descriptor
        if isinstance(self.spec.obs, dict) and DESCRIPTOR in self.spec.obs:
            return DESCRIPTOR
        if self.spec.descriptor is None:
            raise ThespisError(
                "the environment offers no descriptor: name the coordinates of the observation in "
                "which skills should differ, such as --descriptor 0,1, or a function MODULE:NAME"
            )
        return self.spec.descriptor

    @property
    def describes_all(self) -> bool:
        """Tells whether the descriptor is the whole observation."""
        by, n = self.described_by, self.sizes["observation"]
        if by == DESCRIPTOR or callable(by):
            return False
        return choice("descriptor", by, self.sizes)[1] == tuple(range(n))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Returns the sizes of an observation and of a descriptor."""
        obs = jax.tree.map(lambda s: jax.ShapeDtypeStruct((1, *s.shape), s.dtype), self.spec.obs)
        try:
            described = jax.eval_shape(self.describe, obs)
        except (AttributeError, TypeError, ValueError) as error:  # in a user's function
            text = f"{type(error).__name__}: {one_line(error)}"
            raise ThespisError(f"descriptor = {self.described_by} raised {text}") from error
        if described.ndim != 2 or described.dtype != jnp.float32:
            raise ThespisError(
                f"descriptor = {name_of(self.described_by)}: it makes {described.dtype}"
                f"{list(described.shape)} of one observation; give a function to float32[1, size]"
            )
        n = jax.eval_shape(self.observation, obs).shape[-1]
        return {"observation": n, DESCRIPTOR: described.shape[-1]}

    @cached_property
    def selected(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Returns base and coordinates of every view; refuses those that do not exist."""
        sizes, by = self.sizes, self.described_by
        separate = by == DESCRIPTOR  # the descriptor is not a part of the observation
        part = "" if separate or by == "observation" or not isinstance(by, str) else by
        hidden = choice("descriptor", part, sizes)[1] if part else ()
        hides = self.policy_sees is None and (separate or (part != "" and self.hides_coordinates))
        dynamics = "none" if hides and self.blind_dynamics else DESCRIPTOR
        views = {
            "predicts": choice("predicts", self.predicts, sizes),
            "policy_sees": choice("policy_sees", self.policy_sees or "observation", sizes),
            "dynamics_sees": choice("dynamics_sees", self.dynamics_sees or dynamics, sizes),
        }
        if hides:
            rest = tuple(i for i in range(sizes["observation"]) if i not in hidden)
            views["policy_sees"] = ("observation", rest)
        if not views["predicts"][1]:
            raise ThespisError("predicts = none: name what the dynamics should predict")
        return views


def pick(x: Array, coordinates: tuple[int, ...]) -> Array:
    """Returns some coordinates of the last axis."""
    if coordinates == tuple(range(x.shape[-1])):
        return x
    return x[..., np.asarray(coordinates, int)]
