"""Every environment by its name: `make("jax:pendulum")`, `make("brax:ant")`, `make("Ant-v5")`."""

from __future__ import annotations

import os
import re
from typing import Any

from thespis import plugins
from thespis.envs import classic, teams
from thespis.envs.autoreset import Autoreset
from thespis.errors import ThespisError, did_you_mean, or_all

TASKS = classic.TASKS | teams.TASKS
PREFIXES = ("jax", "brax", "playground", "envpool")  # each with a list of the names there are


def make(env: Any) -> Any:
    """A name, a class or factory of Gymnasium or PettingZoo, a Task, or what was made before.

    An `Autoreset` runs inside compiled code; anything else is a host environment, to be opened.
    """
    from thespis.envs.gymnasium import Gymnasium
    from thespis.envs.pettingzoo import PettingZoo, for_several

    if isinstance(env, str | os.PathLike):
        return named(str(env))
    if isinstance(env, Autoreset) or hasattr(env, "open"):
        return env
    if all(hasattr(env, method) for method in ("start", "observe", "step")):
        return Autoreset(env)
    return PettingZoo(env) if for_several(env) else Gymnasium(env)


def named(name: str) -> Any:
    """`PREFIX:NAME` with jax, brax, playground, envpool, mo or pettingzoo; else Gymnasium's id."""
    from thespis.envs.gymnasium import Gymnasium

    prefix, colon, rest = name.partition(":")
    if prefix == "jax":
        if name not in TASKS:
            raise ThespisError(f"unknown environment {name!r}{or_all(name, TASKS)}")
        return Autoreset(TASKS[name]())
    if prefix == "brax":
        from thespis.envs.brax import Brax

        environment, at, backend = rest.partition("@")
        return Autoreset(Brax(environment, backend) if at else Brax(environment))
    if prefix == "playground":
        from thespis.envs.playground import Playground

        return Autoreset(Playground(rest))
    if prefix == "envpool":
        from thespis.envs.envpool import EnvPool

        return EnvPool(rest)
    if prefix == "mo":
        from thespis.envs.mo import named as multi_objective

        return multi_objective(rest)
    if prefix == "pettingzoo":
        from thespis.envs.pettingzoo import named as of_pettingzoo

        return of_pettingzoo(rest)
    # Gymnasium reads `module:id` as an id that the module registers.
    if colon and plugins.origin(prefix) is None:
        hint = did_you_mean(name, [known for group in names().values() for known in group])
        raise ThespisError(
            f"unknown environment {name!r}: the prefix is neither jax:, brax:, playground:, "
            f"envpool:, mo:, pettingzoo: nor a module{hint}"
        )
    if colon:
        plugins.reach()
    return Gymnasium(name)


def module_of(name: str) -> str | None:
    """The module that making an environment imports because its name says so.

    None of those that Thespis knows by their prefix, or that an installed package registers.
    """
    prefix, _, rest = name.partition(":")
    if prefix in PREFIXES:
        return None
    if prefix == "pettingzoo":
        name = rest.partition("@")[0]  # whose arguments are plain values
    elif prefix == "mo":
        name = rest
    module, colon, _ = name.partition(":")
    return module if colon else None


def described(env: Any, wanted: str | None) -> Any:
    """The environment with a descriptor that it offers, if it does: see descriptors.py."""
    from thespis.envs.descriptors import described as add

    return add(env, wanted)


def names() -> dict[str, list[str]]:
    """All that `make` knows by name, grouped by where it comes from."""
    import gymnasium

    from thespis.envs import brax, pettingzoo, playground

    return {
        "jax": list(TASKS),
        "brax": [f"brax:{name}" for name in brax.NAMES] if brax.installed() else [],
        "playground": [f"playground:{name}" for name in playground.NAMES]
        if playground.installed()
        else [],
        "pettingzoo": pettingzoo.names() if pettingzoo.installed() else [],
        "gymnasium": sorted(gymnasium.registry),
    }


def label(env: Any) -> str:
    """A name that is fit for a file, such as Pendulum-v1 or jax-pendulum."""
    env = make(env)
    if isinstance(env, Autoreset):
        name = getattr(env.task, "name", type(env.task).__name__)
    else:
        name = env.name
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")
