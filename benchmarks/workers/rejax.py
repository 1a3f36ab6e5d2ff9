"""Rejax: SAC and TD3 on its own Pendulum, all on the device.

`num_epochs` updates follow every step of all `num_envs` environments, so the two are equal for
one update per environment step. TD3 counts updates of the critics.
"""

from __future__ import annotations

import jax
from flax import linen as nn
from rejax import SAC, TD3

from workers.common import BATCH, CAPACITY, arguments, measure, report


def ondevice(args) -> None:
    at_once = 2048 * 64 // args.hidden  # environment steps per call
    algo = {"sac": SAC, "td3": TD3}[args.algo].create(
        env="Pendulum-v1",
        num_envs=args.envs,
        num_epochs=args.envs,
        buffer_size=CAPACITY,
        fill_buffer=BATCH,
        batch_size=BATCH,
        total_timesteps=at_once,
        eval_freq=at_once,
        skip_initial_evaluation=True,
    )
    hidden = (args.hidden, args.hidden)  # TD3's are not options; relu as in SAC
    net = lambda module: module.clone(hidden_layer_sizes=hidden, activation=nn.relu)
    algo = algo.replace(actor=net(algo.actor), critic=net(algo.critic), eval_callback=lambda *_: ())
    train = jax.jit(lambda state: algo.train(train_state=state)[0])
    state = jax.jit(algo.init_state)(jax.random.key(0))

    def run() -> int:
        nonlocal state
        before = int(state.global_step)
        state = jax.block_until_ready(train(state))
        return int(state.global_step) - before

    report("steps", measure(args.seconds, run))


if __name__ == "__main__":
    ondevice(arguments())
