"""Writes a graph as the source of a NumPy function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.export.graph import Constant, Graph, Operation, Value, unknown

PLAIN = {  # expressions of the inputs, in order
    "add": "{} + {}",
    "add_any": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "neg": "-{}",
    "max": "np.maximum({}, {})",
    "min": "np.minimum({}, {})",
    "pow": "np.power({}, {})",
    "rem": "np.fmod({}, {})",
    "square": "np.square({})",
    "abs": "np.abs({})",
    "sign": "np.sign({})",
    "exp": "np.exp({})",
    "log": "np.log({})",
    "log1p": "np.log1p({})",
    "expm1": "np.expm1({})",
    "sqrt": "np.sqrt({})",
    "rsqrt": "1 / np.sqrt({})",
    "sin": "np.sin({})",
    "cos": "np.cos({})",
    "tanh": "np.tanh({})",
    "logistic": "0.5 * (np.tanh(0.5 * {}) + 1)",  # never overflows
    "floor": "np.floor({})",
    "ceil": "np.ceil({})",
    "is_finite": "np.isfinite({})",
    "eq": "{} == {}",
    "ne": "{} != {}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "and": "{} & {}",
    "or": "{} | {}",
    "xor": "{} ^ {}",
    "not": "~{}",
    "select_n": "np.where({0}, {2}, {1})",
    "clamp": "np.minimum(np.maximum({1}, {0}), {2})",
}
REDUCE = {
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "reduce_and": "all",
    "reduce_or": "any",
    "argmax": "argmax",
    "argmin": "argmin",
}


def source(graph: Graph) -> tuple[str, dict[str, np.ndarray]]:
    """Returns the body of a function, and the arrays that it reads as `p["..."]`.

    It also reads `inputs["..."]`, and returns a dict of the outputs.
    """
    names: dict[int, str] = {}
    arrays: dict[str, np.ndarray] = {}
    for constant in graph.constants:
        names[id(constant)] = name_constant(constant, arrays)
    for value in graph.inputs:
        names[id(value)] = f'inputs["{value.name}"]'
    lines = []
    for operation in graph.operations:
        text = expression(operation, [names[id(x)] for x in operation.inputs])
        results = [f"x{len(names) + i}" for i in range(len(operation.outputs))]
        for value, name in zip(operation.outputs, results, strict=True):
            names[id(value)] = name
        comma = "," if operation.kind in ("split", "unstack") and len(results) == 1 else ""
        lines.append(f"{', '.join(results)}{comma} = {text}  # {comment(operation)}")
    outputs = ", ".join(f'"{name}": {names[id(x)]}' for name, x in graph.outputs.items())
    return "\n".join([*lines, f"return {{{outputs}}}"]), arrays


def name_constant(constant: Constant, arrays: dict[str, np.ndarray]) -> str:
    """Returns a literal if it is one number, else stores it and returns how to read it."""
    x = constant.array
    if x.ndim == 0:
        if x.dtype == bool:
            return str(bool(x))
        number = repr(x.item()) if np.isfinite(x) else f'float("{x.item()}")'
        return f"np.{x.dtype.name}({number})"
    key = constant.name or f"c{len(arrays)}"
    arrays[key] = x
    return f'p["{key}"]'


def comment(operation: Operation) -> str:
    shapes = (f"{np.dtype(x.dtype).name}{list(x.shape)}" for x in operation.outputs)
    return f"{operation.kind}, {', '.join(shapes)}"


def expression(operation: Operation, names: list[str]) -> str:
    kind, (out, *_) = operation.kind, operation.outputs
    if kind in PLAIN:
        return PLAIN[kind].format(*names)
    if kind in REDUCE:
        axes = tuple(operation.params["axes"])
        axis = axes[0] if kind.startswith("arg") else axes
        typed = f'.astype("{np.dtype(out.dtype).name}")'
        return f"np.{REDUCE[kind]}({names[0]}, axis={axis}){typed}"
    if kind in SPECIAL:
        return SPECIAL[kind](operation, names, operation.params, out)
    raise unknown(operation, "NumPy")


# --- operations with parameters: f(operation, names of the inputs, parameters, first output) --


def divide(op: Operation, x: list[str], params: Any, out: Value) -> str:
    whole = np.issubdtype(np.dtype(out.dtype), np.integer)
    return f"{x[0]} // {x[1]}" if whole else f"{x[0]} / {x[1]}"


def broadcast(op: Operation, x: list[str], params: Any, out: Value) -> str:
    shape = [1] * len(out.shape)
    for axis, size in zip(params["broadcast_dimensions"], op.inputs[0].shape, strict=True):
        shape[axis] = size
    return f"np.broadcast_to(np.reshape({x[0]}, {tuple(shape)}), {out.shape})"


def product(op: Operation, x: list[str], params: Any, out: Value) -> str:
    (left, right), batch = params["dimension_numbers"]
    a, b = (len(value.shape) for value in op.inputs)
    if not any(batch) and (tuple(left), tuple(right)) == ((a - 1,), (0,)) and b <= 2:
        return f"{x[0]} @ {x[1]}"
    return f'np.einsum("{letters(op)}", {x[0]}, {x[1]})'


def letters(op: Operation) -> str:
    """Returns the einsum subscripts of a product of arrays."""
    (left, right), (left_batch, right_batch) = op.params["dimension_numbers"]
    alphabet = iter("abcdefghijklmnopqrstuvwxyz")
    first, second = ([""] * len(value.shape) for value in op.inputs)
    for i, j in [*zip(left_batch, right_batch, strict=True), *zip(left, right, strict=True)]:
        first[i] = second[j] = next(alphabet)
    first, second = ([letter or next(alphabet) for letter in side] for side in (first, second))
    shared = [first[i] for i in left_batch]
    summed = [first[i] for i in left]
    free = [x for x in first + second if x not in shared + summed]
    return f"{''.join(first)},{''.join(second)}->{''.join(shared + free)}"


def cut(op: Operation, x: list[str], params: Any, out: Value) -> str:
    steps = params["strides"] or (1,) * len(params["start_indices"])
    parts = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return f"{x[0]}[{', '.join(f'{a}:{b}:{s}' if s != 1 else f'{a}:{b}' for a, b, s in parts)}]"


def split(op: Operation, x: list[str], params: Any, out: Value) -> str:
    ends = np.cumsum(params["sizes"])[:-1].tolist()
    return f"np.split({x[0]}, {ends}, axis={params['axis']})"


def taken_axis(op: Operation) -> int:
    """Returns the axis along which a gather takes whole entries; refuses other gathers."""
    rules, x, indices = op.params["dimension_numbers"], *op.inputs
    axes = rules.collapsed_slice_dims
    if len(axes) == 1 and tuple(rules.start_index_map) == tuple(axes):
        (axis,) = axes
        whole = [1 if i == axis else n for i, n in enumerate(x.shape)]
        among = range(axis, axis + len(indices.shape) - 1)
        rest = [i for i in range(len(op.outputs[0].shape)) if i not in among]
        if list(op.params["slice_sizes"]) == whole and list(rules.offset_dims) == rest:
            return axis
    raise unknown(op, "an export")


def take(op: Operation, x: list[str], params: Any, out: Value) -> str:
    return f"np.take({x[0]}, {x[1]}[..., 0], axis={taken_axis(op)})"


def unstack(op: Operation, x: list[str], params: Any, out: Value) -> str:
    before = ":, " * params["axis"]
    parts = (f"{x[0]}[{before}{i}]" for i in range(len(op.outputs)))
    return f"{', '.join(parts)}{',' if len(op.outputs) == 1 else ''}"


def plain_convolution(op: Operation) -> tuple[int, int]:
    """Returns the strides of a convolution of [n, h, w, c] with [h, w, c, o]; refuses others."""
    p, numbers = op.params, op.params["dimension_numbers"]
    orders = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    padded = any(n for pair in p["padding"] for n in pair)
    spread = {*p["lhs_dilation"], *p["rhs_dilation"], p["feature_group_count"]} != {1}
    if orders != ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)) or padded or spread:
        raise unknown(op, "an export")
    return p["window_strides"]


def convolution(op: Operation, x: list[str], params: Any, out: Value) -> str:
    down, right = plain_convolution(op)
    window = f"np.lib.stride_tricks.sliding_window_view({x[0]}, {op.inputs[1].shape[:2]}, (1, 2))"
    return f"np.tensordot({window}[:, ::{down}, ::{right}], {x[1]}, ((4, 5, 3), (0, 1, 2)))"


SPECIAL: dict[str, Callable[..., str]] = {
    "conv_general_dilated": convolution,
    "gather": take,
    "unstack": unstack,
    "tile": lambda op, x, params, out: f"np.tile({x[0]}, {params['reps']})",
    "div": divide,
    "broadcast_in_dim": broadcast,
    "dot_general": product,
    "slice": cut,
    "split": split,
    "integer_pow": lambda op, x, params, out: f"{x[0]} ** {params['y']}",
    "convert_element_type": lambda op, x, params, out: (
        f'np.asarray({x[0]}).astype("{np.dtype(out.dtype).name}")'
    ),
    "reshape": lambda op, x, params, out: f"np.reshape({x[0]}, {out.shape})",
    "squeeze": lambda op, x, params, out: f"np.reshape({x[0]}, {out.shape})",
    "expand_dims": lambda op, x, params, out: f"np.reshape({x[0]}, {out.shape})",
    "transpose": lambda op, x, params, out: f"np.transpose({x[0]}, {params['permutation']})",
    "stack": lambda op, x, params, out: f"np.stack([{', '.join(x)}], axis={params['axis']})",
    "concatenate": lambda op, x, params, out: (
        f"np.concatenate([{', '.join(x)}], axis={params['dimension']})"
    ),
}
