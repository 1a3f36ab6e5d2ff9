"""Environments: tasks in JAX that are built in, and adapters to other libraries."""

from thespis.envs.autoreset import Autoreset, State, Task
from thespis.envs.registry import check_name, described, label, make, module_of, names

__all__ = [
    "Autoreset",
    "State",
    "Task",
    "check_name",
    "described",
    "label",
    "make",
    "module_of",
    "names",
]
