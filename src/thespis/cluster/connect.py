"""Starting Ray, or joining a cluster of it; refused in one line where that cannot work.

    with connect("10.0.0.1:6379") as ray:  # or None: RAY_ADDRESS, else a Ray of our own here
        ray.get(...)

A Ray of our own is quiet, sends nothing anywhere, and leaves nothing behind.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from thespis.cluster import own_ray
from thespis.errors import ThespisError, one_line, shown
from thespis.runs.process import held
from thespis.xla.threads import cores

PORT = 6379  # Ray's own default
REACHED = 10  # seconds in which somebody answers at an address
ANSWERED = 120  # seconds in which a node starts a process and tells its versions
PACKAGES = ("thespis", "jax", "jaxlib", "numpy", "ray")  # that must be alike on all nodes
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_worker_niceness": "0",  # of a Ray of our own: groups are all that works there
}


def ray_module() -> Any:
    """Imports Ray, or refuses."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of others, and nothing that a user could change
            import ray
            import ray.exceptions
            import ray.util.scheduling_strategies
    except ImportError:
        raise ThespisError("ray needs a missing library: pip install 'thespis[ray]'") from None
    return ray


@contextmanager
def connect(address: str | bool | None = None) -> Iterator[Any]:
    """Joins the cluster at HOST:PORT, at RAY_ADDRESS, or starts a Ray here; yields the module.

    `auto` is a Ray that runs on this machine already. One that this process has joined before is
    used, and left running. All nodes must have the same versions.
    """
    chosen = address_of(address)
    if chosen is not None:  # Ray would try for a quarter of an hour
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")
    ray = ray_module()
    if ray.is_initialized():
        check_versions(ray)
        yield ray
        return
    with ExitStack() as stack:
        stack.callback(show_logs, ray, True)
        if chosen is None:
            how: dict[str, Any] = {
                "address": "local",
                "num_cpus": cores(),
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
                "_temp_dir": stack.enter_context(own_ray.folder()),
            }
            stack.callback(own_ray.end, ray)
        else:
            how = {"address": reachable(chosen)}
            stack.callback(ray.shutdown)
        with away_from_here():
            start(ray, how)
        show_logs(ray, False)
        check_versions(ray)
        yield ray


@contextmanager
def away_from_here() -> Iterator[None]:
    """Lets Ray start in an empty folder: it makes that the first in which workers find modules.

    A file in the current folder could stand in for a library there. What users name is found by
    the paths of this process, which workers search last.
    """
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="thespis-", ignore_cleanup_errors=True) as empty:
        os.chdir(empty)
        try:
            yield
        finally:
            os.chdir(before)


def address_of(address: str | bool | None) -> str | None:
    """Returns the address of a cluster, by default of RAY_ADDRESS; None for a Ray of our own."""
    chosen = address if isinstance(address, str) else os.environ.get("RAY_ADDRESS")
    return None if chosen in ("", "local") else chosen


def start(ray: Any, how: dict[str, Any]) -> None:
    """Calls `ray.init`, and says in one line why it could not. Signals wait until then."""
    silent = warnings.catch_warnings()
    try:
        with held(), own_ray.no_handlers(ray), own_ray.sigterm_blocked(), silent:
            warnings.simplefilter("ignore")
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **how)
    except Exception as error:  # Ray raises plain ones, too, where it takes long to start
        if "ersion mismatch" in str(error):  # Ray refuses other versions of itself and of Python
            raise ThespisError(f"ray: {one_line(error)}; install the same on all nodes") from error
        where = how["address"]
        what = "no Ray could be started here" if where == "local" else f"no cluster at {where}"
        raise ThespisError(f"{what}: {shown(one_line(error))}; check `ray status`") from error


def show_logs(ray: Any, shown: bool) -> None:
    """Lets Ray print what nodes say of their workers, or not: it would be amidst --json."""
    ray._private.worker._worker_logs_enabled = shown


def reachable(address: str) -> str:
    """Returns an address at which somebody listens, or refuses it."""
    if address == "auto":
        return address
    if "://" in address:
        raise ThespisError(
            f"ray = {shown(address)}: give HOST:PORT of the cluster's head, on one of its nodes, "
            "not the address of a Ray client"
        )
    host, _, port = address.rpartition(":") if ":" in address else (address, "", str(PORT))
    if not host or not port.isdecimal():
        raise ThespisError(f"ray = {shown(address)}: give HOST:PORT of a cluster, or auto")
    try:
        socket.create_connection((host, int(port)), REACHED).close()
    except (OSError, OverflowError) as error:
        raise ThespisError(
            f"ray = {shown(address)}: no cluster there ({one_line(error)}); start one with "
            "`ray start --head`, or leave the address out"
        ) from error
    return f"{host}:{port}"


# --- nodes ----------------------------------------------------------------------------------


def nodes(ray: Any) -> list[dict[str, Any]]:
    """Returns what Ray knows of the nodes that are there now."""
    return [node for node in ray.nodes() if node["Alive"]]


def free_cpus(ray: Any) -> dict[str, float]:
    """Returns the CPUs of every node that nobody has asked for."""
    free = ray._private.state.available_resources_per_node()
    return {node["NodeID"]: free.get(node["NodeID"], {}).get("CPU", 0) for node in nodes(ray)}


def on_node(ray: Any, node: str, soft: bool = False) -> Any:
    """Returns the strategy that puts something onto this node.

    `soft`: or elsewhere, if the node is gone or others have taken its CPUs meanwhile.
    """
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return strategy(node, soft=soft, _spill_on_unavailable=soft)


def check_versions(ray: Any) -> None:
    """Refuses nodes on which Python, Ray, JAX or Thespis have other versions than here."""
    here, there = versions(), {node["NodeID"]: node for node in nodes(ray)}
    mine = ray.get_runtime_context().get_node_id()
    asked = {node: ask(ray, node) for node in there if node != mine}
    for node, refs in asked.items():
        name = there[node]["NodeManagerAddress"]
        try:
            installed = {package: answered_version(ray, ref) for package, ref in refs.items()}
        except ray.exceptions.GetTimeoutError:
            raise ThespisError(
                f"ray: node {name} does not answer within {ANSWERED} s; check `ray status`"
            ) from None
        except ray.exceptions.RayError:  # it has left meanwhile, or starts no process
            if node in {x["NodeID"] for x in nodes(ray)}:
                raise ThespisError(f"ray: node {name} starts no process; check its logs") from None
            continue
        refuse_differences(name, installed, here)


def refuse_differences(name: str, installed: dict[str, str], here: dict[str, str]) -> None:
    """Refuses a node by the versions that are `installed` there."""
    different = [
        f"{k} {installed.get(k)}, not {x}" for k, x in here.items() if installed.get(k) != x
    ]
    if different:
        raise ThespisError(
            f"ray: node {name} has {'; '.join(different)} as here; install the same on all nodes"
        )


def ask(ray: Any, node: str) -> dict[str, Any]:
    """Returns references of the versions on a node. All that runs there is Python's own."""
    how = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": on_node(ray, node)}
    remote = lambda function: ray.remote(**how)(function).remote
    version, python = remote(importlib.metadata.version), remote(platform.python_version)
    return {"python": python()} | {package: version(package) for package in PACKAGES}


def answered_version(ray: Any, ref: Any) -> str:
    """Returns the version that a node has answered with."""
    try:
        return ray.get(ref, timeout=ANSWERED)
    except ray.exceptions.RayTaskError:
        return "not installed"


def versions() -> dict[str, str]:
    """Returns the versions of this process."""
    packages = {package: importlib.metadata.version(package) for package in PACKAGES}
    return {"python": platform.python_version()} | packages
