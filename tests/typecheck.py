"""How annotations are checked while tests run: see conftest.py."""

from functools import partial
from inspect import isfunction
from typing import get_args, get_type_hints

import jax
import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

# A number may be written 1 instead of 1.0, and hyper-parameters are arrays once they are data.
check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({float: float | int | jax.Array})))
with_shapes = jaxtyping.jaxtyped


def install(package: str):
    """Checks every function of a package that is imported from here on.

    jaxtyping remembers at every call which sizes the names of axes have, and builds what checks
    a function again whenever `def` is executed: that is for functions that take or return arrays.
    """
    jaxtyping.jaxtyped = jaxtyped
    return jaxtyping.install_import_hook(package, "tests.typecheck.check")


def jaxtyped(fn=None, *, typechecker):
    """jaxtyping's decorator, which the import hook writes above every function and class."""
    if fn is None:
        return partial(jaxtyped, typechecker=typechecker)
    if not isfunction(fn):
        return with_shapes(fn, typechecker=typechecker)
    if not fn.__annotations__:
        return fn
    try:
        hints = get_type_hints(fn, include_extras=True).values()
    except Exception:  # a name that only type checkers import: jaxtyping leaves that one out
        return with_shapes(fn, typechecker=typechecker)
    if any(map(has_shapes, hints)):
        return with_shapes(fn, typechecker=typechecker)
    return typechecker(fn)


def has_shapes(hint) -> bool:
    """Whether there are names of axes in an annotation, or may be."""
    return "jaxtyping" in repr(type(hint)) + repr(hint) or any(map(has_shapes, get_args(hint)))
