"""Rejax learns on gymnax's pendulum, all on the device; {"algo": "SAC", "options": {}} is an arm.

Its policy is evaluated in Gymnasium's pendulum, which has the same equations.
"""

from __future__ import annotations

import jax
import numpy as np
import rejax
from jax import numpy as jnp

from workers.learning import Recorder, arguments, play, start_seed

ENVIRONMENTS = {"jax:pendulum": "Pendulum-v1"}  # as gymnax and Gymnasium call them


def main() -> None:
    args, recorder = arguments(), Recorder()
    env = ENVIRONMENTS[args.env]
    algo = getattr(rejax, args.arm["algo"]).create(
        env=env,
        total_timesteps=args.eval_freq,
        eval_freq=args.eval_freq,
        skip_initial_evaluation=True,
        **args.arm["options"],
    )
    algo = algo.replace(eval_callback=lambda *_: ())
    train = jax.jit(lambda state: algo.train(train_state=state)[0])
    state = jax.jit(algo.init_state)(jax.random.key(args.seed))

    @jax.jit
    def mean(params, obs):
        normal = algo.actor.apply(params, obs, method="_action_dist")
        return algo.actor.action_loc + jnp.tanh(normal.mean()) * algo.actor.action_scale

    while (step := int(state.global_step)) < args.steps:
        state = jax.block_until_ready(train(state))
        assert int(state.global_step) == step + args.eval_freq
        with recorder.evaluation(step + args.eval_freq) as found:
            greedy = lambda obs: np.asarray(mean(state.actor_ts.params, obs))  # noqa: B023
            seed = start_seed(args.seed, step)
            found["returns"], found["lengths"] = play(env, args.episodes, seed, greedy)
    recorder.end("rejax", "gymnax", "jax", "jaxlib", "optax", "flax", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
