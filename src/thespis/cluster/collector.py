"""A collector: a Ray actor that steps some of a run's environments by the policy it was sent.

The module does not import JAX, which reads its settings when it starts.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, NamedTuple

from thespis.cluster.connect import refuse_differences, versions
from thespis.cluster.own_ray import unblock_sigterm

SETTINGS = ("JAX_", "XLA_")  # how the names of variables begin that collectors share


class Task(NamedTuple):
    """What a collector works on, all its life."""

    loop: Any  # with the environments of this collector alone
    collectors: int  # how many there are
    number: int  # and which this is
    seeds: Any  # of the members
    env_seeds: list[int]  # of the environments, for each member
    attributes: dict[str, Any]  # that callbacks have set


def settings() -> dict[str, str]:
    """Returns the variables that the process of a collector must have: it is one thread's work."""
    kept = {name: x for name, x in os.environ.items() if name.startswith(SETTINGS)}
    return kept | {"NPROC": "1", "JAX_PLATFORMS": "cpu"}


class Collector:
    """Opens environments, and steps them whenever it is asked to.

    A fault of an environment is an answer and no exception: (environment, step, what).
    """

    def __init__(
        self,
        settings: dict[str, str],
        cwd: str,
        path: list[str],
        versions: dict[str, str],
        packed: bytes,
    ):
        unblock_sigterm()
        os.environ |= settings
        if os.path.isdir(cwd):
            os.chdir(cwd)
        sys.path += [folder for folder in path if folder not in sys.path]  # modules of users
        self.versions, self.packed = versions, packed
        self.work: Any = None
        self.wrong: Any = None  # with the environments, since they were opened

    def begin(self) -> Any:
        """Opens the environments -> None, or what is wrong with them."""
        from ray import cloudpickle

        from thespis.cluster.collecting import Collecting
        from thespis.errors import Fault, ThespisError

        try:
            refuse_differences(platform.node(), versions(), self.versions)
            self.work = Collecting(cloudpickle.loads(self.packed))
        except Fault as fault:
            self.wrong = fault.environment, fault.step, fault.what
        except ThespisError as error:
            self.wrong = str(error)
        return self.wrong

    def collect(self, weights: list[Any], start: int, length: int, mode: Any) -> Any:
        """Steps all environments `length` times -> a block [length, members, envs, ...].

        The first is that of the iteration `start`.
        """
        from thespis.errors import Fault

        if self.wrong is not None:
            return self.wrong
        try:
            return self.work.collect(weights, start, length, mode)
        except Fault as fault:
            return fault.environment, fault.step, fault.what

    def close(self) -> None:
        """Closes the environments."""
        if self.work is not None:
            self.work.envs.close()

    def set_attr(self, name: str, value: Any) -> str:
        """Sets an attribute of all environments -> why that is impossible, if it is."""
        from thespis.errors import ThespisError

        try:
            self.work.envs.set_attr(name, value)
        except ThespisError as error:
            return str(error)
        return ""
