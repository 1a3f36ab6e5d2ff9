"""Checks the values that the functions of a JAX task return, without running them."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.core import Box, Spec
from thespis.envs.autoreset import Autoreset
from thespis.envs.check.report import Report


def check_task(report: Report, env: Autoreset) -> None:
    """Checks the shapes and types of returned values, by tracing the functions."""
    task, key = env.task, random.key(0)
    names = [n for n in ("obs", "action", "limit") if not hasattr(task, n)]
    if names:
        fix = "obs: jax.ShapeDtypeStruct, action: Box or Discrete, limit: steps"
        report.stop("spaces", f"the task has no {', '.join(names)}", fix)
    with report.blame("start", "start(key) returns the state of one episode, a pytree of arrays"):
        state = jax.eval_shape(task.start, key)
    with report.blame("observations", "observe(state) returns one observation"):
        obs = jax.eval_shape(task.observe, state)
    expected = jax.tree.map(shape_of, task.obs)
    if (got := jax.tree.map(shape_of, obs)) != expected:
        fix = f"change obs to match observe, or return {expected}"
        report.stop("observations", f"observe returns {got}, but obs is {expected}", fix)
    report.add("observations", "ok", f"{expected}")
    action = jax.eval_shape(lambda: env.rescale(sample_of(env.spec))[0])
    with report.blame("step", "step(state, action) returns (state, reward, terminated)"):
        after, reward, terminated = jax.eval_shape(task.step, state, action)
    for a, b in itertools.zip_longest(named_shapes(state), named_shapes(after)):
        if a != b:
            text = f"start returns a state with {a or 'nothing'}, but step {b or 'nothing'}"
            report.stop("step", text, "return a state of the same shapes and types as start")
    reward_type = "float32[]" if env.spec.reward_dim is None else f"float32[{env.spec.reward_dim}]"
    for name, x, want in (("reward", reward, reward_type), ("terminated", terminated, "bool[]")):
        if shape_of(x) != want:
            report.stop("step", f"{name} is {shape_of(x)}", f"return it as {want}")
    report.add("step", "ok", "keeps the types of its state; reward and terminated are scalars")


def shape_of(x: Any) -> str:
    return f"{np.dtype(x.dtype).name}{list(x.shape)}"


def named_shapes(tree: Any) -> list[str]:
    paths = jax.tree_util.tree_leaves_with_path(tree)
    return [f"{jax.tree_util.keystr(path)} {shape_of(x)}".strip() for path, x in paths]


def sample_of(spec: Spec) -> jax.Array:
    """Returns an action of zeros, as algorithms return it."""
    continuous = isinstance(spec.actions[0], Box)
    return jnp.zeros((1, *spec.action_shape), jnp.float32 if continuous else jnp.int32)
