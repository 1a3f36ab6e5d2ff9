"""The linear layer that all networks are made of, with a fast gradient, and orthogonal weights."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from thespis.core import Key
from thespis.xla import fast_random
from thespis.xla.ordering import no_inline

# Weights and biases +-1/sqrt(n); weights +-sqrt(3/n); or orthogonal weights of gain sqrt(2).
Init = Literal["torch", "lecun", "orthogonal"]
Dtype = Literal["float32", "bfloat16"]


def affine(x, weight, bias, dtype: Dtype = "float32"):
    """Returns x W + b; only the product and its gradients are computed in `dtype`."""
    if dtype == "float32":
        y = product(x, weight)
    else:
        y = product(x.astype(dtype), weight.astype(dtype)).astype(x.dtype)
    return y if bias is None else y + bias.reshape((1,) * (y.ndim - 1) + bias.shape)


@jax.custom_jvp
def product(x, weight):
    """Returns x W."""
    return x @ weight


transposed = no_inline(jnp.transpose)  # else the compiler would merge it with the product


def product_jvp(primals, tangents):
    """Returns x W, and dx W + x dW for a weight [n, m].

    CPUs are slow at x.T @ g, the gradient of the weight, unless one of the two is transposed in
    memory before. So the second term is written such that its transpose, which is that gradient,
    does so. Transposing g leaves the gradient to be transposed as well, which pays for a few
    columns only; x with a few columns may stay as it is.
    """
    (x, weight), (dx, dw) = primals, tangents
    terms = []
    if not isinstance(dx, SymbolicZero):
        terms.append(dx @ weight)
    if not isinstance(dw, SymbolicZero):
        n, m = weight.shape
        rows, contract = x.reshape(-1, n), lambda i, j: (((i,), (j,)), ((), ()))
        if n > m and 4 * m <= len(rows):  # its transpose is transposed(transposed(g) @ x)
            term = transposed(lax.dot_general(transposed(dw), rows, contract(1, 1)))
        else:  # transposed(x) @ g
            transpose = transposed if n >= min(m, 128) else jnp.transpose
            term = lax.dot_general(transpose(rows), dw, contract(0, 0))
        terms.append(term.reshape(*x.shape[:-1], m))
    return x @ weight, sum(terms[1:], terms[0])


product.defjvp(product_jvp, symbolic_zeros=True)


def orthogonal(key: Key, n: int, m: int) -> Float[Array, "n m"]:
    """Returns a random matrix whose rows or columns, whichever are fewer, are orthonormal.

    By Gram-Schmidt, twice, which is exact to rounding. LAPACK's QR decompositions of several
    members wait for each other forever if they run on several devices at once.
    """
    normal = fast_random.normal(key, (max(n, m), min(n, m)))

    def add(i, q):
        column = normal[:, i]
        for _ in range(2):
            column = column - q @ (q.T @ column)
        return q.at[:, i].set(column * lax.rsqrt((column**2).sum()))

    q = lax.fori_loop(0, min(n, m), add, jnp.zeros_like(normal))
    return q if n >= m else q.T
