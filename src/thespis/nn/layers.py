"""The one layer that all networks are made of: a matrix product, fast in both directions."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from thespis.xla.ordering import no_inline

# Weights and biases +-1/sqrt(n); weights +-sqrt(3/n); or orthogonal weights of gain sqrt(2).
Init = Literal["torch", "lecun", "orthogonal"]
Dtype = Literal["float32", "bfloat16"]


def affine(x, weight, bias, dtype: Dtype = "float32"):
    """Returns x W + b; in bfloat16 the product and its gradients are, and nothing around them."""
    if dtype == "float32":
        y = product(x, weight)
    else:
        y = product(x.astype(dtype), weight.astype(dtype)).astype(x.dtype)
    return y if bias is None else y + bias.reshape((1,) * (y.ndim - 1) + bias.shape)


@jax.custom_jvp
def product(x, weight):
    return x @ weight


turned = no_inline(jnp.transpose)  # the compiler would put it into the product again


def differentials(factors, changes):
    """dx W + x dW for a weight [n, m].

    CPUs are slow at x.T @ g, the gradient of the weight, unless one of them is turned before. So
    the second term is written such that its transpose, which is that gradient, is turned.
    """
    (x, weight), (dx, dw) = factors, changes
    parts = []
    if not isinstance(dx, SymbolicZero):
        parts.append(dx @ weight)
    if not isinstance(dw, SymbolicZero):
        n, m = weight.shape
        rows, along = x.reshape(-1, n), lambda i, j: (((i,), (j,)), ((), ()))
        if n > m:  # its transpose is turned(turned(g) @ x)
            part = turned(lax.dot_general(turned(dw), rows, along(1, 1)))
        else:  # turned(x) @ g
            turn = turned if n == m else jnp.transpose
            part = lax.dot_general(turn(rows), dw, along(0, 0))
        parts.append(part.reshape(*x.shape[:-1], m))
    return x @ weight, sum(parts[1:], parts[0])


product.defjvp(differentials, symbolic_zeros=True)
