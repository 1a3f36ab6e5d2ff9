"""The numbers of `jax.random`, drawn faster on CPUs, where its bits come from a slow loop.

Threefry-2x32, Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405, unrolled so that the
compiler merges all of it into one loop.
"""

from __future__ import annotations

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Bool, Float, UInt32

from thespis.core import Key
from thespis.xla.ordering import no_inline

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA
MIDDLE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087)
MIDDLE += (-0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773)
TAIL += (-0.0076224613, 0.00943887047, 1.00167406, 2.83297682)
BELOW_ONE = np.nextafter(np.float32(-1), np.float32(0))


@partial(jax.jit, static_argnames="shape")
def bits(key: Key, shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """Returns 32 random bits per entry, the same as `jax.random.bits`."""
    if not is_threefry(key) or math.prod(shape) >= 2**32:  # or a longer counter
        return random.bits(key, shape, jnp.uint32)
    x, y = blocks(key, math.prod(shape))
    return (x ^ y).reshape(shape)


def is_threefry(key: Key) -> bool:
    return random.key_data(key).shape[0] == 2


def blocks(key: Key, n: int) -> tuple[UInt32[Array, "n"], UInt32[Array, "n"]]:
    """Returns n blocks of 64 random bits, each as two words."""
    first, second = random.key_data(key)
    schedule = (first, second, first ^ second ^ jnp.uint32(PARITY))
    count = jax.lax.iota(jnp.uint32, n)
    x, y = jnp.full_like(count, first), count + second
    for i in range(5):
        for by in ROTATIONS[i % 2]:
            x = x + y
            y = x ^ ((y << by) | (y >> (32 - by)))
        x = x + schedule[(i + 1) % 3]
        y = y + schedule[(i + 2) % 3] + jnp.uint32(i + 1)
    return x, y


def uniform(key: Key, shape: tuple[int, ...], low=0.0, high=1.0) -> Float[Array, "..."]:
    """Draws from [low, high), the same numbers as `jax.random.uniform`."""
    mantissa = (bits(key, shape) >> 9) | jnp.uint32(0x3F800000)
    unit = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - 1.0
    low, high = np.float32(low), np.float32(high)
    return jnp.maximum(low, unit * (high - low) + low)


def bernoulli(key: Key, p: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """Draws True with probability p: 64 random bits serve for eight draws.

    The eight share a threshold, p in units of 1/256, which is rounded up as often as makes p exact.
    """
    return _bernoullis(p, shape)(key)


def normal(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Draws with mean 0 and variance 1, the numbers of `jax.random.normal` but for rounding."""
    return _normals(shape)(key)


@cache
def _bernoullis(p: float, shape: tuple[int, ...]):
    """Returns a function that draws in its own call, for the reason of `_normals`."""
    n, rare = math.prod(shape), min(p, 1 - p)
    m = (n + 7) // 8
    every_byte, high_bits = np.uint32(0x01010101), np.uint32(0x80808080)

    @no_inline
    def draw(key: Key) -> UInt32[Array, "m"]:
        """Returns eight draws per word, a bit of four each: whether a byte is not below."""
        x, y = blocks(key, m) if is_threefry(key) else random.bits(key, (2, m), jnp.uint32)
        # Multiples of the golden ratio are spread evenly, from a start that the key chooses.
        spread = jax.lax.iota(jnp.uint32, m) * np.uint32(0x9E3779B1) + random.key_data(key)[-1]
        below = (np.uint32(round(rare * 2**24)) + (spread >> 16)) >> 16
        # Four bytes at once: adding 128 - below, at most 128, to seven bits sets the eighth.
        add = (128 - below) * every_byte
        above = lambda x: (((x & ~high_bits) + add) | x) & high_bits
        return above(x) | (above(y) >> 4)

    def unpack(words: UInt32[Array, "m"]) -> Bool[Array, "..."]:
        places = jnp.arange(3, 32, 4, dtype=jnp.uint32)
        above = ((words[None] >> places[:, None]) & 1).reshape(-1)[:n].reshape(shape)
        return above == 0 if rare == p else above != 0

    return lambda key: unpack(draw(key))


@cache
def _normals(shape: tuple[int, ...]):
    """Returns a function that draws in its own call: the compiler would redraw at every use."""
    root = np.float32(math.sqrt(2))
    return no_inline(lambda key: root * erf_inv(uniform(key, shape, BELOW_ONE, 1.0)))


def erf_inv(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the inverse of erf within (-1, 1).

    Giles 2010, https://people.maths.ox.ac.uk/gilesm/files/gems_erfinv.pdf, table 5: polynomials
    in w = -log(1 - x^2), one for the middle and one for the tails.
    """
    w = -jnp.log((1 - x) * (1 + x))
    tail = w >= 5
    t = jnp.where(tail, jnp.sqrt(w) - 3, w - 2.5)
    p = jnp.zeros_like(t)
    for of_middle, of_tail in zip(MIDDLE, TAIL, strict=True):
        p = p * t + jnp.where(tail, np.float32(of_tail), np.float32(of_middle))
    return p * x
