"""Changes attributes of the training environments during a run (`Training.set_env`).

All environments then begin new episodes, as in a resumed run: running episodes are truncated, so
that no episode mixes two settings. Evaluations keep the environment that the run started with.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from thespis.core import Adjustable, Adjusting, Box
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import Learner, Loop
from thespis.engine.population import restart
from thespis.errors import ThespisError, one_line, shown
from thespis.xla.multihost import several
from thespis.xla.placement import shardings

if TYPE_CHECKING:
    from thespis.runs.session import Session


def plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Returns attributes as a checkpoint will restore them, with tuples for lists."""
    new = {}
    for name, value in attributes.items():
        try:
            new[name] = frozen(json.loads(json.dumps(value)))
        except (TypeError, ValueError):
            raise ThespisError(
                f"set_env({name}={shown(value)}): give numbers, text or lists of them"
            ) from None
    return new


def frozen(value: Any) -> Any:
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def check(session: Session, attributes: dict[str, Any]) -> None:
    """Refuses attributes that the training environment does not have, or that change shapes."""
    if several():
        raise ThespisError("set_env: environments of several processes cannot be changed")
    env, driver = session.loop.env, session.driver
    if isinstance(driver, HostDriver):
        if not isinstance(driver.envs, Adjusting):
            raise ThespisError(f"set_env: {env.name} has no attributes that can be set")
        for name, value in attributes.items():
            driver.envs.set_attr(name, value)
    else:
        adjusted(env, session.loop.envs, attributes)


def adjusted(env: Any, n: int, attributes: dict[str, Any]) -> Any:
    """Returns a JAX environment with new attributes, which must not change spaces or states."""
    spec, name = env.spec, env.name
    if not isinstance(env, Adjustable):
        raise ThespisError(f"set_env: {name} has no attributes that can be set")
    text = ", ".join(f"{name}={shown(value)}" for name, value in attributes.items())
    kind = jnp.float32 if isinstance(spec.actions[0], Box) else jnp.int32
    action = jnp.zeros((n, *spec.action_shape), kind)

    def played(env: Any) -> Any:
        begun = env.reset(jax.random.key(0), n)
        return begun, env.step(begun[0], action, jax.random.key(1))

    shapes = lambda env: jax.eval_shape(lambda: played(env))
    try:
        new = env.with_attr(**attributes)
        same = new.spec == spec and shapes(new) == shapes(env)
    except ThespisError:
        raise
    except Exception as error:  # as of text where a task needs a number
        raise ThespisError(f"set_env({text}): {type(error).__name__}: {one_line(error)}") from error
    if not same:
        raise ThespisError(f"set_env({text}): it would change the spaces or states of {name}")
    return new


def change(session: Session, attributes: dict[str, Any]) -> None:
    """Sets attributes, and begins new episodes in all training environments."""
    install(session, attributes)
    session.faults.forget()
    if isinstance(session.driver, HostDriver):
        session.learner = session.driver.resume(session.learner)
        return
    text = ", ".join(f"{name} = {shown(value)}" for name, value in attributes.items())
    name = session.loop.env.name
    session.reporter.note(f"step {session.step}: {name} is recompiled with {text}")
    session.learner = begin_episodes(session.loop, session.learner, session.seeds)


def install(session: Session, attributes: dict[str, Any]) -> None:
    """Gives the driver environments with these attributes from now on."""
    driver = session.driver
    if not attributes:
        return
    if isinstance(driver, HostDriver):
        driver.attributes |= attributes
        return
    env = adjusted(session.loop.env, session.loop.envs, attributes)
    session.loop = dataclasses.replace(session.loop, env=env)
    session.driver = type(driver)(session.loop, session.seeds)
    if session.tuning:
        session.tuning.use(session.loop)


def begin_episodes(loop: Loop, learner: Learner, seeds: Any) -> Learner:
    """Returns the learner with new episodes in all JAX environments; `learner` is donated."""

    def begin(x: Learner, seeds):
        x = restart(loop, x, seeds, jnp.ones(seeds.shape, bool))
        if loop.mesh is None:
            return x
        return jax.lax.with_sharding_constraint(x, shardings(loop.mesh, x.specs))

    return jax.jit(begin, donate_argnums=0)(learner, seeds)
