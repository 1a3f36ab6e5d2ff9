"""Brax environments as tasks. Brax is an extra: `pip install 'thespis[brax]'`."""

from __future__ import annotations

import atexit
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
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
from thespis.errors import ThespisError, did_you_mean, or_all

NAMES = (
    "ant",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "walker2d",
)
PLANAR = ("halfcheetah", "hopper", "walker2d")
FREE = ("ant", "humanoid", "humanoidstandup")
BACKENDS = ("spring", "positional", "generalized", "mjx")


@contextmanager
def lenient() -> Iterator[None]:
    """Allows a library to mix types and ranks, even if users have forbidden that in JAX."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@dataclass(frozen=True)
class BraxStyle:
    """A task around an environment with Brax's interface, which terminates when it is `done`."""

    environment: str
    kind: type = field(init=False, repr=False)
    """The class that is registered under the name; xla/program_cache.py compares it."""

    def __post_init__(self):
        # The environment must be created here, not within a traced function.
        object.__setattr__(self, "kind", type(self.env))

    @property
    def env(self) -> Any:
        raise NotImplementedError

    @cached_property
    def obs(self) -> PyTree:
        return jax.eval_shape(lambda: self.observe(self.start(random.key(0))))

    @property
    def action(self) -> Box:
        size = self.env.action_size
        return Box(low=(-1.0,) * size, high=(1.0,) * size, shape=(size,))

    def start(self, key: Key) -> Any:
        with lenient():
            return self.env.reset(random.key_data(key))

    def observe(self, state: Any) -> PyTree:
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), state.obs)

    def step(self, state: Any, action: Array) -> tuple[Any, Array, Array]:
        with lenient():
            state = self.env.step(state, action)
        return state, jnp.asarray(state.reward, jnp.float32), jnp.asarray(state.done) > 0


@dataclass(frozen=True)
class Brax(BraxStyle):
    """One of Brax's environments.

    The backend is the physics engine: `spring` is the fastest, `generalized` and `mjx` are closer
    to MuJoCo. Returns differ between them, so compare only runs of the same backend.
    """

    backend: str = "spring"
    limit: int = 1000

    @property
    def env(self) -> Any:
        return load(self.environment, self.backend)

    @property
    def name(self) -> str:
        suffix = "" if self.backend == "spring" else f"@{self.backend}"
        return f"brax:{self.environment}{suffix}"

    @property
    def descriptors(self) -> dict[str, Callable[[Any], Array]]:
        """The position of the body (x, and y unless it is planar), and the contacts of limbs."""
        if self.environment not in PLANAR + FREE:
            return {}
        return {"position": self.position, "contact": self.contact}

    def position(self, state: Any) -> Array:
        return state.pipeline_state.x.pos[0, : 1 if self.environment in PLANAR else 2]

    def contact(self, state: Any) -> Array:
        """Returns 1 for every end of a limb that is in contact, else 0."""
        from brax import contact  # pyright: ignore[reportMissingImports]

        sys = self.env.sys
        ends = [i for i in range(sys.num_links()) if i not in sys.link_parents]
        with lenient():
            contacts: Any = contact.get(sys, state.pipeline_state.x)
            links = jnp.stack([jnp.asarray(x) for x in contacts.link_idx])  # both sides of each
            near = (links[None] == jnp.asarray(ends)[:, None, None]).any(1)
            return (near & (contacts.dist <= 0)[None]).any(1).astype(jnp.float32)

    @property
    def fps(self) -> int:
        return max(1, round(1 / float(self.env.dt)))

    def picture(self, state: Any) -> np.ndarray:
        """Renders one state, uint8 [height, width, 3]."""
        import mujoco

        model = self.env.sys.mj_model
        data, renderer = mujoco.MjData(model), self.renderer  # pyright: ignore
        data.qpos[:], data.qvel[:] = state.pipeline_state.q, state.pipeline_state.qd
        mujoco.mj_forward(model, data)  # pyright: ignore
        follows = model.ncam > 0 and model.camera(0).name == "track"
        renderer.update_scene(data, camera=0 if follows else -1)
        return renderer.render()

    @cached_property
    def renderer(self) -> Any:
        import mujoco

        model = self.env.sys.mj_model
        renderer = mujoco.Renderer(model, height=360, width=480)
        atexit.register(renderer.close)  # it would fail later, when its library is unloaded
        return renderer


def named(name: str) -> Autoreset:
    """Makes `brax:NAME` or `brax:NAME@BACKEND`."""
    environment, _, backend = name.partition("@")
    return Autoreset(Brax(environment, backend) if "@" in name else Brax(environment))


def installed() -> bool:
    return importlib.util.find_spec("brax") is not None


def names() -> list[str]:
    return [f"brax:{name}" for name in NAMES]


@cache
def load(environment: str, backend: str) -> Any:
    """Makes the environment without any of Brax's wrappers."""
    name = f"brax:{environment}" + ("" if backend == "spring" else f"@{backend}")
    if not installed():
        hint = "" if environment in NAMES else did_you_mean(f"brax:{environment}", names())
        raise ThespisError(f"{name} needs a missing library: pip install 'thespis[brax]'{hint}")
    if backend not in BACKENDS:
        raise ThespisError(f"unknown backend {backend!r} of {name}{or_all(backend, BACKENDS)}")
    with lenient(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations in Brax and its dependencies
        with redirect_stdout(StringIO()):  # MJX prints which backends are missing
            from brax import envs  # pyright: ignore[reportMissingImports]
        try:
            return envs.get_environment(environment, backend=backend)
        except KeyError as error:
            hint = or_all(f"brax:{environment}", names())
            raise ThespisError(f"unknown environment 'brax:{environment}'{hint}") from error
