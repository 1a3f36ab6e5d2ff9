"""The matrix products of one update and nothing else: how fast this machine multiplies them.

They depend on each other as in an update (forward, then backward), so that the same matrices
are in the cache; activations, losses, random numbers and Adam are left out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from workers.common import ACTION, BATCH, OBS, measure, report


def network(key, *sizes: int) -> list[jax.Array]:
    """Weights of every layer."""
    layers = zip(random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True)
    return [random.normal(k, (m, n)) / m**0.5 for k, m, n in layers]


class Products:
    """Multiplies, and counts the operations when traced."""

    def __init__(self):
        self.flops = 0

    def multiply(self, a, b):
        self.flops += 2 * a.shape[0] * a.shape[1] * b.shape[1]
        return a @ b

    def forward(self, weights, x) -> list[jax.Array]:
        """The input and what each layer makes of it."""
        layers = [x]
        for w in weights:
            layers.append(self.multiply(layers[-1], w))
        return layers

    def to_inputs(self, weights, g) -> list[jax.Array]:
        """Gradients of what every layer but the first received, last layer first, after `g`."""
        gradients = [g]
        for w in weights[:0:-1]:
            gradients.append(self.multiply(gradients[-1], w.T))
        return gradients

    def to_weights(self, layers, gradients) -> list[jax.Array]:
        pairs = zip(layers[:-1], gradients[::-1], strict=True)
        return [self.multiply(x.T, g) for x, g in pairs]

    def update(self, algo: str, actor, critics, targets, batch, learn_actor: bool) -> list:
        """The gradients of one update of SAC or TD3."""
        obs, action, next_obs = batch
        side = lambda obs, action: jnp.concatenate([obs, action[:, :ACTION]], 1)

        ahead = side(next_obs, self.forward(actor, next_obs)[-1])
        out = [self.forward(target, ahead)[-1] for target in targets]
        for critic, g in zip(critics, tuple(out), strict=True):
            layers = self.forward(critic, side(obs, action))
            out += self.to_weights(layers, self.to_inputs(critic, layers[-1] - g))
        if learn_actor:
            layers, g = self.forward(actor, obs), 0.0
            for critic in critics if algo == "sac" else critics[:1]:
                q = self.forward(critic, side(obs, layers[-1]))[-1]
                g += self.multiply(self.to_inputs(critic, q)[-1], critic[0][OBS:].T)
            g = jnp.concatenate([g, g], 1) if algo == "sac" else g  # mean and deviation
            out += self.to_weights(layers, self.to_inputs(actor, g))
        return out


def matmul(args) -> None:
    """Reports how many updates' worth of products were done, and the FLOPs of one."""
    k_actor, *k_nets = random.split(random.key(0), 8)
    hidden, heads = (args.hidden, args.hidden), 2 if args.algo == "sac" else 1
    actor = network(k_actor, OBS, *hidden, heads * ACTION)
    nets = [network(k, OBS + ACTION, *hidden, 1) for k in k_nets[:4]]
    of = {"critics": nets[:2], "targets": nets[2:], "actor": actor}
    batches = [[random.normal(k, (BATCH, n)) for n in (OBS, ACTION, OBS)] for k in k_nets[4:6]]
    turns = [True, True] if args.algo == "sac" else [True, False]  # TD3's actor is delayed
    products = Products()

    def two(of, batches, _):
        turn = zip(batches, turns, strict=True)
        return [products.update(args.algo, batch=b, learn_actor=t, **of) for b, t in turn]

    results = jax.jit(two)(of, batches, None)
    flops = products.flops / 2
    # The results overwrite those before, as in an update: new memory would cost more.
    again = jax.jit(two, donate_argnums=2, keep_unused=True)

    def run() -> int:
        nonlocal results
        results = jax.block_until_ready(again(of, batches, results))
        return 2

    report("updates", measure(args.seconds, run), flops=flops)


def blas(args) -> None:
    """Reports the same of NumPy's BLAS: products of a batch and a hidden layer, again and again."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape, np.float32)
    batch, weights = draw(BATCH, args.hidden), draw(args.hidden, args.hidden)
    out = np.empty_like(batch)

    def run(n: int = 100) -> int:
        for _ in range(n):
            np.matmul(batch, weights, out=out)
        return n

    report("updates", measure(args.seconds, run), flops=2 * BATCH * args.hidden**2)
