"""The NumPy function of a graph is plain source with its arrays beside it."""

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core import ThespisError
from thespis.export.graph import trace
from thespis.export.to_numpy import source

X = np.arange(4, dtype=np.float32).reshape(1, 4)


def test_the_source_is_a_line_per_operation_that_says_what_it_is():
    weight = np.ones((4, 2), np.float32)
    f = lambda known, given: {"out": jnp.tanh(given["x"] @ known["weight"])}
    body, arrays = source(trace(f, {"weight": weight}, {"x": X}))
    product, tanh, result = body.splitlines()
    assert 'inputs["x"]' in product
    assert product.endswith("# dot_general, float32[1, 2]")
    assert "np.tanh(" in tanh
    assert result == f'return {{"out": {tanh.partition(" ")[0]}}}'
    (name,) = arrays
    assert f'p["{name}"]' in product
    np.testing.assert_array_equal(arrays[name], weight)


def test_single_numbers_are_literals_also_where_they_are_infinite():
    f = lambda _, given: {"out": jnp.where(given["x"] > 1.5, given["x"], -jnp.inf)}
    body, arrays = source(trace(f, {}, {"x": X}))
    code = "def compute(p, inputs):\n" + "".join(f"    {x}\n" for x in body.splitlines())
    space: dict = {"np": np}
    exec(code, space)
    found = space["compute"](arrays, {"x": X})["out"]
    np.testing.assert_array_equal(found, [[-np.inf, -np.inf, 2, 3]])
    assert 'float("-inf")' in body or any(np.isneginf(x).any() for x in arrays.values())


def test_what_numpy_has_no_word_for_is_named():
    graph = trace(lambda _, given: {"out": jnp.sort(given["x"])}, {}, {"x": X})
    with pytest.raises(ThespisError, match="the policy uses 'sort', which .*NumPy"):
        source(graph)
