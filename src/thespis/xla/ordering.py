"""What the compiler must not do: reorder reads and writes of one buffer, or merge certain calls."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array


def order_after(x: Array, read) -> Array:
    """Returns the integer x, known only when all of `read` is.

    The compiler drops barriers, but not numbers.
    """

    def probe(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return jax.lax.bitcast_convert_type(leaf.reshape(-1)[0].astype(jnp.float32), jnp.int32)

    return jnp.minimum(x, x + (sum(probe(leaf) for leaf in jax.tree.leaves(read)) & 1))


def no_inline(f):
    """Returns f compiled by itself: the compiler merges no call of it with what is around."""

    @jax.jit
    def inside(*args):
        with set_xla_metadata(inlineable=None):  # f itself is one piece
            return f(*args)

    def call(*args):
        with set_xla_metadata(inlineable="false"):
            return inside(*args)

    return call
