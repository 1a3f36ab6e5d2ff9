"""Annotations are checked while tests run, of arrays with the sizes that their names share."""

import sys
from importlib import import_module

import numpy as np
import pytest

from tests import typecheck

SOURCE = """
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
from jaxtyping import Array, Float

if TYPE_CHECKING:
    from somewhere import Thing


@dataclass(frozen=True)
class Pair:
    left: Float[Array, "n"]
    right: Float[Array, "n"]


def dot(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    return x @ y


def double(x: int) -> str:
    return 2 * x


def half(x: float, of: Thing | None = None) -> float:
    return x / 2


def plain(x):
    def inner(y: int):
        return y

    return inner(x)
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    (folder / "typed_source.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        with typecheck.install("typed_source"):
            yield import_module("typed_source")
        del sys.modules["typed_source"]


def test_arrays_share_the_sizes_of_their_axes(module):
    import jax.numpy as jnp

    two, three = jnp.ones(2), jnp.ones(3)
    assert module.dot(two, two) == 2
    assert module.dot(three, three) == 3  # every call has its own
    for wrong in (module.dot, module.Pair):
        with pytest.raises(Exception, match="Type-check error"):
            wrong(two, three)
    with pytest.raises(Exception, match="Type-check error"):
        module.dot(two, np.ones(2))


def test_what_has_no_arrays_is_checked_too(module):
    with pytest.raises(Exception, match="violates type hint"):
        module.double("x")
    with pytest.raises(Exception, match="violates type hint"):
        module.double(1)  # which is no text
    with pytest.raises(Exception, match="violates type hint"):
        module.plain("x")
    assert module.plain(1) == 1


def test_a_name_that_is_not_imported_leaves_the_others(module):
    assert module.half(1, of="anything") == 0.5
    with pytest.raises(Exception, match="Type-check error"):
        module.half("x")


def test_functions_without_annotations_stay_as_they_are(module):
    assert not hasattr(module.plain, "__wrapped__")
