"""How many operations the matrix products of a program need, counted when it is traced."""

from __future__ import annotations

import math
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr


def products(jaxpr: Any, period: int = 1) -> float:
    """Operations of all products: of a loop all turns, of a `cond` the dearest once a period."""
    total, jaxpr = 0.0, getattr(jaxpr, "jaxpr", jaxpr)
    for equation in jaxpr.eqns:
        parts = jax.tree.leaves(equation.params)
        inner = [products(x, period) for x in parts if isinstance(x, ClosedJaxpr | Jaxpr)]
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left, out = equation.invars[0].aval.shape, equation.outvars[0].aval.size
            total += 2 * out * math.prod(left[i] for i in contracted)
        elif equation.primitive.name == "cond":
            total += max(inner) / period
        else:
            total += equation.params.get("length", 1) * sum(inner)
    return total
