"""What draws by priority cost as the replay grows: CPU time of a batch, down and up the tree.

python benchmarks/priorities.py [-o docs/img/priorities.png]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from thespis.replay.priorities import Drawn, Priorities, Rule

BATCH, TIMES, POWERS = 256, 300, range(10, 23, 2)


def draw(p: Priorities, key, i) -> Priorities:
    """A batch of rows; something of it is kept, lest the compiler leave it out."""
    slot, _ = p.draw(random.fold_in(key, i), BATCH, jnp.int32(0))
    return Priorities(p.weight, None, p.nodes, p.highest, p.written ^ slot.sum(), p.rule)


def both(p: Priorities, key, i) -> Priorities:
    """A batch of rows, and new priorities for them."""
    slot, env = p.draw(random.fold_in(key, i), BATCH, jnp.int32(0))
    error = (slot % 17).astype(jnp.float32)
    return p.update(Drawn(slot[None], env[None]), error[None], jnp.full(1, 0.6))


def scan(p: Priorities, key, i) -> Priorities:
    """The same without a tree: running sums of all weights, searched for every draw."""
    sums = jnp.cumsum(p.weight[:, 0, 0])
    share = (jnp.arange(BATCH) + random.uniform(random.fold_in(key, i), (BATCH,))) / BATCH
    slot = jnp.searchsorted(sums, share * sums[-1])
    weight = p.weight.at[slot, 0, 0].set((slot % 17 + 1).astype(jnp.float32))
    return Priorities(weight, None, p.nodes, p.highest, p.written, p.rule)


def microseconds(work: Callable, rows: int, times: int = TIMES) -> float:
    """CPU time of one call in a loop of many, on a full replay."""

    @jax.jit
    def full():
        none = Priorities.none((rows, 1, 1), Rule())
        ones = jnp.ones_like(none.weight)
        return Priorities(ones, None, None, none.highest, jnp.int32(rows), Rule()).rebuilt()

    def loop(p, key):
        return jax.lax.fori_loop(0, times, lambda i, p: work(p, key, i), p)

    many = jax.jit(loop, donate_argnums=0)
    p = jax.block_until_ready(many(full(), random.key(0)))
    start = time.process_time()
    jax.block_until_ready(many(p, random.key(1)))
    return (time.process_time() - start) / times * 1e6


def picture(rows: np.ndarray, found: dict[str, np.ndarray], path: str) -> None:
    from matplotlib.figure import Figure

    axes = (figure := Figure((6.4, 3.6), layout="constrained")).subplots()
    for (name, y), style in zip(found.items(), ("o-", "o-", "k.:"), strict=True):
        axes.plot(rows, y, style, label=name)
    axes.set(xscale="log", ylim=(0, 1.6 * found["draw and update"].max()))
    axes.set(xlabel="rows in the replay", ylabel=f"µs per batch of {BATCH}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--output")
    asked = parser.parse_args()
    rows = 2 ** np.array(POWERS)
    found = {
        "draw": np.array([microseconds(draw, n) for n in rows]),
        "draw and update": np.array([microseconds(both, n) for n in rows]),
        "without a tree": np.array([microseconds(scan, n, 10) for n in rows]),
    }
    print(f"µs of CPU per batch of {BATCH}: {', '.join(found)}")
    for i, power in enumerate(POWERS):
        print(f"2^{power} rows", *(f"{y[i]:9.1f}" for y in found.values()))
    if asked.output:
        picture(rows, found, asked.output)
