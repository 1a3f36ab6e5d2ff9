"""The numbers of `jax.random`, drawn faster: on CPUs its bits come from a loop of small steps.

Threefry-2x32, Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405, written out in full
so that the compiler merges it with what uses the numbers.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Float, UInt32

from thespis.core import Key

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA
BELOW_ONE = np.nextafter(np.float32(-1), np.float32(0))


def bits(key: Key, shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """32 random bits each, those of `jax.random.bits`."""
    words = random.key_data(key)
    if words.shape[0] != 2 or math.prod(shape) >= 2**32:  # not Threefry, or a longer count
        return random.bits(key, shape, jnp.uint32)
    first, second = words
    secrets = (first, second, first ^ second ^ jnp.uint32(PARITY))
    count = jax.lax.iota(jnp.uint32, math.prod(shape))
    x, y = jnp.full_like(count, first), count + second
    for i in range(5):
        for by in ROTATIONS[i % 2]:
            x = x + y
            y = x ^ ((y << by) | (y >> (32 - by)))
        x = x + secrets[(i + 1) % 3]
        y = y + secrets[(i + 2) % 3] + jnp.uint32(i + 1)
    return (x ^ y).reshape(shape)


def uniform(key: Key, shape: tuple[int, ...], low=0.0, high=1.0) -> Float[Array, "..."]:
    """In [low, high), those of `jax.random.uniform`."""
    mantissa = (bits(key, shape) >> 9) | jnp.uint32(0x3F800000)
    unit = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - 1.0
    low, high = np.float32(low), np.float32(high)
    return jnp.maximum(low, unit * (high - low) + low)


def normal(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Of mean 0 and variance 1, those of `jax.random.normal`."""
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform(key, shape, BELOW_ONE, 1.0))
