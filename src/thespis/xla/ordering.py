"""Constraints on the compiler: the order of reads and writes, and calls that are not inlined."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array


def order_after(x: Array, read) -> Array:
    """Returns the integer x, in a way that depends on all of `read`.

    The compiler removes optimisation barriers, but no dependencies of numbers.
    """

    def probe(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return jax.lax.bitcast_convert_type(leaf.reshape(-1)[0].astype(jnp.float32), jnp.int32)

    return jnp.minimum(x, x + (sum(probe(leaf) for leaf in jax.tree.leaves(read)) & 1))


def no_inline(f):
    """Returns f as a call that the compiler does not inline, and so cannot fuse with others."""

    @jax.jit
    def body(*args):
        with set_xla_metadata(inlineable=None):  # calls in f itself may be inlined
            return f(*args)

    def call(*args):
        with set_xla_metadata(inlineable="false"):
            return body(*args)

    return call
