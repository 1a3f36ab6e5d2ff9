"""The ONNX model of a graph has its names, and says when the library is missing."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core import ThespisError
from thespis.export import to_onnx
from thespis.export.graph import trace
from thespis.export.writer import session

X = np.arange(4, dtype=np.float32).reshape(1, 4)


def test_a_model_has_the_names_of_the_graph_and_a_memory_comes_out_as_the_next():
    f = lambda _, given: {"action": 2 * given["x"], "memory.t": given["memory.t"] + 1}
    time = np.zeros((1, 1), np.float32)
    made = to_onnx.model(trace(f, {}, {"x": X, "memory.t": time}), {"algorithm": "sac"})
    assert {x.name for x in made.graph.input} == {"x", "memory.t"}
    assert {x.name for x in made.graph.output} == {"action", "next.memory.t"}
    assert {p.key: p.value for p in made.metadata_props} == {"algorithm": "sac"}
    assert [(x.domain, x.version) for x in made.opset_import] == [("", to_onnx.OPSET)]
    found = session(made)({"x": X, "memory.t": time})
    np.testing.assert_array_equal(found["action"], 2 * X)


def test_what_onnx_has_no_word_for_is_named():
    graph = trace(lambda _, given: {"out": jnp.sort(given["x"])}, {}, {"x": X})
    with pytest.raises(ThespisError, match="the policy uses 'sort', which .*ONNX"):
        to_onnx.model(graph, {})


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[onnx\]'"):
        to_onnx.require()
