"""The numbers of `jax.random`, drawn faster: on CPUs its bits come from a loop of small steps.

Threefry-2x32, Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405, written out in full
so that the compiler merges all of it into one loop.
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
    """Returns 32 random bits each, those of `jax.random.bits`."""
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
    """Draws in [low, high), as `jax.random.uniform` does."""
    mantissa = (bits(key, shape) >> 9) | jnp.uint32(0x3F800000)
    unit = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - 1.0
    low, high = np.float32(low), np.float32(high)
    return jnp.maximum(low, unit * (high - low) + low)


def bernoulli(key: Key, p: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """True with probability p, in steps of 1/65536: every draw of 32 random bits makes two."""
    return _chances(p, shape)(key)


def normal(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Draws with mean 0 and variance 1, as `jax.random.normal` does but for rounding."""
    return _normals(shape)(key)


@cache
def _chances(p: float, shape: tuple[int, ...]):
    """Apart, as normals are."""
    n, below = math.prod(shape), np.uint32(round(p * 2**16))

    def draw(key):
        words = bits(key, ((n + 1) // 2,))
        halves = (words & jnp.uint32(0xFFFF)) < below, (words >> 16) < below
        return jnp.concatenate(halves)[:n].reshape(shape)

    return no_inline(draw)


@cache
def _normals(shape: tuple[int, ...]):
    """Draws in a call of its own: else the compiler would draw anew wherever they are used."""
    root = np.float32(math.sqrt(2))
    return no_inline(lambda key: root * erf_inv(uniform(key, shape, BELOW_ONE, 1.0)))


def erf_inv(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the inverse of erf within (-1, 1).

    Giles 2010, https://people.maths.ox.ac.uk/gilesm/files/gems_erfinv.pdf, table 5: a polynomial
    of w = -log(1 - x^2) each for the middle and for the tails.
    """
    w = -jnp.log((1 - x) * (1 + x))
    tail = w >= 5
    t = jnp.where(tail, jnp.sqrt(w) - 3, w - 2.5)
    p = jnp.zeros_like(t)
    for of_middle, of_tail in zip(MIDDLE, TAIL, strict=True):
        p = p * t + jnp.where(tail, np.float32(of_tail), np.float32(of_middle))
    return p * x
