"""QDax: its SAC and TD3 baselines, the update scanned under `jit` as its training loop does."""

from __future__ import annotations

import jax
from jax import random
from qdax.baselines.sac import SAC, SacConfig
from qdax.baselines.td3 import TD3, TD3Config
from qdax.core.neuroevolution.buffers.buffer import ReplayBuffer, Transition

from workers.common import ACTION, BATCH, OBS, arguments, measure, report


def random_replay(rows: int) -> ReplayBuffer:
    k_obs, k_next, k_reward, k_action = random.split(random.key(0), 4)
    no = jax.numpy.zeros(rows)
    rows_ = Transition(
        obs=random.normal(k_obs, (rows, OBS)),
        next_obs=random.normal(k_next, (rows, OBS)),
        rewards=random.normal(k_reward, (rows,)),
        dones=no,
        truncations=no,
        actions=jax.numpy.tanh(random.normal(k_action, (rows, ACTION))),
    )
    return ReplayBuffer.init(rows, Transition.init_dummy(OBS, ACTION)).insert(rows_)


def updates(args, at_once: int = 50) -> None:
    sizes = {
        "critic_hidden_layer_size": (args.hidden, args.hidden),
        "policy_hidden_layer_size": (args.hidden, args.hidden),
    }
    if args.algo == "sac":
        algo = SAC(SacConfig(batch_size=BATCH, episode_length=1000, **sizes), ACTION)
    else:
        algo = TD3(TD3Config(batch_size=BATCH, **sizes), ACTION)

    @jax.jit
    def many(state, replay):
        def one(carry, _):
            state, replay, metrics = algo.update(*carry)
            return (state, replay), metrics

        return jax.lax.scan(one, (state, replay), None, length=at_once)

    carry = algo.init(random.PRNGKey(0), ACTION, OBS), random_replay(5_000)

    def run() -> int:
        nonlocal carry
        carry, metrics = many(*carry)
        jax.block_until_ready((carry, metrics))
        return at_once

    report("updates", measure(args.seconds, run))


if __name__ == "__main__":
    updates(arguments())
