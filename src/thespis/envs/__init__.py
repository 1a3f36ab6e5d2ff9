"""Environments: tasks in JAX that are built in, and adapters to other libraries.

The names below are imported when first used: worker processes step environments without JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thespis.envs.autoreset import Autoreset as Autoreset
    from thespis.envs.autoreset import State as State
    from thespis.envs.autoreset import Task as Task
    from thespis.envs.registry import check_name as check_name
    from thespis.envs.registry import described as described
    from thespis.envs.registry import label as label
    from thespis.envs.registry import make as make
    from thespis.envs.registry import module_of as module_of
    from thespis.envs.registry import names as names

_HOMES = {
    "thespis.envs.autoreset": ("Autoreset", "State", "Task"),
    "thespis.envs.registry": ("check_name", "described", "label", "make", "module_of", "names"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'thespis.envs' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
