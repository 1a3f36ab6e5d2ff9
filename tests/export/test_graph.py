"""Every operation that policies use, written for NumPy and for ONNX, computes what JAX does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, nn

from thespis.core import ThespisError
from thespis.export.graph import Graph, trace
from thespis.export.to_numpy import source
from thespis.export.to_onnx import model
from thespis.export.writer import compiled, session

ARRAY = np.linspace(-2, 3, 12).astype(np.float32).reshape(1, 3, 4)

FUNCTIONS = {
    "arithmetic": lambda x: (x + 1) * (x - 2) / (jnp.abs(x) + 0.5) - (-x) ** 3 + x**2,
    "bounds": lambda x: jnp.maximum(jnp.minimum(x, 1.0), -1.0) + jnp.clip(x, -0.5, 2.5),
    "curves": lambda x: jnp.tanh(x) + jnp.exp(x) + jnp.sin(x) * jnp.cos(x) + nn.sigmoid(x),
    "logs": lambda x: jnp.log(x**2 + 1) + jnp.log1p(x**2) + jnp.expm1(x) + jnp.sqrt(x**2),
    "soft": lambda x: nn.softplus(x) + nn.log_softmax(x) + nn.relu(x) + nn.softmax(x),
    "roots": lambda x: lax.rsqrt(x**2 + 1) + jnp.power(jnp.abs(x) + 0.1, 0.3) + jnp.sign(x),
    "rounding": lambda x: jnp.floor(x) + jnp.ceil(x) + lax.rem(x, jnp.full_like(x, 0.7)),
    "choices": lambda x: jnp.where((x > 0) & ~(x >= 2) | (x == 3) ^ (x < -1), x, -jnp.inf),
    "unequal": lambda x: jnp.where((x != 0) & (x <= 1), 1.0, 0.0),
    "sums": lambda x: x.sum(-1) + x.max(-1) + x.min(-1) + jnp.prod(x, -1) + x.mean(-1),
    "indices": lambda x: (x.argmax(-1), x.argmin(1)),
    "any and all": lambda x: ((x > 0).any(-1), (x > -3).all(1)),
    "products": lambda x: x @ jnp.arange(8.0).reshape(4, 2),
    "batched products": lambda x: jnp.einsum("nij,nkj->nik", x, x),
    "shapes": lambda x: jnp.concatenate(
        [x.reshape(1, 12), x.transpose(0, 2, 1).reshape(1, -1)], -1
    ),
    "parts": lambda x: sum(jnp.split(x, 2, -1)) + jnp.split(x, 1)[0][..., 1:3],
    "slices": lambda x: x[:, ::2, 1] + x[:, 1:, -1],
    "stacks": lambda x: jnp.stack([x, 2 * x], -1).sum(-1) + sum(jnp.unstack(x, axis=1))[:, None],
    "coordinates": lambda x: x[..., jnp.array([2, 0])],
    "convolutions": lambda x: lax.conv_general_dilated(
        x[..., None],
        jnp.arange(24.0).reshape(2, 2, 1, 6),
        (1, 2),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    "tiles": lambda x: jnp.tile(x, (1, 2, 1)),
    "types": lambda x: (x.astype(jnp.int32) + 1).astype(jnp.float32) + (x > 0).astype(jnp.float32),
    "branches": lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: -y, x),
    "inner functions": lambda x: jax.jit(jnp.linalg.norm)(x) + jax.checkpoint(jnp.sin)(x),
    "nothing to do": lambda x: (x, jnp.ones(3)),
}


def results(f) -> tuple[dict, dict, dict]:
    """What JAX, NumPy and ONNX make of the same array."""
    graph = trace(lambda _, given: {"out": f(given["x"])}, {}, {"x": ARRAY})
    body, arrays = source(graph)
    code = "import numpy as np\ndef compute(p, inputs):\n"
    code += "".join(f"    {line}\n" for line in body.splitlines())
    names = list(graph.outputs)
    wanted = dict(zip(names, jax.tree.leaves(f(jnp.asarray(ARRAY))), strict=True))
    given = {"x": ARRAY}
    return wanted, compiled(code, arrays)(given), session(model(graph, {}))(given)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_jax(name):
    with jax.numpy_rank_promotion("allow"):
        wanted, by_numpy, by_onnx = results(FUNCTIONS[name])
    for key, x in wanted.items():
        for got in (by_numpy[key], by_onnx[key]):
            assert got.dtype == x.dtype
            np.testing.assert_allclose(got, x, rtol=2e-6, atol=1e-6)


def test_what_does_not_depend_on_the_inputs_is_computed():
    graph = trace(
        lambda known, given: {"out": given["x"] + jnp.sin(known["a"]).sum()},
        {"a": np.arange(4.0, dtype=np.float32)},
        {"x": ARRAY},
    )
    assert [op.kind for op in graph.operations] == ["add"]


def test_what_no_output_needs_is_left_out():
    def f(_, given):
        _ = jnp.tanh(given["x"])
        chosen = jnp.where(jnp.zeros(4, bool)[None, None], given["unused"], given["x"])
        return {"out": 2 * chosen}

    graph = trace(f, {}, {"x": ARRAY, "unused": ARRAY})
    assert [op.kind for op in graph.operations] == ["mul"]
    assert {id(x) for op in graph.operations for x in op.inputs} & {id(graph.inputs[0])} == set()


def test_what_cannot_be_written_is_named():
    graph = trace(lambda _, given: {"out": jnp.sort(given["x"])}, {}, {"x": ARRAY})
    for write in (source, lambda graph: model(graph, {})):
        with pytest.raises(ThespisError, match="the policy uses 'sort', which"):
            write(graph)
    assert isinstance(graph, Graph)
