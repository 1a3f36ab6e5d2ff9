"""Memory of a replay of 100 000 frames of 84 x 84 bytes, beside the bytes of the frames.

python benchmarks/frames.py
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp

from thespis.core import Row
from thespis.replay.priorities import Rule
from thespis.replay.ring import Replay

FRAMES, SIDE = 100_000, 84


def resident() -> int:
    """Bytes that this process holds in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def frame(i) -> Row:
    one = lambda x, dtype: jnp.asarray(x, dtype).reshape(1, 1)
    image = jnp.full((1, 1, SIDE, SIDE), i % 255, jnp.uint8)
    return Row(image, one(0, jnp.float32), one(False, bool), one(False, bool), one(0, jnp.int32))


def filled(replay: Replay) -> Replay:
    alpha = jnp.full(1, 0.6)
    return jax.lax.fori_loop(0, FRAMES, lambda i, r: r.add(frame(i), alpha=alpha), replay)


if __name__ == "__main__":
    stacks_of_four = Rule(max_use=8, behind=3)
    fill = jax.jit(filled, donate_argnums=0)
    empty = lambda n: jax.jit(lambda: Replay.empty(n, frame(0), stacks_of_four))()
    jax.block_until_ready(empty(10))
    before = resident()
    replay = jax.block_until_ready(fill(empty(FRAMES)))
    need = FRAMES * SIDE * SIDE
    share = (resident() - before) / need
    print(f"{need / 1e6:.0f} MB of frames in {share:.3f} times as much, with priorities")
