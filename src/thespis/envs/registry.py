"""Creates environments by name: `make("jax:pendulum")`, `make("brax:ant")`, `make("Ant-v5")`."""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from thespis import plugins
from thespis.core import HostEnv
from thespis.envs import classic, teams
from thespis.envs.autoreset import Autoreset, Functions
from thespis.errors import ThespisError, did_you_mean, one_line, or_all

TASKS = classic.TASKS | teams.TASKS
TASK = ("obs", "action", "limit", "start", "observe", "step")  # required attributes of a JAX task
ADAPTERS = ("brax", "playground", "envpool", "mo", "pettingzoo")  # prefixes, and modules of them
LISTED = ("brax", "pettingzoo")  # those whose names are known without their library


@runtime_checkable
class Opens(Protocol):
    """An object or a class of a `HostEnv`, whose other parts `__init__` may make."""

    def open(self, n: int, seed: Any, render_mode: str | None = None) -> Any: ...


def make(env: Any) -> Any:
    """Returns an environment from a name, a class or factory of Gymnasium or PettingZoo, a Task or
    its class; an `Autoreset` or `HostEnv` is returned as it is.

    An `Autoreset` runs inside compiled code; a `HostEnv` is opened in Python.
    """
    from thespis.envs.gymnasium import Gymnasium
    from thespis.envs.pettingzoo import PettingZoo, for_several

    if isinstance(env, str | os.PathLike):
        return named(str(env))
    if isinstance(env, type) and isinstance(env, Functions | Opens):
        env = without_arguments(env, env.__name__)
    if isinstance(env, Autoreset | HostEnv):
        return env
    if isinstance(env, Functions):
        return Autoreset(env)
    return PettingZoo(env) if for_several(env) else Gymnasium(env)


def without_arguments(kind: Any, name: str) -> Any:
    """Creates an instance of a user's class."""
    try:
        return kind()
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        raise ThespisError(
            f"{name} cannot be created without arguments: {text}; give its arguments defaults, or "
            "pass an instance from Python"
        ) from error


def named(name: str) -> Any:
    """Creates `PREFIX:NAME` (jax, brax, playground, envpool, mo or pettingzoo), `MODULE:NAME` (a
    class, a factory or an id that the module registers), or an id of Gymnasium."""
    from thespis.envs.gymnasium import PACKAGES, Gymnasium

    prefix, colon, rest = name.partition(":")
    if prefix == "jax":
        if name not in TASKS:
            raise ThespisError(f"unknown environment {name!r}{or_all(name, TASKS)}")
        return Autoreset(TASKS[name]())
    if colon and prefix in ADAPTERS:
        return import_module(f"thespis.envs.{prefix}").named(rest)
    if colon and plugins.origin(prefix) is None:
        if prefix in PACKAGES:
            package = prefix.replace("_", "-")
            raise ThespisError(f"{name} needs a missing library: pip install {package}")
        hint = did_you_mean(name, [known for group in names().values() for known in group])
        raise ThespisError(
            f"unknown environment {name!r}: the prefix is neither jax:, brax:, playground:, "
            f"envpool:, mo:, pettingzoo: nor a module{hint}"
        )
    if plugins.is_reference(name):
        return referenced(name)
    if colon:  # Gymnasium reads `module:id` as an id that the module registers
        plugins.reach()
    if entry := announced().get(name):
        return make_checked(entry.load(), f"{name} ({entry.reference})")
    try:
        return Gymnasium(name)
    except ThespisError as error:
        if not str(error).startswith("unknown environment"):
            raise
        task, text = f"jax:{name.lower()}", str(error)
        hint = did_you_mean(name, announced())
        if not hint and task in TASKS:
            hint = f"; did you mean {task}?"
            if "did you mean" in text:
                hint = text[text.rindex(";") :].replace("mean ", f"mean {task} or ")
        raise ThespisError(f"unknown environment {name!r}{hint}") if hint else error from error


def check_name(name: Any) -> None:
    """Refuses an unknown name, as far as that can be told without creating the environment."""
    prefix, colon, rest = str(name).partition(":")
    if prefix in LISTED and colon and ":" not in rest:
        known = import_module(f"thespis.envs.{prefix}").names()
        if str(name).partition("@")[0] not in known:
            named(name)
    elif colon and (prefix == "jax" or prefix not in ADAPTERS):
        if prefix == "jax" or plugins.origin(prefix) is None:
            named(name)
    elif isinstance(name, str) and not colon:
        import gymnasium

        try:
            if name not in announced():
                gymnasium.spec(name)
        except gymnasium.error.Error:
            named(name)  # raises an error with a hint


def announced() -> dict[str, plugins.Announced]:
    """Returns the environments that installed packages register, except ids of Gymnasium."""
    import gymnasium

    entries = plugins.announced(plugins.ENVIRONMENTS)
    return {name: entry for name, entry in entries.items() if name not in gymnasium.registry}


def referenced(reference: str) -> Any:
    """Creates the environment MODULE:NAME, where NAME is a class, a factory or an id."""
    import gymnasium

    from thespis.envs.gymnasium import Gymnasium

    home, (module, _, name) = plugins.home_of(reference), reference.partition(":")
    if not hasattr(home, name):
        if name in gymnasium.registry:
            return Gymnasium(name)
        raise ThespisError(
            f"{reference}: {module} has no {name}, and registers no environment of that name"
            + did_you_mean(name, [*plugins.public_names(home), *gymnasium.registry])
        )
    return make_checked(getattr(home, name), reference)


def make_checked(source: Any, name: str) -> Any:
    """Creates an environment from a user's class or function, and refuses anything else."""
    if why := objection(source, name):
        raise ThespisError(f"{name} is not an environment: {why}")
    return make(source)


def objection(source: Any, name: str) -> str:
    """Returns why something cannot be an environment, or an empty string."""
    import gymnasium

    from thespis.envs.pettingzoo import for_several

    if not isinstance(source, type):
        fine = callable(source) or isinstance(source, Functions | Opens)
        return "" if fine else f"it is not a class but {plugins.described(source)}"
    if issubclass(source, gymnasium.Env) or isinstance(source, Opens) or for_several(source):
        return ""
    task = without_arguments(source, name) if isinstance(source, Functions) else source
    missing = [part for part in TASK if not hasattr(task, part)]
    text = f"it is not a gymnasium.Env, and for a JAX task it lacks {', '.join(missing)}"
    return text if missing else ""


def module_of(name: str) -> str | None:
    """Returns the module that must be imported for the name of an environment.

    It is None for names with a prefix of Thespis, or that an installed package registers.
    """
    prefix, _, rest = name.partition(":")
    if prefix == "pettingzoo":
        name = rest.partition("@")[0]  # arguments are plain values
    elif prefix == "mo":
        name = rest
    elif prefix in ("jax", *ADAPTERS):
        return None
    module, colon, _ = name.partition(":")
    return module if colon else None


def described(env: Any, name: str | None) -> Any:
    """Returns the environment with a descriptor in its observations: see descriptors.py."""
    from thespis.envs.descriptors import described as add

    return add(env, name)


def names() -> dict[str, list[str]]:
    """Returns all names that `make` knows, grouped by their origin."""
    import gymnasium

    from thespis.envs import brax, pettingzoo, playground

    entries = announced()
    return {
        "jax": list(TASKS),
        "brax": brax.names() if brax.installed() else [],
        "playground": playground.names() if playground.installed() else [],
        "pettingzoo": pettingzoo.names() if pettingzoo.installed() else [],
        "gymnasium": sorted(gymnasium.registry),
        **({"packages": list(entries)} if entries else {}),
    }


def label(env: Any) -> str:
    """Returns a name that can be used for files, such as Pendulum-v1 or jax-pendulum."""
    return re.sub(r"[^\w.-]+", "-", make(env).name).strip("-.")
