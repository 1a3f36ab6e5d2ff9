"""The Ray actor of a group. It does not import JAX, which reads its settings when it starts."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from typing import Any

from thespis.cluster.connect import refuse_differences, versions
from thespis.cluster.own_ray import unblock_sigterm
from thespis.errors import ThespisError

SETTINGS = ("JAX_", "XLA_", "NPROC")  # how the names of variables begin that programs depend on


def settings() -> dict[str, str]:
    """Returns the variables of this process that a group's must have as well."""
    return {name: x for name, x in os.environ.items() if name.startswith(SETTINGS)}


class Actor:
    """Calls a `Group`; errors that users can fix are answers, and no tracebacks."""

    def __init__(
        self,
        settings: dict[str, str],
        cwd: str,
        path: list[str],
        versions: dict[str, str],
        assignment: bytes,
    ):
        unblock_sigterm()
        for name in [name for name in os.environ if name.startswith(SETTINGS)]:
            del os.environ[name]
        os.environ |= settings
        if os.path.isdir(cwd):
            os.chdir(cwd)
        sys.path += [folder for folder in path if folder not in sys.path]  # modules of users
        self.versions, self.assignment, self.group = versions, assignment, None

    def begin(self) -> dict[str, Any]:
        def make():
            refuse_differences(platform.node(), versions(), self.versions)
            import ray.cloudpickle

            from thespis.cluster.group import Group

            self.group = Group(ray.cloudpickle.loads(self.assignment))
            node = ray.get_runtime_context().get_node_id()
            return self.group.begin() | {"node": node}

        return answer(make)

    def advance(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self.group is not None
        return answer(lambda: self.group.advance(order))  # type: ignore

    def give(self, members: list[int], replay: bool) -> dict[int, Any]:
        assert self.group is not None
        return self.group.give(members, replay)


def answer(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return ask()
    except ThespisError as error:
        return {"error": str(error)}
