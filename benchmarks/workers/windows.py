"""Updates of TAAC (windows of 4 rows) and of SAC, and the operations of their matrix products.

    python -m workers.windows taac --seconds 10

prints one line of JSON: the updates done, the seconds they took, and the FLOPs that all matrix
products of one update need.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
from jax import random
from jax.interpreters import partial_eval

from thespis.algos import SAC, TAAC
from thespis.algos.taac import Extra
from thespis.core import Box, Row, Spec
from thespis.replay.ring import Replay
from workers.common import ACTION, BATCH, OBS, measure, report
from workers.operations import products

ROWS, AT_ONCE = 5_000, 50


def replay(taac: bool) -> Replay:
    """Random rows of one member and environment; no episode ends, trajectories change often."""
    k_obs, k_reward, k_action, k_last, k_repeats, k_switch = random.split(random.key(0), 6)
    lead, no = (ROWS, 1, 1), jnp.zeros((ROWS, 1, 1), bool)
    numbers = lambda key: jnp.tanh(random.normal(key, (*lead, ACTION)))
    action, extra = numbers(k_action), None
    if taac:
        repeats = random.randint(k_repeats, lead, 0, 5)
        extra = Extra(numbers(k_last), action, repeats, random.bernoulli(k_switch, 0.3, lead))
    reward, obs = random.normal(k_reward, lead), random.normal(k_obs, (*lead, OBS))
    return Replay(Row(obs, reward, no, no, action, extra), jnp.int32(0), jnp.int32(ROWS))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("algo", choices=["sac", "taac"])
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    bounds = Box((-1.0,) * ACTION, (1.0,) * ACTION, (ACTION,))
    spec = Spec(jax.ShapeDtypeStruct((OBS,), jnp.float32), bounds)
    algo = {"sac": SAC, "taac": TAAC}[args.algo](spec, hidden=(256, 256), batch_size=BATCH)
    hp, rows = algo.Hyper(), replay(args.algo == "taac")

    def one(state, i):
        k_sample, k_update = random.split(random.fold_in(random.key(0), i))
        batch = algo.sample(rows.view(jnp.asarray(0)), None, hp, k_sample, i)
        state, metrics, _ = algo.update(state, hp, batch, k_update, i)
        return state, metrics

    state, step = jax.jit(algo.init)(random.key(0), hp), 0
    traced = jax.make_jaxpr(one)(state, jnp.int32(0)).jaxpr
    used, _ = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
    many = jax.jit(lambda state, step: jax.lax.scan(one, state, step + jnp.arange(AT_ONCE)))

    def run() -> int:
        nonlocal state, step
        state, _ = jax.block_until_ready(many(state, jnp.int32(step)))
        step += AT_ONCE
        return AT_ONCE

    report("updates", measure(args.seconds, run), flops=products(used))


if __name__ == "__main__":
    main()
