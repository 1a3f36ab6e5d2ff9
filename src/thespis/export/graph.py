"""A JAX function as a plain list of operations, from which other formats are written.

Calls are inlined, everything that does not depend on the inputs is computed, and operations that no
output needs are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.errors import ThespisError


@dataclass(frozen=True, eq=False)
class Value:
    """The result of an operation, or an input of the graph, which has no operation."""

    shape: tuple[int, ...]
    dtype: Any
    name: str = ""  # only inputs have one
    operation: Operation | None = None


@dataclass(frozen=True, eq=False)
class Constant:
    """A known array; `name` is its path in the policy's parameters."""

    array: np.ndarray
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> Any:
        return self.array.dtype


@dataclass(frozen=True, eq=False)
class Operation:
    kind: str  # the name of JAX's primitive
    inputs: list[Value | Constant]
    params: dict[str, Any]
    outputs: list[Value] = field(default_factory=list)


@dataclass(frozen=True)
class Graph:
    """Inputs, outputs, and `operations` in an order in which they can be computed."""

    inputs: list[Value]
    outputs: dict[str, Value | Constant]
    operations: list[Operation]

    @property
    def constants(self) -> list[Constant]:
        """All constants that are used, each once."""
        used = [x for op in self.operations for x in op.inputs] + list(self.outputs.values())
        return list({id(x): x for x in used if isinstance(x, Constant)}.values())


# --- tracing --------------------------------------------------------------------------------


def trace(f: Callable, known: Any, inputs: dict[str, Any]) -> Graph:
    """Returns `f(known, inputs)`, a dict of arrays, as operations on the inputs.

    Both are trees; only shapes and types of the inputs matter. Leaves are named by their paths.
    """
    known = jax.tree.map(jnp.asarray, known)
    closed, shapes = jax.make_jaxpr(f, return_shape=True)(known, inputs)
    constants = [Constant(as_numpy(x), name) for name, x in named(known)]
    values = [Value(x.shape, x.dtype, name) for name, x in named(inputs)]
    tracer = Tracer()
    outputs = tracer.run(closed.jaxpr, closed.consts, [*constants, *values])
    names = [name for name, _ in named(shapes)]
    return Graph(values, dict(zip(names, outputs, strict=True)), tracer.needed(outputs))


def named(tree: Any) -> list[tuple[str, Any]]:
    """Returns leaves with their paths, such as obs.position."""
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return [(name(path), x) for path, x in jax.tree_util.tree_leaves_with_path(tree)]


def as_numpy(x: Any) -> np.ndarray:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.array(x, object)  # only JAX can compute with it
    return np.asarray(x)


class Tracer:
    """Walks through a program and collects the operations that depend on its inputs."""

    def __init__(self):
        self.operations: list[Operation] = []

    def run(self, jaxpr: Any, consts: Any, arguments: list) -> list:
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        known |= dict(zip(jaxpr.invars, arguments, strict=True))
        literal = lambda x: hasattr(x, "val")
        read = lambda x: self.constant(np.asarray(x.val, x.aval.dtype)) if literal(x) else known[x]
        for equation in jaxpr.eqns:
            results = self.step(equation, [read(x) for x in equation.invars])
            known |= dict(zip(equation.outvars, results, strict=True))
        return [read(x) for x in jaxpr.outvars]

    def constant(self, x: Any) -> Constant:
        return Constant(as_numpy(x))

    def step(self, equation: Any, inputs: list) -> list:
        kind, params = equation.primitive.name, equation.params
        inner = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
        if inner is not None and kind not in ("scan", "while"):
            return self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs)
        if kind == "cond":
            return self.branch(params["branches"], *inputs)
        if kind in ("stop_gradient", "copy", "copy_p", "optimization_barrier"):
            return inputs
        if kind == "select_n" and isinstance(inputs[0], Constant):
            picks = np.unique(inputs[0].array)
            if picks.size == 1:  # the same choice everywhere: other inputs are not needed
                return [inputs[1 + int(picks[0])]]
        if all(isinstance(x, Constant) for x in inputs):
            arrays = [x.array.item() if x.array.dtype == object else x.array for x in inputs]
            results = equation.primitive.bind(*arrays, **params)
            results = results if isinstance(results, list | tuple) else [results]
            return [self.constant(x) for x in results]
        operation = Operation(kind, inputs, params)
        self.operations.append(operation)
        for x in equation.outvars:
            operation.outputs.append(Value(x.aval.shape, x.aval.dtype, "", operation))
        return operation.outputs

    def branch(self, branches: Any, index: Any, *arguments: Any) -> list:
        """Follows the taken branch if it is known, else both, and selects the result."""
        run = lambda branch: self.run(branch.jaxpr, branch.consts, list(arguments))
        if isinstance(index, Constant):
            return run(branches[int(index.array)])
        every = [run(branch) for branch in branches]
        if len(every) != 2:
            raise ThespisError("a policy with a switch of more than two branches is not exported")
        second = self.add("convert_element_type", [index], {}, (), np.dtype(bool))
        return [
            self.add("select_n", [second, false, true], {}, false.shape, false.dtype)
            for false, true in zip(*every, strict=True)
        ]

    def add(self, kind: str, inputs: list, params: dict, shape: tuple, dtype: Any) -> Value:
        """Adds an operation with one output, and returns that."""
        operation = Operation(kind, inputs, params)
        operation.outputs.append(Value(shape, dtype, "", operation))
        self.operations.append(operation)
        return operation.outputs[0]

    def needed(self, outputs: list) -> list[Operation]:
        """Returns the operations that the outputs depend on."""
        wanted, queue = set(), [x.operation for x in outputs if isinstance(x, Value)]
        while queue:
            operation = queue.pop()
            if operation is None or id(operation) in wanted:
                continue
            wanted.add(id(operation))
            queue += [x.operation for x in operation.inputs if isinstance(x, Value)]
        return [op for op in self.operations if id(op) in wanted]


def unknown(operation: Operation, where: str) -> ThespisError:
    return ThespisError(
        f"the policy uses {operation.kind!r}, which {where} cannot express yet: export another "
        "format, or add it to thespis/export"
    )
