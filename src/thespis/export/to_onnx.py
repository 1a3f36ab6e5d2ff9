"""Writes a graph as an ONNX model. ONNX is an extra: `pip install 'thespis[onnx]'`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.errors import ThespisError
from thespis.export.graph import Graph, Operation, unknown
from thespis.export.to_numpy import letters, plain_convolution, taken_axis

OPSET = 18  # of 2022, which most runtimes support
NEXT = "next."  # prefix of the outputs that are the next memory
PLAIN = {
    "add": "Add",
    "add_any": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "neg": "Neg",
    "max": "Max",
    "min": "Min",
    "pow": "Pow",
    "abs": "Abs",
    "sign": "Sign",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "tanh": "Tanh",
    "logistic": "Sigmoid",
    "floor": "Floor",
    "ceil": "Ceil",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "and": "And",
    "or": "Or",
    "xor": "Xor",
    "not": "Not",
}
REDUCE = {
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
}


def require() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ThespisError("--format onnx needs onnx: pip install 'thespis[onnx]'") from error
    return onnx


def model(graph: Graph, about: dict[str, str]) -> Any:
    """Returns an `onnx.ModelProto` with the named inputs and outputs of the graph."""
    onnx = require()
    writer = Writer(onnx)
    for constant in graph.constants:
        writer.names[id(constant)] = writer.constant(constant.array, constant.name)
    for value in graph.inputs:
        writer.names[id(value)] = value.name
    for operation in graph.operations:
        writer.write(operation)
    taken = {value.name for value in graph.inputs}  # an output cannot have the name of an input
    outputs = {f"{NEXT}{n}" if n in taken else n: x for n, x in graph.outputs.items()}
    for name, value in outputs.items():
        writer.node("Identity", [writer.names[id(value)]], name)
    kind = lambda x: onnx.helper.np_dtype_to_tensor_dtype(np.dtype(x.dtype))
    info = lambda name, x: onnx.helper.make_tensor_value_info(name, kind(x), x.shape)
    result = onnx.helper.make_model(
        onnx.helper.make_graph(
            writer.nodes,
            "policy",
            [info(value.name, value) for value in graph.inputs],
            [info(name, x) for name, x in outputs.items()],
            writer.arrays,
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        producer_name="thespis",
    )
    result.ir_version = 9  # the version that belongs to OPSET
    onnx.helper.set_model_props(result, about)
    onnx.checker.check_model(result, full_check=True)
    return result


class Writer:
    """Collects nodes and arrays."""

    def __init__(self, onnx: Any):
        self.onnx, self.nodes, self.arrays = onnx, [], []
        self.names: dict[int, str] = {}

    def constant(self, x: Any, name: str = "") -> str:
        name = name or f"c{len(self.arrays)}"
        self.arrays.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(x), name))
        return name

    def integers(self, values: Any) -> str:
        return self.constant(np.array(values, np.int64))

    def node(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        """Adds a node, and returns the name of its output."""
        output = output or f"x{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def write(self, operation: Operation) -> None:
        names = [self.names[id(x)] for x in operation.inputs]
        results = self.results(operation, names)
        for value, name in zip(operation.outputs, results, strict=True):
            self.names[id(value)] = name

    def results(self, op: Operation, x: list[str]) -> list[str]:
        kind = op.kind
        if kind in PLAIN:
            return [self.node(PLAIN[kind], x)]
        if kind in REDUCE:
            axes = self.integers(op.params["axes"])
            return [self.node(REDUCE[kind], [x[0], axes], keepdims=0)]
        if kind in SPECIAL:
            names = SPECIAL[kind](self, op, x)
            return names if isinstance(names, list) else [names]
        raise unknown(op, "ONNX")

    def shaped(self, x: str, shape: tuple[int, ...]) -> str:
        return self.node("Reshape", [x, self.integers(shape)])

    def cast(self, x: str, dtype: Any) -> str:
        to = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.node("Cast", [x], to=to)


# --- operations with parameters -------------------------------------------------------------


def broadcast(w: Writer, op: Operation, x: list[str]) -> str:
    shape = [1] * len(op.outputs[0].shape)
    for axis, size in zip(op.params["broadcast_dimensions"], op.inputs[0].shape, strict=True):
        shape[axis] = size
    return w.node("Expand", [w.shaped(x[0], tuple(shape)), w.integers(op.outputs[0].shape)])


def product(w: Writer, op: Operation, x: list[str]) -> str:
    (left, right), batch = op.params["dimension_numbers"]
    a, b = (len(value.shape) for value in op.inputs)
    if not any(batch) and (tuple(left), tuple(right)) == ((a - 1,), (0,)) and b <= 2:
        return w.node("MatMul", x)
    return w.node("Einsum", x, equation=letters(op))


def cut(w: Writer, op: Operation, x: list[str]) -> str:
    starts, ends = op.params["start_indices"], op.params["limit_indices"]
    steps = op.params["strides"] or (1,) * len(starts)
    lists = starts, ends, range(len(starts)), steps
    return w.node("Slice", [x[0], *(w.integers(list(n)) for n in lists)])


def split(w: Writer, op: Operation, x: list[str]) -> list[str]:
    names = [f"x{len(w.nodes)}.{i}" for i in range(len(op.outputs))]
    sizes = w.integers(op.params["sizes"])
    w.nodes.append(w.onnx.helper.make_node("Split", [x[0], sizes], names, axis=op.params["axis"]))
    return names


def index(kind: str) -> Callable[..., str]:
    def find(w: Writer, op: Operation, x: list[str]) -> str:
        (axis,) = op.params["axes"]
        return w.cast(w.node(kind, x, axis=axis, keepdims=0), op.outputs[0].dtype)

    return find


def every(kind: str) -> Callable[..., str]:
    """Returns a writer for reductions of booleans, as the minimum or maximum of 0 and 1."""

    def over(w: Writer, op: Operation, x: list[str]) -> str:
        axes = w.integers(op.params["axes"])
        numbers = w.node(kind, [w.cast(x[0], np.int32), axes], keepdims=0)
        return w.cast(numbers, np.bool_)

    return over


def one(w: Writer, op: Operation) -> str:
    return w.constant(np.ones((), op.outputs[0].dtype))


def stack(w: Writer, op: Operation, x: list[str]) -> str:
    axis = op.params["axis"]
    shape = list(op.inputs[0].shape)
    shape.insert(axis, 1)
    return w.node("Concat", [w.shaped(name, tuple(shape)) for name in x], axis=axis)


def take(w: Writer, op: Operation, x: list[str]) -> str:
    shape = op.inputs[1].shape[:-1]
    return w.node("Gather", [x[0], w.shaped(x[1], shape)], axis=taken_axis(op))


def unstack(w: Writer, op: Operation, x: list[str]) -> list[str]:
    parts = map(w.integers, range(len(op.outputs)))
    return [w.node("Gather", [x[0], i], axis=op.params["axis"]) for i in parts]


def convolution(w: Writer, op: Operation, x: list[str]) -> str:
    strides = list(plain_convolution(op))
    image = w.node("Transpose", [x[0]], perm=[0, 3, 1, 2])  # ONNX has channels first
    kernel = w.node("Transpose", [x[1]], perm=[3, 2, 0, 1])
    convolved = w.node("Conv", [image, kernel], strides=strides)
    return w.node("Transpose", [convolved], perm=[0, 2, 3, 1])


SPECIAL: dict[str, Callable[..., Any]] = {
    "conv_general_dilated": convolution,
    "gather": take,
    "unstack": unstack,
    "tile": lambda w, op, x: w.node("Tile", [x[0], w.integers(op.params["reps"])]),
    "stack": stack,
    "broadcast_in_dim": broadcast,
    "dot_general": product,
    "slice": cut,
    "split": split,
    "rem": lambda w, op, x: w.node("Mod", x, fmod=1),
    "argmax": index("ArgMax"),
    "argmin": index("ArgMin"),
    "reduce_and": every("ReduceMin"),
    "reduce_or": every("ReduceMax"),
    "ne": lambda w, op, x: w.node("Not", [w.node("Equal", x)]),
    "square": lambda w, op, x: w.node("Mul", [x[0], x[0]]),
    "rsqrt": lambda w, op, x: w.node("Reciprocal", [w.node("Sqrt", x)]),
    "log1p": lambda w, op, x: w.node("Log", [w.node("Add", [x[0], one(w, op)])]),
    "expm1": lambda w, op, x: w.node("Sub", [w.node("Exp", x), one(w, op)]),
    "select_n": lambda w, op, x: w.node("Where", [x[0], x[2], x[1]]),
    "clamp": lambda w, op, x: w.node("Min", [w.node("Max", [x[1], x[0]]), x[2]]),
    "integer_pow": lambda w, op, x: w.node(
        "Pow", [x[0], w.constant(np.array(op.params["y"], op.outputs[0].dtype))]
    ),
    "convert_element_type": lambda w, op, x: w.cast(x[0], op.outputs[0].dtype),
    "reshape": lambda w, op, x: w.shaped(x[0], op.outputs[0].shape),
    "squeeze": lambda w, op, x: w.shaped(x[0], op.outputs[0].shape),
    "expand_dims": lambda w, op, x: w.shaped(x[0], op.outputs[0].shape),
    "transpose": lambda w, op, x: w.node("Transpose", x, perm=list(op.params["permutation"])),
    "concatenate": lambda w, op, x: w.node("Concat", x, axis=op.params["dimension"]),
}
