"""DI-engine: Discrete SAC by its own serial pipeline, one environment, one update per step."""

from __future__ import annotations

import contextlib
import os
import tempfile

from ding.entry import serial_pipeline
from ding.worker import BaseLearner
from dizoo.classic_control.cartpole.config.cartpole_sac_config import create_config, main_config

from workers.common import BATCH, WARM_UP, Meter, arguments, report


class Over(Exception):
    """Enough was measured."""


def steps(args) -> None:
    assert (args.algo, args.env) == ("discrete-sac", "CartPole-v1")
    policy = main_config.policy
    policy.random_collect_size = WARM_UP
    policy.model.actor_head_hidden_size = policy.model.critic_head_hidden_size = args.hidden
    policy.learn.update({"update_per_collect": 1, "batch_size": BATCH, "auto_alpha": True})
    policy.collect.update({"env_num": 1, "n_sample": 1})
    policy.eval.evaluator.eval_freq = 10**9
    policy.other.eps.update({"start": 0.0, "end": 0.0})
    main_config.env.update({"collector_env_num": 1, "evaluator_env_num": 1})
    main_config.env.update({"n_evaluator_episode": 1, "stop_value": 10**9})
    policy.eval.env_num = 1
    meter, train = Meter(args.seconds, skip=2 * WARM_UP), BaseLearner.train

    def watched(self, data, step: int = -1, **more):
        if not meter.more(step):
            raise Over
        return train(self, data, step, **more)

    BaseLearner.train = watched
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Over):
        os.chdir(folder)
        serial_pipeline((main_config, create_config), seed=0)
    report("steps", meter)


if __name__ == "__main__":
    steps(arguments())
