"""What draws by priority cost, as the replay grows: the time of a batch, down and up the tree.

python benchmarks/priorities.py
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
from jax import random

from thespis.priorities import Drawn, Priorities, Rule

BATCH, TIMES = 256, 500


def microseconds(rows: int) -> float:
    """Of drawing a batch and giving its priorities back."""

    def once(i, carry):
        p, key = carry
        slot, env = p.draw(random.fold_in(key, i), BATCH, jnp.int32(0))
        error = (slot % 17).astype(jnp.float32)
        return p.back(Drawn(slot[None], env[None]), error[None], jnp.full(1, 0.6)), key

    @jax.jit
    def full():
        none = Priorities.none((rows, 1, 1), Rule())
        ones = jnp.ones_like(none.weight)
        return Priorities(ones, None, None, none.highest, jnp.int32(rows), Rule()).rebuilt()

    many = jax.jit(lambda p, key: jax.lax.fori_loop(0, TIMES, once, (p, key))[0], donate_argnums=0)
    p = jax.block_until_ready(many(full(), random.key(0)))
    start = time.process_time()
    jax.block_until_ready(many(p, random.key(1)))
    return (time.process_time() - start) / TIMES * 1e6


if __name__ == "__main__":
    for power in range(10, 23, 2):
        print(f"2^{power} rows: {microseconds(2**power):6.1f} us per batch of {BATCH}")
