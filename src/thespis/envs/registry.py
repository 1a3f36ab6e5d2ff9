"""Every environment by its name: `make("jax:pendulum")`, `make("brax:ant")`, `make("Ant-v5")`."""

from __future__ import annotations

import os
import re
from typing import Any

from thespis import plugins
from thespis.core import HostEnv
from thespis.envs import classic, teams
from thespis.envs.autoreset import Autoreset, Functions
from thespis.errors import ThespisError, did_you_mean, one_line, or_all

TASKS = classic.TASKS | teams.TASKS
TASK = ("obs", "action", "limit", "start", "observe", "step")  # what a JAX task must have
PREFIXES = ("jax", "brax", "playground", "envpool")  # each with a list of the names there are


def make(env: Any) -> Any:
    """A name, a class or factory of Gymnasium or PettingZoo, a Task (or its class, which is made
    without arguments), or what was made before.

    An `Autoreset` runs inside compiled code; a `HostEnv` is to be opened.
    """
    from thespis.envs.gymnasium import Gymnasium
    from thespis.envs.pettingzoo import PettingZoo, for_several

    if isinstance(env, str | os.PathLike):
        return named(str(env))
    if isinstance(env, type) and (isinstance(env, Functions) or hasattr(env, "open")):
        env = without_arguments(env, env.__name__)  # of a class nothing more is known
    if isinstance(env, Autoreset | HostEnv):
        return env
    if isinstance(env, Functions):
        return Autoreset(env)
    return PettingZoo(env) if for_several(env) else Gymnasium(env)


def without_arguments(kind: Any, name: str) -> Any:
    """An instance of a user's class."""
    try:
        return kind()
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(
            f"{name} cannot be made without arguments: {text}; give defaults, or from Python an "
            "instance"
        ) from error


def named(name: str) -> Any:
    """`PREFIX:NAME` with jax, brax, playground, envpool, mo or pettingzoo; `MODULE:NAME` of a class
    or of what a module registers; else Gymnasium's id."""
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
    if colon and plugins.origin(prefix) is None:
        hint = did_you_mean(name, [known for group in names().values() for known in group])
        raise ThespisError(
            f"unknown environment {name!r}: the prefix is neither jax:, brax:, playground:, "
            f"envpool:, mo:, pettingzoo: nor a module{hint}"
        )
    if plugins.is_reference(name):
        return referenced(name)
    if colon:  # Gymnasium reads `module:id` as an id that the module registers
        plugins.reach()
    if other := announced().get(name):
        return make_found(other.load(), f"{name} ({other.reference})")
    try:
        return Gymnasium(name)
    except ThespisError as error:
        if not str(error).startswith("unknown environment"):
            raise
        hint = did_you_mean(name, announced())
        raise ThespisError(f"unknown environment {name!r}{hint}") if hint else error from error


def announced() -> dict[str, plugins.Announced]:
    """The environments that installed packages announce, apart from ids that Gymnasium knows."""
    import gymnasium

    others = plugins.announced(plugins.ENVIRONMENTS)
    return {name: other for name, other in others.items() if name not in gymnasium.registry}


def referenced(reference: str) -> Any:
    """What MODULE:NAME stands for: a class, a function that makes environments, or an id."""
    import gymnasium

    from thespis.envs.gymnasium import Gymnasium

    home, (module, _, name) = plugins.home_of(reference), reference.partition(":")
    if not hasattr(home, name):
        if name in gymnasium.registry:
            return Gymnasium(name)
        raise ThespisError(
            f"{reference}: {module} has no {name}, and registers no environment of that name"
            + did_you_mean(name, [*dir(home), *gymnasium.registry])
        )
    return make_found(getattr(home, name), reference)


def make_found(found: Any, name: str) -> Any:
    if why := objection(found, name):
        raise ThespisError(f"{name} is no environment: {why}")
    return make(found)


def objection(found: Any, name: str) -> str:
    """Says why something cannot be an environment, as far as that is seen before it is made."""
    import gymnasium

    from thespis.envs.pettingzoo import for_several

    if not isinstance(found, type):
        fine = callable(found) or isinstance(found, Functions) or hasattr(found, "open")
        return "" if fine else f"it is no class but {plugins.described(found)}"
    if issubclass(found, gymnasium.Env) or hasattr(found, "open") or for_several(found):
        return ""
    task = without_arguments(found, name) if isinstance(found, Functions) else found
    lacking = [part for part in TASK if not hasattr(task, part)]
    text = f"it is no gymnasium.Env, and for a JAX task it lacks {', '.join(lacking)}"
    return text if lacking else ""


def module_of(name: str) -> str | None:
    """The module that making an environment imports because its name says so.

    None of those that Thespis knows by their prefix, or that an installed package registers or
    announces.
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

    others = announced()
    return {
        "jax": list(TASKS),
        "brax": [f"brax:{name}" for name in brax.NAMES] if brax.installed() else [],
        "playground": [f"playground:{name}" for name in playground.NAMES]
        if playground.installed()
        else [],
        "pettingzoo": pettingzoo.names() if pettingzoo.installed() else [],
        "gymnasium": sorted(gymnasium.registry),
        **({"packages": list(others)} if others else {}),
    }


def label(env: Any) -> str:
    """A name that is fit for a file, such as Pendulum-v1 or jax-pendulum."""
    return re.sub(r"[^\w.-]+", "-", make(env).name).strip("-.")
